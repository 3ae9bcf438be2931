"""The new segments of an epoch: encoded, named, kept on the local tiers, and made durable in one file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from sluice.kernels.probe import Run
from sluice.model.columns import IntColumn
from sluice.model.epoch.attempt import Attempt
from sluice.model.epoch.segments import ALL_HASHES, Manifest, RunRef, SegmentRef
from sluice.model.ids import InputNumber
from sluice.model.routing.directory import HashRange
from sluice.model.routing.unit_ranges import Ranges, intersect, numbers, to_ranges
from sluice.state import compaction
from sluice.state.durable import STATE
from sluice.state.epoch_runs import EpochRuns
from sluice.state.merging import cut_run
from sluice.state.opening import OpenRuns
from sluice.state.reading import SegmentReader
from sluice.state.segment import counts, encode, encode_blocks
from sluice.state.tiers import Tiers
from sluice.state.unit_pages import UnitPages


@dataclass(frozen=True)
class NewSegment:
    """Rows that become a segment: of which input, units and range of hashes, and how often they were merged. If they
    are frozen, units with their generation."""

    input: InputNumber
    rows: Run
    units: Ranges
    level: int = 0
    hashes: HashRange = ALL_HASHES
    pending: bool = False
    generations: tuple[tuple[int, Ranges], ...] = ()


class SegmentWriter:
    """Writes the new segments of one attempt at an epoch. They are durable once `write_durable` has returned."""

    def __init__(
        self, attempt: Attempt, runs: EpochRuns, open_runs: OpenRuns, reader: SegmentReader, pages: UnitPages
    ) -> None:
        self._attempt, self._runs, self._open_runs, self._pages = attempt, runs, open_runs, pages
        self._holdings, self._tiers, self._durable = reader.holdings, reader.tiers, reader.durable
        self._blocks: dict[str, list[pa.Buffer]] = {}

    def write_pieces(self, new: NewSegment, narrower: Sequence[HashRange] = ()) -> int:
        """Write state as segments no larger than merges can take them, none with a `narrower` range of hashes inside
        its own; returns their bytes."""
        pieces = cut_run(new.rows, new.hashes, compaction.PIECE_BYTES, narrower)
        return sum(self.write(replace(new, rows=rows, hashes=hashes)) for hashes, rows in pieces)

    def write(self, new: NewSegment) -> int:
        """Write one segment, to the local tiers for now; returns its bytes."""
        layout, directory = self._holdings.layout_of(new.input, new.pending), self._holdings.directories[new.input]
        units = intersect(new.units, (directory.units_in(*new.hashes),))
        data = encode(layout, new.rows)
        unit_counts = counts(new.rows, units, directory)
        if new.generations:  # units without rows would stay frozen for good
            units = to_ranges(numbers(units)[unit_counts > 0].tolist())
            unit_counts = unit_counts[unit_counts > 0]
        blocks = encode_blocks(layout, new.rows, unit_counts, data)
        name = f"{self._attempt}-{len(self._blocks)}"
        ref = SegmentRef(
            id=name,
            file="",
            offset=0,
            length=sum(block.length for block, _ in blocks),
            input=new.input,
            rows=len(new.rows),
            earliest=new.rows.earliest,
            middle=_middle(new.rows),
            latest=new.rows.latest,
            base=new.rows.scale.base,
            shift=new.rows.scale.shift,
            level=new.level,
            units=units,
            counts=IntColumn(unit_counts),
            blocks=tuple(block for block, _ in blocks),
            pending=new.pending,
            hashes=new.hashes,
        )
        self._blocks[name] = [piece for _, piece in blocks]
        for generation, of in new.generations:
            self._runs.add(RunRef(ref, intersect(units, of), generation))
        if not new.generations:
            run = RunRef(ref, units)
            self._runs.add(run)
            self._open_runs.add(name, new.rows)
            self._keep(run, new.rows, data)
        return len(data)

    def write_durable(self) -> Manifest:
        """Write what is used of the new segments in one file, and frozen ones in another; the runs of them, and where
        they lie."""
        new = [run for run in self._runs.new if run.units]
        frozen = self._write_file("-frozen", [run for run in new if run.generation])  # it stays longer than the others
        return (*self._write_file("", [run for run in new if not run.generation]), *frozen)

    def _write_file(self, suffix: str, runs: Sequence[RunRef]) -> Manifest:
        file, segments = f"{STATE}/{self._attempt}{suffix}.segments", {run.segment.id: run.segment for run in runs}
        length, offset = sum(segment.length for segment in segments.values()), 0
        for name, segment in segments.items():
            segments[name] = replace(segment, file=file, offset=offset, file_length=length)
            offset += segment.length
        if segments:
            write = self._durable.write_frozen if suffix else self._durable.write
            write(file, [piece for name in segments for piece in self._blocks[name]])
        return tuple(replace(run, segment=segments[run.segment.id]) for run in runs)

    def _keep(self, run: RunRef, rows: Run, data: pa.Buffer) -> None:
        """Keeps a new segment on the local tiers: as pages if units are paged, else in one file, for which older ones
        make room. Input that waits goes to disk."""
        ref, tiers = run.segment, self._tiers
        block_checksum = ref.blocks[0].checksum if len(ref.blocks) == 1 else None
        if ref.pending:
            tiers.add(ref.id, len(rows), data, room=0, known=block_checksum)
        elif self._pages.active:
            self._pages.lay_out(run, rows)
        else:
            if tiers.used + len(data) > tiers.limit >= len(data):
                make_room(tiers, (*self._runs.state, *self._runs.new), len(data))
            tiers.add(ref.id, len(rows), data, known=block_checksum)


def make_room(tiers: Tiers, runs: Sequence[RunRef], coming: int = 0) -> None:
    """Bring the memory tier within its limit, bytes that are `coming` included: the oldest segments go to disk."""
    newest_first = sorted((run.segment for run in runs), key=lambda segment: segment.latest, reverse=True)
    tiers.settle(newest_first, coming)


def _middle(rows: Run) -> int:
    """The median of the times, of about a thousand of them."""
    times = np.sort(rows.times[:: max(1, len(rows) // 1000)])  # of a few times, np.median takes ten times as long
    return (int(times[(len(times) - 1) // 2]) + int(times[len(times) // 2])) // 2
