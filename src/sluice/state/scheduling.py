"""Whose turn it is: the order in which a site's units get to their input in an epoch, and where it has to stop.

Units go together as long as nothing speaks against it. When an epoch's time is limited and will not be enough, they go
in groups, those that are behind first, until the time is up; the others keep their input for a later epoch. When not
all state fits into memory they go one by one: first those in memory, then those that the rotation brings back.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from sluice.model.epoch import Times
from sluice.model.routing import Ranges, ranges
from sluice.model.state import numbers
from sluice.state.paging import Fetch, Residence, Spill
from sluice.state.transaction import Transaction

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


class Turns:
    """The turns of one site and level in one epoch. `rows` and `sizes` are of all input that is here for each unit.

    Units without any need no turn if they have come to where the streams are `now`, or if nothing happens `by_time`.
    """

    def __init__(
        self,
        cohorts: Sequence[Cohort],
        now: Times,
        rows: np.ndarray,
        sizes: np.ndarray,
        transaction: Transaction,
        limits: Limits,
        by_time: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.cohorts, self.rows, self.sizes, self.limits = cohorts, rows, sizes, limits
        self.transaction, self.clock = transaction, clock
        self.begun = clock()
        self.done = np.zeros(len(rows), dtype=bool)
        limited = limits.seconds is not None or transaction.residence is not None
        for units, newest in cohorts if limited else ():  # else they go along: a turn of all units cuts nothing up
            if newest == now or not by_time:
                self.done[numbers(units)] = rows[numbers(units)] == 0
        if self.done.any():
            self.cohorts = self.left()

    def __iter__(self) -> Iterator[Cohort]:
        """The units whose turn it is, and how far they have come; asking for the next says that they are done."""
        residence = self.transaction.residence
        for turn in self._grouped() if residence is None else self._in_memory(residence):
            self.transaction.turn(turn[0])
            yield turn
            self.done[numbers(turn[0])] = True

    def left(self) -> list[Cohort]:
        """The units that did not get their turn."""
        found = []
        for units, newest in self.cohorts:
            behind = numbers(units)[~self.done[numbers(units)]]
            if len(behind):
                found.append((ranges(behind.tolist()), newest))
        return found

    def _grouped(self) -> Iterator[Cohort]:
        first = True
        for units, newest in self.cohorts:
            for group in self._groups(numbers(units)):
                if not first and self._over():
                    return
                first = False
                yield ranges(group.tolist()), newest

    def _groups(self, units: np.ndarray) -> list[np.ndarray]:
        seconds, cost = self.limits.seconds, self.limits.cost
        if seconds is None or cost is None or self.rows.sum() * cost <= PROBABLE * seconds:
            return [units]
        before = np.cumsum(self.rows[units]) * cost
        cuts = np.flatnonzero(np.diff(before // (seconds / GROUPS))) + 1
        return [group for group in np.split(units, cuts) if len(group)]

    def _in_memory(self, residence: Residence) -> Iterator[Cohort]:
        newest = {u: times for units, times in self.cohorts for u in numbers(units).tolist()}
        waiting = (u for u in newest if residence.is_resident(u) and not self.done[u])  # the others: when fetched
        first = True
        while first or not self._over():
            unit = next(waiting, None) if residence.used <= residence.limit else None
            if unit is None:
                task = self._task(residence)
                if isinstance(task, Spill):
                    self.transaction.spill(task.unit)
                elif isinstance(task, Fetch):
                    self.transaction.fetch(task.unit)
                    unit = task.unit if not self.done[task.unit] else None
                elif (unit := next(waiting, None)) is None and not self._wait(residence):
                    return
            if unit is not None:
                first = False
                yield ((unit, unit + 1),), newest[unit]
                self.transaction.grow(unit)

    def _task(self, residence: Residence) -> Spill | Fetch | None:
        """What to write or read next; nothing for units that have had their turn, unless memory is over its limit."""
        wanted = residence.used > residence.limit or any(not self.done[u] for u in residence.spilled_units)
        return residence.step(self.clock()) if wanted else None

    def _wait(self, residence: Residence) -> bool:
        """When too much input waits for units on disk, wait for the next rotation."""
        waiting = [u for u in residence.spilled_units if not self.done[u]]
        may_wait = not self.limits.patient and self.sizes[waiting].sum() <= self.limits.backlog
        if residence.due is None or not waiting or may_wait:
            return False
        time.sleep(max(0.0, residence.due - self.clock()))
        return True

    def _over(self) -> bool:
        """Whether the time is up, and what is left may wait."""
        if self.limits.seconds is None or self.clock() - self.begun < self.limits.seconds:
            return False
        return bool(self.sizes[~self.done].sum() <= self.limits.backlog)
