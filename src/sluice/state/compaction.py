"""Which runs to merge, so that runs stay few, no merge is large, and what is stored stays near what is needed.

A run has a range of hashes: all of them when its epoch writes it, a half, a quarter, ... once a merge had to cut its
outcome into pieces of `PIECE_BYTES`. Two ranges lie inside each other or apart, so the runs of a range form a tree, and
any part of it can be merged alone:

- `FAN_IN` runs of one range and like size become one, or several of narrower ranges. A merged run spans at most half
  the time that state is kept, so that it can leave as a whole soon after its newest row has expired.
- Where merges make state smaller (older rows have been replaced), large runs of a range are merged as soon as the
  others are as large as the largest; and those of a wide range are written into the narrower ones below as soon as
  they are as large as these. So what is replaced does not stay for long, however large the state is.

Durable files are shared by the runs that an epoch writes. When less than two thirds of their bytes are in use, the runs
of the emptiest one are written anew.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from sluice.model.directory import HashRange
from sluice.model.state import RunRef

FAN_IN = 4
CROWDED = 8
"""So many runs of like size are merged even where the merged run spans a long time (an idle stream keeps state)."""
PIECE_BYTES = 64 << 20
"""A merged run is cut to about so many, unless all its rows have one hash. One that has twice as many is cut again."""
MERGE_BYTES = FAN_IN * PIECE_BYTES
"""A merge of more would hold an epoch up for long."""
LARGE_BYTES = PIECE_BYTES // 4
"""Smaller runs are merged when they are many, not for what they hold too much: that costs more than it saves."""
REPLACED = 1.0
"""How many times the bytes of older runs the newer ones have when they are merged with them for what they replace."""
ONE_KEY_BYTES = 1 << 30
"""So many bytes of one hash are merged at most: at 2 GB a column of text is full."""
SMALLEST_BYTES = 16 << 10
"""Runs below this count as alike."""
SLACK = 1.5
"""How many times what is used of them the durable files may have."""
NEW_SHARE = 8
"""An epoch merges at most so many times what it brought, or what one merge takes."""


@dataclass(frozen=True)
class Merge:
    """Runs to write as one, or as pieces whose ranges lie in `hashes` and have none of the `narrower` ones inside."""

    runs: Sequence[RunRef]
    hashes: HashRange
    narrower: Sequence[HashRange] = ()

    @property
    def bytes(self) -> float:
        return sum(run.bytes for run in self.runs)


def choose_merges(
    runs: Sequence[RunRef], keep_from: int | None, retention: int | None, shrinks: bool
) -> Iterator[Merge]:
    """The merges of one input's runs that are due, small ones first; none has a run of another.

    >>> from sluice.model.state import SegmentRef
    >>> some = [SegmentRef(str(i), "f", 0, 100, 0, 1, i, i, i, 0, 0, 0, (), (), ()) for i in range(5)]
    >>> [r.segment.id for m in choose_merges([RunRef(s, ()) for s in some], None, 1000, False) for r in m.runs]
    ['0', '1', '2', '3']
    """
    taken: set[str] = set()
    oldest_first = sorted(runs, key=lambda r: r.segment.latest)
    for merge in sorted(_due(oldest_first, keep_from, retention, shrinks), key=lambda m: m.bytes):
        ids = {run.segment.id for run in merge.runs}
        if not ids & taken:
            taken |= ids
            yield merge


def choose_rewrites(runs: Sequence[RunRef], others: Iterable[RunRef]) -> Sequence[RunRef]:
    """The runs to write anew, so that their file can go: those of the file that is used least, where the files of all
    runs hold `SLACK` times what is used of them, or more. Files with one of the `others`, which have to stay, stay too.
    """
    used: dict[str, float] = {}
    sizes: dict[str, int] = {}
    needed = {run.segment.file for run in others}
    for run in runs:
        file = run.segment.file
        if file not in needed:
            used[file] = used.get(file, 0.0) + run.bytes
            sizes[file] = run.segment.file_length
    if sum(sizes.values()) <= SLACK * sum(used.values()):
        return []
    emptiest = min(used, key=lambda file: used[file] / max(1, sizes[file]))
    return [run for run in runs if run.segment.file == emptiest]


def _due(runs: Sequence[RunRef], keep_from: int | None, retention: int | None, shrinks: bool) -> Iterator[Merge]:
    """The merges to choose from; the runs come oldest first."""
    for run in runs:
        # one row far ahead of the others would keep a whole run of expired rows alive: write the rest anew
        middle, rows = run.segment.middle, run.segment.rows
        outlived = keep_from is not None and middle < keep_from - max(retention or 0, 1) and rows > 1
        if outlived or (run.bytes > 2 * PIECE_BYTES and not _is_one(run.segment.hashes)):
            yield Merge([run], run.segment.hashes)
    by_range: dict[HashRange, list[RunRef]] = {}
    for run in runs:
        by_range.setdefault(run.segment.hashes, []).append(run)
    if shrinks:
        yield from _replaced(by_range)
    for hashes, here in by_range.items():
        yield from _crowded(hashes, here, retention)


def _replaced(by_range: dict[HashRange, list[RunRef]]) -> Iterator[Merge]:
    """Merges after which little is left of what newer rows have replaced, those of wide ranges first."""
    alone = [hashes for hashes in by_range if _is_one(hashes)]  # a key with many rows has no part in what is around it
    # wide ones before those inside
    ranges = sorted((r for r in by_range if not _is_one(r)), key=lambda r: (r[0], -r[1]))
    bytes_at = [sum(run.bytes for run in by_range[hashes]) for hashes in ranges]
    bytes_before = [0.0, *accumulate(bytes_at)]
    lows = [low for low, _ in ranges]
    for hashes in alone:
        yield from _outweighed(hashes, by_range[hashes])
    for i, hashes in enumerate(ranges):
        here, size = by_range[hashes], bytes_at[i]
        inside = range(i + 1, bisect_left(lows, hashes[1], lo=i + 1))
        below = bytes_before[inside.stop] - bytes_before[inside.start]
        if not inside:
            yield from _outweighed(hashes, here)
        elif size >= REPLACED * below and size + below <= MERGE_BYTES:
            yield Merge([*here, *(run for j in inside for run in by_range[ranges[j]])], hashes)
        elif size >= REPLACED * below and size <= MERGE_BYTES:
            yield Merge(here, hashes, [ranges[j] for j in inside])


def _outweighed(hashes: HashRange, runs: Sequence[RunRef]) -> Iterator[Merge]:
    """A merge of all runs of a range, where the others are as large as the largest."""
    sizes = [run.bytes for run in runs]
    most = ONE_KEY_BYTES if _is_one(hashes) else MERGE_BYTES
    largest = max(sizes)
    if len(runs) > 1 and largest >= LARGE_BYTES and (1 + REPLACED) * largest <= sum(sizes) <= most:
        yield Merge(runs, hashes)


def _crowded(hashes: HashRange, runs: Sequence[RunRef], retention: int | None) -> Iterator[Merge]:
    """Merges of runs of one range and like size, small ones first."""
    by_size: dict[int, list[RunRef]] = {}
    for run in runs:
        by_size.setdefault(_size_class(run.bytes), []).append(run)
    for _, alike in sorted(by_size.items()):
        groups = [alike[i : i + FAN_IN] for i in range(len(alike) - FAN_IN + 1)]
        groups = [group for group in groups if sum(run.bytes for run in group) <= 2 * MERGE_BYTES]
        short = (group for group in groups if retention is None or _span(group) * 2 <= retention)
        chosen = next(short, groups[0] if groups and len(alike) >= CROWDED else None)
        if chosen:
            yield Merge(chosen, hashes)


def _size_class(size: float) -> int:
    """How often the least size fits into this one, in powers of four.

    >>> [_size_class(SMALLEST_BYTES * x) for x in (0.5, 1, 3.9, 4, 16)]
    [0, 1, 1, 2, 3]
    """
    return ((int(size) // SMALLEST_BYTES).bit_length() + 1) // 2


def _is_one(hashes: HashRange) -> bool:
    return hashes[1] - hashes[0] == 1


def _span(runs: Sequence[RunRef]) -> int:
    return max(r.segment.latest for r in runs) - min(r.segment.earliest for r in runs)
