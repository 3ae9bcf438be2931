"""Group-by over windows of event time, put together from panes.

Rows are reduced to one partial aggregate a group and pane before they cross the exchange, so a hot group costs its site
next to nothing. State is those partials. When the watermark passes a window's end, its panes are merged: every window
comes once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from sluice.expressions.kernels.arrow_numpy import numbers
from sluice.kernels.aggregation import Aggregation
from sluice.kernels.grouping import Groups, encode_texts, group_rows, hash_group_keys, hash_groups, number_groups
from sluice.kernels.order import changes, hash_part
from sluice.kernels.probe import Run
from sluice.model.epoch.times import Times
from sluice.model.plan.group_by import TimeWindows
from sluice.model.plan.stream import TIME_COLUMN
from sluice.operators.protocol import Outgoing, ResultBatch, State
from sluice.operators.row_hashing import RowHashing
from sluice.state.segment import Layout

ROWS_AT_ONCE = 1 << 21
"""Partials that are merged at a time."""


class TimeWindowsGroupBy:
    """The group-by as an operator; its state's time is the start of the pane."""

    def __init__(self, spec: TimeWindows) -> None:
        self.spec, self.schema = spec, spec.output_schema()
        self.retention = spec.delay
        self.by_time = True
        self.shrinks = False
        self.aggregation = Aggregation(spec.aggregates, spec.stream.schema)
        self.partials = self.aggregation.stored_schema(spec.keys, [TIME_COLUMN])

    def exchange_schema(self, input_: int) -> pa.Schema:
        return self.partials

    def state_layout(self, input_: int) -> Layout:
        return Layout(self.partials, TIME_COLUMN, self.spec.pane)

    def prepare_input(self, input_: int, rows: pa.RecordBatch) -> Outgoing:
        times = rows.column(self.spec.stream.event_time).cast(pa.int64()).to_numpy()
        if self.spec.shift:
            times = times - self.spec.shift
        keys = [rows.column(k) for k in self.spec.keys]
        encoded = encode_texts(keys)
        groups = self._group(encoded, times)
        partial = self.aggregation.partial(rows, times, groups)
        return Outgoing(hash_groups(encoded, groups), self._batch(keys, times, groups.first, partial))

    def _group(self, keys: Sequence[pa.Array], times: np.ndarray) -> Groups:
        """Rows of the same keys and pane."""
        columns = list(keys)
        if times.min() // self.spec.pane != times.max() // self.spec.pane:  # else windows are longer than an epoch
            columns.append(pa.array(times // self.spec.pane))
        groups = number_groups(columns)
        if groups is not None:
            return groups
        hashes = hash_group_keys(keys, rows=len(times))
        return group_rows(columns, hashes if len(columns) == len(keys) else _with_pane(hashes, numbers(columns[-1])))

    def row_hashing(self, input_: int) -> RowHashing | None:
        return None

    def keep_from(self, input_: int, watermarks: Times) -> int | None:
        return self.spec.keep_from(input_, watermarks)

    def due_span(self, before: Times, after: Times) -> tuple[int, int] | None:
        done, now = self.spec.reached(before[0]), self.spec.reached(after[0])
        if now is None or (done is not None and self._count_ended(now) <= self._count_ended(done)):
            return None
        low = np.iinfo(np.int64).min if done is None else (self._count_ended(done) + 1) * self.spec.slide
        return int(low), self._count_ended(now) * self.spec.slide + self.spec.length

    def compact(self, input_: int, run: Run, after: Times) -> Run:
        """One partial a group and pane, where merged runs brought several."""
        places = _places_in_order(run)
        if len(run) and places[-1] == len(run):  # no two rows have the same hash and time
            return run
        keys, partials = self._split_columns(run.rows)
        groups = group_rows([*keys, pa.array(run.times)], places)
        if groups.count == len(run):
            return run
        rows = self._batch(keys, run.times, groups.first, self.aggregation.merge(partials, groups))
        return Run(run.order[groups.first], run.times[groups.first], rows, run.scale, run.earliest, run.latest)

    def epoch(
        self, number: int, new: Sequence[Run | None], state: State, before: Times, after: Times
    ) -> Iterator[ResultBatch]:
        fresh = self.compact(0, new[0], after) if new[0] is not None else None
        span = self.due_span(before, after)
        now = self.spec.reached(after[0])
        if span is not None and now is not None:
            (low, high), done = span, self.spec.reached(before[0])
            runs = [*state.runs(0, (low, high)), *([fresh] if fresh is not None else [])]
            yield from self._close_windows(runs, low, high, done, now)
        if fresh is not None:
            state.stage(0, fresh)

    def _count_ended(self, time: int) -> int:
        """How many windows, counted from that at zero, have ended at a time; the i-th ends at i * slide + length."""
        return (time - self.spec.length) // self.spec.slide

    def _close_windows(self, runs: list[Run], low: int, high: int, done: int | None, now: int) -> Iterator[ResultBatch]:
        """Results of all windows that end after `done`, up to `now`; as many at a time as bound the work. They lie
        between the two times."""
        if not runs:
            return
        by_time = [_sort_by_time(run.times, run.places_between(low, high)) for run in runs]
        times = [run.times[order] for run, order in zip(runs, by_time, strict=True)]
        everything = np.sort(np.concatenate(times))
        ends = self._ends(everything[changes(everything)], done, now)
        if len(ends) == 0:
            return
        each = np.searchsorted(everything, ends) - np.searchsorted(everything, ends - self.spec.length)
        batch_number = np.cumsum(each) // ROWS_AT_ONCE
        for batch_ends in np.split(ends, np.flatnonzero(np.diff(batch_number)) + 1):
            span = batch_ends[0] - self.spec.length, batch_ends[-1]
            places = [o[slice(*np.searchsorted(t, span))] for t, o in zip(times, by_time, strict=True)]
            yield from self._windows(runs, places, batch_ends)

    def _ends(self, panes: np.ndarray, done: int | None, now: int) -> np.ndarray:
        """The ends, after `done` and up to `now`, of windows that hold one of these panes.

        A pane lies in a stretch of windows; the stretches of later panes begin and end later, so each adds only what
        lies behind the one before.
        """
        length, slide = self.spec.length, self.spec.slide
        first, last = (panes - length) // slide + 1, np.minimum(panes // slide, self._count_ended(now))
        if done is not None:
            first = np.maximum(first, self._count_ended(done) + 1)
        first[1:] = np.maximum(first[1:], np.maximum.accumulate(last)[:-1] + 1)
        count = np.maximum(last - first + 1, 0)
        index = np.arange(int(count.sum())) + np.repeat(first - (np.cumsum(count) - count), count)
        ends: np.ndarray = index * slide + length
        return ends

    def _windows(self, runs: list[Run], places: list[np.ndarray], ends: np.ndarray) -> Iterator[ResultBatch]:
        """The windows that end at these times, from the rows held: each goes into every one of them it lies in."""
        length = self.spec.length
        rows, hashes, windows = [], [], []
        for run, places_in_run in zip(runs, places, strict=True):
            times = run.times[places_in_run]
            low, high = np.searchsorted(ends, times, side="right"), np.searchsorted(ends, times + length, side="right")
            copies = high - low
            used_places = np.flatnonzero(copies)
            if len(used_places) == 0:
                continue
            used, copies, low = places_in_run[used_places], copies[used_places], low[used_places]
            source = np.repeat(used, copies)
            rows.append(run.rows.take(pa.array(source)))
            hashes.append(hash_part(run.order[source]))
            windows.append(np.arange(len(source)) + np.repeat(low - (np.cumsum(copies) - copies), copies))
        if not rows:
            return
        keys, partials = self._split_columns(pa.concat_batches(rows))
        every, window = np.concatenate(hashes), np.concatenate(windows)
        by = [*encode_texts(keys), pa.array(window)]
        groups = number_groups(by) or group_rows(by, _with_pane(every, window))
        finished = self.aggregation.finish(self.aggregation.merge(partials, groups))
        first = pa.array(groups.first)
        stops = ends[window[groups.first]]
        bounds = (stops - length, stops) if self.spec.time_columns else ()
        times = [pa.array(t).cast(self.spec.time_type) for t in bounds]
        columns = [*(k.take(first) for k in keys), *times, *finished.columns]
        yield every[groups.first], pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _batch(
        self, keys: Sequence[pa.Array], times: np.ndarray, at: np.ndarray, partial: pa.RecordBatch
    ) -> pa.RecordBatch:
        """Partials of the groups with rows at these places; the times lie in their panes."""
        panes = times[at]
        panes -= panes % self.spec.pane
        columns = [*(k.take(pa.array(at)) for k in keys), pa.array(panes), *partial.columns]
        return pa.RecordBatch.from_arrays(columns, schema=self.partials)

    def _split_columns(self, rows: pa.RecordBatch) -> tuple[list[pa.Array], pa.RecordBatch]:
        """Key columns and partial aggregates of rows as they are stored."""
        count = len(self.spec.keys)
        partial = pa.RecordBatch.from_arrays(rows.columns[count + 1 :], schema=self.aggregation.partial_schema)
        return rows.columns[:count], partial


def _sort_by_time(times: np.ndarray, places: np.ndarray) -> np.ndarray:
    order: np.ndarray = places[np.argsort(times[places], kind="stable")]
    return order


def _places_in_order(run: Run) -> np.ndarray:
    """A hash of group and time that grows along the run: its groups come in the run's own order, with nothing to sort.
    It is the place of the row's hash and time among those that there are."""
    begins = changes(run.hashes) | changes(run.times)
    places: np.ndarray = np.cumsum(begins, dtype=np.uint32)
    return places


def _with_pane(hashes: np.ndarray, times: np.ndarray) -> np.ndarray:
    """A hash of group and time, for grouping by both."""
    mixed = hashes.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + times.astype(np.uint64)
    mixed *= np.uint64(0xD6E8FEB86659FD93)
    return (mixed >> np.uint64(32)).astype(np.uint32)
