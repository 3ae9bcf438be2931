"""Memory and disk of a site: what is spilled, what comes back and when, and that input waits in order."""

from __future__ import annotations

import math

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from sluice.model.errors import ProtocolError
from sluice.state.paging import Fetch, Paging, SpillUnit

SIZES = st.integers(0, 5)
SECONDS = st.sampled_from([0.0, 1e-9, 0.5, 2.0])


class Memory(RuleBasedStateMachine):
    """A site's memory under any sequence of events, next to plain lists that say where every unit has to be."""

    @initialize(limit=st.integers(0, 9), now=st.sampled_from([-5.0, 0.0, 1e9]))
    def build(self, limit: int, now: float) -> None:
        self.paging, self.limit, self.now = Paging(limit), limit, now
        self.sizes: dict[int, int] = {}
        self.memory: list[int] = []
        self.disk: list[int] = []
        self.asked: SpillUnit | Fetch | None = None
        self.read: tuple[float, float] | None = None

    @rule(unit=st.integers(0, 5), size=SIZES, resident=st.booleans())
    def arrive(self, unit: int, size: int, resident: bool) -> None:
        if unit in self.sizes:
            with pytest.raises(ProtocolError, match=f"unit {unit} is here already"):
                self.paging.arrive(unit, size, resident)
            return
        self.paging.arrive(unit, size, resident)
        self.sizes[unit] = size
        (self.memory if resident else self.disk).append(unit)

    @precondition(lambda self: self.sizes)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        unit = data.draw(st.sampled_from(sorted(self.sizes)))
        self.paging.leave(unit)
        del self.sizes[unit]
        (self.memory if unit in self.memory else self.disk).remove(unit)
        if self.asked is not None and self.asked.unit == unit:
            self.asked = None

    @precondition(lambda self: self.sizes)
    @rule(data=st.data(), size=SIZES)
    def grow(self, data: st.DataObject, size: int) -> None:
        unit = data.draw(st.sampled_from(sorted(self.sizes)))
        self.paging.grow(unit, size)
        self.sizes[unit] = size

    @precondition(lambda self: self.sizes)
    @rule(data=st.data())
    def defer(self, data: st.DataObject) -> None:
        unit = data.draw(st.sampled_from(sorted(self.sizes)))
        self.paging.defer(unit)
        if unit in self.memory and self.asked != SpillUnit(unit):
            self.memory.remove(unit)
            self.memory.append(unit)

    @rule(size=SIZES, more=st.booleans())
    def change_limit(self, size: int, more: bool) -> None:
        if more:
            self.paging.donate(size)
            self.limit += size
        elif size <= self.limit:
            self.paging.relinquish(size)
            self.limit -= size
        else:
            with pytest.raises(ProtocolError, match="memory cannot be -"):
                self.paging.relinquish(size)

    @rule(waited=SECONDS, reported=st.booleans(), seconds=SECONDS)
    def work(self, waited: float, reported: bool, seconds: float) -> None:
        """One step, whose report may come after other events."""
        self.now += waited
        self.ask()
        if reported and self.asked is not None:
            self.report(seconds)

    def ask(self) -> None:
        task = self.paging.step(self.now)
        if self.asked is None:
            self.check(task)
            self.asked = task
        assert task == self.asked

    def check(self, task: SpillUnit | Fetch | None) -> None:
        """What a step may ask for."""
        used = sum(self.sizes[unit] for unit in self.memory)
        over = used > self.limit and len(self.memory) > 1
        fits = bool(self.disk) and used + self.sizes[self.disk[0]] <= self.limit
        gap_passed = self.read is None or (self.now > self.read[0] and self.now >= self.read[0] + self.read[1])
        if over:
            assert task == SpillUnit(self.memory[0])
        elif fits or (self.disk and not self.memory):
            assert task == Fetch(self.disk[0])
        elif self.disk and gap_passed:
            assert task == SpillUnit(self.memory[0])
        else:
            assert task is None

    def report(self, seconds: float) -> None:
        assert self.asked is not None
        unit = self.asked.unit
        if isinstance(self.asked, SpillUnit):
            self.paging.note_spilled(unit)
            self.memory.remove(unit)
            self.disk.append(unit)
        else:
            self.paging.note_fetched(unit, self.now, seconds)
            self.disk.remove(unit)
            self.memory.append(unit)
            self.read = self.now, seconds
        self.asked = None

    def settled(self, seconds: float) -> list[int]:
        """Do all there is to do at this instant, and what it fetched. It ends within the limit, or with one unit."""
        fetched = []
        for _ in range(3 * len(self.sizes) + 2):
            self.ask()
            if self.asked is None:
                break
            if isinstance(self.asked, Fetch):
                fetched.append(self.asked.unit)
            self.report(seconds)
        else:
            raise AssertionError("no end to the steps of one instant")
        assert self.paging.used <= self.limit or len(self.memory) == 1
        assert self.memory or not self.disk
        return fetched

    @rule(seconds=SECONDS, often=st.booleans())
    def rotate(self, seconds: float, often: bool) -> None:
        """Whatever is on disk comes back in as many rotations as there are units on disk, or fewer."""
        self.settled(seconds)
        waiting, fetched = list(self.disk) if often else [], list[int]()
        for _ in waiting:
            if self.paging.due is None:
                break
            self.now = max(self.now, self.paging.due)
            fetched += self.settled(seconds)
        assert set(waiting) <= set(fetched)

    @invariant()
    def everything_is_where_it_has_to_be(self) -> None:
        paging, used = self.paging, sum(self.sizes[unit] for unit in self.memory)
        assert paging.resident == tuple(self.memory)
        assert paging.spilled_units == tuple(self.disk)
        assert {unit for unit in range(6) if paging.is_resident(unit)} == set(self.memory)
        assert (paging.used, paging.limit, paging.free) == (used, self.limit, max(0, self.limit - used))
        assert (paging.due is None) == (not self.disk)
        assert sorted(self.memory + self.disk) == sorted(self.sizes)


