"""Cleaning up at a site: the results that frozen units miss are found, two generations at a time.

Neighbouring units are cleaned up together, some megabytes at a time: their generations are read once, the two smallest
that follow each other are joined and become one, until one is left; then that and what is in memory. The order is of no
consequence for what is found, and joining small ones first takes each row through few joins.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import inf

import numpy as np

from sluice.engine.site_level import SiteLevel
from sluice.kernels.probe import Run
from sluice.model.clock import Clock
from sluice.model.ids import InputNumber, UnitIndex
from sluice.model.routing.unit_ranges import Ranges, numbers, to_ranges
from sluice.operators.protocol import FreezableOperator, ResultBatch
from sluice.state.generations import ACTIVE
from sluice.state.inputs import Retention
from sluice.state.segment import merge_sorted, parts
from sluice.state.transaction import Transaction

THAW_FRACTION = 0.5
"""Part of a site's memory: where all its state would not fill it, frozen units are brought back."""
MOST_GENERATIONS = 32
"""A unit with so many frozen generations is cleaned up: what the manifest says of them has to end somewhere."""
BYTES_AT_ONCE = 32 << 20
BYTES_AN_EPOCH = 256 << 20
"""How much is written anew in an epoch before the others wait for the next one: it is in memory until it is durable."""

Rows = dict[InputNumber, list[Run]]


