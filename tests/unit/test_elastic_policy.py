"""Suppliers and consumers, as many sites as needed, and that nothing goes back and forth."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.model.errors import FlowError
from sluice.model.ids import Site
from sluice.model.routing.routing import Routing
from sluice.model.view import ClusterView, Period
from sluice.policies.elastic import Elastic
from sluice.policies.planning.draining import drain
from sluice.policies.planning.scale_out import fill
from sluice.verbs.move import Move
from sluice.verbs.scale import Scale
from sluice.verbs.split import Merge, Split, halved_into

PAPER = Elastic(even=False, hot=1e9)
SECONDS = 10.0


def view(unit_site: list[int], unit_work: list[float], sites: int, occupancy: list[float] | None = None) -> ClusterView:
    """Units that took their sites so many of ten seconds, a row each a tenth of a millisecond."""
    work = np.bincount(unit_site, weights=unit_work, minlength=sites)
    return (
        ClusterView.at_rest(unit_site, np.full(sites, 1 << 40))
        .with_units(rows=np.round(np.array(unit_work) * 1e4).astype(np.int64), divisible=np.full(len(unit_site), True))
        .with_sites(
            idle=np.maximum(SECONDS - work, 0.0),
            occupancy=np.array(occupancy or [0.0] * sites),
            rows_done=np.round(work * 1e4).astype(np.int64),
        )
        .with_scaling(least_sites=sites, most_sites=sites)
    )


def moved(actions: tuple[object, ...]) -> list[tuple[int, int]]:
    return [(action.unit, action.site) for action in actions if isinstance(action, Move)]


class TestSuppliersAndConsumers:
    def test_each_supplier_gives_one_unit_to_a_consumer_of_its_own(self) -> None:
        seen = view([0, 0, 0, 1, 1, 1, 2, 3], [4, 3, 3, 4, 3, 3, 2, 1], 4, [0.6, 0.9, 0.0, 0.005])
        assert moved(PAPER.decide(seen)) == [(3, 3), (0, 2)]

    def test_neutral_sites_neither_give_nor_get(self) -> None:
        assert PAPER.decide(view([0, 0, 1, 2], [5, 5, 1, 1], 3, [0.9, 0.01, 0.5])) == ()

    def test_a_unit_that_would_only_move_the_trouble_stays(self) -> None:
        assert PAPER.decide(view([0, 1], [10, 2], 2, [0.9, 0.0])) == ()

    def test_a_unit_that_has_no_room_stays(self) -> None:
        seen = view([0, 0, 1], [5, 5, 2], 2, [0.9, 0.0])
        crowded = seen.with_units(bytes=np.array([90, 60, 50])).with_sites(memory=np.array([200, 120]))
        assert moved(PAPER.decide(crowded)) == [(1, 1)]

    def test_thresholds_are_checked(self) -> None:
        with pytest.raises(FlowError, match="th_con must be less than th_sup"):
            Elastic(th_con=0.6)
        with pytest.raises(FlowError, match="low must be less than high"):
            Elastic(low=0.9)


class TestEvening:
    def test_an_empty_site_gets_its_part_at_once(self) -> None:
        seen = view([0] * 8 + [1] * 8, [1] * 16, 3)
        after = view([dict(moved(Elastic().decide(seen))).get(u, u // 8) for u in range(16)], [1] * 16, 3)
        assert np.bincount(after.units.site).tolist() in ([5, 5, 6], [5, 6, 5], [6, 5, 5])

    def test_sites_that_work_all_their_time_are_uneven_by_what_waits(self) -> None:
        seen = view([0, 0, 0, 0, 1, 1], [2.5, 2.5, 2.5, 2.5, 5, 5], 2)
        assert not moved(Elastic(hot=1e9).decide(seen))
        behind = seen.with_units(pending=np.array([25_000, 25_000, 25_000, 25_000, 0, 0]))
        assert [site for _, site in moved(Elastic(hot=1e9).decide(behind))] == [1]

    def test_many_small_units_make_it_even_too(self) -> None:
        seen = view([0] * 512, [9 / 512] * 512, 3)
        assert len(moved(Elastic(hot=1e9, most=1000).decide(seen))) in range(320, 345)
        assert len(fill(view([0] * 512, [9 / 512] * 512, 1), 3, "soon 3")) in range(320, 345)

    def test_where_the_busiest_site_cannot_give_others_do(self) -> None:
        seen = view([0, 1, 1, 2], [9, 4, 3, 0.5], 3)
        assert moved(Elastic(hot=1e9).decide(seen)) == [(2, 2)]

    def test_sites_that_hardly_work_are_left_as_they_are(self) -> None:
        assert Elastic(hot=1e9).decide(view([0, 0, 1], [0.2, 0.2, 0.0], 2)) == ()
        assert Elastic(hot=1e9).decide(view([0, 0, 1], [0.4, 0.4, 0.0], 2)) != ()

    def test_a_unit_is_moved_or_divided_but_not_both(self) -> None:
        seen = view([0, 0, 0, 1], [4, 3, 2, 1], 2)
        actions = Elastic().decide(seen)
        divided = {action.unit for action in actions if isinstance(action, Split | Merge)}
        assert divided and not divided & {unit for unit, _ in moved(actions)}


class TestSites:
    def test_more_when_suppliers_are_more_than_beta_times_the_consumers(self) -> None:
        overloaded = view([0, 1, 2], [10, 10, 9], 3, [0.9, 0.2, 0.0]).with_scaling(most_sites=9)
        assert [a.sites for a in PAPER.decide(overloaded) if isinstance(a, Scale)] == [4]
        assert not [a for a in replace(PAPER, beta=1.0).decide(overloaded) if isinstance(a, Scale) and a.sites < 4]
        assert PAPER.decide(overloaded.with_scaling(most_sites=3)) == ()

    def test_as_many_at_once_as_the_work_needs(self) -> None:
        seen = view([0, 1, 2, 3], [10] * 4, 4).with_scaling(most_sites=16)
        (scale,) = PAPER.decide(seen)
        assert isinstance(scale, Scale) and scale.sites == 6  # 4 sites' time, each to work 72.5 % of it

    def test_more_than_sites_manage_is_seen_by_when_it_arrived_and_by_what_waits(self) -> None:
        full = view([0, 1, 1], [10, 5, 5], 2).with_scaling(most_sites=16)
        for seen, sites in (
            (full, 3),  # two sites' time, each to work 72.5 % of it
            (replace(full, period=Period(arrival_seconds=5.0)), 6),
            (replace(full, period=Period(arrival_seconds=20.0)), None),
            (full.with_units(pending=np.array([100_000, 0, 50_000])), 5),  # ten seconds at one site, five at another
        ):
            assert [a.sites for a in PAPER.decide(seen) if isinstance(a, Scale)] == ([sites] if sites else [])

    def test_a_rate_that_goes_up_counts_as_what_it_will_be_when_sites_have_joined(self) -> None:
        full = view([0, 1, 1], [10, 5, 5], 2).with_scaling(most_sites=16, growth_factor=1.5)
        (scale,) = (action for action in PAPER.decide(full) if isinstance(action, Scale))
        assert scale.sites == 5  # three sites' time, each to work 72.5 % of it
        assert scale.reason.endswith(
            "2 sites work 100 % of the time, more than 85 %, and soon 150 % of that; 5 would work 60 %"
        )
        idle = view([0, 1, 2], [3, 3, 2], 3).with_scaling(least_sites=1)
        assert [action.sites for action in PAPER.decide(idle) if isinstance(action, Scale)] == [2]
        assert PAPER.decide(idle.with_scaling(growth_factor=1.6)) == ()  # two would soon work 64 %

    def test_no_less_where_the_state_would_not_fit(self) -> None:
        seen = view([0, 1, 2], [1, 1, 1], 3).with_sites(memory=np.full(3, 30)).with_scaling(least_sites=1)
        for sizes, fewer in (([10, 10, 20], [2]), ([10, 10, 25], [])):
            found = Elastic().decide(seen.with_units(bytes=np.array(sizes), buddy=np.full(3, -1)))
            assert [action.sites for action in found if isinstance(action, Scale)] == fewer

    def test_sites_that_are_on_their_way_are_not_asked_for_again_and_units_move_meanwhile(self) -> None:
        uneven = view([0, 0, 0, 0, 1], [4, 3, 2, 1, 6], 2).with_scaling(most_sites=4, requested_sites=3)
        eager = Elastic(hot=1e9, high=0.7)
        assert moved(eager.decide(uneven)) and not [a for a in eager.decide(uneven) if isinstance(a, Scale)]

    def test_moves_wait_where_sites_are_to_join(self) -> None:
        uneven = view([0, 0, 0, 0, 1], [4, 3, 2, 1, 6], 2).with_scaling(most_sites=2)
        eager = Elastic(hot=1e9, high=0.7)
        assert moved(eager.decide(uneven))
        actions = eager.decide(uneven.with_scaling(most_sites=4))
        assert [type(action) for action in actions] == [Scale]

    def test_one_less_when_the_others_have_room(self) -> None:
        seen = view([0, 1, 2], [3, 3, 2], 3).with_scaling(least_sites=1)
        (scale,) = Elastic().decide(seen)
        assert scale == Scale(2, scale.reason)
        assert scale.reason == (
            "no site's waiting input fills more than 50 %; 3 sites work 27 % of the time, 2 would work at most 50 %"
        )
        assert PAPER.decide(seen.with_scaling(least_sites=3)) == ()

    def test_not_when_the_last_site_has_one_unit_that_fits_nowhere(self) -> None:
        assert Elastic(hot=9.0, even=False).decide(view([0, 1, 2], [2, 2, 5], 3).with_scaling(least_sites=1)) == ()

    def test_not_while_input_waits(self) -> None:
        seen = view([0, 1, 2], [3, 3, 2], 3, [0.9, 0.2, 0.0]).with_scaling(least_sites=1)
        assert not [action for action in PAPER.decide(seen) if isinstance(action, Scale)]

    @given(
        work=st.lists(st.floats(0.05, 6.0), min_size=1, max_size=24),
        sites=st.integers(1, 8),
        occupancy=st.lists(st.floats(0.0, 1.0), min_size=8, max_size=8),
        data=st.data(),
    )
    def test_the_same_work_never_asks_for_more_and_then_for_less(
        self, work: list[float], sites: int, occupancy: list[float], data: st.DataObject
    ) -> None:
        """Wherever units are before and after, and however full buffers were: after more sites come not fewer."""

        def place(count: int) -> ClusterView:
            where = data.draw(st.lists(st.integers(0, count - 1), min_size=len(work), max_size=len(work)))
            return view(where, work, count).with_scaling(least_sites=1, most_sites=16)

        before = place(sites)
        if before.sites.idle.min() == 0.0:  # more work than time: how much more is not to be seen
            return
        before = before.with_sites(occupancy=np.array(occupancy[:sites]))
        more = [a for a in Elastic().decide(before) if isinstance(a, Scale) and a.sites > sites]
        if more:
            after = place(more[0].sites)
            if after.sites.idle.min() > 0.0:
                assert not [a for a in Elastic().decide(after) if isinstance(a, Scale) and a.sites < len(after.sites)]


@given(
    unit_site=st.lists(st.integers(0, 4), min_size=1, max_size=30),
    leaving=st.sets(st.integers(0, 4), max_size=4),
    data=st.data(),
)
def test_draining_moves_every_unit_that_leaves_and_no_other(
    unit_site: list[int], leaving: set[int], data: st.DataObject
) -> None:
    load = np.array(data.draw(st.lists(st.integers(0, 9), min_size=len(unit_site), max_size=len(unit_site))))
    staying = [Site(site) for site in range(5) if site not in leaving]
    placed = drain(np.array(unit_site), load, load, [Site(site) for site in leaving], staying)
    assert sorted(unit for unit, _ in placed) == [u for u, site in enumerate(unit_site) if site in leaving]
    assert all(site in staying for _, site in placed)
    after = np.array(unit_site)
    for unit, site in placed:
        after[unit] = site
    got = np.bincount(after, weights=load, minlength=5)[staying]
    had = np.bincount(unit_site, weights=load, minlength=5)[staying]
    if placed:  # no site gets a unit that another one would have had more room for
        largest = max(int(load[unit]) for unit, _ in placed)
        assert got.max() <= max(had.max(), got.min() + largest)


@pytest.mark.parametrize("seed", range(5))
def test_skewed_units_on_as_many_sites_become_even(seed: int) -> None:
    """Eight units at eight sites, one with more than a quarter of all rows: fixed units cannot be better than 2."""
    rng = np.random.default_rng(seed)
    hashes = np.sort(rng.integers(0, 1 << 32, 4096, dtype=np.int64))  # of keys
    rows = rng.exponential(1.0, len(hashes))
    hot = (hashes >> 29) == rng.integers(0, 8)
    rows[hot] *= 0.3 / 0.7 * rows[~hot].sum() / rows[hot].sum()
    routing, rounds, policy = Routing.even(8, 8), 0, Elastic()

    def look() -> ClusterView:
        directory = routing.directories[0]
        unit_rows = np.bincount(directory.unit_of(hashes), weights=rows, minlength=routing.units)
        site_rows = np.bincount(routing.holders, weights=unit_rows, minlength=8)
        return (
            ClusterView.at_rest(routing.holders, np.full(8, 1 << 40))
            .with_units(
                id=routing.ids.array,
                rows=np.round(1000 * unit_rows).astype(np.int64),
                buddy=np.array(directory.buddies()),
                divisible=np.full(routing.units, True),
            )
            .with_sites(idle=SECONDS * (1 - site_rows / site_rows.max()))
            .with_scaling(least_sites=8)
        )

    assert look().rows_by_site.max() / look().rows_by_site.mean() > 1.8
    while actions := policy.decide(look()):
        rounds += 1
        for action in actions:
            if isinstance(action, Move):
                routing = routing.with_move(action.unit, action.site, rounds)
        for action in (a for a in actions if isinstance(a, Split | Merge)):
            if isinstance(action, Merge):
                routing = routing.merge(action.unit, rounds)
            else:
                parts = halved_into(routing.hashes_of(action.unit), None, action.bits)
                routing = routing.split(action.unit, rounds, parts[1:])
        assert rounds < 10, "it does not come to rest"
    assert look().rows_by_site.max() / look().rows_by_site.mean() <= 1.25
    assert rounds <= 6
