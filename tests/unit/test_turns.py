"""Whose turn it is: the order, the time it may take, what may wait, and who needs no turn."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.model.routing.unit_ranges import numbers, to_ranges
from sluice.state.paging import Fetch, Paging, SpillUnit
from sluice.state.scheduling import GROUPS, Cohort, Limits, UnitSchedule

UNITS = 8
NOW = (100,)
FREE = Limits(None, float("inf"))


class Site:
    """In place of the pages of a site and of its clock: it notes what happens, and time passes with every turn, with
    every read and, by `each`, with every look at the clock."""

    def __init__(self, paging: Paging | None = None, grows: int = 0, reading: float = 1.0) -> None:
        self.paging, self.grows, self.reading = paging, grows, reading
        self.told: list[Any] = []
        self.slept: list[float] = []
        self.now = self.each = 0.0

    def monotonic(self) -> float:
        self.now += self.each
        return self.now

    def take_turn(self, units: list[int], seconds: float) -> None:
        self.told.append(units)
        self.now += seconds
        if self.paging is not None:
            for unit in units:
                self.paging.grow(unit, self.paging.size(unit) + self.grows)

    @property
    def active(self) -> bool:
        return self.paging is not None

    @property
    def is_over_limit(self) -> bool:
        return self.paging.used > self.paging.limit

    @property
    def spilled_units(self) -> tuple[int, ...]:
        return self.paging.spilled_units

    def is_resident(self, unit: int) -> bool:
        return self.paging.is_resident(unit)

    def step(self) -> SpillUnit | Fetch | None:
        task = self.paging.step(self.monotonic())
        if isinstance(task, SpillUnit):
            self.told.append(f"spill {task.unit}")
            self.paging.note_spilled(task.unit)
        elif isinstance(task, Fetch):
            self.told.append(f"fetch {task.unit}")
            self.now += self.reading
            self.paging.note_fetched(task.unit, self.now, self.reading)
        return task

    def wait(self) -> None:
        self.slept.append(max(0.0, self.paging.due - self.monotonic()))
        self.now += self.slept[-1]


def column(of: dict[int, int] | int) -> np.ndarray:
    return np.array([of if isinstance(of, int) else of.get(u, 0) for u in range(UNITS)])


def begun(
    site: Site,
    limits: Limits = FREE,
    cohorts: list[Cohort] | None = None,
    rows: Any = 1,
    sizes: Any = 10,
    each: float = 0.0,
) -> UnitSchedule:
    """A schedule by the site's clock; every look at it takes so many seconds."""
    all_of = [(((0, UNITS),), (90,))] if cohorts is None else cohorts
    site.each = each
    return UnitSchedule(all_of, NOW, column(rows), column(sizes), site, limits, site)  # type: ignore[arg-type]


def taken(of: UnitSchedule, site: Site, each: float = 1.0) -> list[list[int]]:
    """The turns, which take so many seconds each."""
    out = []
    for units, _ in of:
        out.append(numbers(units).tolist())
        site.take_turn(out[-1], each)
    return out


def left(of: UnitSchedule) -> list[int]:
    return [u for units, _ in of.units_left() for u in numbers(units).tolist()]


def resident(limit: int, memory: dict[int, int], disk: dict[int, int], rotate_from: float = -math.inf) -> Paging:
    found = Paging(limit, rotate_from)
    for unit, size in memory.items():
        found.arrive(unit, size)
    for unit, size in disk.items():
        found.arrive(unit, size, resident=False)
    return found


def test_units_go_together_while_nothing_speaks_against_it():
    site = Site()
    of = begun(site)
    assert taken(of, site) == [list(range(UNITS))]
    assert of.units_left() == []
    assert site.told == [list(range(UNITS))]


def test_those_that_are_behind_go_first_and_say_how_far_they_have_come():
    cohorts = [(((4, 6),), (70,)), (((0, 2),), (80,)), (((2, 4), (6, 8)), (90,))]
    site = Site()
    assert list(begun(site, cohorts=cohorts)) == cohorts


