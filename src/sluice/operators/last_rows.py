"""Group-by over each group's newest rows: a result for every row.

State is the rows themselves, in runs like a join's. An epoch looks up the predecessors of its new rows, newest runs
first, and stops where a group has enough; nothing else of the state is read or written. What newer rows have pushed out
of every window to come goes when runs are merged.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa

from sluice.kernels.aggregation import Aggregation
from sluice.kernels.grouping import Groups, group_rows
from sluice.kernels.order import TimeScale, changes, hash_part, order_key
from sluice.kernels.probe import Run, expand
from sluice.model.epoch.times import Times
from sluice.model.plan.group_by import LastRows
from sluice.operators.protocol import Outgoing, ResultBatch, State
from sluice.operators.row_hashing import RowHashing
from sluice.state.segment import Layout, run_of

SEQUENCE = "__sequence"
"""Column with a row's place in the order of arrival, which decides between rows of one time."""
ROWS_AT_ONCE = 1 << 22
"""Rows, predecessors included, that are aggregated at a time."""
_ALWAYS = (np.iinfo(np.int64).min, np.iinfo(np.int64).max)
_HASH = np.uint64(32)
_TICKS = np.uint64(0xFFFFFFFF)


@dataclass(frozen=True)
class _Rows:
    """Some rows with their hashes, times and places in the order of arrival."""

    hashes: np.ndarray
    times: np.ndarray
    rows: pa.RecordBatch

    def __len__(self) -> int:
        return len(self.hashes)

    def take(self, at: np.ndarray) -> _Rows:
        return _Rows(self.hashes[at], self.times[at], self.rows.take(pa.array(at)))

    def as_run(self) -> Run:
        """Rows in order as a run."""
        return run_of(self.hashes, self.times, self.rows)

    @property
    def sequence(self) -> np.ndarray:
        numbers: np.ndarray = self.rows.column(SEQUENCE).to_numpy()
        return numbers


@dataclass(frozen=True)
class _Stretch:
    """Rows of a run of the hashes at `of` in a sorted list: those of the i-th are `count[i]`, up to `stop[i]`."""

    run: Run
    of: slice
    stop: np.ndarray
    count: np.ndarray

    def part(self, first: int, last: int) -> _Stretch | None:
        """What is of the hashes from one place of the list to another, of which a list of its own is made."""
        low, high = max(first, self.of.start), min(last, self.of.stop)
        if low >= high:
            return None
        span = slice(low - self.of.start, high - self.of.start)
        return _Stretch(self.run, slice(low - first, high - first), self.stop[span], self.count[span])

    def for_hashes(self, chosen: np.ndarray) -> _Stretch:
        """The same without the rows of other hashes of the list."""
        return _Stretch(self.run, self.of, self.stop, np.where(chosen[self.of], self.count, 0))


