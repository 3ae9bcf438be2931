"""Group-by over sessions: rows of a group that follow each other within a gap.

Rows are reduced to pieces of sessions before they cross the exchange: a group, a first and a last time, a partial
aggregate. State is sessions so far. A session that gets more rows is written anew, with all that is known of it; what
was written of it before lies inside it, has fewer rows, and means nothing any more. So each session is one row of the
state that counts, however long it lasts, and rows that do not count expire by their last time, like any other, or go
when runs are merged.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa

from sluice.kernels.aggregation import Aggregation
from sluice.kernels.grouping import Groups, encode_texts, group_rows, hash_groups, number_groups
from sluice.kernels.order import changes, hash_part
from sluice.kernels.probe import Run, candidate_ranges, expand
from sluice.kernels.sessions import group_sessions
from sluice.model.epoch.times import Times
from sluice.model.plan.group_by import SessionWindows
from sluice.model.plan.stream import TIME_COLUMN
from sluice.operators.protocol import Outgoing, ResultBatch, State
from sluice.operators.row_hashing import RowHashing
from sluice.state.segment import Layout, sort_run

START, ROWS = "__start", "__rows"
"""Columns with the first time of a session so far, and with how many rows it has."""
ROWS_AT_ONCE = 1 << 21
"""Sessions of the state and of an epoch that are merged at a time."""
_EARLIEST, _LATEST = int(np.iinfo(np.int64).min), int(np.iinfo(np.int64).max)


@dataclass(frozen=True)
class _Stretches:
    """Where sessions lie: their hashes, first and last times."""

    hashes: np.ndarray
    starts: np.ndarray
    lasts: np.ndarray

    def __len__(self) -> int:
        return len(self.hashes)

    def take(self, at: np.ndarray | slice) -> _Stretches:
        return _Stretches(self.hashes[at], self.starts[at], self.lasts[at])

    @staticmethod
    def of(run: Run, at: np.ndarray | slice) -> _Stretches:
        """Those of a run at these places."""
        return _Stretches(hash_part(run.order[at]), run.rows.column(START).to_numpy()[at], run.times[at])

    @staticmethod
    def concatenate(parts: Sequence[_Stretches]) -> _Stretches:
        columns = zip(*((p.hashes, p.starts, p.lasts) for p in parts), strict=True)
        return _Stretches(*(np.concatenate(column) for column in columns))


@dataclass(frozen=True)
class _Sessions:
    """Sessions, or pieces of them: where they lie, and their rows as they are stored."""

    at: _Stretches
    rows: pa.RecordBatch

    def __len__(self) -> int:
        return len(self.at)

    def take(self, places: np.ndarray) -> _Sessions:
        return _Sessions(self.at.take(places), self.rows.take(pa.array(places)))

    @staticmethod
    def of(run: Run) -> _Sessions:
        return _Sessions(_Stretches.of(run, slice(None)), run.rows)

    @staticmethod
    def concatenate(parts: Sequence[_Sessions]) -> _Sessions:
        return _Sessions(_Stretches.concatenate([p.at for p in parts]), pa.concat_batches([p.rows for p in parts]))


class SessionWindowsGroupBy:
    """The group-by as an operator; its state's time is that of a session's last row."""

    def __init__(self, spec: SessionWindows) -> None:
        self.spec, self.schema = spec, spec.output_schema()
        self.retention = spec.delay
        self.by_time = True
        self.shrinks = False
        self.aggregation = Aggregation(spec.aggregates, spec.stream.schema)
        self.stored = self.aggregation.stored_schema(spec.keys, [START, TIME_COLUMN, ROWS])

    def exchange_schema(self, input_: int) -> pa.Schema:
        return self.stored

    def state_layout(self, input_: int) -> Layout:
        """Sessions are looked up by their last time when the watermark has passed their end."""
        return Layout(self.stored, TIME_COLUMN, 1)

    def prepare_input(self, input_: int, rows: pa.RecordBatch) -> Outgoing:
        times = rows.column(self.spec.stream.event_time).cast(pa.int64()).to_numpy()
        keys = [rows.column(k) for k in self.spec.keys]
        encoded = encode_texts(keys)
        groups = number_groups(encoded) or group_rows(encoded, rows=rows.num_rows)
        sessions = group_sessions(groups.ids, times, times, self.spec.gap)
        partial = self.aggregation.partial(rows, times, sessions)
        partials = self._batch(keys, times, times, sessions.sizes, sessions, partial)
        return Outgoing(hash_groups(encoded, sessions), partials)

    def row_hashing(self, input_: int) -> RowHashing | None:
        return None

    def keep_from(self, input_: int, watermarks: Times) -> int | None:
        return self.spec.keep_from(input_, watermarks)

    def due_span(self, before: Times, after: Times) -> tuple[int, int] | None:
        """The last times of sessions whose end the watermark has passed now."""
        done, now = before[0], after[0]
        if now is None or now == done:
            return None
        return (_EARLIEST if done is None else done - self.spec.gap), now - self.spec.gap - 1

    def compact(self, input_: int, run: Run, after: Times) -> Run:
        """Without what was written of sessions before they got more rows."""
        current = np.sort(self._find_current(_Sessions.of(run)))
        if len(current) == len(run):
            return run
        rows = run.rows.take(pa.array(current))
        return Run(run.order[current], run.times[current], rows, run.scale, run.earliest, run.latest)

    def epoch(
        self, number: int, new: Sequence[Run | None], state: State, before: Times, after: Times
    ) -> Iterator[ResultBatch]:
        done, now, due = before[0], after[0], self.due_span(before, after)
        fresh = self._merge(_Sessions.of(new[0])) if new[0] is not None else None
        needed_from = _EARLIEST if done is None else done - self.spec.gap
        runs = state.runs(0, (needed_from, _LATEST)) if fresh is not None else state.runs(0, due)
        ending = [_Stretches.of(run, run.places_between(due[0], due[1] + 1)) for run in runs] if due is not None else []
        if fresh is None and any(len(stretches) for stretches in ending):
            runs = state.runs(0, (needed_from, _LATEST))
        still_open = []
        for sessions, is_touched in self._merged_sessions(fresh, ending, runs, needed_from):
            closed = sessions.at.lasts < (_EARLIEST if now is None else now - self.spec.gap)
            if closed.any():
                yield self._results(sessions.take(np.flatnonzero(closed)))
            still_open.append(sessions.take(np.flatnonzero(is_touched & ~closed)))
        if any(len(sessions) for sessions in still_open):
            sessions = _Sessions.concatenate(still_open)
            state.stage(0, sort_run(self.state_layout(0), sessions.at.hashes, sessions.rows))

    def _merged_sessions(
        self, fresh: _Sessions | None, ending: Sequence[_Stretches], runs: Sequence[Run], needed_from: int
    ) -> Iterator[tuple[_Sessions, np.ndarray]]:
        """All sessions of the state that are near fresh ones or `ending`, merged with the fresh ones, and which of them
        have got rows; as many at a time as bound the work. What ended before `needed_from` has been given."""
        sought = [*([fresh.at] if fresh is not None else []), *(s for s in ending if len(s))]
        if not sought:
            return
        probes = _Stretches.concatenate(sought)
        by_hash = np.argsort(probes.hashes, kind="stable")
        probes = probes.take(by_hash)
        begins = np.flatnonzero(changes(probes.hashes))
        hashes = probes.hashes[begins]
        lows = np.maximum(np.minimum.reduceat(probes.starts, begins) - self.spec.gap, needed_from)
        ranges = [_ranges_of(run, hashes, lows) for run in runs]
        work = np.diff(np.append(begins, len(probes))) + sum(count for _, count in ranges)
        batch_number = np.cumsum(work) // ROWS_AT_ONCE
        fresh_count = 0 if fresh is None else len(fresh)
        for a, b in pairwise([0, *(np.flatnonzero(np.diff(batch_number)) + 1).tolist(), len(hashes)]):
            part = slice(int(begins[a]), int(begins[b]) if b < len(begins) else len(probes))
            bounds = [(first[a:b], count[a:b]) for first, count in ranges]
            there = self._find_near(probes.take(part), runs, bounds, needed_from)
            sessions = [there.take(self._find_current(there))] if there is not None else []
            stored = sum(len(s) for s in sessions)
            if fresh is not None:
                of_fresh = by_hash[part]
                sessions.append(fresh.take(of_fresh[of_fresh < fresh_count]))
            together = _Sessions.concatenate(sessions)
            groups = self._group(together)
            is_new = groups.gather(np.arange(len(together)) >= stored)
            yield self._merge(together, groups), groups.reduce(np.logical_or, is_new)

    def _find_near(
        self,
        probes: _Stretches,
        runs: Sequence[Run],
        bounds: Sequence[tuple[np.ndarray, np.ndarray]],
        needed_from: int,
    ) -> _Sessions | None:
        """The rows of the state that are near probes, or may be: hashes are compared, no keys."""
        places, stretches = [], [probes]
        for run, (first, count) in zip(runs, bounds, strict=True):
            pieces = [piece for _, piece in expand(first, count)] if count.any() else []
            at = np.concatenate([np.empty(0, dtype=np.int64), *pieces])
            if run.scale.shift:
                at = at[run.times[at] >= needed_from]
            places.append(at)
            stretches.append(_Stretches.of(run, at))
        everything = _Stretches.concatenate(stretches)
        numbered = np.unique(everything.hashes, return_inverse=True)[1]
        sessions = group_sessions(numbered, everything.starts, everything.lasts, self.spec.gap)
        is_probe = sessions.gather(np.arange(len(everything)) < len(probes))
        is_near = sessions.reduce(np.logical_or, is_probe)[sessions.ids]
        parts, place = [], len(probes)
        for run, at in zip(runs, places, strict=True):
            near = at[is_near[place : place + len(at)]]
            place += len(at)
            if len(near):
                parts.append(_Sessions(_Stretches.of(run, near), run.rows.take(pa.array(near))))
        return _Sessions.concatenate(parts) if parts else None

    def _group(self, sessions: _Sessions) -> Groups:
        """Which of some sessions, or pieces of them, are one."""
        keys, at = sessions.rows.columns[: len(self.spec.keys)], sessions.at
        return group_sessions(group_rows(keys, at.hashes).ids, at.starts, at.lasts, self.spec.gap)

    def _find_current(self, stored: _Sessions) -> np.ndarray:
        """Where the rows of the state are that count: of those near each other, the one that was written last has all
        the rows that the others have, and more."""
        groups = self._group(stored)
        rows = groups.gather(stored.rows.column(ROWS).to_numpy())
        most = np.flatnonzero(rows == groups.spread(groups.reduce(np.maximum, rows)))
        return groups.rows(most[np.searchsorted(most, groups.cuts[:-1])])

    def _merge(self, pieces: _Sessions, groups: Groups | None = None) -> _Sessions:
        """One session for each group of pieces."""
        groups = self._group(pieces) if groups is None else groups
        if groups.count == len(pieces):
            return pieces.take(groups.first)
        columns = pieces.rows.columns
        keys, counts = columns[: len(self.spec.keys)], pieces.rows.column(ROWS).to_numpy()
        partials = pa.RecordBatch.from_arrays(columns[len(keys) + 3 :], schema=self.aggregation.partial_schema)
        merged = self.aggregation.merge(partials, groups)
        rows = self._batch(
            keys, pieces.at.starts, pieces.at.lasts, groups.reduce(np.add, groups.gather(counts)), groups, merged
        )
        starts, lasts = (rows.column(name).to_numpy() for name in (START, TIME_COLUMN))
        return _Sessions(_Stretches(pieces.at.hashes[groups.first], starts, lasts), rows)

    def _batch(
        self,
        keys: Sequence[pa.Array],
        starts: np.ndarray,
        lasts: np.ndarray,
        counts: np.ndarray,
        sessions: Groups,
        partial: pa.RecordBatch,
    ) -> pa.RecordBatch:
        """Sessions as they are stored: keys and times are of their pieces, counts and partials their own."""
        first = sessions.reduce(np.minimum, sessions.gather(starts))
        last = sessions.reduce(np.maximum, sessions.gather(lasts))
        own = [pa.array(first), pa.array(last), pa.array(counts.astype(np.int64))]
        taken = [k.take(pa.array(sessions.first)) for k in keys]
        return pa.RecordBatch.from_arrays([*taken, *own, *partial.columns], schema=self.stored)

    def _results(self, sessions: _Sessions) -> ResultBatch:
        columns, at = sessions.rows.columns, sessions.at
        keys = columns[: len(self.spec.keys)]
        partials = pa.RecordBatch.from_arrays(columns[len(keys) + 3 :], schema=self.aggregation.partial_schema)
        times = [pa.array(t).cast(self.spec.time_type) for t in (at.starts, at.lasts + self.spec.gap)]
        finished = self.aggregation.finish(partials)
        return at.hashes, pa.RecordBatch.from_arrays([*keys, *times, *finished.columns], schema=self.schema)


def _ranges_of(run: Run, hashes: np.ndarray, lows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where a run has rows of each hash with a last time that is not below its bound, and how many."""
    first, count = np.zeros(len(hashes), dtype=np.int64), np.zeros(len(hashes), dtype=np.int64)
    ranges = candidate_ranges(run, hashes, lows, np.full(len(hashes), _LATEST))
    if ranges is not None:
        first[ranges[0]], count[ranges[0]] = ranges[1], ranges[2]
    return first, count
