"""Which units split and merge: by bytes, by load, and never back and forth."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.model.errors import FlowError
from sluice.model.ids import InputNumber, Site, Unit
from sluice.model.routing.sharing import SharedUnit
from sluice.model.view import ClusterView, SharedUnits
from sluice.policies.elastic import Elastic
from sluice.policies.hybrid import Hybrid
from sluice.policies.planning.unit_sizes import UnitSizes
from sluice.verbs.move import Move
from sluice.verbs.split import Merge, Split

SIZES = UnitSizes()


def view(sites: list[int], **columns: object) -> ClusterView:
    arrays = {"divisible": np.full(len(sites), True)}
    arrays |= {name: np.asarray(column) for name, column in columns.items()}
    return replace(ClusterView.at_rest(sites, np.full(max(sites) + 1, 1 << 30)).with_units(**arrays), unit_size=100)


def verbs(by: UnitSizes | Hybrid | Elastic, seen: ClusterView) -> list[tuple[str, int]]:
    return [(action.verb, action.unit) for action in by.decide(seen)]


class TestBySize:
    def test_a_unit_splits_above_two_theta(self) -> None:
        assert verbs(SIZES, view([0, 0, 0], bytes=[200, 201, 500])) == [("split", 2), ("split", 1)]

    def test_not_if_all_its_rows_have_one_hash(self) -> None:
        assert verbs(SIZES, view([0, 0], bytes=[900, 300], single_key=[True, False])) == [("split", 1)]

    @pytest.mark.parametrize(
        ("sizes", "buddy", "site", "merged"),
        [
            ([99, 20], [1, 0], 0, [("merge", 0)]),
            ([99, 21], [1, 0], 0, []),  # together too close to what would split again, as state expires
            ([99, 20], [-1, -1], 0, []),
            ([99, 20], [1, 0], 1, []),
        ],
    )
    def test_small_buddies_merge(
        self, sizes: list[int], buddy: list[int], site: int, merged: list[tuple[str, int]]
    ) -> None:
        others = {"rows": [0, 0, 500, 500]}
        assert verbs(SIZES, view([0, site, 0, 1], bytes=[*sizes, 0, 0], buddy=[*buddy, -1, -1], **others)) == (merged)

    def test_small_buddies_at_two_sites_come_together_where_there_is_room(self) -> None:
        apart = view([0, 1, 1, 0, 1], bytes=[90, 12, 13, 50, 0], buddy=[1, 0, 3, 2, -1], rows=[0, 0, 0, 0, 900])
        (move,) = SIZES.reunions(apart, np.array([12.0, 0.0]))
        assert (move.unit, move.site) == (1, 0)  # unit 2 has more than an eighth of 100 bytes
        assert move.reason.endswith("units 0 and 1 are small and can be merged at one site; unit 1 has 12 B")
        assert not SIZES.reunions(apart, np.array([11.0, 99.0]))
        hot = apart.with_units(rows=np.array([100, 100, 100, 100, 900]))
        assert not SIZES.reunions(hot, np.full(2, 99.0))

    def test_policies_ask_for_that_when_there_is_nothing_else_to_do(self) -> None:
        apart = view(
            [0, 1, 1, 0, 0, 1],
            bytes=[90, 12, 13, 50, 90, 90],
            buddy=[1, 0, 3, 2, -1, -1],
            rows=[0, 0, 0, 0, 900, 900],
        )
        for by in (Hybrid(), Elastic()):
            assert [(type(action), action.unit) for action in by.decide(apart)] == [(Move, 1)]
        assert Hybrid(divide=False).decide(apart) == ()
        assert Elastic().decide(apart.with_units(rows=np.zeros(6, dtype=np.int64))) == ()  # nothing has come

    def test_units_that_are_unready_or_shared_are_not_merged(self) -> None:
        buddies = view([0, 0, 1], bytes=[10, 10, 10], buddy=[1, 0, -1], rows=[0, 0, 900])
        buddies = buddies.with_units(single_key=np.array([False, False, True]))
        assert verbs(SIZES, buddies) == [("merge", 0)]
        assert verbs(SIZES, buddies.with_units(unready=np.array([False, True, False]))) == []
        shared = SharedUnit.alone(Unit(1), Site(0), [InputNumber(0), InputNumber(1)]).with_holder(Site(1))
        assert verbs(SIZES, replace(buddies, shared=SharedUnits((shared,)))) == []

    def test_a_round_has_no_more_than_so_many(self) -> None:
        assert verbs(replace(SIZES, most=2), view([0] * 4, bytes=[201, 204, 203, 202])) == [
            ("split", 1),
            ("split", 2),
        ]


class TestByLoad:
    def test_a_small_hot_unit_splits_where_its_site_has_more_to_do_than_others(self) -> None:
        seen = view([0, 0, 1, 1], rows=[600, 100, 150, 150])
        (action,) = SIZES.decide(seen)
        assert action == Split(0, action.reason, bits=3)
        assert action.reason == ("unit 0 has 120 % of the mean site's load, more than 25 %; its site 0 has 140 %")
        assert verbs(SIZES, view([0, 1], rows=[500, 500])) == []  # even as it is

    def test_results_count(self) -> None:
        assert verbs(SIZES, view([0, 1], rows=[10, 10], results=[900, 0])) == [("split", 0)]

    def test_a_unit_that_is_hot_is_not_merged(self) -> None:
        halves = {"bytes": [1, 1, 1], "buddy": [1, 0, -1], "single_key": [False, False, True]}
        assert verbs(SIZES, view([0, 0, 1], rows=[30, 30, 940], **halves)) == []
        assert verbs(SIZES, view([0, 0, 1], rows=[10, 10, 980], **halves)) == [("merge", 0)]

    def test_a_few_rows_say_nothing(self) -> None:
        assert verbs(SIZES, view([0, 0, 1], rows=[99, 1, 0])) == []
        halves = {"bytes": [1, 1, 1], "buddy": [1, 0, -1], "single_key": [False, False, True]}
        assert verbs(SIZES, view([0, 0, 1], rows=[0, 1, 798], **halves)) == []
        assert verbs(SIZES, view([0, 0, 1], rows=[0, 1, 799], **halves)) == [("merge", 0)]

    def test_what_had_waited_says_nothing(self) -> None:
        """Only some units had a turn, and what results they had is not what all have."""
        columns, done = {"buddy": [1, 0, -1], "results": [900, 0, 0]}, np.array([500, 0])
        for by in (SIZES, Hybrid(), Elastic()):
            seen = view([0, 0, 1], bytes=[9, 9, 201], **columns).with_sites(rows_done=done)
            assert verbs(by, seen) == [("split", 2)]
        came = view([0, 0, 1], rows=[500, 0, 0], **columns).with_sites(rows_done=done)
        assert ("split", 0) in verbs(SIZES, came)

    def test_settings_are_checked(self) -> None:
        with pytest.raises(FlowError, match="hot=0: it is the part of the mean site's load"):
            UnitSizes(hot=0)


@given(
    parts=st.lists(st.tuples(st.integers(0, 400), st.integers(0, 400), st.integers(0, 1000)), min_size=1, max_size=12),
    sites=st.integers(1, 4),
)
def test_what_was_just_split_is_not_merged_and_what_was_merged_not_split(
    parts: list[tuple[int, int, int]], sites: int
) -> None:
    """Each unit as one, and as its two halves: whatever they have, not both are changed."""
    place = np.arange(len(parts)) % sites
    one, other, rows = np.array(parts).T
    whole = view(place.tolist(), bytes=one + other, rows=2 * rows)
    halves = view(
        np.repeat(place, 2).tolist(),
        bytes=np.stack([one, other], axis=1).ravel(),
        rows=np.repeat(rows, 2),
        buddy=np.arange(2 * len(parts)) ^ 1,
    )
    by = replace(SIZES, most=1000)
    split = {action.unit for action in by.decide(whole) if isinstance(action, Split)}
    merged = {action.unit // 2 for action in by.decide(halves) if isinstance(action, Merge)}
    assert not split & merged