Memory.TestCase.settings = settings(stateful_step_count=50, max_examples=3 * settings().max_examples)
TestMemory = Memory.TestCase


def settled(paging: Paging, now: float, seconds: float = 1.0) -> list[SpillUnit | Fetch]:
    """Everything that has to be done now, done at once."""
    done = []
    while (task := paging.step(now)) is not None:
        if isinstance(task, Fetch):
            paging.note_fetched(task.unit, now, seconds)
        else:
            paging.note_spilled(task.unit)
        done.append(task)
        assert len(done) < 1000
    return done


def holding(limit: int, *sizes: int) -> Paging:
    paging = Paging(limit)
    for unit, size in enumerate(sizes):
        paging.arrive(unit, size)
    return paging


def test_a_relinquish_spills_the_longest_in_memory_and_a_donation_brings_it_back():
    paging = holding(30, 10, 10, 10)
    assert settled(paging, now=0.0) == []
    paging.relinquish(15)
    assert paging.step(0.0) == SpillUnit(0)
    paging.note_spilled(0)
    assert paging.step(0.0) == SpillUnit(1)
    paging.note_spilled(1)
    paging.donate(15)
    assert settled(paging, now=0.0) == [Fetch(0), Fetch(1)]
    assert paging.resident == (2, 0, 1)


def test_units_take_turns_as_long_apart_as_the_last_read_took():
    paging = holding(20, 10, 10, 10, 10)
    turns = []
    for now in range(9):
        turns += [(now, task.unit) for task in settled(paging, float(now), seconds=3.0) if isinstance(task, Fetch)]
    assert turns == [(0, 0), (3, 1), (6, 2)]
    assert paging.resident == (1, 2)
    assert paging.spilled_units == (3, 0)
    assert paging.due == 9.0


def test_a_rotation_spills_until_the_first_on_disk_fits():
    paging = holding(30, 25, 10, 10, 10)
    assert settled(paging, now=0.0) == [SpillUnit(0), *(SpillUnit(u) for u in (1, 2, 3)), Fetch(0)]
    assert settled(paging, now=0.5) == []
    assert settled(paging, now=1.0) == [SpillUnit(0), Fetch(1), Fetch(2), Fetch(3)]


