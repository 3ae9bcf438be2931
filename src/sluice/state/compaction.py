"""Which runs to merge, so that runs stay few, no merge is large, and what is stored stays near what is needed.

A run has a range of hashes: all of them when its epoch writes it, a half, a quarter, ... once a merge had to cut its
outcome into pieces of `PIECE_BYTES`. Two ranges lie inside each other or apart, so the runs of a range form a tree, and
any part of it can be merged alone:

- `FAN_IN` runs of one range and like size, or more if there are more, become one, or several of narrower ranges. A
  merged run spans at most half the time that state is kept, so that it can leave as a whole soon after its newest row
  has expired.
- Where merges make state smaller (older rows have been replaced), large runs of a range are merged as soon as the
  others are as large as the largest; and those of a wide range are written into the narrower ones below as soon as
  they are as large as these. So what is replaced does not stay for long, however large the state is.

Durable files are shared by the runs that an epoch writes. When less than two thirds of their bytes are in use, the runs
of the emptiest one are written anew.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from sluice.model.epoch.segments import RunRef
from sluice.model.routing.directory import HashRange

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
MAX_MERGED_PER_NEW_BYTE = 8
"""An epoch merges at most so many times what it brought, or what one merge takes."""
FEW_RUNS = 24
"""So many runs an input may have, and `RUNS_OF_A_PIECE` more for each piece. While it has more, as when units have
come from other sites, an epoch merges up to `MERGE_BYTES`."""
RUNS_OF_A_PIECE = 3


EarliestNeeded = Callable[[RunRef], int | None]
"""From which time on a run's rows are needed; None is from any time on."""


@dataclass(frozen=True)
class RunMerge:
    """Runs to write as one, or as pieces whose ranges lie in `hashes` and have none of the `narrower` ones inside."""

    runs: Sequence[RunRef]
    hashes: HashRange
    narrower: Sequence[HashRange] = ()

    @property
    def bytes(self) -> float:
        return sum(run.bytes for run in self.runs)


def choose_merges(
    runs: Sequence[RunRef], earliest_needed: EarliestNeeded, retention: int | None, shrinks: bool
) -> Iterator[RunMerge]:
    """The merges of one input's runs that are due, small ones first; none has a run of another.

    >>> from sluice.model.epoch.segments import SegmentRef
    >>> some = [SegmentRef(str(i), "f", 0, 100, 0, 1, i, i, i, 0, 0, 0, (), (), ()) for i in range(5)]
    >>> merges = choose_merges([RunRef(s, ()) for s in some], lambda run: None, 1000, False)
    >>> [run.segment.id for merge in merges for run in merge.runs]
    ['0', '1', '2', '3', '4']
    """
    taken: set[str] = set()
    oldest_first = sorted(runs, key=lambda r: r.segment.latest)
    for merge in sorted(_due(oldest_first, earliest_needed, retention, shrinks), key=lambda m: m.bytes):
        ids = {run.segment.id for run in merge.runs}
        if not ids & taken:
            taken |= ids
            yield merge


def merges_of_epoch(
    groups: Iterable[Sequence[RunRef]],
    brought: float,
    earliest_needed: EarliestNeeded,
    retention: int | None,
    shrinks: bool,
) -> list[RunMerge]:
    """The merges of one input that an epoch carries out which brought so many bytes, small ones first; runs of two
    groups are not merged.

    It is one, however large, and more as long as they are in proportion to what came: to the bytes of new rows, and,
    while there are more runs than there should be, to what one merge may have.
    """
    groups = [runs for runs in groups if runs]
    due = [merge for runs in groups for merge in choose_merges(runs, earliest_needed, retention, shrinks)]
    size = sum(run.bytes for runs in groups for run in runs)
    left, few = sum(map(len, groups)), FEW_RUNS + RUNS_OF_A_PIECE * size / PIECE_BYTES
    chosen: list[RunMerge] = []
    merged = 0.0
    for merge in sorted(due, key=lambda m: m.bytes):
        is_crowded = left > few and merged + merge.bytes <= MERGE_BYTES
        if chosen and merged >= MAX_MERGED_PER_NEW_BYTE * brought and not is_crowded:
            break
        chosen.append(merge)
        merged += merge.bytes
        left -= len(merge.runs) - 1
    return chosen


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


def _due(
    runs: Sequence[RunRef], earliest_needed: EarliestNeeded, retention: int | None, shrinks: bool
) -> Iterator[RunMerge]:
    """The merges to choose from; the runs come oldest first."""
    for run in runs:
        keep_from = earliest_needed(run)
        # one row far ahead of the others would keep a whole run of expired rows alive: write the rest anew
        middle, rows = run.segment.middle, run.segment.rows
        outlived = keep_from is not None and middle < keep_from - max(retention or 0, 1) and rows > 1
        if outlived or (run.bytes > 2 * PIECE_BYTES and not _is_one(run.segment.hashes)):
            yield RunMerge([run], run.segment.hashes)
    by_range: dict[HashRange, list[RunRef]] = {}
    for run in runs:
        by_range.setdefault(run.segment.hashes, []).append(run)
    if shrinks:
        yield from _plan_replacements(by_range)
    for hashes, here in by_range.items():
        yield from _plan_crowded(hashes, here, retention)


