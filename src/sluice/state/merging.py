"""Runs into one run, and a run into pieces of bounded size, each of a range of hashes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from sluice.kernels.order import changes
from sluice.kernels.probe import Run
from sluice.model.routing.directory import HashRange
from sluice.state.inputs import Retention
from sluice.state.segment import join_pieces, merge_sorted, parts


def merge_runs(runs: list[Run], rules: Retention) -> Run | None:
    """The rows of some runs that are still needed, as one run; None if there are none."""
    if not runs:
        return None
    merged = merge_sorted(runs, rules.bounds_of(runs))
    if len(merged):
        merged = _compact(merged, rules)
    return merged if len(merged) else None


def _compact(run: Run, rules: Retention) -> Run:
    """A merged run without what its units need no longer, each by how far it has come: the rows of those that have come
    equally far at once, wherever they lie in it."""
    if len(rules.compacting) == 1:
        return rules.compacting[0][1](run)
    by_progress = [(parts(run, units, rules.directory), compact) for units, compact in rules.compacting]
    return merge_sorted([compact(join_pieces(pieces)) for pieces, compact in by_progress if pieces], None)


def cut_run(
    run: Run, hashes: HashRange, largest: int, narrower: Sequence[HashRange] = ()
) -> list[tuple[HashRange, Run]]:
    """A run of a range of hashes as pieces of its halves, quarters, ..., each of about `largest` bytes at the most.

    No piece has one of the `narrower` ranges inside its own. A hash with so many rows that they fill half a piece
    becomes a piece of its own, of whatever size.
    """
    most = largest * len(run) / max(1, run.rows.nbytes + run.order.nbytes)
    if len(run) <= most and not narrower:
        return [(hashes, run)]
    every = run.hashes
    starts = np.flatnonzero(changes(every))
    sizes = np.diff(np.append(starts, len(run)))
    apart = sizes > most / 2
    pieces = [
        ((int(every[start]), int(every[start]) + 1), _slice(run, start, start + size))
        for start, size in zip(starts[apart].tolist(), sizes[apart].tolist(), strict=True)
    ]
    if pieces:
        rest = np.flatnonzero(~np.repeat(apart, sizes))
        run = Run(run.order[rest], run.times[rest], run.rows.take(pa.array(rest)), run.scale, run.earliest, run.latest)
    pieces += [(within, _slice(run, a, b)) for within, a, b in _halve(run.hashes, hashes, most, narrower)]
    return pieces


def _halve(
    sorted_hashes: np.ndarray, hashes: HashRange, most: float, narrower: Sequence[HashRange]
) -> Iterator[tuple[HashRange, int, int]]:
    """Ranges that halving leads to, and from where to where in an array of hashes each of them goes."""
    stack = [(hashes, 0, len(sorted_hashes), list(narrower))]
    while stack:
        (low, high), a, b, inside = stack.pop()
        inside = [r for r in inside if low <= r[0] and r[1] <= high and r != (low, high)]
        if a == b:
            continue
        if (b - a <= most and not inside) or high - low == 1:
            yield (low, high), a, b
            continue
        middle = (low + high) // 2
        at = a + int(np.searchsorted(sorted_hashes[a:b], middle))
        stack += [((middle, high), at, b, inside), ((low, middle), a, at, inside)]


def _slice(run: Run, start: int, stop: int) -> Run:
    part = run.part(start, stop)
    return replace(part, earliest=int(part.times.min()), latest=int(part.times.max()), whole=None)
