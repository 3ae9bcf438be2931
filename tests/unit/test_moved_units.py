"""Units that have moved: what came of it, and that none goes to and fro."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from epoch_factory import record as epoch
from site_loads import SiteLoads

from sluice.control.controller import Controller
from sluice.control.round_history import RoundHistory
from sluice.model.epoch.stats import Slices
from sluice.model.routing.sharing import SharedUnit
from sluice.model.view import ClusterView, MovedUnits, SharedUnits
from sluice.policies import Policy, policy
from sluice.verbs import Action
from sluice.verbs.move import Move

HOT, SITES = 0, 2
ROWS = np.array([40, 10, 10, 10, 30])
"""Of the hot unit and of four others; the rows of the hot one take nine times as long."""


def view(
    holder: int, busy: tuple[float, ...], moved: MovedUnits | None = None, rows: np.ndarray = ROWS, others: int = 1
) -> ClusterView:
    """The hot unit at one site, another unit beside it at site 0 and three at site 1, or where the others are."""
    seen = ClusterView.at_rest([holder, 0, others, others, others], [1 << 30] * len(busy))
    seen = seen.with_units(rows=rows).with_sites(idle=10.0 - np.array(busy))
    return seen if moved is None else replace(seen, moved=moved)


def outcome_of(origin_seconds: float = 9.0, outcome: float = 1.0, growth: float = 1.0) -> MovedUnits:
    """What is known of the hot unit."""
    return MovedUnits(np.array([HOT]), np.array([0]), *(np.array([n]) for n in (origin_seconds, outcome, growth)))


def places(by: Policy, seen: ClusterView) -> list[tuple[int, int]]:
    actions = by.decide(seen)
    assert all(isinstance(action, Move) for action in actions)
    return [(action.unit, action.site) for action in actions]  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", ["load", "hybrid"])
class TestWhereAUnitThatHasMovedMayGo:
    def test_back_if_nothing_is_known(self, name: str) -> None:
        """By its rows it is a bit less than half of the work; that it is nine tenths does not show."""
        assert places(policy(name), view(holder=1, busy=(1.0, 10.0))) == [(HOT, 0)]

    @pytest.mark.parametrize(
        ("says", "came_of_it", "moves"),
        [
            ("its origin was as busy with it", outcome_of(), [(4, 0)]),
            ("its origin would be just a little less busy", outcome_of(7.5), [(4, 0)]),
            ("its origin would be much less busy", outcome_of(7.2), [(HOT, 0)]),
            (
                "nobody has more to do than at first, yet it was a mistake",
                outcome_of(3.0, outcome=2.0),
                [(HOT, 0)],
            ),
            (
                "its site has much more to do than at first, and still less than its origin",
                outcome_of(9, 0.3, 3),
                [(4, 0)],
            ),
        ],
    )
    def test_back_if_its_origin_is_better_now(
        self, name: str, says: str, came_of_it: MovedUnits, moves: list[tuple[int, int]]
    ) -> None:
        assert places(policy(name), view(1, (1.0, 10.0), came_of_it)) == moves

    @pytest.mark.parametrize(
        ("says", "came_of_it", "goes"),
        [
            ("the next site would be as busy as the first two were", outcome_of(), False),
            ("it got better, and can again", outcome_of(outcome=0.8), True),
            ("a little less busy is no difference", outcome_of(outcome=0.9), False),
            ("it is at a slow site", outcome_of(outcome=1.3), True),
            ("its site has more to do than at first", outcome_of(growth=1.3), True),
            ("a little more is no difference", outcome_of(growth=1.1), False),
        ],
    )
    def test_on_if_its_move_made_a_difference(self, name: str, says: str, came_of_it: MovedUnits, goes: bool) -> None:
        seen = view(1, (5.0, 10.0, 1.0), came_of_it)
        assert places(policy(name), seen) == [(HOT if goes else 4, 2)]

    def test_as_printed_it_goes_all_the_same(self, name: str) -> None:
        if name == "load":
            assert places(policy(name, as_printed=True), view(1, (1.0, 10.0), outcome_of())) == [(HOT, 0)]


class TestHistory:
    def moved(self, *views: ClusterView) -> MovedUnits:
        history = RoundHistory()
        return [history.complete(seen) for seen in views][-1].moved

    def test_of_a_unit_that_was_as_much_work_elsewhere(self) -> None:
        moved = self.moved(view(0, (10.0, 2.0)), view(1, (1.0, 10.0)))
        assert (moved.unit.tolist(), moved.origin.tolist()) == ([HOT], [0])
        assert moved.origin_seconds.tolist() == pytest.approx([9.0])
        assert (moved.outcome.tolist(), moved.growth.tolist()) == ([1.0], [1.0])

    def test_it_is_by_rows_not_by_time(self) -> None:
        """Rounds differ in length, and what a unit gets may change."""
        moved = self.moved(view(0, (10.0, 2.0)), view(1, (0.5, 4.0), rows=ROWS // 2), view(1, (2.0, 10.0), rows=ROWS))
        assert moved.origin_seconds.tolist() == pytest.approx([9.0])
        assert (moved.outcome.tolist(), moved.growth.tolist()) == (pytest.approx([0.8]), pytest.approx([1.25]))
        cooler = ROWS - np.array([20, 0, 0, 0, 0])
        moved = self.moved(view(0, (10.0, 2.0)), view(1, (1.0, 10.0)), view(1, (1.0, 5.0), rows=cooler))
        assert moved.origin_seconds.tolist() == pytest.approx([4.5])

    def test_a_site_that_is_fast_again_would_do_the_unit_faster_too(self) -> None:
        moved = self.moved(view(0, (10.0, 2.0)), view(1, (1.0, 5.0)), view(1, (0.25, 5.0)))
        assert moved.origin_seconds.tolist() == pytest.approx([9.0 / 4])
        slower = self.moved(view(0, (10.0, 2.0)), view(1, (1.0, 5.0)), view(1, (4.0, 5.0)))
        assert slower.origin_seconds.tolist() == pytest.approx([9.0])  # its other units may have become others

    def test_units_that_left_together_have_their_parts_of_the_relief(self) -> None:
        moved = self.moved(view(0, (10.0, 0.0), others=0), view(1, (1.0, 9.0), others=1))
        assert moved.unit.tolist() == [0, 2, 3, 4]
        assert moved.origin_seconds.tolist() == pytest.approx([4.0, 1.0, 1.0, 3.0])

    def test_only_the_last_move_counts(self) -> None:
        moved = self.moved(view(0, (10.0, 2.0)), view(1, (1.0, 10.0)), view(0, (5.0, 2.0)))
        assert (moved.origin.tolist(), moved.outcome.tolist()) == ([1], [0.5])

    def test_a_round_without_new_rows_is_not_remembered(self) -> None:
        late = view(1, (1.0, 10.0), rows=ROWS * 0).with_sites(rows_done=np.array([5, 0]))
        assert self.moved(view(0, (10.0, 2.0)), late).unit.tolist() == []
        moved = self.moved(view(0, (10.0, 2.0)), late, view(1, (1.0, 10.0)))
        assert moved.outcome.tolist() == [1.0]

    def test_a_site_without_anything_to_do(self) -> None:
        moved = self.moved(view(0, (0.0, 5.0)), view(1, (0.0, 5.0)))
        assert (moved.origin_seconds.tolist(), moved.outcome.tolist()) == ([0.0], [np.inf])

    def test_units_come_and_go(self) -> None:
        begin, after = view(0, (10.0, 2.0)), view(1, (1.0, 10.0))
        assert self.moved(begin, after.with_units(id=np.array([9, 1, 2, 3, 4]))).unit.tolist() == []
        assert self.moved(begin, after, after.with_units(id=np.array([8, 9, 2, 3, 0]))).unit.tolist() == [4]

    def test_another_number_of_sites_is_a_new_beginning(self) -> None:
        assert self.moved(view(0, (10.0, 2.0)), view(1, (1.0, 10.0)), view(1, (1.0, 10.0, 0.0))).unit.tolist() == []

    def test_a_unit_that_was_shared_has_not_moved(self) -> None:
        shared = SharedUnits((SharedUnit(HOT, (0, 1), (0, 1), (0, 0), grid_shape=(2, 1)),), Slices.none())
        both = replace(view(0, (5.0, 5.0)), shared=shared)
        assert self.moved(view(0, (10.0, 2.0)), both, view(1, (1.0, 10.0))).unit.tolist() == []


class Watching(Policy):
    """Notes what it is shown of units that have moved, and does nothing."""

    name = "watching"

    def __init__(self) -> None:
        self.seen: list[list[tuple[int, int]]] = []

    def decide(self, view: ClusterView) -> tuple[Action, ...]:
        self.seen.append(list(zip(view.moved.unit.tolist(), view.moved.origin.tolist(), strict=True)))
        return ()


def test_a_policy_is_shown_what_has_moved_until_sites_are_elsewhere() -> None:
    """Executors that come in place of others may be other machines."""
    watching = Watching()
    controller = Controller(watching, site_memory=1 << 20, minimum=0.5)
    here = epoch(0).routing
    there = here.with_move(3, 1, since=2)
    for number, routing in enumerate([here, here, there, there]):
        site_changes = "an executor left" if number == 3 else ""
        controller.after(replace(epoch(number), routing=routing), float(number), site_changes)
    assert watching.seen == [[], [(3, 0)], []]


def hot_join(sites: int, slow: float, seed: int, units: int) -> SiteLoads:
    """A join that is neither shared nor split. One unit has a third of its rows and most of its results, and one site
    may be slow."""
    loads = SiteLoads(policy("hybrid", share=False, divide=False), sites, units, seed, noise=0.05)
    loads.heat = (40.0 * units, 40.0 * units, 3000.0 * units)
    loads.speed[seed % sites] = slow
    return loads


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("slow", [1.0, 0.7, 0.5, 0.2])
@pytest.mark.parametrize(("sites", "units"), [(2, 16), (2, 64), (4, 32), (8, 64)])
def test_a_unit_whose_results_are_most_of_the_work_finds_its_site_and_stays(
    sites: int, units: int, slow: float, seed: int
) -> None:
    loads = hot_join(sites, slow, seed, units)
    early = Counter(action.subject for action in loads.run(40))
    late = Counter(action.subject for action in loads.run(60))
    assert early[HOT] <= 3 and max(early.values(), default=0) <= 3
    assert late[HOT] == 0 and sum(late.values()) <= 4
    hot = 40 * units * 2 + 3000 * units
    assert loads.busiest <= 1.1 * hot  # which no site can do faster than a fast one


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("units", [16, 64])
def test_it_moves_when_the_load_really_changes(units: int, seed: int) -> None:
    """The site that has the hot unit becomes slow, and then the other one, again and again."""
    loads = hot_join(SITES, 1.0, seed, units)
    loads.run(20)
    for turn in range(4):
        holder = loads.routing.holders[HOT]
        loads.speed[:] = 1.0
        loads.speed[holder] = 0.4
        loads.run(10 if turn % 2 else 40)
        assert loads.routing.holders[HOT] != holder


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("sites", [2, 4])
def test_a_slow_site_that_has_nothing_to_do_is_tried_once_by_a_unit(sites: int, seed: int) -> None:
    """It shows no speed, and is taken to be as fast as others."""
    loads = SiteLoads(policy("hybrid", share=False, divide=False), sites, sites, seed)
    loads.heat = (2000.0, 2000.0, 2000.0)
    loads.speed[0] = 0.02
    moves = Counter(action.subject for action in loads.run(100))
    assert max(moves.values()) <= 3
    assert loads.routing.holders[HOT] != 0 and loads.busiest < 7000
