"""Reads what a site holds of a segment, from the nearest tier that has it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from sluice.kernels.probe import Run
from sluice.model.epoch.segments import PlacedBlock, RunRef, SegmentRef
from sluice.model.ids import UnitIndex
from sluice.state.durable import DurableSegments
from sluice.state.inputs import Holdings
from sluice.state.segment import counts, decode, encode, join_pieces
from sluice.state.tiers import Tiers


@dataclass(frozen=True)
class SegmentReader:
    """Segments of the local tiers and of durable storage, as runs."""

    holdings: Holdings
    tiers: Tiers
    durable: DurableSegments

    def read(self, run: RunRef) -> Run:
        """A run from the nearest tier that has all of it; from now on it lies here in one file."""
        ref = run.segment
        whole = self.read_whole(run)
        if whole is not None:
            return whole
        rows = join_pieces(self._read_pages(run) or self.fetch(run))
        count, data = len(rows), self.encode(ref, rows)
        self.tiers.drop(ref.id)
        self.tiers.add(ref.id, count, data, room=self.tiers.limit - self.tiers.used)
        return self._decode(ref, count, data)

    def read_whole(self, run: RunRef) -> Run | None:
        """A run, if all of it lies here in one file: that may be of when less was held."""
        ref, file = run.segment, self.tiers.read_whole_file(run.segment.id)
        if file is None:
            return None
        rows = self._decode(ref, *file)
        directory = self.holdings.directories[ref.input]
        all_here = len(rows) == ref.rows or np.array_equal(counts(rows, run.units, directory), run.unit_rows[1])
        return rows if all_here else None

    def read_page(self, ref: SegmentRef, unit: UnitIndex, rows: int) -> Run | None:
        """A unit's rows of a segment, if they lie here as a page."""
        data = self.tiers.page(ref.id, unit)
        return None if data is None else self._decode(ref, rows, data)

    def fetch(self, run: RunRef) -> list[Run]:
        """A run from durable storage, and what else is in the same blocks."""
        return [self._decode(run.segment, rows, data) for rows, data in self.durable.fetch(run)]

    def fetch_block(self, ref: SegmentRef, block: PlacedBlock) -> Run:
        """One block of a segment from durable storage."""
        ((rows, data),) = self.durable.fetch_blocks(ref, [block])
        return self._decode(ref, rows, data)

    def copy(self, ref: SegmentRef, rows: Run) -> Run:
        """The same rows as bytes of our own: a mapped file would stay in memory as long as it is used."""
        return self._decode(ref, len(rows), self.encode(ref, rows))

    def encode(self, ref: SegmentRef, rows: Run) -> pa.Buffer:
        """Rows of a segment as its bytes."""
        return encode(self.holdings.layout_of(ref.input, ref.pending), rows)

    def _read_pages(self, run: RunRef) -> list[Run]:
        """The pages of all of a run, none if one is missing."""
        pages = []
        for unit, rows in zip(*(column.tolist() for column in run.unit_rows), strict=True):
            if rows:
                page = self.read_page(run.segment, unit, rows)
                if page is None:
                    return []
                pages.append(page)
        return pages

    def _decode(self, ref: SegmentRef, rows: int, data: pa.Buffer) -> Run:
        return decode(self.holdings.layout_of(ref.input, ref.pending), replace(ref, rows=rows), data)