def test_one_turn_there_is_however_little_time():
    cohorts = [(((4, 6),), (70,)), (((0, 4), (6, 8)), (90,))]
    site = Site()
    of = begun(site, Limits(1e-6, float("inf")), cohorts)
    assert taken(of, site) == [[4, 5]]
    assert of.units_left() == cohorts[1:]


def test_the_work_is_cut_to_the_time_when_it_will_not_be_enough():
    """A row took half a second: of sixteen seconds' work a group is what fits into an eighth of the time."""
    site = Site()
    of = begun(site, Limits(8.0, float("inf"), cost=0.5), rows=4)
    assert all(len(group) == 1 for group in taken(of, site, each=2.0))
    assert left(of) == [4, 5, 6, 7]
    enough = begun(Site(), Limits(100.0, float("inf"), cost=0.5), rows=4)
    assert taken(enough, Site()) == [list(range(UNITS))]


def test_without_a_known_cost_all_go_at_once():
    site = Site()
    assert taken(begun(site, Limits(0.1, float("inf"))), site) == [list(range(UNITS))]


def test_no_more_may_wait_than_the_backlog_allows():
    site = Site()
    of = begun(site, Limits(1.0, backlog=25, cost=1.0), sizes=10)
    taken(of, site)
    assert left(of) == [6, 7]  # twenty bytes: with one unit more it would be thirty


def test_units_without_work_need_no_turn():
    cohorts = [(((0, 4),), NOW), (((4, 8),), (90,))]
    site = Site()
    of = begun(site, Limits(1e9, 1e9), cohorts=cohorts, rows={1: 5})
    assert taken(of, site) == [[1], [4, 5, 6, 7]]  # the others have no rows, but their clock is back
    assert of.units_left() == []


def test_nothing_to_do_is_no_turn():
    site = Site()
    of = begun(site, Limits(1e9, 1e9), cohorts=[(((0, UNITS),), NOW)], rows=0)
    assert taken(of, site) == [] and of.units_left() == []


@given(
    st.lists(st.integers(0, 9), min_size=UNITS, max_size=UNITS),
    st.lists(st.integers(0, 2), min_size=UNITS, max_size=UNITS),
    st.sampled_from([None, 1e-6, 0.5, 3.0, 100.0]),
    st.sampled_from([0.0, 30.0, float("inf")]),
    st.sampled_from([None, 0.05, 1.0]),
)
def test_every_unit_with_work_is_done_or_left_and_none_is_both(rows, progress, seconds, backlog, cost):
    grouped = [([u for u in range(UNITS) if progress[u] == p], (98 + p,)) for p in range(3)]
    cohorts = [(to_ranges(units), newest) for units, newest in grouped if units]
    site = Site()
    of = begun(site, Limits(seconds, backlog, cost), cohorts, dict(enumerate(rows)), dict(enumerate(rows)))
    done = [u for turn in taken(of, site, each=0.7) for u in turn]
    behind = left(of)
    need = [u for u in range(UNITS) if rows[u] or progress[u] < 2 or seconds is None]  # without limits all go along
    assert sorted(done + behind) == need
    assert len(set(done)) == len(done)
    assert bool(done) == bool(need)
    assert sum(rows[u] for u in behind) <= backlog
    if seconds is None:
        assert not behind
    order = {u: i for i, (units, _) in enumerate(cohorts) for u in numbers(units).tolist()}
    assert [order[u] for u in done] == sorted(order[u] for u in done)


def test_a_group_is_about_an_eighth_of_the_time():
    site = Site()
    of = begun(site, Limits(8.0, 0.0, cost=1.0), rows={u: 1 for u in range(UNITS)})
    assert len(taken(of, site)) == GROUPS


def test_units_in_memory_have_their_turns_while_no_rotation_is_due():
    site = Site(resident(20, {0: 10, 1: 10}, {2: 10}, rotate_from=50.0))
    of = begun(site, cohorts=[(((0, 3),), (90,))])
    assert taken(of, site) == [[0], [1]]
    assert site.told == [[0], [1]]
    assert left(of) == [2]


