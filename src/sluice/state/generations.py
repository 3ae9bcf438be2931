"""Frozen state: units begin anew in memory, what they had is a generation in the checkpoint until it is cleaned up.

A generation is not probed and has no copy here. When a unit is cleaned up its generations become one again, two at a
time, after the results between them have been found (`operators/protocol.py`: `between`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from sluice.kernels.probe import Run
from sluice.model.ids import InputNumber, Unit
from sluice.model.state import PlacedBlock, RunRef, unit_bytes, unit_rows
from sluice.model.unit_ranges import Ranges, only
from sluice.state.epoch_runs import EpochRuns
from sluice.state.inputs import Retention
from sluice.state.merging import merge_runs
from sluice.state.opening import OpenRuns
from sluice.state.reading import SegmentReader
from sluice.state.segment import joined_run, parts
from sluice.state.staging import NewSegment, SegmentWriter

ACTIVE = 0
"""The generation that new rows meet."""


class Generations:
    """The frozen state of one site and level in one epoch. Generations are numbered in the order in which they were
    frozen; those of a unit need not follow each other."""

    def __init__(self, runs: EpochRuns, open_runs: OpenRuns, reader: SegmentReader, writer: SegmentWriter) -> None:
        self._runs, self._open_runs, self._reader, self._writer = runs, open_runs, reader, writer
        self._holdings, self._tiers = reader.holdings, reader.tiers
        self._fetched: dict[str, tuple[list[PlacedBlock], Run]] = {}
        """The blocks of each segment that were read last: neighbouring units lie in the same ones."""

    def rows(self) -> dict[int, np.ndarray]:
        """The rows of each unit in every frozen generation."""
        found: dict[int, np.ndarray] = {}
        for run in self._runs.frozen:
            rows = found.setdefault(run.generation, np.zeros(self._holdings.unit_numbers, dtype=np.int64))
            rows += unit_rows([run], len(rows))
        return found

    def sizes(self) -> np.ndarray:
        """The frozen bytes of each unit."""
        return unit_bytes(self._runs.frozen, self._holdings.unit_numbers)

    def read(self, input_: InputNumber, unit: Unit, generation: int) -> list[Run]:
        """The rows of an input in one generation of a unit, in the runs that they lie in."""
        alone = only(unit)
        among = self._runs.state if generation == ACTIVE else self._runs.frozen
        runs = [run.of(alone) for run in among if run.segment.input == input_ and run.generation == generation]
        if generation == ACTIVE:
            return [part for run in runs for part in self._open_runs.open(run)]
        directory = self._holdings.directories[input_]
        found = [self._fetch(run) for run in runs if run.rows]
        return [part for run in found for part in parts(run, alone, directory)]

    def unite(self, unit: Unit, older: int, newer: int) -> None:
        """Two frozen generations of a unit are one from now on."""
        self._runs.relabel(unit, newer, older)

    def thaw(self, unit: Unit, generation: int) -> None:
        """A generation of a unit is state that new rows meet again."""
        for run in self._runs.relabel(unit, generation, ACTIVE):
            self._open_runs.hold(run)

    def freeze(
        self,
        units: Ranges,
        added: Mapping[InputNumber, Sequence[Run]],
        retention: Mapping[InputNumber, Retention],
        number: int | None = None,
    ) -> None:
        """All state of some units, with what the epoch adds to it, is a generation from now on, or part of that with
        the `number`. It is written as few segments, and no copy of it stays here."""
        if number is None:
            number = 1 + max((run.generation for run in self._runs.frozen), default=ACTIVE)
        for input_ in self._holdings.freezable:
            state = [run.of(units) for run in self._runs.state if run.segment.input == input_]
            pieces = [part for run in state for part in self._open_runs.open(run)]
            pieces += added.get(input_, ())
            frozen = merge_runs(pieces, retention[input_].keep_from, retention[input_].compacted)
            pieces.clear()
            if frozen is not None:
                self._writer.write_pieces(NewSegment(input_, frozen, units, generation=number))
        for run in self._runs.set_aside(self._holdings.freezable, units):
            self._shrink(run)

    def _fetch(self, run: RunRef) -> Run:
        """The blocks in which a run has rows."""
        blocks = run.blocks
        known = self._fetched.get(run.segment.id)
        if known is None or known[0] != blocks:
            known = self._fetched[run.segment.id] = blocks, joined_run(self._reader.fetch(run))
        return known[1]

    def _shrink(self, run: RunRef) -> None:
        """Keeps of a segment only what is state, where it lies here in one file; of pages, those of units that are."""
        segment = run.segment.id
        if self._tiers.whole(segment) is not None and run.rows:
            rows = joined_run(self._open_runs.open(run))
            data = self._reader.encode(run.segment, rows)
            self._open_runs.hold(run)
            self._tiers.drop(segment)
            self._tiers.add(segment, len(rows), data, room=self._tiers.limit - self._tiers.used)
        else:
            self._open_runs.hold(run)
            self._tiers.keep_pages(run)
