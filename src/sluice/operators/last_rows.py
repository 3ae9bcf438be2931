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
import pyarrow.compute as pc

from sluice.kernels.aggregation import Aggregation
from sluice.kernels.grouping import Groups, find_mixed_stretches, group_rows
from sluice.kernels.order import TimeScale, changes, hash_part, order_key, ranges, upper_half
from sluice.kernels.probe import Run
from sluice.model.epoch.times import Times
from sluice.model.plan.group_by import LastRows
from sluice.operators.protocol import Outgoing, ResultBatch, State
from sluice.operators.row_hashing import RowHashing
from sluice.state.segment import Layout, run_of

SEQUENCE = "__sequence"
"""Column with a row's place in the order of arrival, which decides between rows of one time."""
ROWS_AT_ONCE = 1 << 20
"""Rows, predecessors included, that are aggregated at a time."""
_ALWAYS = (np.iinfo(np.int64).min, np.iinfo(np.int64).max)


@dataclass(frozen=True)
class _Rows:
    """Some rows with their hashes, times and places in the order of arrival."""

    hashes: np.ndarray
    times: np.ndarray
    rows: pa.RecordBatch

    def __len__(self) -> int:
        return len(self.hashes)

    def take(self, at: np.ndarray) -> _Rows:
        """Some of the rows, each at most once."""
        if len(at) == len(self) and np.array_equal(at, np.arange(len(self))):
            return self
        return _Rows(self.hashes[at], self.times[at], pc.take(self.rows, pa.array(at), boundscheck=False))

    def select(self, names: list[str]) -> _Rows:
        """The rows with some of their columns."""
        return _Rows(self.hashes, self.times, self.rows.select(names))

    def part(self, start: int, stop: int) -> _Rows:
        """The rows from one place to another, nothing copied."""
        return _Rows(self.hashes[start:stop], self.times[start:stop], self.rows.slice(start, stop - start))

    def as_run(self) -> Run:
        """Rows in order as a run."""
        return run_of(self.hashes, self.times, self.rows)

    @property
    def sequence(self) -> np.ndarray:
        numbers: np.ndarray = self.rows.column(SEQUENCE).to_numpy()
        return numbers


@dataclass(frozen=True)
class _Stretches:
    """Rows of a run by the hashes of a sorted list: its `of[i]`-th has `count[i]` of them, up to place `stop[i]`."""

    run: Run
    of: np.ndarray
    stop: np.ndarray
    count: np.ndarray

    def part(self, first: int, last: int) -> _Stretches:
        """What is of the hashes from one place of the list to another, of which a list of its own is made."""
        span = slice(*np.searchsorted(self.of, [first, last]).tolist())
        return _Stretches(self.run, self.of[span] - first, self.stop[span], self.count[span])

    def among(self, chosen: np.ndarray) -> _Stretches:
        """The same without the rows of other hashes of the list."""
        return self.where(chosen[self.of])

    def where(self, chosen: np.ndarray) -> _Stretches:
        """Some of the stretches."""
        if chosen.all():
            return self
        return _Stretches(self.run, self.of[chosen], self.stop[chosen], self.count[chosen])

    def newest(self, count: np.ndarray) -> _Stretches:
        """At most so many rows of each, the newest."""
        shorter = _Stretches(self.run, self.of, self.stop, np.minimum(self.count, count))
        return shorter.where(shorter.count > 0)

    @property
    def places(self) -> np.ndarray:
        """Where in the run the rows are."""
        return ranges(self.stop - self.count, self.count)