def test_units_in_memory_go_before_a_rotation_that_is_due():
    site = Site(resident(20, {0: 10, 1: 10}, {2: 10}))
    of = begun(site, cohorts=[(((0, 3),), (90,))])
    assert taken(of, site) == [[0], [1], [2]]
    assert site.told == [[0], [1], "spill 0", "fetch 2", [2]]


def test_what_was_fetched_has_its_turn_before_anything_else():
    """Also if the memory is too small for it, and the next rotation is due at once: else no turn might ever come."""
    site = Site(resident(5, {}, {0: 10, 1: 10}), reading=0.0)
    of = begun(site, Limits(None, 0.0), [(((0, 2),), (90,))], each=1.0)
    assert taken(of, site) == [[0], [1]]


def test_a_unit_that_fits_comes_back_at_once():
    site = Site(resident(30, {0: 10}, {1: 10, 2: 10}, rotate_from=50.0))
    assert taken(begun(site, cohorts=[(((0, 3),), (90,))]), site) == [[0], [1], [2]]


def test_a_unit_on_disk_without_input_is_not_read_for_nothing():
    site = Site(resident(20, {0: 10, 1: 10}, {2: 10, 3: 10}))
    of = begun(site, cohorts=[(((0, 4),), NOW)], rows={0: 1, 1: 1})
    assert taken(of, site) == [[0], [1]]
    assert site.told == [[0], [1]]


def test_what_no_longer_fits_goes_to_disk_before_the_next_turn():
    site = Site(resident(20, {0: 10, 1: 10}, {}), grows=5)
    of = begun(site, cohorts=[(((0, 2),), (90,))])
    assert taken(of, site) == [[0], [1]]
    assert site.told == [[0], "spill 0", [1]]


def test_a_unit_larger_than_the_memory_has_its_turn_too():
    site = Site(resident(5, {}, {0: 10, 1: 10}))
    of = begun(site, Limits(None, 0.0), [(((0, 2),), (90,))])
    assert taken(of, site) == [[0], [1]]
    assert site.told[:5] == ["fetch 0", [0], "spill 0", "fetch 1", [1]]


@pytest.mark.parametrize(
    ("backlog", "patient", "waits"),
    [
        (float("inf"), False, []),
        (20.0, False, []),
        (10.0, False, [49.5]),
        (0.0, False, [49.5, 0.5]),
        (float("inf"), True, [49.5, 0.5]),
    ],
)
def test_input_waits_for_the_rotation_unless_it_is_too_much(backlog, patient, waits):
    """With more waiting than allowed, or nothing else to do, the epoch waits for units on disk to have their turn."""
    site = Site(resident(10, {0: 10}, {1: 10, 2: 10}, rotate_from=50.0))
    limits = Limits(None, backlog, patient=patient)
    of = begun(site, limits, [(((0, 3),), (90,))], rows={0: 1, 1: 1, 2: 1}, sizes={1: 10, 2: 10})
    assert len(taken(of, site, each=0.5)) == 1 + len(waits)
    assert site.slept == waits
    assert 10 * len(left(of)) <= backlog


def test_units_without_input_need_no_turn_where_nothing_happens_by_time():
    site = Site()
    rows = {1: 3, 6: 2}
    cohorts: list[Cohort] = [(((0, UNITS),), (90,))]
    of = UnitSchedule(cohorts, NOW, column(rows), column(rows), site, Limits(1e9, 1e9), site, by_time=False)  # type: ignore[arg-type]
    assert taken(of, site) == [[1, 6]]
    assert of.units_left() == []


def test_who_is_patient_waits_for_the_rotation():
    paging = Paging(limit=10)
    for unit in range(3):
        paging.arrive(unit, 10, resident=unit == 0)
    site = Site(paging, reading=1e-3)
    of = begun(site, Limits(None, float("inf"), patient=True), [(((0, 3),), (90,))], each=1e-3)
    assert sorted(u for turn in taken(of, site, each=0.0) for u in turn) == [0, 1, 2]
