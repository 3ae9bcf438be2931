"""Cleaning up at a site: the results that frozen units miss are found, two generations at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import inf

from sluice.engine.site_level import SiteLevel
from sluice.model.clock import Clock
from sluice.model.epoch import Frozen, Times
from sluice.model.ids import InputNumber, Unit
from sluice.model.unit_ranges import numbers, only
from sluice.operators.protocol import FreezableOperator, Results
from sluice.state.generations import ACTIVE
from sluice.state.inputs import Retention
from sluice.state.transaction import Transaction

HALF = 0.5
"""Part of the time that a join keeps rows, after which a unit that was frozen is cleaned up: until then its site keeps
rows for it that nobody else needs any more."""


class UnitCleaning:
    """What a site does about units whose results are missing, before it takes in anything new."""

    def __init__(
        self,
        level: SiteLevel,
        transaction: Transaction,
        retention: Mapping[InputNumber, Retention],
        clock: Clock,
    ) -> None:
        self._level, self._transaction, self._retention, self._clock = level, transaction, retention, clock
        self.cleaned: list[Unit] = []
        """Units that missed something, and miss nothing any more."""

    def run(self, units: Sequence[Unit], seconds: float | None) -> Iterator[tuple[int, Results]]:
        """The missing results of some units with the place of their operator, as far as the time goes; one step is
        always taken."""
        begun, steps = self._clock.monotonic(), 0
        self._frozen_rows = self._transaction.generations.rows()
        self._frozen_bytes = self._transaction.generations.sizes()
        self._active_rows, self._active_bytes = self._transaction.active_rows(), self._transaction.active_bytes()
        for unit in units:
            before, step = steps, self._next_step(unit)
            while step is not None:
                if steps and seconds is not None and self._clock.monotonic() - begun >= seconds:
                    return
                yield from self._between(unit, *step)
                self._finish(unit, *step)
                steps += 1
                step = self._next_step(unit)
            if steps > before:
                self.cleaned.append(unit)
            self._thaw_if_it_fits(unit)

    def _frozen(self, unit: Unit) -> list[int]:
        """Its frozen generations, the oldest first."""
        return sorted(generation for generation, rows in self._frozen_rows.items() if rows[unit])

    def _next_step(self, unit: Unit) -> tuple[int, int] | None:
        """The two generations of a unit that become one next; None if nothing is missing between any."""
        frozen = self._frozen(unit)
        if len(frozen) > 1:
            return frozen[0], frozen[1]
        return (frozen[0], ACTIVE) if frozen and self._active_rows[unit] else None

    def _finish(self, unit: Unit, older: int, newer: int) -> None:
        """Two generations are one, now that all between them has been found: in memory, if one was and there is room
        for the other."""
        generations, rows = self._transaction.generations, self._frozen_rows
        if newer != ACTIVE:
            generations.unite(unit, older, newer)
            rows[older][unit] += rows[newer][unit]
            rows[newer][unit] = 0
        elif not self._thaw_if_it_fits(unit):
            generations.freeze(only(unit), {}, self._retention, older)
            self._frozen_bytes[unit] += self._active_bytes[unit]
            self._active_rows[unit] = self._active_bytes[unit] = 0

    def _thaw_if_it_fits(self, unit: Unit) -> bool:
        """Has a unit's only frozen generation in memory again, if there is room for it."""
        frozen = self._frozen(unit)
        if len(frozen) != 1 or self._active_bytes.sum() + self._frozen_bytes[unit] > self._transaction.limit:
            return False
        self._transaction.generations.thaw(unit, frozen[0])
        self._active_rows[unit] += self._frozen_rows[frozen[0]][unit]
        self._active_bytes[unit] += self._frozen_bytes[unit]
        self._frozen_rows[frozen[0]][unit] = 0
        return True

    def _between(self, unit: Unit, older: int, newer: int) -> Iterator[tuple[int, Results]]:
        generations = self._transaction.generations
        for node, operator in self._level.operators.items():
            low, high = self._level.directory(node).range
            if isinstance(operator, FreezableOperator) and low <= unit < high:
                inputs = self._level.plan.inputs_of(node)
                old = [generations.read(input_, unit, older) for input_ in inputs]
                new = [generations.read(input_, unit, newer) for input_ in inputs]
                for results in operator.between(old, new):
                    yield node, results


def due_units(level: SiteLevel, frozen: Sequence[Frozen], now: Times) -> list[Unit]:
    """Units that have been frozen for so long that rows would expire if it were not for them, the longest first."""
    kept = [operator.retention for operator in level.operators.values() if isinstance(operator, FreezableOperator)]
    shortest = min((retention for retention in kept if retention is not None), default=None)
    found: list[Unit] = []
    if shortest is None:
        return found
    for cohort in sorted(frozen, key=lambda cold: [-inf if t is None else t for t in cold.newest]):
        passed = [b - a for a, b in zip(cohort.newest, now, strict=True) if a is not None and b is not None]
        if max(passed, default=0) >= HALF * shortest:
            found += numbers(cohort.units).tolist()
    return found