@dataclass(frozen=True)
class _Predecessors:
    """Rows of a run: by the hashes of a sorted list, and where in the run they are."""

    run: Run
    of: np.ndarray
    count: np.ndarray
    places: np.ndarray

    def __len__(self) -> int:
        return len(self.places)

    def take(self, names: list[str]) -> pa.RecordBatch:
        """Some columns of the rows."""
        return pc.take(self.run.rows.select(names), pa.array(self.places), boundscheck=False)

    @property
    def rows(self) -> _Rows:
        run, places = self.run, self.places
        return _Rows(hash_part(run.order[places]), run.times[places], self.take(run.rows.schema.names))


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
        self.head = self.schema.names[: len(self.schema) - len(spec.aggregates)]

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
            turn = _rows_in_turn(runs, fresh, done, now)
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
        if order is not None:
            rows = rows.take(order)
        keep = np.ones(len(rows), dtype=bool)
        starts = np.flatnonzero(changes(rows.hashes))
        sizes = np.diff(np.append(starts, len(rows)))
        if now is not None and sizes.max(initial=0) > self.kept:
            done = rows.times <= now
            dones = sizes if done.all() else np.add.reduceat(done, starts, dtype=np.int64)
            keep = np.arange(len(rows)) >= np.repeat(starts + dones - self.kept, sizes)
            shared = find_mixed_stretches([rows.rows.column(k) for k in self.spec.keys], starts)
            if shared.any():
                of_several = np.flatnonzero(np.repeat(shared, sizes))
                keep[of_several] = self._newest_of_groups(rows.take(of_several), done[of_several])
        return np.flatnonzero(keep) if order is None else order[keep]

    def _newest_of_groups(self, rows: _Rows, done: np.ndarray) -> np.ndarray:
        """Which rows to keep of groups that share a hash and lie mixed, in order: those that are done come first."""
        ids = self._groups(rows).ids
        apart = np.argsort(ids, kind="stable")
        new = changes(ids[apart])
        number = np.cumsum(new) - 1
        count = np.bincount(number[done[apart]], minlength=int(new.sum()))
        rank = np.arange(len(ids)) - np.flatnonzero(new)[number]
        newest = np.empty(len(ids), dtype=bool)
        newest[apart] = ~done[apart] | (rank >= count[number] - self.kept)
        return newest

    def _results(self, turn: _Rows, runs: list[Run], done: int | None) -> Iterator[ResultBatch]:
        """Results for rows whose turn it is, which are in order, as many at a time as bound the work."""
        starts = np.flatnonzero(changes(turn.hashes))
        sizes = np.diff(np.append(starts, len(turn)))
        hashes = turn.hashes[starts]
        stretches = self._stretches(hashes, runs, done)
        before = np.zeros(len(starts), dtype=np.int64)
        for each in stretches:
            before[each.of] += each.count
        batch_number = np.cumsum(sizes + np.minimum(before, self.kept)) // ROWS_AT_ONCE
        for a, b in pairwise([0, *(np.flatnonzero(np.diff(batch_number)) + 1).tolist(), len(starts)]):
            rows = turn.part(int(starts[a]), int(starts[b - 1] + sizes[b - 1]))
            yield from self._aggregate(rows, sizes[a:b], [each.part(a, b) for each in stretches], done)

    def _aggregate(
        self, turn: _Rows, sizes: np.ndarray, stretches: list[_Stretches], done: int | None
    ) -> Iterator[ResultBatch]:
        """Results for rows of which each hash has so many."""
        before, in_order = self._predecessors(len(sizes), stretches, done, self.kept)
        names = list(dict.fromkeys([*self.spec.keys, *self.aggregated]))
        values = pa.concat_batches([*(each.take(names) for each in before), turn.rows.select(names)])
        counts = sizes.copy()
        for each in before:
            counts[each.of] += each.count
        ends = np.cumsum(counts)
        starts = np.append(0, ends)
        if before:
            pieces = [(each.of, each.count) for each in before]
            order = _interleave(starts, [*pieces, (np.arange(len(sizes)), sizes)])
            if not in_order:
                order = _sort_by_time(order, starts, [*(each.rows for each in before), turn])
            values = pc.take(values, pa.array(order), boundscheck=False)
        asked = sizes
        shared = find_mixed_stretches([values.column(k) for k in self.spec.keys], starts[:-1])
        if shared.any():  # what was found may be of another group, so these go apart
            mixed = np.repeat(shared, sizes)
            yield self._aggregate_shared_hashes(turn.take(np.flatnonzero(mixed)), shared, stretches, done)
            turn, asked = turn.select(self.head).take(np.flatnonzero(~mixed)), np.where(shared, 0, sizes)
        at = ranges(ends - asked, asked)
        aggregates = self.aggregation.aggregate_newest(values.select(self.aggregated), starts, at, self.spec.count)
        yield self._with_groups(turn, aggregates)

    def _aggregate_shared_hashes(
        self, turn: _Rows, shared: np.ndarray, stretches: list[_Stretches], done: int | None
    ) -> ResultBatch:
        """Results for rows whose hash several groups have, from all that there is of these groups."""
        theirs = [each.among(shared) for each in stretches]
        before, _ = self._predecessors(len(shared), theirs, done, None)
        everything = _concatenate([*(each.rows for each in before), turn])
        assert everything is not None
        order = _sort_order(everything.hashes, everything.times, everything.sequence)
        order = np.arange(len(everything)) if order is None else order
        ids = self._groups(everything.take(order)).ids
        order = order[np.argsort(ids, kind="stable")]
        starts = np.append(0, np.cumsum(np.bincount(ids)))
        places = np.flatnonzero(order >= len(everything) - len(turn))
        values = everything.rows.select(self.aggregated).take(pa.array(order))
        aggregates = self.aggregation.aggregate_newest(values, starts, places, self.spec.count)
        return self._with_groups(everything.take(order[places]), aggregates)

    def _with_groups(self, rows: _Rows, aggregates: pa.RecordBatch) -> ResultBatch:
        """The rows' results."""
        columns = [*rows.rows.select(self.head).columns, *aggregates.columns]
        return rows.hashes, pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _stretches(self, hashes: np.ndarray, runs: list[Run], done: int | None) -> list[_Stretches]:
        """Where the rows of these hashes are that have had their turn, in each run, newest runs first."""
        if done is None or self.kept == 0:
            return []
        stretches = []
        for run in sorted(runs, key=lambda r: r.latest, reverse=True):
            if run.earliest > done or len(run) == 0:
                continue
            of, low, high = run.places_of(hashes)
            if run.latest > done:
                ticks = np.uint64((done - run.scale.base) >> run.scale.shift)
                high = np.searchsorted(run.order, upper_half(hashes[of]) | ticks, side="right")
            each = _Stretches(run, of, high, high - low)
            if len(each.of):
                stretches.append(each.where(each.count > 0))
        return stretches

    def _predecessors(
        self, hashes: int, stretches: list[_Stretches], done: int | None, count: int | None
    ) -> tuple[list[_Predecessors], bool]:
        """Of each hash the newest `count` rows (None: all) that have had their turn, and perhaps some older ones, those
        of older runs first; and whether those of each hash are in order so, as they are within a run: no run's times
        reach into those of a newer one with the same hash."""
        predecessors: list[_Predecessors] = []
        have = np.zeros(hashes, dtype=np.int64)
        oldest = np.full(hashes, np.iinfo(np.int64).max)  # as old as what was found of each hash may be
        in_order = True
        for each in stretches:
            run, of = each.run, each.of
            assert done is not None
            coarse = run.latest > done and run.scale.shift > 0
            if count is not None and not coarse:
                # older than all that was found: only what is still missing; else it may push out what was found
                each = each.newest(np.where(run.latest < oldest[of], np.maximum(count - have[of], 0), count))
                of = each.of
            places, found = each.places, each.count
            if coarse:
                exact = run.times[places] <= done
                found = np.bincount(np.repeat(np.arange(len(of)), found)[exact], minlength=len(of))
                places = places[exact]
            if len(places) == 0:
                continue
            in_order &= bool(np.all(run.latest < oldest[of]))
            have[of] += found
            oldest[of] = np.where(found > 0, np.minimum(oldest[of], run.earliest), oldest[of])
            predecessors.append(_Predecessors(run, of, found, places))
        return predecessors[::-1], in_order

    def _groups(self, rows: _Rows) -> Groups:
        """The groups of rows in which those of one hash lie side by side."""
        number = np.cumsum(changes(rows.hashes), dtype=np.uint32)
        return group_rows([rows.rows.column(k) for k in self.spec.keys], number)


