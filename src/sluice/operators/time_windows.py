"""Group-by over windows of event time, put together from panes.

Rows are reduced to one partial aggregate a group and pane before they cross the exchange, so a hot group costs its site
next to nothing. State is those partials. When the watermark passes a window's end, its panes are merged: every window
comes once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from sluice.kernels.aggregation import Aggregation
from sluice.kernels.grouping import group_rows, hash_group_keys
from sluice.kernels.order import hash_part
from sluice.kernels.probe import Run
from sluice.model.epoch import Times
from sluice.model.group_by import TimeWindows
from sluice.model.stream import TIME_COLUMN
from sluice.operators.seam import USUAL_MERGE, Outgoing, State, Stored

ROWS_AT_ONCE = 1 << 21
"""Partials that are merged at a time."""


class TimeWindowsGroupBy:
    """The group-by as an operator; its state's time is the start of the pane."""

    def __init__(self, spec: TimeWindows) -> None:
        self.spec, self.schema = spec, spec.output_schema()
        self.retention = spec.delay
        self.largest_merge = USUAL_MERGE
        self.aggregation = Aggregation(spec.aggregates, spec.stream.schema)
        keys = [pa.field(f"key{i}", spec.stream.schema.field(k).type) for i, k in enumerate(spec.keys)]
        self.partials = pa.schema([*keys, pa.field(TIME_COLUMN, pa.int64()), *self.aggregation.partial_schema])

    def crossing(self, input_: int) -> pa.Schema:
        return self.partials

    def stored(self, input_: int) -> Stored:
        return Stored(self.partials, TIME_COLUMN)

    def outgoing(self, input_: int, rows: pa.RecordBatch) -> Outgoing:
        times = rows.column(self.spec.stream.event_time).cast(pa.int64()).to_numpy()
        keys = [rows.column(k) for k in self.spec.keys]
        panes = times - times % self.spec.pane
        hashes = hash_group_keys(keys, rows=rows.num_rows)
        groups = group_rows([*keys, pa.array(panes)], _with_pane(hashes, panes))
        partial = self.aggregation.partial(rows, times, groups)
        return Outgoing(hashes[groups.first], self._batch(keys, panes, groups.first, partial))

    def keep_from(self, input_: int, before: Times, after: Times) -> int | None:
        return self.spec.keep_from(before[0])

    def compacted(self, input_: int, run: Run, after: Times) -> Run:
        """One partial a group and pane, where merged runs brought several."""
        keys, partials = self._split(run.rows)
        groups = group_rows([*keys, pa.array(run.times)], _with_pane(run.hashes, run.times))
        if groups.count == len(run):
            return run
        merged = self.aggregation.merged(partials, groups)
        first = groups.first
        order = np.lexsort((run.times[first], run.hashes[first]))
        at = first[order]
        rows = self._batch(keys, run.times, at, merged.take(pa.array(order)))
        return Run(run.order[at], run.times[at], rows, run.scale, run.earliest, run.latest)

    def epoch(
        self, number: int, new: Sequence[Run | None], state: State, before: Times, after: Times
    ) -> Iterator[pa.RecordBatch]:
        fresh = self.compacted(0, new[0], after) if new[0] is not None else None
        done, now = before[0], after[0]
        if now is not None and (done is None or now > done):
            first = np.iinfo(np.int64).min if done is None else done - self.spec.length
            runs = [*state.runs(0, (first, now)), *([fresh] if fresh is not None else [])]
            yield from self._closed(runs, done, now)
        if fresh is not None:
            state.stage(0, fresh)

    def _closed(self, runs: list[Run], done: int | None, now: int) -> Iterator[pa.RecordBatch]:
        """Results of all windows that end after `done`, up to `now`."""
        length, slide = self.spec.length, self.spec.slide
        held = np.unique(np.concatenate([np.unique(r.times) for r in runs] or [np.empty(0, np.int64)]))
        # a pane lies in the windows that end at last, last - slide, …, each more than `pane start`
        last = held - held % slide + length
        ends = np.unique(last[:, None] - np.arange(0, length, slide)[None, :])
        ends = ends[(ends <= now) & (ends > (done if done is not None else ends.min(initial=0) - 1))]
        for some in self._portions(runs, ends):
            yield from self._windows(runs, some)

    def _portions(self, runs: list[Run], ends: np.ndarray) -> Iterator[np.ndarray]:
        """Window ends, as many at a time as keep the number of partials to merge bounded."""
        if len(ends) == 0:
            return
        times = np.sort(np.concatenate([r.times for r in runs]))
        each = np.searchsorted(times, ends) - np.searchsorted(times, ends - self.spec.length)
        which = np.cumsum(each) // ROWS_AT_ONCE
        yield from np.split(ends, np.flatnonzero(np.diff(which)) + 1)

    def _windows(self, runs: list[Run], ends: np.ndarray) -> Iterator[pa.RecordBatch]:
        """The windows that end at these times: each pane goes into every one of them that holds it."""
        length = self.spec.length
        rows, hashes, at = [], [], []
        for run in runs:
            low, high = (
                np.searchsorted(ends, run.times, side="right"),
                np.searchsorted(ends, run.times + length, "right"),
            )
            copies = high - low
            used = np.flatnonzero(copies)
            if len(used) == 0:
                continue
            copies, low = copies[used], low[used]
            source = np.repeat(used, copies)
            place = np.arange(len(source)) - np.repeat(np.cumsum(copies) - copies, copies) + np.repeat(low, copies)
            rows.append(run.rows.take(pa.array(source)))
            hashes.append(hash_part(run.order)[source])
            at.append(ends[place])
        if not rows:
            return
        keys, partials = self._split(pa.concat_batches(rows))
        end = np.concatenate(at)
        groups = group_rows([*keys, pa.array(end)], _with_pane(np.concatenate(hashes), end))
        finished = self.aggregation.finished(self.aggregation.merged(partials, groups))
        first = pa.array(groups.first)
        stops = end[groups.first]
        times = [pa.array(t).cast(self.spec.time_type) for t in (stops - length, stops)]
        columns = [*(k.take(first) for k in keys), *times, *finished.columns]
        yield pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _batch(
        self, keys: Sequence[pa.Array], times: np.ndarray, at: np.ndarray, partial: pa.RecordBatch
    ) -> pa.RecordBatch:
        columns = [*(k.take(pa.array(at)) for k in keys), pa.array(times[at]), *partial.columns]
        return pa.RecordBatch.from_arrays(columns, schema=self.partials)

    def _split(self, rows: pa.RecordBatch) -> tuple[list[pa.Array], pa.RecordBatch]:
        """Key columns and partial aggregates of rows as they are stored."""
        count = len(self.spec.keys)
        partial = pa.RecordBatch.from_arrays(rows.columns[count + 1 :], schema=self.aggregation.partial_schema)
        return rows.columns[:count], partial


def _with_pane(hashes: np.ndarray, times: np.ndarray) -> np.ndarray:
    """A hash of group and time, for grouping by both."""
    mixed = hashes.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + times.astype(np.uint64)
    mixed *= np.uint64(0xD6E8FEB86659FD93)
    return (mixed >> np.uint64(32)).astype(np.uint32)