@dataclass
class _Part:
    """A generation of each of some units, or several that have become one: the number that each unit has for it, its
    bytes, and its rows once they have been read."""

    generations: dict[UnitIndex, int]
    bytes: float
    rows: Rows = field(default_factory=dict)


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
        self._deadline, self._steps = inf, 0
        self._written = 0.0
        self.cleaned: list[UnitIndex] = []
        """Units that missed something, and miss nothing any more."""

    @cached_property
    def _frozen(self) -> dict[UnitIndex, list[int]]:
        """The frozen generations of each unit that has any, those that are left."""
        return self._transaction.generations.of_units()

    @cached_property
    def _frozen_bytes(self) -> np.ndarray:
        return self._transaction.generations.sizes()

    @cached_property
    def _active_rows(self) -> np.ndarray:
        return self._transaction.active_rows()

    @cached_property
    def _active_bytes(self) -> np.ndarray:
        return self._transaction.active_bytes()

    def crowded_units(self) -> list[UnitIndex]:
        """Units that have more generations than can be kept."""
        crowded = np.flatnonzero(self._transaction.generations.counts() >= MOST_GENERATIONS)
        return [UnitIndex(unit) for unit in crowded.tolist()]

    def units_with_room(self) -> list[UnitIndex]:
        """Frozen units, if there is room for all of them, and for as much again."""
        room = THAW_FRACTION * self._transaction.limit - self._frozen_bytes.sum()
        if room < 0 or self._active_bytes.sum() > room:  # the latter is only asked where it can matter
            return []
        return [UnitIndex(unit) for unit in np.flatnonzero(self._frozen_bytes).tolist()]

    def run(self, units: Sequence[UnitIndex], seconds: float) -> Iterator[tuple[int, ResultBatch]]:
        """Yields missing results of these units, each with the place of its operator, until `seconds` or the memory for
        rewritten state are used up. It takes at least one step."""
        self._deadline = self._clock.monotonic() + seconds
        for chunk in self._chunks([unit for unit in units if self._misses_results(unit)]):
            yield from self._clean(chunk)
            if self._is_over():
                return
        self._thaw_what_fits([unit for unit in units if unit in self._frozen])

    def _misses_results(self, unit: UnitIndex) -> bool:
        frozen = self._frozen.get(unit, ())
        return len(frozen) > 1 or bool(frozen and self._active_rows[unit])

    def _chunks(self, units: Sequence[UnitIndex]) -> Iterator[list[UnitIndex]]:
        """Units of one fragment that are not too large together, in the order in which they come."""
        chunk: list[UnitIndex] = []
        size, fragment = 0.0, None
        for unit in units:
            own, of = self._frozen_bytes[unit] + self._active_bytes[unit], self._level.routing.fragment_at(unit)
            if chunk and (size + own > BYTES_AT_ONCE or of != fragment):
                yield sorted(chunk)
                chunk, size = [], 0.0
            chunk.append(unit)
            size, fragment = size + own, of
        if chunk:
            yield sorted(chunk)

    def _is_over(self) -> bool:
        return self._steps > 0 and (self._clock.monotonic() >= self._deadline or self._written >= BYTES_AN_EPOCH)

    def _clean(self, units: list[UnitIndex]) -> Iterator[tuple[int, ResultBatch]]:
        """Finds all that these units miss, unless the time is over before."""
        self._transaction.generations.read_together(to_ranges(units))
        left = self._parts(units)
        while len(left) > 1:
            if self._is_over():
                return
            at = min(range(len(left) - 1), key=lambda i: left[i].bytes + left[i + 1].bytes)
            older, newer = left[at], left.pop(at + 1)
            yield from self._between(self._read(older), self._read(newer))
            self._unite(older, newer)
        if self._is_over():
            return
        frozen = self._read(left[0])
        active = [unit for unit in units if self._active_rows[unit]]
        if active:
            rows = self._rows(dict.fromkeys(active, ACTIVE))
            yield from self._between(frozen, rows)
            for input_, pieces in rows.items():
                frozen[input_] = [*frozen[input_], *pieces]
        self._settle(units, frozen)
        self.cleaned += units

    def _parts(self, units: list[UnitIndex]) -> list[_Part]:
        """The first frozen generations of all units, the second ones, and so on."""
        found = []
        sizes = {g: self._transaction.generations.sizes(g) for g in {g for u in units for g in self._frozen[u]}}
        for place in range(max(len(self._frozen[unit]) for unit in units)):
            own = {unit: self._frozen[unit][place] for unit in units if place < len(self._frozen[unit])}
            found.append(_Part(own, sum(sizes[generation][unit] for unit, generation in own.items())))
        return found

    def _read(self, part: _Part) -> Rows:
        if not part.rows:
            part.rows = self._rows(part.generations)
        return part.rows

    def _rows(self, generations: Mapping[UnitIndex, int]) -> Rows:
        """The rows of one generation of each of some units, as one run an input: units that were frozen at different
        times have theirs in many, and each would be probed by itself."""
        rows: Rows = {input_: [] for input_ in self._transaction.holdings.freezable}
        for generation, units in _by_generation(generations).items():
            for input_, pieces in rows.items():
                pieces += self._transaction.generations.read(input_, units, generation)
        return {input_: _as_one(pieces) for input_, pieces in rows.items()}

    def _between(self, older: Rows, newer: Rows) -> Iterator[tuple[int, ResultBatch]]:
        """A step: what has rows of both."""
        for node, operator in self._level.operators.items():
            if isinstance(operator, FreezableOperator):
                inputs = self._level.plan.inputs_of(node)
                for results in operator.join_generations([older[i] for i in inputs], [newer[i] for i in inputs]):
                    yield node, results
        self._steps += 1

    def _unite(self, older: _Part, newer: _Part) -> None:
        """Two generations of some units are one, now that all between them has been found."""
        for number, units in _by_generation(newer.generations).items():
            for into, same_age in _by_generation({u: older.generations[u] for u in numbers(units).tolist()}).items():
                self._transaction.generations.unite(same_age, into, number)
        for unit, number in newer.generations.items():
            self._frozen[unit].remove(number)
        older.bytes += newer.bytes
        for input_, pieces in newer.rows.items():
            older.rows[input_] = _as_one([*older.rows[input_], *pieces])

    def _settle(self, units: list[UnitIndex], rows: Rows) -> None:
        """Units of which nothing is missing are in memory again if there is room, or one frozen generation."""
        self._thaw_what_fits(units)
        staying = to_ranges([unit for unit in units if unit in self._frozen])
        if staying:
            directories = self._transaction.holdings.directories
            own = {i: [p for run in runs for p in parts(run, staying, directories[i])] for i, runs in rows.items()}
            self._transaction.generations.write_anew(staying, own, self._retention)
            for unit in numbers(staying).tolist():
                self._frozen_bytes[unit] += self._active_bytes[unit]
                self._written += self._frozen_bytes[unit]
                self._active_rows[unit] = self._active_bytes[unit] = 0
                del self._frozen[unit]  # it is as it is to be

    def _thaw_what_fits(self, units: Sequence[UnitIndex]) -> None:
        """Has the only frozen generation of units in memory again, as far as there is room; of all of them at once, as
        there may be many."""
        room = self._transaction.limit - self._active_bytes.sum()
        thawed: dict[UnitIndex, int] = {}
        for unit in units:
            if len(self._frozen[unit]) == 1 and self._frozen_bytes[unit] <= room:
                (thawed[unit],) = self._frozen.pop(unit)
                room -= self._frozen_bytes[unit]
        for generation, thawed_units in _by_generation(thawed).items():
            self._transaction.generations.thaw(thawed_units, generation)
        back = list(thawed)
        self._active_bytes[back] += self._frozen_bytes[back]
        self._frozen_bytes[back] = 0


def _as_one(pieces: list[Run]) -> list[Run]:
    return [merge_sorted(pieces, None)] if len(pieces) > 1 else pieces


def _by_generation(generations: Mapping[UnitIndex, int]) -> dict[int, Ranges]:
    """Units by the number of their generation."""
    by_generation: dict[int, list[UnitIndex]] = {}
    for unit, generation in sorted(generations.items()):
        by_generation.setdefault(generation, []).append(unit)
    return {generation: to_ranges(units) for generation, units in by_generation.items()}
