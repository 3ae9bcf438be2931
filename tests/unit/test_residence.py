"""Memory and disk of a site: what is spilled, what comes back and when, and that input waits in order."""

from __future__ import annotations

import math

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from sluice.model.errors import ProtocolError
from sluice.state.paging import Fetch, Residence, Spill

SIZES = st.integers(0, 5)
SECONDS = st.sampled_from([0.0, 1e-9, 0.5, 2.0])


class Memory(RuleBasedStateMachine):
    """A site's memory under any sequence of events, next to plain lists that say where every unit has to be."""

    @initialize(limit=st.integers(0, 9), now=st.sampled_from([-5.0, 0.0, 1e9]))
    def build(self, limit: int, now: float) -> None:
        self.residence, self.limit, self.now = Residence(limit), limit, now
        self.sizes: dict[int, int] = {}
        self.memory: list[int] = []
        self.disk: list[int] = []
        self.asked: Spill | Fetch | None = None
        self.read: tuple[float, float] | None = None

    @rule(unit=st.integers(0, 5), size=SIZES, resident=st.booleans())
    def arrive(self, unit: int, size: int, resident: bool) -> None:
        if unit in self.sizes:
            with pytest.raises(ProtocolError, match=f"unit {unit} is here already"):
                self.residence.arrive(unit, size, resident)
            return
        self.residence.arrive(unit, size, resident)
        self.sizes[unit] = size
        (self.memory if resident else self.disk).append(unit)

    @precondition(lambda self: self.sizes)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        unit = data.draw(st.sampled_from(sorted(self.sizes)))
        self.residence.leave(unit)
        del self.sizes[unit]
        (self.memory if unit in self.memory else self.disk).remove(unit)
        if self.asked is not None and self.asked.unit == unit:
            self.asked = None

    @precondition(lambda self: self.sizes)
    @rule(data=st.data(), size=SIZES)
    def grow(self, data: st.DataObject, size: int) -> None:
        unit = data.draw(st.sampled_from(sorted(self.sizes)))
        self.residence.grow(unit, size)
        self.sizes[unit] = size

    @precondition(lambda self: self.sizes)
    @rule(data=st.data())
    def defer(self, data: st.DataObject) -> None:
        unit = data.draw(st.sampled_from(sorted(self.sizes)))
        self.residence.defer(unit)
        if unit in self.memory and self.asked != Spill(unit):
            self.memory.remove(unit)
            self.memory.append(unit)

    @rule(size=SIZES, more=st.booleans())
    def change_limit(self, size: int, more: bool) -> None:
        if more:
            self.residence.donate(size)
            self.limit += size
        elif size <= self.limit:
            self.residence.relinquish(size)
            self.limit -= size
        else:
            with pytest.raises(ProtocolError, match="memory cannot be -"):
                self.residence.relinquish(size)

    @rule(waited=SECONDS, reported=st.booleans(), seconds=SECONDS)
    def work(self, waited: float, reported: bool, seconds: float) -> None:
        """One step, whose report may come after other events."""
        self.now += waited
        self.ask()
        if reported and self.asked is not None:
            self.report(seconds)

    def ask(self) -> None:
        task = self.residence.step(self.now)
        if self.asked is None:
            self.check(task)
            self.asked = task
        assert task == self.asked

    def check(self, task: Spill | Fetch | None) -> None:
        """What a step may ask for."""
        used = sum(self.sizes[unit] for unit in self.memory)
        over = used > self.limit and len(self.memory) > 1
        fits = bool(self.disk) and used + self.sizes[self.disk[0]] <= self.limit
        gap_passed = self.read is None or (self.now > self.read[0] and self.now >= self.read[0] + self.read[1])
        if over:
            assert task == Spill(self.memory[0])
        elif fits or (self.disk and not self.memory):
            assert task == Fetch(self.disk[0])
        elif self.disk and gap_passed:
            assert task == Spill(self.memory[0])
        else:
            assert task is None

    def report(self, seconds: float) -> None:
        assert self.asked is not None
        unit = self.asked.unit
        if isinstance(self.asked, Spill):
            self.residence.spilled(unit)
            self.memory.remove(unit)
            self.disk.append(unit)
        else:
            self.residence.fetched(unit, self.now, seconds)
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
        assert self.residence.used <= self.limit or len(self.memory) == 1
        assert self.memory or not self.disk
        return fetched

    @rule(seconds=SECONDS, often=st.booleans())
    def rotate(self, seconds: float, often: bool) -> None:
        """Whatever is on disk comes back in as many rotations as there are units on disk, or fewer."""
        self.settled(seconds)
        waiting, fetched = list(self.disk) if often else [], list[int]()
        for _ in waiting:
            if self.residence.due is None:
                break
            self.now = max(self.now, self.residence.due)
            fetched += self.settled(seconds)
        assert set(waiting) <= set(fetched)

    @invariant()
    def everything_is_where_it_has_to_be(self) -> None:
        residence, used = self.residence, sum(self.sizes[unit] for unit in self.memory)
        assert residence.resident == tuple(self.memory)
        assert residence.spilled_units == tuple(self.disk)
        assert {unit for unit in range(6) if residence.is_resident(unit)} == set(self.memory)
        assert (residence.used, residence.limit, residence.free) == (used, self.limit, max(0, self.limit - used))
        assert (residence.due is None) == (not self.disk)
        assert sorted(self.memory + self.disk) == sorted(self.sizes)


Memory.TestCase.settings = settings(stateful_step_count=50, max_examples=3 * settings().max_examples)
TestMemory = Memory.TestCase


