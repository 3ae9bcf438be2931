"""Frozen state: units begin anew in memory, what they had is a generation in the checkpoint until it is cleaned up.

A generation is not probed and has no copy here. When units are cleaned up their generations become one again, two at a
time, after the results between them have been found (`operators/protocol.py`: `between`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from sluice.kernels.probe import Run
from sluice.model.epoch.segments import ALL_HASHES, PlacedBlock, RunRef, count_generations, unit_bytes
from sluice.model.ids import InputNumber, UnitIndex
from sluice.model.routing.directory import HashRange
from sluice.model.routing.unit_ranges import Ranges, intersect, numbers, to_ranges, unite, unite_all
from sluice.state.compaction import choose_rewrites, merges_of_epoch
from sluice.state.epoch_runs import EpochRuns
from sluice.state.inputs import Retention
from sluice.state.merging import merge_runs
from sluice.state.opening import OpenRuns
from sluice.state.reading import SegmentReader
from sluice.state.segment import join_pieces, parts
from sluice.state.staging import NewSegment, SegmentWriter

ACTIVE = 0
"""The generation that new rows meet."""


class Generations:
    """The frozen state of one site and level in one epoch. Each unit numbers its generations for itself."""

    def __init__(self, runs: EpochRuns, open_runs: OpenRuns, reader: SegmentReader, writer: SegmentWriter) -> None:
        self._runs, self._open_runs, self._reader, self._writer = runs, open_runs, reader, writer
        self._holdings, self._tiers = reader.holdings, reader.tiers
        self._together: dict[str, Ranges] = {}
        """The units that are to be read together, of each segment."""
        self._fetched: dict[str, tuple[set[PlacedBlock], Run]] = {}
        """The blocks of each segment that were read last: neighbouring units lie in the same ones."""

    def of_units(self) -> dict[UnitIndex, list[int]]:
        """The frozen generations of each unit that has any, in ascending order."""
        by_unit: dict[UnitIndex, set[int]] = {}
        for run in self._frozen():
            for unit in numbers(run.units).tolist():
                by_unit.setdefault(unit, set()).add(run.generation)
        return {unit: sorted(generations) for unit, generations in by_unit.items()}

    def counts(self) -> np.ndarray:
        """How many frozen generations each unit has."""
        return count_generations(self._frozen(), self._holdings.unit_numbers)

    def sizes(self, generation: int | None = None) -> np.ndarray:
        """The frozen bytes of each unit, of one generation or of all."""
        runs = (run for run in self._frozen() if generation is None or run.generation == generation)
        return unit_bytes(runs, self._holdings.unit_numbers)

    def read(self, input_: InputNumber, units: Ranges, generation: int) -> list[Run]:
        """The rows of an input in one generation of some units, in the runs that they lie in."""
        among = self._runs.state if generation == ACTIVE else self._runs.frozen
        runs = [run.of(units) for run in among if run.segment.input == input_ and run.generation == generation]
        if generation == ACTIVE:
            return [part for run in runs for part in self._open_runs.open(run)]
        directory = self._holdings.directories[input_]
        return [part for run in runs if run.rows for part in parts(self._fetch(run), run.units, directory)]

    def read_together(self, units: Ranges) -> None:
        """Frozen generations of these units are read next, all of them: a block is read once, for whichever units and
        generations have rows in it."""
        self._fetched, self._together = {}, {}
        for run in self._runs.frozen:
            segment, own = run.segment.id, intersect(run.units, units)
            if own:
                self._together[segment] = unite(self._together.get(segment, ()), own)

    def unite(self, units: Ranges, older: int, newer: int) -> None:
        """Two frozen generations of some units are one from now on."""
        self._runs.relabel(units, newer, older)

    def thaw(self, units: Ranges, generation: int) -> None:
        """A generation of some units is state that new rows meet again."""
        for run in self._runs.relabel(units, generation, ACTIVE):
            self._open_runs.hold(run)

    def freeze(
        self,
        units: Ranges,
        added: Mapping[InputNumber, Sequence[Run]],
        retention: Mapping[InputNumber, Retention],
    ) -> None:
        """All state of some units, with what the epoch adds to it, is another generation of each from now on. It is
        written as few segments, and no copy of it stays here."""
        numbered = self._next_numbers(units)
        for input_ in self._holdings.freezable:
            state = [run.of(units) for run in self._runs.state if run.segment.input == input_]
            pieces = [part for run in state for part in self._open_runs.open(run)]
            self._write(input_, [*pieces, *added.get(input_, ())], units, numbered, retention[input_])
        self._let_go(units)

    def write_anew(
        self, units: Ranges, rows: Mapping[InputNumber, Sequence[Run]], retention: Mapping[InputNumber, Retention]
    ) -> None:
        """All state of some units, these rows, is one frozen generation from now on."""
        self._runs.forget_frozen(units)
        for input_, pieces in rows.items():
            self._write(input_, pieces, units, ((ACTIVE + 1, units),), retention[input_])
        self._let_go(units)

    def merge(self, retention: Mapping[InputNumber, Retention]) -> None:
        """Keep frozen runs few, and their files in use. Runs of one input and generation are merged like any others,
        as many in an epoch as are in proportion to what it has frozen, and more while there are too many."""
        self._together = {}
        for input_ in self._holdings.freezable:
            by_generation: dict[int, list[RunRef]] = {}
            for run in self._runs.frozen:
                if run.segment.input == input_:
                    by_generation.setdefault(run.generation, []).append(run)
            new = sum(run.bytes for run in self._runs.new if run.segment.input == input_ and run.generation)
            for merge in merges_of_epoch(by_generation.values(), new, lambda run: None, None, shrinks=False):
                self._rewrite(merge.runs, merge.hashes, retention[input_])
            self._fetched = {}
        by_segment: dict[str, list[RunRef]] = {}
        for run in choose_rewrites(self._runs.frozen, [*self._runs.state, *self._runs.waiting]):
            by_segment.setdefault(run.segment.id, []).append(run)
        for runs in by_segment.values():
            self._rewrite(runs, runs[0].segment.hashes, retention[runs[0].segment.input])
            self._fetched = {}

    def _rewrite(self, runs: Sequence[RunRef], hashes: HashRange, rules: Retention) -> None:
        """Writes runs of one input as one, in which each unit has one generation."""
        input_, directory = runs[0].segment.input, rules.directory
        pieces = [part for run in runs if run.rows for part in parts(self._fetch(run), run.units, directory)]
        by_generation: dict[int, Ranges] = {}
        for run in runs:
            self._runs.forget_frozen(run.units, {run.segment.id})
            by_generation[run.generation] = unite(by_generation.get(run.generation, ()), run.units)
        units = unite_all(part for of in by_generation.values() for part in of)
        self._write(input_, pieces, units, tuple(sorted(by_generation.items())), rules, hashes)

    def _write(
        self,
        input_: InputNumber,
        pieces: Iterable[Run],
        units: Ranges,
        numbered: tuple[tuple[int, Ranges], ...],
        rules: Retention,
        hashes: HashRange = ALL_HASHES,
    ) -> None:
        frozen = merge_runs(list(pieces), rules)
        if frozen is not None:
            self._writer.write_pieces(NewSegment(input_, frozen, units, hashes=hashes, generations=numbered))

    def _let_go(self, units: Ranges) -> None:
        """No copy of what is not state any more stays here."""
        for run in self._runs.set_aside(self._holdings.freezable, units):
            self._shrink(run)

    def _frozen(self) -> Iterable[RunRef]:
        """Of before, and what the epoch has written."""
        return (run for run in (*self._runs.frozen, *self._runs.new) if run.generation)

    def _next_numbers(self, units: Ranges) -> tuple[tuple[int, Ranges], ...]:
        """Units by the number of their next generation, the least that each has not in use."""
        used, units_by_number = self.of_units(), dict[int, list[UnitIndex]]()
        for unit in numbers(units).tolist():
            taken = used.get(unit, [])
            number = next(n for n in range(ACTIVE + 1, len(taken) + 2) if n not in taken)
            units_by_number.setdefault(number, []).append(unit)
        return tuple((number, to_ranges(places)) for number, places in sorted(units_by_number.items()))

    def _fetch(self, run: RunRef) -> Run:
        """The blocks in which a run has rows, and perhaps others."""
        segment = run.segment.id
        fetched = self._fetched.get(segment)
        if fetched is None or not fetched[0].issuperset(run.blocks):
            wider = replace(run, units=unite(run.units, self._together.get(segment, ())))
            fetched = self._fetched[segment] = set(wider.blocks), join_pieces(self._reader.fetch(wider))
        return fetched[1]

    def _shrink(self, run: RunRef) -> None:
        """Keeps of a segment only what is state, where it lies here in one file; of pages, those of units that are."""
        segment = run.segment.id
        if self._tiers.read_whole_file(segment) is not None and run.rows:
            rows = join_pieces(self._open_runs.open(run))
            data = self._reader.encode(run.segment, rows)
            self._open_runs.hold(run)
            self._tiers.drop(segment)
            self._tiers.add(segment, len(rows), data, room=self._tiers.limit - self._tiers.used)
        else:
            self._open_runs.hold(run)
            self._tiers.keep_pages(run)
