"""The runs of all sites as they are written and sent: columns with an entry a segment, and with an entry a run.

A flow of many queries has hundreds of states, and of each some segments at each site.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from sluice.model.columns import IntColumn, pack_texts, unpack_texts
from sluice.model.epoch.segments import Block, Manifest, RunRef, SegmentRef
from sluice.model.ids import InputNumber
from sluice.model.routing.unit_ranges import Ranges, pack_ranges, unpack_ranges


@dataclass(frozen=True)
class PackedSegments:
    """Segments: `units` are the places of their sets of units in a list. Times are relative: `base` to the least of all
    bases, `earliest` to its base, `middle` and `latest` to the earliest. Of a segment of one unit, all of whose rows
    are that unit's (`single`), there are no `counts`."""

    ids: str
    files: str
    file: np.ndarray
    file_length: np.ndarray
    offset: np.ndarray
    length: np.ndarray
    input: np.ndarray
    rows: np.ndarray
    first_base: int
    base: np.ndarray
    earliest: np.ndarray
    middle: np.ndarray
    latest: np.ndarray
    shift: np.ndarray
    level: np.ndarray
    units: np.ndarray
    single: np.ndarray
    counts: tuple[IntColumn[int], ...]
    pending: np.ndarray
    hashes_from: np.ndarray
    hashes_to: np.ndarray
    blocks: np.ndarray
    block_rows: np.ndarray
    block_length: np.ndarray
    block_checksum: np.ndarray

    @classmethod
    def of(cls, segments: Sequence[SegmentRef], units: dict[Ranges, int]) -> PackedSegments:
        """Segments; `units` has the place of each set of units, and gets those that are new."""
        files: dict[str, int] = {}
        single = [len(s.counts) == 1 and s.counts[0] == s.rows for s in segments]
        base = _column(s.base for s in segments)
        earliest = _column(s.earliest for s in segments)
        first_base = int(base.min(initial=np.iinfo(np.int64).max)) if segments else 0
        blocks = [block for s in segments for block in s.blocks]
        return cls(
            ids=pack_texts([s.id for s in segments]),
            file=_column(files.setdefault(s.file, len(files)) for s in segments),
            files=pack_texts(list(files)),
            file_length=_column(s.file_length for s in segments),
            offset=_column(s.offset for s in segments),
            length=_column(s.length for s in segments),
            input=_column(s.input for s in segments),
            rows=_column(s.rows for s in segments),
            first_base=first_base,
            base=base - first_base,
            earliest=earliest - base,
            middle=_column(s.middle for s in segments) - earliest,
            latest=_column(s.latest for s in segments) - earliest,
            shift=_column(s.shift for s in segments),
            level=_column(s.level for s in segments),
            units=_column(units.setdefault(s.units, len(units)) for s in segments),
            single=_column(single),
            counts=tuple(s.counts for s, alone in zip(segments, single, strict=True) if not alone),
            pending=_column(s.pending for s in segments),
            hashes_from=_column(s.hashes[0] for s in segments),
            hashes_to=_column(s.hashes[1] for s in segments),
            blocks=_column(len(s.blocks) for s in segments),
            block_rows=_column(block.rows for block in blocks),
            block_length=_column(block.length for block in blocks),
            block_checksum=np.array([block.checksum for block in blocks], dtype=np.uint64).view(np.int64),
        )

    def unpack(self, units: Sequence[Ranges]) -> list[SegmentRef]:
        """The segments, given their sets of units."""
        files, counts = unpack_texts(self.files), iter(self.counts)
        checksums = self.block_checksum.astype(np.int64).view(np.uint64).tolist()
        blocks = map(Block, self.block_rows.tolist(), self.block_length.tolist(), checksums)
        base = self.base + self.first_base
        earliest = base + self.earliest
        columns = (
            self.file, self.offset, self.length, self.input, self.rows, earliest, earliest + self.middle,
            earliest + self.latest, base, self.shift, self.level, self.units, self.single, self.blocks, self.pending,
            self.hashes_from, self.hashes_to, self.file_length,
        )  # fmt: skip
        segments = []
        for id_, row in zip(unpack_texts(self.ids), zip(*(c.tolist() for c in columns), strict=True), strict=True):
            file, offset, length, number, rows, first, middle, last, begin, shift, level, place, single, *rest = row
            block_count, pending, low, high, file_length = rest
            segments.append(
                SegmentRef(
                    id=id_,
                    file=files[file],
                    offset=offset,
                    length=length,
                    input=InputNumber(number),
                    rows=rows,
                    earliest=first,
                    middle=middle,
                    latest=last,
                    base=begin,
                    shift=shift,
                    level=level,
                    units=units[place],
                    counts=IntColumn([rows]) if single else next(counts),
                    blocks=tuple(islice(blocks, block_count)),
                    pending=bool(pending),
                    hashes=(low, high),
                    file_length=file_length,
                )
            )
        return segments


@dataclass(frozen=True)
class PackedRuns:
    """The runs of a site: the places of their segments and of their units in lists, and their generations."""

    segment: np.ndarray
    units: np.ndarray
    generation: np.ndarray


@dataclass(frozen=True)
class PackedManifests:
    """The runs of all sites: each segment is named once, however many runs have a part of it, and each set of units,
    however many segments and runs are of it."""

    units: tuple[IntColumn[int], ...]
    segments: PackedSegments
    sites: tuple[PackedRuns, ...]

    @classmethod
    def of(cls, manifests: Sequence[Manifest]) -> PackedManifests:
        """
        >>> ref = SegmentRef("s", "f", 0, 100, 0, 9, 0, 0, 0, 0, 0, 0, ((2, 5),), (4, 3, 2), ())
        >>> manifests = ((RunRef(ref, ((2, 3),)), RunRef(ref, ((4, 5),), 1)), ())
        >>> packed = PackedManifests.of(manifests)
        >>> len(packed.segments.rows), packed.unpack() == manifests
        (1, True)
        """
        units: dict[Ranges, int] = {}
        segments = {run.segment.id: run.segment for manifest in manifests for run in manifest}
        places = {name: place for place, name in enumerate(segments)}
        sites = tuple(
            PackedRuns(
                _column(places[run.segment.id] for run in manifest),
                _column(units.setdefault(run.units, len(units)) for run in manifest),
                _column(run.generation for run in manifest),
            )
            for manifest in manifests
        )
        packed = PackedSegments.of(list(segments.values()), units)
        return cls(tuple(map(pack_ranges, units)), packed, sites)

    def unpack(self) -> tuple[Manifest, ...]:
        """The runs, those of one segment with the same value for it."""
        units = [unpack_ranges(column) for column in self.units]
        segments = self.segments.unpack(units)
        return tuple(
            tuple(
                RunRef(segments[segment], units[place], generation)
                for segment, place, generation in zip(
                    runs.segment.tolist(), runs.units.tolist(), runs.generation.tolist(), strict=True
                )
            )
            for runs in self.sites
        )


def _column(numbers: Iterable[int]) -> np.ndarray:
    return np.fromiter(numbers, np.int64)