def settled(residence: Residence, now: float, seconds: float = 1.0) -> list[Spill | Fetch]:
    """Everything that has to be done now, done at once."""
    done = []
    while (task := residence.step(now)) is not None:
        if isinstance(task, Fetch):
            residence.fetched(task.unit, now, seconds)
        else:
            residence.spilled(task.unit)
        done.append(task)
        assert len(done) < 1000
    return done


def holding(limit: int, *sizes: int) -> Residence:
    residence = Residence(limit)
    for unit, size in enumerate(sizes):
        residence.arrive(unit, size)
    return residence


def test_a_relinquish_spills_the_longest_in_memory_and_a_donation_brings_it_back():
    residence = holding(30, 10, 10, 10)
    assert settled(residence, now=0.0) == []
    residence.relinquish(15)
    assert residence.step(0.0) == Spill(0)
    residence.spilled(0)
    assert residence.step(0.0) == Spill(1)
    residence.spilled(1)
    residence.donate(15)
    assert settled(residence, now=0.0) == [Fetch(0), Fetch(1)]
    assert residence.resident == (2, 0, 1)


def test_units_take_turns_as_long_apart_as_the_last_read_took():
    residence = holding(20, 10, 10, 10, 10)
    turns = []
    for now in range(9):
        turns += [(now, task.unit) for task in settled(residence, float(now), seconds=3.0) if isinstance(task, Fetch)]
    assert turns == [(0, 0), (3, 1), (6, 2)]
    assert residence.resident == (1, 2)
    assert residence.spilled_units == (3, 0)
    assert residence.due == 9.0


def test_a_rotation_spills_until_the_first_on_disk_fits():
    residence = holding(30, 25, 10, 10, 10)
    assert settled(residence, now=0.0) == [Spill(0), *(Spill(u) for u in (1, 2, 3)), Fetch(0)]
    assert settled(residence, now=0.5) == []
    assert settled(residence, now=1.0) == [Spill(0), Fetch(1), Fetch(2), Fetch(3)]


@pytest.mark.parametrize("limit", [0, 5])
def test_units_larger_than_all_memory_take_turns_alone(limit):
    residence = holding(limit, 10, 20, 30)
    alone = []
    for now in range(6):
        settled(residence, float(now))
        alone += residence.resident
        assert len(residence.resident) == 1
    assert alone == [0, 1, 2, 0, 1, 2]


def test_a_unit_with_nobody_waiting_stays_however_large():
    residence = holding(10, 8)
    residence.grow(0, 50)
    residence.relinquish(10)
    assert settled(residence, now=1000.0) == []
    assert (residence.used, residence.free, residence.due) == (50, 0, None)


def test_the_place_of_a_large_unit_that_has_gone_is_taken_at_once():
    residence = holding(5, 10, 20)
    settled(residence, now=0.0, seconds=60.0)
    assert residence.resident == (0,)
    residence.leave(0)
    assert residence.step(1.0) == Fetch(1)


def test_nothing_is_read_beside_a_unit_that_is_over_the_limit():
    """Not even one without state, since it would drive the large one out before its time."""
    residence = Residence(5)
    residence.arrive(0, 10)
    residence.arrive(1, 0, resident=False)
    assert settled(residence, now=0.0, seconds=2.0) == [Spill(0), Fetch(1)]
    assert settled(residence, now=2.0, seconds=2.0) == [Spill(1), Fetch(0)]
    assert settled(residence, now=3.0) == []


def test_a_read_that_takes_no_time_does_not_rotate_for_ever():
    residence = holding(10, 10, 10)
    assert settled(residence, now=7.0, seconds=0.0) == [Spill(0), Spill(1), Fetch(0)]
    assert residence.due == math.nextafter(7.0, math.inf)
    assert settled(residence, now=residence.due, seconds=0.0) == [Spill(0), Fetch(1)]


def test_what_was_asked_is_asked_again_until_it_is_reported():
    residence = holding(15, 10, 10)
    assert residence.step(0.0) == Spill(0)
    residence.donate(100)
    assert residence.step(9.0) == Spill(0)
    with pytest.raises(ProtocolError, match=r"Spill\(unit=1\) is reported, but what was asked for is Spill\(unit=0\)"):
        residence.spilled(1)
    residence.spilled(0)
    with pytest.raises(ProtocolError, match="asked for is None"):
        residence.spilled(0)


def test_what_was_asked_of_a_unit_that_leaves_is_called_off():
    residence = holding(15, 10, 10, 10)
    assert residence.step(0.0) == Spill(0)
    residence.leave(1)
    residence.leave(2)
    assert residence.step(0.0) == Spill(0)
    residence.leave(0)
    assert residence.step(0.0) is None
    with pytest.raises(ProtocolError, match="asked for is None"):
        residence.spilled(0)


def test_impossible_sizes_times_and_units_are_refused():
    residence = holding(10, 20, 5)
    for wrong in [
        lambda: Residence(-1),
        lambda: residence.donate(-1),
        lambda: residence.relinquish(11),
        lambda: residence.relinquish(-1),
        lambda: residence.arrive(9, -1),
        lambda: residence.arrive(1, 1),
        lambda: residence.grow(1, -1),
        lambda: residence.grow(9, 1),
        lambda: residence.leave(9),
    ]:
        with pytest.raises(ProtocolError):
            wrong()
    residence.step(0.0)
    residence.spilled(0)
    residence.relinquish(10)
    residence.step(0.0)
    residence.spilled(1)
    assert residence.step(0.0) == Fetch(0)
    for seconds in (-1.0, math.nan):
        with pytest.raises(ProtocolError, match="cannot have been read"):
            residence.fetched(0, 1.0, seconds)
    residence.fetched(0, 1.0, 1.0)
    assert residence.is_resident(0) and not residence.is_resident(9)
