"""Whose turn it is: the order in which a site's units get to their input in an epoch, and where it has to stop.

Units go together as long as nothing speaks against it. When an epoch's time is limited and will not be enough, they go
in groups, those that are behind first, until the time is up; the others keep their input for a later epoch. When not
all state fits into memory they go one by one: first those in memory, then those that the rotation brings back.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from sluice.model.clock import Clock
from sluice.model.epoch.times import Times
from sluice.model.ids import UnitIndex
from sluice.model.routing.unit_ranges import Ranges, intersect, numbers, single_unit, to_ranges
from sluice.state.paging import Fetch, Task
from sluice.state.unit_pages import UnitPages

GROUPS = 8
"""Groups into which the work that fits into an epoch's time is divided, about."""
PROBABLE = 0.8
"""Part of the time that is planned for: a row's cost is known from the epoch before alone."""
Cohort = tuple[Ranges, Times]
"""Units that have come equally far."""


@dataclass(frozen=True)
class Limits:
    """What an epoch may take at a site: seconds (None: as many as it needs), unless more bytes of input than `backlog`
    would have to wait. `cost` is a row's seconds in the epoch before, None if it had none. Who is `patient` waits for
    rotations: there is nothing else to do."""

    seconds: float | None
    backlog: float
    cost: float | None = None
    patient: bool = False


class UnitSchedule:
    """The order of the units of one site and level in one epoch. `rows` and `sizes` are of all input that is here for
    each unit; where units are paged, `pages` are read and written between the turns.

    Units without any need no turn if they have come to where the streams are `now`, or if nothing happens `by_time`.
    """

    def __init__(
        self,
        cohorts: Sequence[Cohort],
        now: Times,
        rows: np.ndarray,
        sizes: np.ndarray,
        pages: UnitPages,
        limits: Limits,
        clock: Clock,
        by_time: bool = True,
    ) -> None:
        self._cohorts, self._rows, self._sizes, self._limits = cohorts, rows, sizes, limits
        self._pages, self._clock = pages, clock
        self._start = clock.monotonic()
        self._done = np.zeros(len(rows), dtype=bool)
        self._first: Ranges = ()
        self._limited = limits.seconds is not None or pages.active
        for units, newest in cohorts if self._limited else ():  # else all go along in one turn
            if newest == now or not by_time:
                self._done[numbers(units)] = rows[numbers(units)] == 0
        if self._done.any():
            self._cohorts = self.units_left()

    def __iter__(self) -> Iterator[Cohort]:
        """The units whose turn it is, and how far they have come; asking for the next says that they are done."""
        if self._first and self._limited:
            for units, newest in self._cohorts:
                for unit in numbers(intersect(units, self._first)).tolist():
                    yield single_unit(unit), newest
                    self._done[unit] = True
            self._cohorts = self.units_left()
        for turn in self._one_by_one() if self._pages.active else self._turns():
            yield turn
            self._done[numbers(turn[0])] = True

    def put_first(self, units: Ranges) -> None:
        """Have these units take their turn before any others, wherever they lie and however long that takes: what they
        would leave waiting, nobody else could take over."""
        self._first = units

    def units_left(self) -> list[Cohort]:
        """The units that did not get their turn."""
        cohorts = []
        for units, newest in self._cohorts:
            behind = numbers(units)[~self._done[numbers(units)]]
            if len(behind):
                cohorts.append((to_ranges(behind.tolist()), newest))
        return cohorts

    def _turns(self) -> Iterator[Cohort]:
        first = True
        for units, newest in self._cohorts:
            for group in self._groups(numbers(units)):
                if not first and self._is_over():
                    return
                first = False
                yield to_ranges(group.tolist()), newest

    def _groups(self, units: np.ndarray) -> list[np.ndarray]:
        seconds, cost = self._limits.seconds, self._limits.cost
        if seconds is None or cost is None or self._rows.sum() * cost <= PROBABLE * seconds:
            return [units]
        before = np.cumsum(self._rows[units]) * cost
        cuts = np.flatnonzero(np.diff(before // (seconds / GROUPS))) + 1
        return [group for group in np.split(units, cuts) if len(group)]

    def _one_by_one(self) -> Iterator[Cohort]:
        newest = {u: times for units, times in self._cohorts for u in numbers(units).tolist()}
        # those in memory; the others have their turn when they are fetched
        in_memory = (u for u in newest if self._pages.is_resident(u) and not self._done[u])
        first = True
        while first or not self._is_over():
            unit = None if self._pages.is_over_limit else next(in_memory, None)
            if unit is None:
                task = self._page()
                if isinstance(task, Fetch):
                    unit = None if self._done[task.unit] else task.unit
                elif task is None and (unit := next(in_memory, None)) is None and not self._wait():
                    return
            if unit is not None:
                first = False
                yield single_unit(unit), newest[unit]

    def _page(self) -> Task[UnitIndex] | None:
        """Writes or reads what is next; nothing for units that have had their turn, unless memory is over its limit."""
        needed = self._pages.is_over_limit or any(not self._done[u] for u in self._pages.spilled_units)
        return self._pages.step() if needed else None

    def _wait(self) -> bool:
        """When too much input waits for units on disk, wait for the next rotation."""
        waiting = [u for u in self._pages.spilled_units if not self._done[u]]
        may_wait = not self._limits.patient and self._sizes[waiting].sum() <= self._limits.backlog
        if not waiting or may_wait:
            return False
        self._pages.wait()
        return True

    def _is_over(self) -> bool:
        """Whether the time is up, and what is left may wait."""
        if self._limits.seconds is None or self._clock.monotonic() - self._start < self._limits.seconds:
            return False
        return bool(self._sizes[~self._done].sum() <= self._limits.backlog)