class LastRowsGroupBy:
    """The group-by as an operator; it keeps the columns it needs of the newest rows of every group."""

    def __init__(self, spec: LastRows) -> None:
        self.spec, self.schema = spec, spec.output_schema()
        self.retention: int | None = None
        self.by_time = True
        self.shrinks = True
        self.aggregation = Aggregation(spec.aggregates, spec.stream.schema)
        self.aggregated = list(dict.fromkeys(a.column for a in spec.aggregates if a.column))
        self.needed = pa.schema([spec.stream.schema.field(name) for name in spec.columns_read(0)])
        self.kept = spec.count - 1

    def exchange_schema(self, input_: int) -> pa.Schema:
        return self.needed

    def state_layout(self, input_: int) -> Layout:
        """Rows that have to wait are looked up by time when the watermark reaches them; of one stream without a delay
        none has to."""
        step = 1 if self.spec.delay or self.spec.stream.of_several else None
        return Layout(self.needed.append(pa.field(SEQUENCE, pa.int64())), self.spec.stream.event_time, step)

    def prepare_input(self, input_: int, rows: pa.RecordBatch) -> Outgoing:
        rows = rows.select(self.needed.names)
        return Outgoing(self.row_hashing(input_).hash(rows), rows)

    def row_hashing(self, input_: int) -> RowHashing:
        return RowHashing(self.spec.keys)

    def keep_from(self, input_: int, watermarks: Times) -> int | None:
        return self.spec.keep_from(input_, watermarks)

    def due_span(self, before: Times, after: Times) -> tuple[int, int] | None:
        done, now = before[0], after[0]
        if now is None or now == done:
            return None
        return (_ALWAYS[0] if done is None else done + 1), now

    def compact(self, input_: int, run: Run, after: Times) -> Run:
        """Without the rows that are in no window still to come."""
        rows = _Rows(run.hashes, run.times, run.rows)
        positions = self._positions_to_keep(rows, after[0])
        if np.array_equal(positions, np.arange(len(run))):
            return run
        if len(positions) == 0:
            return Run(run.order[:0], run.times[:0], run.rows.slice(0, 0), run.scale, run.earliest, run.latest)
        return rows.take(positions).as_run()

    def epoch(
        self, number: int, new: Sequence[Run | None], state: State, before: Times, after: Times
    ) -> Iterator[ResultBatch]:
        fresh = self._number_rows(new[0], number) if new[0] is not None else None
        done, now = before[0], after[0]
        if now is not None:
            runs = state.runs(0, _ALWAYS)
            due = [_rows_due(run, done, now) for run in runs if done is None or run.latest > done]
            if fresh is not None:
                due.append(fresh.take(np.flatnonzero(fresh.times <= now)))
            turn = _concatenate([d for d in due if len(d)])
            if turn is not None:
                yield from self._results(turn, runs, done)
        if fresh is not None:
            kept = fresh.take(self._positions_to_keep(fresh, now))
            if len(kept):
                state.stage(0, kept.as_run())

    def _number_rows(self, run: Run, epoch: int) -> _Rows:
        sequence = (np.int64(epoch) << np.int64(32)) + np.arange(len(run))
        rows = pa.RecordBatch.from_arrays([*run.rows.columns, pa.array(sequence)], schema=self.state_layout(0).schema)
        return _Rows(run.hashes, run.times, rows)

    def _positions_to_keep(self, rows: _Rows, now: int | None) -> np.ndarray:
        """Positions, in order, of the rows that windows to come may hold: those still to have their turn, and of the
        others the newest of each group."""
        order = _sort_order(rows.hashes, rows.times, rows.sequence)
        done = np.zeros(len(order), dtype=bool) if now is None else rows.times[order] <= now
        groups = self._groups(rows, order)
        ids = groups.ids
        if groups.order is None:
            kept: np.ndarray = order[self._newest(ids, done)]
            return kept
        apart = np.argsort(ids, kind="stable")  # groups that share a hash lie mixed
        keep = np.empty(len(order), dtype=bool)
        keep[apart] = self._newest(ids[apart], done[apart])
        return order[keep]

    def _newest(self, ids: np.ndarray, done: np.ndarray) -> np.ndarray:
        """Which rows to keep, given those of each group side by side and in order: those that are done come first."""
        new = changes(ids)
        number = np.cumsum(new) - 1
        count = np.bincount(number[done], minlength=int(new.sum()))
        rank = np.arange(len(ids)) - np.flatnonzero(new)[number]
        newest: np.ndarray = ~done | (rank >= count[number] - self.kept)
        return newest

    def _results(self, turn: _Rows, runs: list[Run], done: int | None) -> Iterator[ResultBatch]:
        """Results for rows whose turn it is, hashes in order, as many at a time as bound the work."""
        turn = turn.take(np.argsort(turn.hashes, kind="stable"))
        starts = np.flatnonzero(changes(turn.hashes))
        stops = np.append(starts[1:], len(turn))
        stretches = self._stretches(turn.hashes[starts], runs, done)
        before = np.zeros(len(starts), dtype=np.int64)
        for stretch in stretches:
            before[stretch.of] += stretch.count
        batch_number = np.cumsum(stops - starts + np.minimum(before, self.kept)) // ROWS_AT_ONCE
        for a, b in pairwise([0, *(np.flatnonzero(np.diff(batch_number)) + 1).tolist(), len(starts)]):
            parts = [part for stretch in stretches if (part := stretch.part(a, b)) is not None]
            yield from self._aggregate(turn.take(np.arange(starts[a], stops[b - 1])), parts, done)

    def _aggregate(self, turn: _Rows, stretches: list[_Stretch], done: int | None) -> Iterator[ResultBatch]:
        hashes = turn.hashes[changes(turn.hashes)]
        everything, order = _sort_together([*self._predecessors(hashes, stretches, done, self.kept), turn])
        new = changes(everything.hashes[order])
        groups = self._groups(everything, order)
        if groups.order is not None:  # groups with one hash: what was found may be of the other group, so they go apart
            shared = np.unique(everything.hashes[order[changes(groups.ids) & ~new]])
            yield self._aggregate_shared_hashes(
                turn.take(np.flatnonzero(np.isin(turn.hashes, shared))), stretches, hashes, done
            )
            alone = ~np.isin(everything.hashes[order], shared)
            order, new = order[alone], new[alone]
        yield self._roll(everything, order, new, len(turn))

    def _aggregate_shared_hashes(
        self, turn: _Rows, stretches: list[_Stretch], hashes: np.ndarray, done: int | None
    ) -> ResultBatch:
        """Results for rows whose hash several groups have, from all that there is of these groups."""
        theirs = np.isin(hashes, turn.hashes)
        before = self._predecessors(hashes, [stretch.for_hashes(theirs) for stretch in stretches], done, None)
        everything, order = _sort_together([*before, turn])
        ids = self._groups(everything, order).ids
        apart = np.argsort(ids, kind="stable")
        return self._roll(everything, order[apart], changes(ids[apart]), len(turn))

    def _roll(self, everything: _Rows, order: np.ndarray, new: np.ndarray, last: int) -> ResultBatch:
        """Results for the last of all rows, which lie group by group in this order; a group begins where it is new."""
        starts = np.flatnonzero(new)
        places = np.flatnonzero(order >= len(everything) - last)
        values = everything.rows.select(self.aggregated).take(pa.array(order))
        aggregates = self.aggregation.aggregate_newest(values, np.append(starts, len(order)), places, self.spec.count)
        head = everything.rows.select([f.name for f in self._head()]).take(pa.array(order[places]))
        results = pa.RecordBatch.from_arrays([*head.columns, *aggregates.columns], schema=self.schema)
        return everything.hashes[order[places]], results

    def _head(self) -> list[pa.Field]:
        return [f for f in self.schema][: len(self.schema) - len(self.spec.aggregates)]

    def _stretches(self, hashes: np.ndarray, runs: list[Run], done: int | None) -> list[_Stretch]:
        """Where the rows of these hashes are that have had their turn, in each run, newest runs first."""
        if done is None or self.kept == 0:
            return []
        stretches = []
        for run in sorted(runs, key=lambda r: r.latest, reverse=True):
            if run.earliest > done or len(run) == 0:
                continue
            first, last = np.array(run.hash_span, dtype=np.uint32)
            of = slice(int(np.searchsorted(hashes, first)), int(np.searchsorted(hashes, last, side="right")))
            upper = hashes[of].astype(np.uint64) << _HASH
            ticks = _TICKS if run.latest <= done else np.uint64((done - run.scale.base) >> run.scale.shift)
            low, high = np.searchsorted(run.order, upper), np.searchsorted(run.order, upper | ticks, side="right")
            if np.any(high > low):
                stretches.append(_Stretch(run, of, high, high - low))
        return stretches

    def _predecessors(
        self, hashes: np.ndarray, stretches: list[_Stretch], done: int | None, count: int | None
    ) -> list[_Rows]:
        """Of each hash the newest `count` rows (None: all) that have had their turn, and perhaps some older ones."""
        predecessors = []
        have = np.zeros(len(hashes), dtype=np.int64)
        oldest = np.full(len(hashes), np.iinfo(np.int64).max)  # as old as what was found of each hash may be
        for stretch in stretches:
            run, of, take = stretch.run, stretch.of, stretch.count
            assert done is not None
            coarse = run.latest > done and run.scale.shift > 0
            if count is not None and not coarse:
                # older than all that was found: only what is still missing; else it may push out what was found
                missing = np.where(run.latest < oldest[of], np.maximum(count - have[of], 0), count)
                take = np.minimum(take, missing)
            nonempty = np.flatnonzero(take)
            if len(nonempty) == 0:
                continue
            at = np.concatenate(
                [places for _, places in expand(stretch.stop[nonempty] - take[nonempty], take[nonempty])]
            )
            if coarse:
                at = at[run.times[at] <= done]
                take = np.bincount(np.searchsorted(hashes[of], hash_part(run.order[at])), minlength=len(take))
            have[of] += take
            oldest[of] = np.where(take > 0, np.minimum(oldest[of], run.earliest), oldest[of])
            predecessors.append(_Rows(hash_part(run.order[at]), run.times[at], run.rows.take(pa.array(at))))
        return predecessors[::-1]

    def _groups(self, rows: _Rows, order: np.ndarray) -> Groups:
        """The groups of the rows in this order, in which those of one hash lie side by side. They lie group by group
        already unless groups share a hash."""
        number = np.cumsum(changes(rows.hashes[order]), dtype=np.uint32)
        keys = [rows.rows.column(k).take(pa.array(order)) for k in self.spec.keys]
        return group_rows(keys, number)


