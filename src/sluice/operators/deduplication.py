"""Duplicates dropped: of each key the first row by event time, whatever the order of arrival.

A row waits until no earlier one can come. Then those of its key that are due are gone through in the order of time, all
keys at once. State is the rows that wait, which leave with the watermark, and of those that were shown the keys alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from sluice.kernels.existence import find_matched
from sluice.kernels.grouping import find_equal_keys, group_rows
from sluice.kernels.hashing import is_hashable
from sluice.kernels.order import changes
from sluice.kernels.probe import Run, is_near
from sluice.kernels.sort_keys import sort_keys
from sluice.kernels.spacing import find_spaced
from sluice.model.epoch.times import Times
from sluice.model.plan.deduplication import SHOWN, WAITING, Deduplication
from sluice.model.plan.sort_order import SortOrder
from sluice.operators.protocol import Outgoing, ResultBatch, State
from sluice.operators.row_hashing import RowHashing
from sluice.state.segment import Layout, sort_run

EARLIEST = int(np.iinfo(np.int64).min)


@dataclass(frozen=True)
class _Rows:
    """Some rows with their hashes and times."""

    hashes: np.ndarray
    times: np.ndarray
    rows: pa.RecordBatch

    @staticmethod
    def of_run(run: Run, places: np.ndarray) -> _Rows:
        return _Rows(run.hashes[places], run.times[places], run.rows.take(pa.array(places)))

    def take(self, places: np.ndarray) -> _Rows:
        return _Rows(self.hashes[places], self.times[places], self.rows.take(pa.array(places)))

    def __len__(self) -> int:
        return len(self.hashes)


class DropDuplicates:
    """The dropping of duplicates as an operator."""

    def __init__(self, spec: Deduplication) -> None:
        self.spec, self.schema = spec, spec.output_schema()
        self.retention = spec.retention
        self.by_time = not spec.at_once
        self.shrinks = False
        names = dict.fromkeys([*spec.keys, spec.event_time])
        others = [field for field in spec.stream.schema if field.name not in names and is_hashable(field.type)]
        self._tie_break = [SortOrder(field.name) for field in others]
        """What decides between rows of one key and time: the columns that have an order."""
        self._remembered = pa.schema([spec.stream.schema.field(name) for name in names])

    def exchange_schema(self, input_: int) -> pa.Schema:
        return self.schema if input_ == WAITING else self._remembered

    def state_layout(self, input_: int) -> Layout:
        """Rows that wait are looked up by time when the watermark has passed them."""
        step = 1 if input_ == WAITING else None
        return Layout(self.exchange_schema(input_), self.spec.event_time, step)

    def prepare_input(self, input_: int, rows: pa.RecordBatch) -> Outgoing:
        """The first row of each key, where no other one can be shown. Nothing comes in for what was shown before."""
        if input_ == SHOWN:
            return Outgoing(np.empty(0, dtype=np.uint32), pa.RecordBatch.from_pylist([], schema=self._remembered))
        hashes = RowHashing(self.spec.keys).hash(rows)
        if not self.spec.is_once:
            return Outgoing(hashes, rows)
        first = self._choose_first(_Rows(hashes, self._times(rows), rows))
        return Outgoing(first.hashes, first.rows)

    def row_hashing(self, input_: int) -> RowHashing | None:
        return None if input_ == SHOWN or self.spec.is_once else RowHashing(self.spec.keys)

    def keep_from(self, input_: int, watermarks: Times) -> int | None:
        return self.spec.keep_from(input_, watermarks)

    def due_span(self, before: Times, after: Times) -> tuple[int, int] | None:
        done, now = before[0], after[0]
        if now is None or now == done:
            return None
        return (EARLIEST if done is None else done), now - 1

    def compact(self, input_: int, run: Run, after: Times) -> Run:
        """Of rows that wait, those that may still be shown."""
        if input_ == SHOWN:
            return run
        waiting = np.arange(len(run)) if after[0] is None else np.flatnonzero(run.times >= after[0])
        kept = self._choose_candidates(_Rows.of_run(run, waiting))
        return run if len(kept) == len(run) else self._run_of(WAITING, kept)

    def epoch(
        self, number: int, new: Sequence[Run | None], state: State, before: Times, after: Times
    ) -> Iterator[ResultBatch]:
        span = self.due_span(before, after)
        due = [] if span is None else [self._due_rows(run, span) for run in state.runs(WAITING, span)]
        fresh = new[WAITING]
        if fresh is not None:
            is_due = self._find_due(fresh, after[0])
            due.append(_Rows.of_run(fresh, np.flatnonzero(is_due)))
            waiting = self._drop_shown(_Rows.of_run(fresh, np.flatnonzero(~is_due)), state)
            self._stage(WAITING, self._choose_candidates(waiting), state)
        chosen = self._choose(self._drop_shown(_concatenate(due, self.schema), state))
        self._stage(SHOWN, chosen, state)
        if len(chosen):
            yield chosen.hashes, chosen.rows

    def _times(self, rows: pa.RecordBatch) -> np.ndarray:
        times: np.ndarray = rows.column(self.spec.event_time).cast(pa.int64()).to_numpy()
        return times

    def _find_due(self, new: Run, now: int | None) -> np.ndarray:
        """Whether it is the turn of new rows."""
        if self.spec.at_once or now is None:
            return np.full(len(new), self.spec.at_once)
        is_due: np.ndarray = new.times < now
        return is_due

    def _due_rows(self, run: Run, span: tuple[int, int]) -> _Rows:
        return _Rows.of_run(run, run.places_between(span[0], span[1] + 1))

    def _stage(self, input_: int, rows: _Rows, state: State) -> None:
        if len(rows):
            state.stage(input_, self._run_of(input_, rows))

    def _run_of(self, input_: int, rows: _Rows) -> Run:
        layout = self.state_layout(input_)
        return sort_run(layout, rows.hashes, rows.rows.select(layout.schema.names))

    def _drop_shown(self, rows: _Rows, state: State) -> _Rows:
        """Without the duplicates of rows that were shown in earlier epochs."""
        if not len(rows):
            return rows
        high = rows.times
        low = np.full(len(rows), EARLIEST) if self.spec.within is None else high - self.spec.within
        is_new = np.ones(len(rows), dtype=bool)
        for run in state.runs(SHOWN, (int(low.min()), int(high.max()))):
            is_new[find_matched(run, rows.hashes, low, high, _SameKey(self.spec.keys, rows, run, low, high))] = False
        return rows if is_new.all() else rows.take(np.flatnonzero(is_new))

    def _choose(self, rows: _Rows) -> _Rows:
        """The rows that are shown, of those that are due and no duplicates of any before."""
        if self.spec.is_once:
            return self._choose_first(rows)
        places, groups = self._order_by_key(rows)
        assert self.spec.within is not None, "else each key is shown once"
        return rows.take(places[find_spaced(groups, rows.times[places], self.spec.within)])

    def _choose_candidates(self, rows: _Rows) -> _Rows:
        """The rows that may be shown, whatever rows are still to come."""
        return self._choose_first(rows) if self.spec.is_once else rows

    def _choose_first(self, rows: _Rows) -> _Rows:
        """The first row of each key."""
        places, groups = self._order_by_key(rows)
        return rows.take(places[changes(groups)])

    def _order_by_key(self, rows: _Rows) -> tuple[np.ndarray, np.ndarray]:
        """The places of rows in the order of their keys, times and values, and the keys there, numbered."""
        if not len(rows):
            return np.arange(0), np.arange(0)
        groups = group_rows([rows.rows.column(key) for key in self.spec.keys], rows.hashes).ids
        order = np.lexsort((rows.times, groups))
        begins = changes(groups[order]) | changes(rows.times[order])
        if not begins.all():
            of_its_own = begins & np.append(begins[1:], True)
            tied = np.flatnonzero(~of_its_own)
            values = sort_keys(rows.rows.take(pa.array(order[tied])), self._tie_break)
            order[tied] = order[tied[np.lexsort((*reversed(values), np.cumsum(begins)[tied]))]]
        return order, groups[order]


class _SameKey:
    """Which pairs of some rows and those of a run, with equal hashes, have the same key and times near each other."""

    def __init__(self, keys: Sequence[str], rows: _Rows, run: Run, low: np.ndarray, high: np.ndarray) -> None:
        self._keys, self._rows, self._run, self._low, self._high = keys, rows, run, low, high

    def __call__(self, which: np.ndarray, places: np.ndarray) -> np.ndarray:
        same = find_equal_keys(self._columns(self._rows.rows, which), self._columns(self._run.rows, places))
        if self._run.scale.shift:
            same &= is_near(self._run, places, self._low[which], self._high[which])
        return np.flatnonzero(same)

    def _columns(self, rows: pa.RecordBatch, places: np.ndarray) -> list[pa.Array]:
        return [rows.column(key).take(pa.array(places)) for key in self._keys]


def _concatenate(pieces: Sequence[_Rows], schema: pa.Schema) -> _Rows:
    pieces = [piece for piece in pieces if len(piece)]
    if not pieces:
        none = pa.RecordBatch.from_pylist([], schema=schema)
        return _Rows(np.empty(0, dtype=np.uint32), np.empty(0, dtype=np.int64), none)
    return _Rows(
        np.concatenate([piece.hashes for piece in pieces]),
        np.concatenate([piece.times for piece in pieces]),
        pa.concat_batches([piece.rows for piece in pieces]),
    )
