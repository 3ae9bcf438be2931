"""Finding, for many rows at once, the rows of a sorted run with the same key hash inside a time range."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from sluice.kernels.order import TimeScale, changes, hash_part, upper_half
from sluice.kernels.value_order import ValueOrder
from sluice.model.plan.inequalities import Ordering
from sluice.model.routing.directory import HASH_SPACE

PAIRS_AT_ONCE = 1 << 20
SMALL_RUN = 4
"""The hashes of a run that has so many times fewer rows than there are probes are looked up among the probes first."""


LONG_RUN = 32
"""In a run that has so many times more rows than there are hashes, each is looked up; else the two are merged."""
_TICKS = np.uint64(0xFFFFFFFF)


@dataclass(frozen=True)
class Run:
    """Rows sorted by hash and time (see `order`): the sorted numbers, the event times and all columns.

    With `by_time`, the places of the rows in the order of their times, rows of a short time are found without a look at
    the others. A part of a run has none, but finds them in the `whole`, where it begins at `start`.
    `by_value` has the orders in which rows are found by their values, as far as they are known.
    """

    order: np.ndarray
    times: np.ndarray
    rows: pa.RecordBatch
    scale: TimeScale
    earliest: int
    latest: int
    by_time: np.ndarray | None = None
    whole: Run | None = None
    start: int = 0
    by_value: dict[Ordering, ValueOrder] = field(default_factory=dict, compare=False, repr=False)

    @property
    def hashes(self) -> np.ndarray:
        return hash_part(self.order)

    def __len__(self) -> int:
        return len(self.order)

    @property
    def hash_span(self) -> tuple[int, int]:
        """The least and the greatest hash."""
        least, greatest = hash_part(self.order[[0, -1]]).tolist()
        return least, greatest

    def part(self, start: int, stop: int) -> Run:
        """The rows from one place to another, nothing copied."""
        return Run(
            self.order[start:stop],
            self.times[start:stop],
            self.rows.slice(start, stop - start),
            self.scale,
            self.earliest,
            self.latest,
            whole=self,
            start=start,
        )

    def places_of(self, hashes: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Which of some hashes, all different and in order, the run may have, and from where to where its rows of each
        are."""
        if len(self) > LONG_RUN * len(hashes):
            first, last = np.array(self.hash_span, dtype=np.uint32)
            of = np.arange(np.searchsorted(hashes, first), np.searchsorted(hashes, last, side="right"))
            upper = upper_half(hashes[of])
            return of, np.searchsorted(self.order, upper), np.searchsorted(self.order, upper | _TICKS, side="right")
        own = self.hashes
        edges = np.append(np.flatnonzero(changes(own)), len(self))
        own = own[edges[:-1]]
        # a stable sort merges what is sorted already, in less time than binary searches take
        both = np.concatenate([own, hashes])
        order = np.argsort(both, kind="stable")
        both = both[order]
        pairs = np.flatnonzero(both[1:] == both[:-1])
        met = order[pairs]
        return order[pairs + 1] - len(own), edges[met], edges[met + 1]

    def order_by(self, ordering: Ordering) -> ValueOrder:
        """The rows in the order of their values, which is made once and stays with the run."""
        if ordering not in self.by_value:
            self.by_value[ordering] = ValueOrder.of(ordering, self.rows)
        return self.by_value[ordering]

    def places_between(self, low: int, high: int) -> np.ndarray:
        """Where the rows with low <= time < high are."""
        if self.earliest >= high or self.latest < low:
            return np.arange(0)
        if self.whole is not None and self.whole.by_time is not None:
            places = self.whole.places_between(low, high) - self.start
            return places[(places >= 0) & (places < len(self))]
        if self.by_time is None:
            return np.flatnonzero((self.times >= low) & (self.times < high))
        by_time, times = self.by_time, self.times
        first, last = (bisect_left(by_time, time, key=lambda place: times[place]) for time in (low, high))
        return np.sort(by_time[first:last]).astype(np.int64)


