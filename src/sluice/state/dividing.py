"""What has to be known of units before they are split: which hashes their rows have, and how many are below some.

State that new rows meet is open already, or near. What is frozen is read a block at a time, and of each unit few: a
sample tells its most frequent hash, and where hashes are in a segment is found by halving, as it is sorted by them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from sluice.kernels.order import hash_part
from sluice.kernels.probe import Run
from sluice.model.epoch.segments import Manifest, RunRef
from sluice.model.ids import Unit, UnitIndex
from sluice.model.routing.unit_ranges import intersect, single_unit
from sluice.verbs.split import CountBelow, HashProfile, RowsBelow

SAMPLE = 4096
"""About as many rows of a unit are looked at to find its most frequent hash: one that most rows have is found by
far fewer."""
SAMPLED_BLOCKS = 64
"""Of frozen state so many blocks are read for that, evenly by rows."""


@dataclass(frozen=True)
class UnitPiece:
    """Some rows of a unit in a segment, in their order: how many, and how they are read. What is frozen is `far`."""

    rows: int
    read: Callable[[], Run]
    far: bool = False

    @classmethod
    def of(cls, part: Run) -> UnitPiece:
        """Rows that are open."""
        return cls(len(part), lambda: part)


Opening = Callable[[RunRef], Sequence[UnitPiece]]
"""The pieces that the rows of a run of one unit lie in."""


def look_at_units(
    manifest: Manifest,
    profile: Mapping[UnitIndex, Unit],
    count_below: Mapping[UnitIndex, CountBelow],
    open_run: Opening,
) -> tuple[HashProfile | RowsBelow, ...]:
    """Profile the hashes of some units, and count the rows of others below some hashes, each by its place; `open_run`
    brings a run's rows."""
    profiles = [p for index, unit in profile.items() for p in _profile(unit, _runs_at(index, manifest), open_run)]
    counts = [c for index, order in count_below.items() for c in _count(order, _runs_at(index, manifest), open_run)]
    return (*profiles, *counts)


def _runs_at(index: UnitIndex, manifest: Manifest) -> list[RunRef]:
    alone = single_unit(index)
    runs = (run.of(alone) for run in manifest if intersect(run.units, alone))
    return [run for run in runs if run.rows]


@dataclass(frozen=True)
class _Sample:
    """Some hashes and how many rows each stands for; the least and the greatest of all that were looked at."""

    hashes: np.ndarray
    rows: np.ndarray
    least: int
    greatest: int

    @classmethod
    def of(cls, part: Run, stands_for: float, most: int) -> _Sample:
        """At most so many hashes of a run, evenly; it stands for so many rows."""
        step = -(-len(part) // max(1, most))
        each = np.diff(np.arange(0, len(part) + step, step).clip(max=len(part)))
        least, greatest = part.hash_span
        return cls(hash_part(part.order[::step]), each * (stands_for / len(part)), least, greatest)


def _profile(unit: Unit, runs: Iterable[RunRef], open_run: Opening) -> list[HashProfile]:
    """Nothing if the unit has no row."""
    by_run = [[piece for piece in open_run(run) if piece.rows] for run in runs]
    near = [piece.read() for pieces in by_run for piece in pieces if not piece.far]
    far = [[piece for piece in pieces if piece.far] for pieces in by_run]
    rows = sum(piece.rows for pieces in by_run for piece in pieces)
    if not rows:
        return []
    samples = [_Sample.of(part, len(part), -(-SAMPLE * len(part) // rows)) for part in near]
    samples += _sample_blocks([piece for pieces in far for piece in pieces])
    hashes, of = np.unique(np.concatenate([sample.hashes for sample in samples]), return_inverse=True)
    stand_for = np.bincount(of, weights=np.concatenate([sample.rows for sample in samples]))
    frequent = int(hashes[stand_for.argmax()])
    counted = sum(_below(part, frequent + 1) - _below(part, frequent) for part in near)
    sampled = sum(sample.rows[sample.hashes == frequent].sum() for sample in samples[len(near) :])
    least, greatest = min(sample.least for sample in samples), max(sample.greatest for sample in samples)
    if least == greatest:
        least, greatest = _look_for_another(least, far)
    return [HashProfile(unit, rows, least, greatest, frequent, counted + round(sampled))]


def _sample_blocks(pieces: Sequence[UnitPiece]) -> list[_Sample]:
    """What some pieces have, of which few are read, one at a time: those with every so manieth row."""
    if not pieces:
        return []
    ends = np.cumsum([piece.rows for piece in pieces])
    every = ends[-1] / min(SAMPLED_BLOCKS, len(pieces))
    places, hits = np.unique(np.searchsorted(ends, np.arange(every / 2, ends[-1], every), "right"), return_counts=True)
    most = -(-SAMPLE // len(places))
    return [
        _Sample.of(pieces[place].read(), every * count, most)
        for place, count in zip(places.tolist(), hits.tolist(), strict=True)
    ]


def _look_for_another(hash_: int, runs: Iterable[Sequence[UnitPiece]]) -> tuple[int, int]:
    """The least and the greatest hash, if one was found so far: those at the ends of runs, until there is another."""
    least = greatest = hash_
    for pieces in runs:
        for piece in {id(piece): piece for piece in (*pieces[:1], *pieces[-1:])}.values():
            span = piece.read().hash_span
            least, greatest = min(least, span[0]), max(greatest, span[1])
            if least < greatest:
                return least, greatest
    return least, greatest


def _count(order: CountBelow, runs: Iterable[RunRef], open_run: Opening) -> list[RowsBelow]:
    counts: dict[tuple[str, int], int] = {}
    for run in runs:
        for edge, below in zip(order.hashes, _count_below(open_run(run), order.hashes), strict=True):
            key = run.segment.id, edge
            counts[key] = counts.get(key, 0) + below
    return [RowsBelow(order.unit, segment, edge, below) for (segment, edge), below in counts.items()]


def _count_below(pieces: Sequence[UnitPiece], edges: Sequence[int]) -> list[int]:
    """How many rows of a run have hashes below each of some; its pieces are in the order of their hashes. Each is read
    once at most, and few of them are."""
    rows_before = [0, *accumulate(piece.rows for piece in pieces)]
    counts: dict[int, list[int]] = {}
    counts_below = []
    for at in range(len(edges)):
        first, end = 0, len(pieces)  # all before the first are below, none from the end on is
        below = 0
        while first < end and not below:
            middle = (first + end) // 2
            if middle not in counts:
                part = pieces[middle].read()
                counts[middle] = [_below(part, edge) for edge in edges]
            below = counts[middle][at]
            if below == pieces[middle].rows:
                first, below = middle + 1, 0
            else:
                end = middle
        counts_below.append(rows_before[end] + below)
    return counts_below


def _below(part: Run, edge: int) -> int:
    """How many rows have hashes below one; the end of all hashes has 33 bits, and all are below it."""
    return len(part) if edge >> 32 else int(np.searchsorted(part.order, np.uint64(edge) << np.uint64(32)))