def _rows_due(run: Run, done: int | None, now: int) -> _Rows:
    """The rows that had to wait until now; all of them, where nothing was done before."""
    at = run.places_between(_ALWAYS[0] if done is None else done + 1, now + 1)
    return _Rows(hash_part(run.order[at]), run.times[at], run.rows.take(pa.array(at)))


def _concatenate(pieces: list[_Rows]) -> _Rows | None:
    if len(pieces) < 2:
        return pieces[0] if pieces else None
    return _Rows(
        np.concatenate([p.hashes for p in pieces]),
        np.concatenate([p.times for p in pieces]),
        pa.concat_batches([p.rows for p in pieces]),
    )


def _sort_together(pieces: list[_Rows]) -> tuple[_Rows, np.ndarray]:
    """The pieces together, and the order of their rows by hash, time and arrival."""
    everything = _concatenate(pieces)
    assert everything is not None
    return everything, _sort_order(everything.hashes, everything.times, everything.sequence)


def _sort_order(hashes: np.ndarray, times: np.ndarray, sequence: np.ndarray) -> np.ndarray:
    """The order by hash, time and arrival. The pieces are sorted already, which a stable sort of one number uses."""
    if len(times) == 0:
        return np.arange(0)
    scale = TimeScale.for_span(int(times.min()), int(times.max()))
    if scale.shift == 0:
        key = order_key(hashes, times, scale)
        order = np.argsort(key, kind="stable")
        key, arrived = key[order], sequence[order]
        if not np.any((key[1:] == key[:-1]) & (arrived[1:] < arrived[:-1])):
            return order
    return np.lexsort((sequence, times, hashes))