def cut_by_hash(runs: Sequence[Run], rows_at_once: int) -> Iterator[list[Run]]:
    """The rows of some runs range by range of their hashes, about so many at a time."""
    pieces = max(1, -(-sum(map(len, runs)) // rows_at_once))
    begins = np.array([(piece << 32) // pieces << 32 for piece in range(pieces)], dtype=np.uint64)
    edges = [[*np.searchsorted(run.order, begins).tolist(), len(run)] for run in runs]
    for piece in range(pieces):
        parts = [run.part(own[piece], own[piece + 1]) for run, own in zip(runs, edges, strict=True)]
        if any(len(part) for part in parts):
            yield [part for part in parts if len(part)]


def pairs(
    run: Run, hashes: np.ndarray, low: np.ndarray, high: np.ndarray, at_once: int = PAIRS_AT_ONCE
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Index pairs (probe row, run row) with equal hashes and low <= time <= high, in chunks of bounded size.

    The probes should come sorted by hash, which keeps the binary searches inside the cache.
    """
    ranges = candidate_ranges(run, hashes, low, high)
    if ranges is None:
        return
    rows, first, count = ranges
    for which, candidates in expand(first, count, at_once):
        probe = rows[which]
        if run.scale.shift:
            exact = is_near(run, candidates, low[probe], high[probe])
            probe, candidates = probe[exact], candidates[exact]
        if len(candidates):
            yield probe, candidates


def is_near(run: Run, places: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Whether rows lie between two times each: what a run's order says is exact for short spans alone."""
    times = run.times[places]
    near: np.ndarray = (times >= low) & (times <= high)
    return near


def candidate_ranges(
    run: Run, hashes: np.ndarray, low: np.ndarray, high: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """The probes for which a run has rows with an equal hash and a time that may be inside their range, where those
    rows begin, and how many they are; None if there are none."""
    if len(run) == 0 or len(hashes) == 0:
        return None
    meeting = _meeting(run, hashes) if SMALL_RUN * len(run) <= len(hashes) else None
    if meeting is not None:
        ranges = _ranges(run, hashes[meeting], low[meeting], high[meeting])
        return None if ranges is None else (meeting[ranges[0]], *ranges[1:])
    return _ranges(run, hashes, low, high)


def _meeting(run: Run, hashes: np.ndarray) -> np.ndarray | None:
    """The probes that have a hash of the run's; None if they are not sorted by hash."""
    if np.any(hashes[1:] < hashes[:-1]):
        return None
    own = run.hashes
    own = own[changes(own)]
    first, end = (np.searchsorted(hashes, own, side=side) for side in ("left", "right"))
    met = end > first
    steps = np.zeros(len(hashes) + 1, dtype=np.int8)
    steps[first[met]] += 1
    steps[end[met]] -= 1
    return np.flatnonzero(np.cumsum(steps[:-1], dtype=np.int8))


def _ranges(
    run: Run, hashes: np.ndarray, low: np.ndarray, high: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """What `candidate_ranges` finds, by looking up each probe."""
    if len(hashes) == 0:
        return None
    probes: np.ndarray | None = None
    reaching = (high >= run.earliest) & (low <= run.latest)
    first_hash, last_hash = run.hash_span
    if last_hash - first_hash < HASH_SPACE // 2:  # a piece of a larger run: most probes go elsewhere
        reaching &= (hashes >= first_hash) & (hashes <= last_hash)
    if not reaching.all():
        probes = np.flatnonzero(reaching)
        if len(probes) == 0:
            return None
        hashes, low, high = hashes[probes], low[probes], high[probes]
    upper = upper_half(hashes)
    from_ = run.scale.ticks(np.maximum(low, run.earliest))
    from_ |= upper
    to = run.scale.ticks(np.minimum(high, run.latest))
    to |= upper
    first = np.searchsorted(run.order, from_)
    hit = np.flatnonzero(run.order.take(first, mode="clip") <= to)
    hit = hit[(first[hit] < len(run)) & (from_[hit] <= to[hit])]
    if len(hit) == 0:
        return None
    first = first[hit]
    count = np.searchsorted(run.order, to[hit], side="right") - first
    return (hit if probes is None else probes[hit]), first, count


def expand(
    first: np.ndarray, count: np.ndarray, at_once: int = PAIRS_AT_ONCE
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """All (probe, position) of the ranges [first, first + count), at most `at_once` a chunk."""
    ends = np.cumsum(count)
    total = int(ends[-1])
    if total == len(count) and count.all():  # one of each, as of tables with one row a key
        yield from ((np.arange(i, min(i + at_once, total)), first[i : i + at_once]) for i in range(0, total, at_once))
        return
    for start in range(0, total, at_once):
        stop = min(start + at_once, total)
        a, b = np.searchsorted(ends, [start, stop - 1], side="right")
        here = count[a : b + 1].copy()
        here[-1] -= ends[b] - stop
        skipped = start - (int(ends[a]) - int(count[a]))
        here[0] -= skipped
        begin = first[a : b + 1].copy()
        begin[0] += skipped
        which = np.repeat(np.arange(a, b + 1), here)
        offsets = np.cumsum(here) - here
        yield which, np.arange(stop - start) + np.repeat(begin - offsets, here)
