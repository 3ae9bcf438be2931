"""References to state: which segments a site holds, of which units, and where they are durable."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np

from sluice.model.columns import IntColumn
from sluice.model.ids import InputNumber
from sluice.model.routing.directory import HASH_SPACE, HashRange
from sluice.model.routing.unit_ranges import (
    FEW_RANGES,
    Ranges,
    intersect,
    numbers,
    unite,
)

FEW_UNITS = 1024
"""Fewer units than these are quicker to look up one by one than to count all."""
ALL_HASHES: HashRange = (0, HASH_SPACE)


class Block(NamedTuple):
    """A part of a segment that is read and verified alone: so many of its rows, in so many bytes."""

    rows: int
    length: int
    checksum: int


class PlacedBlock(NamedTuple):
    """A block and where it begins in its segment, with its number of rows."""

    offset: int
    length: int
    checksum: int
    rows: int


@dataclass(frozen=True)
class SegmentRef:
    """An immutable columnar piece of state: `length` bytes at `offset` of one durable file.

    `base` and `shift` give the time part of its order: (time - base) >> shift fits 32 bits. `units` is of which units
    it was written, `counts` how many rows each of them has in it, `level` how often its rows were merged. Its `blocks`
    follow each other, as its units do. What is `pending` is no state yet: rows of an epoch whose turn has not come.
    `hashes` is the range of hashes that its rows were cut to: all of them, or what halving that range again and again
    leads to. `file_length` is how many bytes stay in durable storage as long as this segment is used.
    """

    id: str
    file: str
    offset: int
    length: int
    input: InputNumber
    rows: int
    earliest: int
    middle: int
    latest: int
    base: int
    shift: int
    level: int
    units: Ranges
    counts: IntColumn[int]
    blocks: tuple[Block, ...]
    pending: bool = False
    hashes: HashRange = ALL_HASHES
    file_length: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "counts", IntColumn.of(self.counts))

    @cached_property
    def unit_rows(self) -> tuple[np.ndarray, np.ndarray]:
        """The units it was written of and the rows of each."""
        return _places_of(self.units), self.counts.array

    def __getstate__(self) -> dict[str, object]:
        """Travels without what is only kept here to be at hand."""
        return {name: value for name, value in vars(self).items() if name != "unit_rows"}


@dataclass(frozen=True)
class RunRef:
    """The part of a segment that one site holds: the rows of these units.

    `generation` is 0 for what is state now. What was frozen with its units is of generation 1, what was frozen the next
    time of 2, and so on, until it is cleaned up.
    """

    segment: SegmentRef
    units: Ranges
    generation: int = 0

    @cached_property
    def unit_rows(self) -> tuple[np.ndarray, np.ndarray]:
        """The units held and the rows of each.

        >>> ref = SegmentRef("s", "f", 0, 100, 0, 9, 0, 0, 0, 0, 0, 0, ((2, 5),), (4, 3, 2), ())
        >>> RunRef(ref, ((3, 5),)).unit_rows, RunRef(ref, ((3, 5),)).rows
        ((array([3, 4]), array([3, 2])), 5)
        """
        written, rows = self.segment.unit_rows
        if self.units == self.segment.units:
            return written, rows
        places = _places_of(self.units)
        if len(places) < FEW_UNITS:
            return places, rows[np.searchsorted(written, places)]
        by_place = np.zeros(int(written[-1]) + 1, dtype=np.int64)
        by_place[written] = rows
        return places, by_place[places]

    @property
    def rows(self) -> int:
        return self.segment.rows if self.units == self.segment.units else int(self.unit_rows[1].sum())

    @property
    def bytes(self) -> float:
        """What these units have of the segment's length, by rows."""
        if self.units == self.segment.units:
            return self.segment.length
        return self.segment.length * self.rows / max(1, self.segment.rows)

    def __reduce__(self) -> tuple[type[RunRef], tuple[SegmentRef, Ranges, int]]:
        """Travels without what is only kept here to be at hand."""
        return RunRef, (self.segment, self.units, self.generation)

    def of(self, units: Ranges) -> RunRef:
        """What of it is of some units."""
        return replace(self, units=intersect(self.units, units))

    @property
    def is_active(self) -> bool:
        """Whether it is state that new rows meet: neither frozen, nor input that waits."""
        return not self.generation and not self.segment.pending

    @property
    def blocks(self) -> list[PlacedBlock]:
        """The blocks of the segment in which these units have rows.

        >>> blocks = Block(7, 70, 111), Block(2, 30, 222)
        >>> ref = SegmentRef("s", "f", 0, 100, 0, 9, 0, 0, 0, 0, 0, 0, ((2, 5),), (4, 3, 2), blocks)
        >>> RunRef(ref, ((4, 5),)).blocks
        [PlacedBlock(offset=70, length=30, checksum=222, rows=2)]
        """
        return [block for block, _ in self.rows_by_block]

    @property
    def rows_by_block(self) -> list[tuple[PlacedBlock, int]]:
        """The blocks of the segment in which these units have rows, and how many they have in each."""
        written, counts = self.segment.unit_rows
        places, rows = self.unit_rows
        ends = np.cumsum(counts)[np.searchsorted(written, places[rows > 0])]
        begins = ends - rows[rows > 0]
        counted, offset, row = [], 0, 0
        for block in self.segment.blocks:
            inside = int((np.minimum(ends, row + block.rows) - np.maximum(begins, row)).clip(min=0).sum())
            if inside:
                counted.append((PlacedBlock(offset, block.length, block.checksum, block.rows), inside))
            offset, row = offset + block.length, row + block.rows
        return counted