def _rows_due(run: Run, done: int | None, now: int) -> _Rows:
    """The rows that had to wait until now; all of them, where nothing was done before."""
    at = run.places_between(_ALWAYS[0] if done is None else done + 1, now + 1)
    return _Rows(hash_part(run.order[at]), run.times[at], run.rows.take(pa.array(at)))


def _rows_in_turn(runs: list[Run], fresh: _Rows | None, done: int | None, now: int) -> _Rows | None:
    """The rows whose turn it is, in order."""
    due = [_rows_due(run, done, now) for run in runs if done is None or run.latest > done]
    if fresh is not None:
        in_time = fresh.times <= now
        due.append(fresh if in_time.all() else fresh.take(np.flatnonzero(in_time)))
    due = [rows for rows in due if len(rows)]
    turn = _concatenate(due)
    if turn is None or len(due) == 1:
        return turn
    order = _sort_order(turn.hashes, turn.times, turn.sequence)
    return turn if order is None else turn.take(order)


def _interleave(starts: np.ndarray, pieces: list[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
    """The order that brings rows of several pieces together by their hashes, those of earlier pieces first.

    A piece has its rows in the order of the hashes `of` a list, of each so many; in the new order those of the i-th
    hash begin at `starts[i]`.
    """
    order = np.empty(int(starts[-1]), dtype=np.int64)
    free = starts[:-1].copy()
    done = 0
    for of, count in pieces:
        places = ranges(free[of], count)
        order[places] = np.arange(done, done + len(places))
        free[of] += count
        done += len(places)
    return order


def _concatenate(pieces: list[_Rows]) -> _Rows | None:
    if len(pieces) < 2:
        return pieces[0] if pieces else None
    return _Rows(
        np.concatenate([p.hashes for p in pieces]),
        np.concatenate([p.times for p in pieces]),
        pa.concat_batches([p.rows for p in pieces]),
    )


def _sort_by_time(order: np.ndarray, starts: np.ndarray, pieces: list[_Rows]) -> np.ndarray:
    """An order in which the rows of some pieces lie hash by hash, changed so that those of one are in the order of
    their times and arrival; they begin at `starts`."""
    number = np.repeat(np.arange(len(starts) - 1, dtype=np.uint32), np.diff(starts))
    times, sequence = (
        np.concatenate(column)[order] for column in zip(*((p.times, p.sequence) for p in pieces), strict=True)
    )
    again = _sort_order(number, times, sequence)
    return order if again is None else order[again]


def _sort_order(hashes: np.ndarray, times: np.ndarray, sequence: np.ndarray) -> np.ndarray | None:
    """The order by hash, time and arrival; None if the rows are in it. Pieces that they may have been put together of
    are in order, which a stable sort of one number uses."""
    if _is_sorted(hashes, times, sequence):
        return None
    scale = TimeScale.for_span(int(times.min()), int(times.max()))
    if scale.shift == 0:
        key = order_key(hashes, times, scale)
        order = np.argsort(key, kind="stable")
        key, arrived = key[order], sequence[order]
        if not np.any((key[1:] == key[:-1]) & (arrived[1:] < arrived[:-1])):
            return order
    return np.lexsort((sequence, times, hashes))


def _is_sorted(hashes: np.ndarray, times: np.ndarray, sequence: np.ndarray) -> bool:
    """Whether rows are in the order by hash, time and arrival."""
    if np.any(hashes[1:] < hashes[:-1]):
        return False
    same = hashes[1:] == hashes[:-1]
    if np.any((times[1:] < times[:-1]) & same):
        return False
    return not np.any((times[1:] == times[:-1]) & (sequence[1:] < sequence[:-1]) & same)
