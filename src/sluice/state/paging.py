"""Which units of a site are in memory, and how those on disk get their turn (Flux, section 6.1).

Input never ends, so no unit may stay on disk for good. Two queues, both first in, first out: units in memory in the
order in which they got there, units on disk in the order in which they were spilled. When memory is over its limit the
first of those in memory goes to disk; the first of those on disk comes back when there is room for it, or else by
rotation: as many as it takes go to disk, it comes back.

A rotation is due when as much time has passed since the last unit was read as that read took. So at most about half the
time is spent on reading, however slow the disk is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar

from sluice.model.errors import ProtocolError

UnitName = TypeVar("UnitName", bound=int)
"""By what whoever pages its units names them: a site by their places in the routing."""


@dataclass(frozen=True)
class SpillUnit(Generic[UnitName]):
    """Write a unit to disk and free its memory."""

    unit: UnitName


@dataclass(frozen=True)
class Fetch(Generic[UnitName]):
    """Read a unit back, then process its pending input before anything else."""

    unit: UnitName


Task: TypeAlias = SpillUnit[UnitName] | Fetch[UnitName]


class Paging(Generic[UnitName]):
    """One site's memory for state. It says what to write and read; the caller does that, and reports it.

    One unit may always be in memory, however large it is and however small the limit: else its input would wait for
    good. When others wait, the next rotation ends its stay.

    >>> paging = Paging(limit=100)
    >>> paging.arrive(1, size=60)
    >>> paging.arrive(2, size=60)
    >>> paging.step(now=0.0)
    SpillUnit(unit=1)
    >>> paging.note_spilled(1)
    >>> paging.step(now=1.0)  # nothing has been read yet: a rotation is due at once
    SpillUnit(unit=2)
    >>> paging.note_spilled(2)
    >>> paging.step(now=2.0)
    Fetch(unit=1)
    >>> paging.note_fetched(1, now=5.0, seconds=3.0)
    >>> paging.step(now=5.0), paging.due
    (None, 8.0)
    """

    def __init__(self, limit: int, rotate_from: float = -math.inf) -> None:
        _not_negative(limit)
        self.limit = limit
        self.used = 0
        self._sizes: dict[UnitName, int] = {}
        self._memory: dict[UnitName, None] = {}
        self._disk: dict[UnitName, None] = {}
        self.rotate_from = rotate_from
        self._asked: Task[UnitName] | None = None

    @property
    def free(self) -> int:
        """Bytes that more units can have."""
        return max(0, self.limit - self.used)

    @property
    def resident(self) -> tuple[UnitName, ...]:
        """Units in memory, the longest there first."""
        return tuple(self._memory)

    @property
    def spilled_units(self) -> tuple[UnitName, ...]:
        """Units on disk, the longest there first."""
        return tuple(self._disk)

    @property
    def due(self) -> float | None:
        """When the next rotation can begin: minus infinity before the first read, None while nothing is on disk."""
        return self.rotate_from if self._disk else None

    def rest(self, now: float) -> float:
        """For how long no rotation is due, whatever is on disk."""
        return max(0.0, self.rotate_from - now)

    def is_resident(self, unit: UnitName) -> bool:
        """Whether the unit is here and in memory."""
        return unit in self._memory

    def donate(self, size: int) -> None:
        """There is so much more memory."""
        _not_negative(size)
        self.limit += size

    def relinquish(self, size: int) -> None:
        """There is so much less memory; what no longer fits is spilled by the next steps."""
        _not_negative(size)
        _not_negative(self.limit - size)
        self.limit -= size

    def arrive(self, unit: UnitName, size: int, resident: bool = True) -> None:
        """A unit is held here from now on, last in the queue of those in memory or of those on disk."""
        _not_negative(size)
        if unit in self._sizes:
            raise ProtocolError(f"unit {unit} is here already")
        self._sizes[unit] = size
        if resident:
            self._memory[unit] = None
            self.used += size
        else:
            self._disk[unit] = None

    def leave(self, unit: UnitName) -> None:
        """A unit has gone, wherever it was. What was asked for it is called off, and must not be reported."""
        size = self.size(unit)
        if unit in self._memory:
            del self._memory[unit]
            self.used -= size
        else:
            del self._disk[unit]
        del self._sizes[unit]
        if self._asked is not None and self._asked.unit == unit:
            self._asked = None

    def defer(self, unit: UnitName) -> None:
        """Spill this unit last, if it is in memory: it is about to leave."""
        if unit in self._memory and self._asked != SpillUnit(unit):
            del self._memory[unit]
            self._memory[unit] = None

    def grow(self, unit: UnitName, size: int) -> None:
        """A unit's state has this size now, larger or smaller than before."""
        _not_negative(size)
        before = self.size(unit)
        if unit in self._memory:
            self.used += size - before
        self._sizes[unit] = size

    def step(self, now: float) -> Task[UnitName] | None:
        """What to do next. The same again until it is reported, or its unit leaves."""
        if self._asked is None:
            self._asked = self._choose(now)
        return self._asked

    def note_spilled(self, unit: UnitName) -> None:
        """The unit is on disk, its memory free."""
        self._close(SpillUnit(unit))
        del self._memory[unit]
        self._disk[unit] = None
        self.used -= self._sizes[unit]

    def note_fetched(self, unit: UnitName, now: float, seconds: float) -> None:
        """The unit is in memory since `now`; `seconds` is how long it took to read."""
        if not seconds >= 0:
            raise ProtocolError(f"unit {unit} cannot have been read in {seconds} seconds")
        self._close(Fetch(unit))
        del self._disk[unit]
        self._memory[unit] = None
        self.used += self._sizes[unit]
        # A read that took no time must not make another one due at the same instant: the steps would never end.
        self.rotate_from = max(now + seconds, math.nextafter(now, math.inf))

    def _choose(self, now: float) -> Task[UnitName] | None:
        if self.used > self.limit and len(self._memory) > 1:
            return SpillUnit(next(iter(self._memory)))
        if not self._disk:
            return None
        waiting = next(iter(self._disk))
        if not self._memory or self.used + self._sizes[waiting] <= self.limit:
            return Fetch(waiting)
        # A rotation takes several steps: it stays due until its last one, the fetch.
        return SpillUnit(next(iter(self._memory))) if now >= self.rotate_from else None

    def _close(self, report: Task[UnitName]) -> None:
        if self._asked != report:
            raise ProtocolError(f"{report} is reported, but what was asked for is {self._asked}")
        self._asked = None

    def size(self, unit: UnitName) -> int:
        """The bytes of a unit's state."""
        if unit not in self._sizes:
            raise ProtocolError(f"unit {unit} is not here")
        return self._sizes[unit]


def _not_negative(size: int) -> None:
    if size < 0:
        raise ProtocolError(f"memory cannot be {size} bytes")