def _plan_replacements(by_range: dict[HashRange, list[RunRef]]) -> Iterator[RunMerge]:
    """Merges after which little is left of what newer rows have replaced, those of wide ranges first."""
    alone = [hashes for hashes in by_range if _is_one(hashes)]  # a key with many rows has no part in what is around it
    wide_first = sorted((r for r in by_range if not _is_one(r)), key=lambda r: (r[0], -r[1]))
    bytes_at = [sum(run.bytes for run in by_range[hashes]) for hashes in wide_first]
    bytes_before = [0.0, *accumulate(bytes_at)]
    lows = [low for low, _ in wide_first]
    for hashes in alone:
        yield from _plan_outweighed(hashes, by_range[hashes])
    for i, hashes in enumerate(wide_first):
        here, size = by_range[hashes], bytes_at[i]
        inside = range(i + 1, bisect_left(lows, hashes[1], lo=i + 1))
        below = bytes_before[inside.stop] - bytes_before[inside.start]
        if not inside:
            yield from _plan_outweighed(hashes, here)
        elif size >= REPLACED * below and size + below <= MERGE_BYTES:
            yield RunMerge([*here, *(run for j in inside for run in by_range[wide_first[j]])], hashes)
        elif size >= REPLACED * below and size <= MERGE_BYTES:
            yield RunMerge(here, hashes, [wide_first[j] for j in inside])


def _plan_outweighed(hashes: HashRange, runs: Sequence[RunRef]) -> Iterator[RunMerge]:
    """A merge of all runs of a range, where the others are as large as the largest."""
    sizes = [run.bytes for run in runs]
    most = ONE_KEY_BYTES if _is_one(hashes) else MERGE_BYTES
    largest = max(sizes)
    if len(runs) > 1 and largest >= LARGE_BYTES and (1 + REPLACED) * largest <= sum(sizes) <= most:
        yield RunMerge(runs, hashes)


def _plan_crowded(hashes: HashRange, runs: Sequence[RunRef], retention: int | None) -> Iterator[RunMerge]:
    """Merges of runs of one range and like size, small ones first."""
    by_size: dict[int, list[RunRef]] = {}
    for run in runs:
        by_size.setdefault(_size_class(run.bytes), []).append(run)
    for _, alike in sorted(by_size.items()):
        for group in _groups(alike, retention):
            yield RunMerge(group, hashes)


def _groups(alike: Sequence[RunRef], retention: int | None) -> Iterator[Sequence[RunRef]]:
    """Runs of like size that are merged with each other, oldest first: those that span little time, and where many are
    left then, these too, whatever they span."""
    left: list[RunRef] = []
    start = 0
    while start < len(alike):
        end = _end_of_group(alike, start, retention)
        if end:
            yield alike[start:end]
        else:
            left.append(alike[start])
        start = end or start + 1
    start = 0
    while len(left) - start >= CROWDED:
        end = _end_of_group(left[: len(left) - FAN_IN], start, None)
        if end:
            yield left[start:end]
        start = end or start + 1


def _end_of_group(runs: Sequence[RunRef], start: int, retention: int | None) -> int | None:
    """Where the group of runs ends that begins at one of them; None if there is none: a merge of so many would be too
    large, or span too much time."""
    end = start + FAN_IN
    group = runs[start:end]
    if len(group) < FAN_IN or sum(run.bytes for run in group) > 2 * MERGE_BYTES:
        return None
    size, earliest = sum(run.bytes for run in group), min(run.segment.earliest for run in group)
    if retention is not None and (group[-1].segment.latest - earliest) * 2 > retention:
        return None
    for run in runs[end:]:
        size, earliest = size + run.bytes, min(earliest, run.segment.earliest)
        if size > MERGE_BYTES or (retention is not None and (run.segment.latest - earliest) * 2 > retention):
            break
        end += 1
    return end


def _size_class(size: float) -> int:
    """How often the least size fits into this one, in powers of four.

    >>> [_size_class(SMALLEST_BYTES * x) for x in (0.5, 1, 3.9, 4, 16)]
    [0, 1, 1, 2, 3]
    """
    return ((int(size) // SMALLEST_BYTES).bit_length() + 1) // 2


def _is_one(hashes: HashRange) -> bool:
    return hashes[1] - hashes[0] == 1