@pytest.mark.parametrize("limit", [0, 5])
def test_units_larger_than_all_memory_take_turns_alone(limit):
    paging = holding(limit, 10, 20, 30)
    alone = []
    for now in range(6):
        settled(paging, float(now))
        alone += paging.resident
        assert len(paging.resident) == 1
    assert alone == [0, 1, 2, 0, 1, 2]


def test_a_unit_with_nobody_waiting_stays_however_large():
    paging = holding(10, 8)
    paging.grow(0, 50)
    paging.relinquish(10)
    assert settled(paging, now=1000.0) == []
    assert (paging.used, paging.free, paging.due) == (50, 0, None)


def test_the_place_of_a_large_unit_that_has_gone_is_taken_at_once():
    paging = holding(5, 10, 20)
    settled(paging, now=0.0, seconds=60.0)
    assert paging.resident == (0,)
    paging.leave(0)
    assert paging.step(1.0) == Fetch(1)


def test_nothing_is_read_beside_a_unit_that_is_over_the_limit():
    """Not even one without state, since it would drive the large one out before its time."""
    paging = Paging(5)
    paging.arrive(0, 10)
    paging.arrive(1, 0, resident=False)
    assert settled(paging, now=0.0, seconds=2.0) == [SpillUnit(0), Fetch(1)]
    assert settled(paging, now=2.0, seconds=2.0) == [SpillUnit(1), Fetch(0)]
    assert settled(paging, now=3.0) == []


def test_a_read_that_takes_no_time_does_not_rotate_for_ever():
    paging = holding(10, 10, 10)
    assert settled(paging, now=7.0, seconds=0.0) == [SpillUnit(0), SpillUnit(1), Fetch(0)]
    assert paging.due == math.nextafter(7.0, math.inf)
    assert settled(paging, now=paging.due, seconds=0.0) == [SpillUnit(0), Fetch(1)]


def test_what_was_asked_is_asked_again_until_it_is_reported():
    paging = holding(15, 10, 10)
    assert paging.step(0.0) == SpillUnit(0)
    paging.donate(100)
    assert paging.step(9.0) == SpillUnit(0)
    with pytest.raises(
        ProtocolError, match=r"SpillUnit\(unit=1\) is reported, but what was asked for is SpillUnit\(unit=0\)"
    ):
        paging.note_spilled(1)
    paging.note_spilled(0)
    with pytest.raises(ProtocolError, match="asked for is None"):
        paging.note_spilled(0)


def test_what_was_asked_of_a_unit_that_leaves_is_called_off():
    paging = holding(15, 10, 10, 10)
    assert paging.step(0.0) == SpillUnit(0)
    paging.leave(1)
    paging.leave(2)
    assert paging.step(0.0) == SpillUnit(0)
    paging.leave(0)
    assert paging.step(0.0) is None
    with pytest.raises(ProtocolError, match="asked for is None"):
        paging.note_spilled(0)


def test_impossible_sizes_times_and_units_are_refused():
    paging = holding(10, 20, 5)
    for wrong in [
        lambda: Paging(-1),
        lambda: paging.donate(-1),
        lambda: paging.relinquish(11),
        lambda: paging.relinquish(-1),
        lambda: paging.arrive(9, -1),
        lambda: paging.arrive(1, 1),
        lambda: paging.grow(1, -1),
        lambda: paging.grow(9, 1),
        lambda: paging.leave(9),
    ]:
        with pytest.raises(ProtocolError):
            wrong()
    paging.step(0.0)
    paging.note_spilled(0)
    paging.relinquish(10)
    paging.step(0.0)
    paging.note_spilled(1)
    assert paging.step(0.0) == Fetch(0)
    for seconds in (-1.0, math.nan):
        with pytest.raises(ProtocolError, match="cannot have been read"):
            paging.note_fetched(0, 1.0, seconds)
    paging.note_fetched(0, 1.0, 1.0)
    assert paging.is_resident(0) and not paging.is_resident(9)