Manifest = tuple[RunRef, ...]
"""All state of one site."""


def reuse_values(manifests: Sequence[Manifest], before: Sequence[Manifest]) -> tuple[Manifest, ...]:
    """Manifests as they are, with one value for each segment, and the values of `before` for all that is as it was:
    what these have at hand is not worked out again."""
    segments = {run.segment.id: run.segment for manifest in before for run in manifest}
    runs = {(run.segment.id, run.units, run.generation): run for manifest in before for run in manifest}

    def reuse(run: RunRef) -> RunRef:
        segment = segments.get(run.segment.id)
        if segment is None or (segment is not run.segment and segment != run.segment):
            segment = segments[run.segment.id] = run.segment
        same = runs.get((segment.id, run.units, run.generation))
        return same if same is not None and same.segment is segment else RunRef(segment, run.units, run.generation)

    return tuple(tuple(map(reuse, manifest)) for manifest in manifests)


def unit_rows(runs: Iterable[RunRef], units: int) -> np.ndarray:
    """The rows that each unit has in these runs."""
    totals = np.zeros(units, dtype=np.int64)
    for run in runs:
        _add(totals, run, run.unit_rows[1])
    return totals


def unit_bytes(runs: Iterable[RunRef], units: int) -> np.ndarray:
    """The bytes that each unit has of these runs, by rows."""
    totals = np.zeros(units)
    for run in runs:
        _add(totals, run, run.unit_rows[1] * (run.segment.length / max(1, run.segment.rows)))
    return totals


@lru_cache(maxsize=16)
def _places_of(units: Ranges) -> np.ndarray:
    """The places of units. Most runs of a site are of the same units, and have one array together."""
    return numbers(units)


def _add(sums: np.ndarray, run: RunRef, values: np.ndarray) -> None:
    """Add the values of a run's units, in few steps where they are neighbours."""
    if len(run.units) < FEW_RANGES:
        begin = 0
        for low, high in run.units:
            sums[low:high] += values[begin : begin + high - low]
            begin += high - low
    else:
        sums[run.unit_rows[0]] += values


def count_generations(runs: Iterable[RunRef], units: int) -> np.ndarray:
    """How many frozen generations each unit has rows in."""
    by_generation: dict[int, list[RunRef]] = {}
    for run in runs:
        if run.generation:
            by_generation.setdefault(run.generation, []).append(run)
    generations = np.zeros(units, dtype=np.int64)
    for frozen in by_generation.values():
        generations += unit_rows(frozen, units) > 0
    return generations


def join_parts(runs: Iterable[RunRef]) -> Manifest:
    """Runs in order, parts of one segment and generation as one run."""
    by_part: dict[tuple[str, int], RunRef] = {}
    for run in runs:
        part = run.segment.id, run.generation
        same = by_part.get(part)
        by_part[part] = run if same is None else replace(run, units=unite(same.units, run.units))
    return tuple(
        sorted(by_part.values(), key=lambda r: (r.segment.input, r.segment.latest, r.segment.id, r.generation))
    )
