"""Group-by over all rows so far: after an epoch, the groups that have changed, or all.

Rows are reduced to one partial aggregate a group before they cross the exchange. State is those partials: an epoch adds
its own, and looks up those of the groups that it touches. Partials of one group are merged when runs are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from sluice.kernels.aggregation import Aggregation
from sluice.kernels.existence import find_candidates
from sluice.kernels.grouping import Groups, encode_texts, group_rows, hash_groups, number_groups
from sluice.kernels.probe import Run, cut_by_hash
from sluice.model.epoch.times import Times
from sluice.model.plan.running_groups import RunningGroups
from sluice.model.plan.stream import TIME_COLUMN
from sluice.operators.protocol import Outgoing, ResultBatch, State
from sluice.operators.row_hashing import RowHashing
from sluice.state.segment import Layout, sort_run

ROWS_AT_ONCE = 1 << 20
"""Partials of a whole table that are merged at a time, about."""
_ALWAYS = (int(np.iinfo(np.int64).min), int(np.iinfo(np.int64).max))


class RunningGroupBy:
    """The group-by as an operator; its state's time is that of the newest row in a partial."""

    def __init__(self, spec: RunningGroups) -> None:
        self.spec, self.schema = spec, spec.output_schema()
        self.retention: int | None = None
        self.by_time = False
        self.shrinks = True
        self.shows_all = spec.complete
        self.aggregation = Aggregation(spec.aggregates, spec.stream.schema)
        self.partials = self.aggregation.stored_schema(spec.keys, [TIME_COLUMN])

    def exchange_schema(self, input_: int) -> pa.Schema:
        return self.partials

    def state_layout(self, input_: int) -> Layout:
        return Layout(self.partials, TIME_COLUMN)

    def prepare_input(self, input_: int, rows: pa.RecordBatch) -> Outgoing:
        times = rows.column(self.spec.stream.event_time).cast(pa.int64()).to_numpy()
        keys = [rows.column(k) for k in self.spec.keys]
        encoded = encode_texts(keys)
        groups = number_groups(encoded) or group_rows(encoded, rows=rows.num_rows)
        partials = self._batch(keys, times, groups, self.aggregation.partial(rows, times, groups))
        return Outgoing(hash_groups(encoded, groups), partials)

    def row_hashing(self, input_: int) -> RowHashing | None:
        return None

    def keep_from(self, input_: int, watermarks: Times) -> int | None:
        return None

    def due_span(self, before: Times, after: Times) -> tuple[int, int] | None:
        return None

    def compact(self, input_: int, run: Run, after: Times) -> Run:
        """One partial a group, where merged runs brought several."""
        hashes = run.hashes
        groups = self._group(hashes, run.rows)
        if groups.count == len(run):
            return run
        return sort_run(self.state_layout(input_), hashes[groups.first], self._merge(run.rows, groups))

    def epoch(
        self, number: int, new: Sequence[Run | None], state: State, before: Times, after: Times
    ) -> Iterator[ResultBatch]:
        fresh = self.compact(0, new[0], after) if new[0] is not None else None
        if fresh is None or not len(fresh):
            return
        state.stage(0, fresh)
        if not self.shows_all:
            yield from self._show_changed(fresh, state)

    def show_all(self, runs: Sequence[Run]) -> Iterator[ResultBatch]:
        """All groups of some runs, which are all that there is of them; as many at a time as bound the work."""
        for parts in cut_by_hash(runs, ROWS_AT_ONCE):
            hashes = np.concatenate([part.hashes for part in parts])
            rows = pa.concat_batches([part.rows for part in parts])
            groups = self._group(hashes, rows)
            yield self._finish(hashes[groups.first], self._merge(rows, groups))

    def _show_changed(self, fresh: Run, state: State) -> Iterator[ResultBatch]:
        """The groups of new rows, with all that came before of them."""
        always = [np.full(len(fresh), bound) for bound in _ALWAYS]
        hashes, rows = [], []
        for run in state.runs(0, _ALWAYS):
            places = find_candidates(run, fresh.hashes, *always)
            if len(places):
                hashes.append(run.hashes[places])
                rows.append(run.rows.take(pa.array(places)))
        all_hashes, all_rows = np.concatenate([*hashes, fresh.hashes]), pa.concat_batches([*rows, fresh.rows])
        groups = self._group(all_hashes, all_rows)
        changed = np.unique(groups.ids[-len(fresh) :])  # other groups may have the hash of one of these
        merged = self._merge(all_rows, groups).take(pa.array(changed))
        yield self._finish(all_hashes[groups.first[changed]], merged)

    def _group(self, hashes: np.ndarray, rows: pa.RecordBatch) -> Groups:
        return group_rows(self._split_columns(rows)[0], hashes)

    def _merge(self, rows: pa.RecordBatch, groups: Groups) -> pa.RecordBatch:
        """One partial for each group."""
        keys, partials = self._split_columns(rows)
        times = rows.column(TIME_COLUMN).to_numpy()
        return self._batch(keys, times, groups, self.aggregation.merge(partials, groups))

    def _finish(self, hashes: np.ndarray, merged: pa.RecordBatch) -> ResultBatch:
        keys, partials = self._split_columns(merged)
        times = merged.column(TIME_COLUMN).cast(self.spec.time_type)
        columns = [times, *keys, *self.aggregation.finish(partials).columns]
        return hashes, pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _batch(
        self, keys: Sequence[pa.Array], times: np.ndarray, groups: Groups, partial: pa.RecordBatch
    ) -> pa.RecordBatch:
        newest = groups.find_extreme(np.maximum, times)
        first = pa.array(groups.first)
        return pa.RecordBatch.from_arrays(
            [*(key.take(first) for key in keys), pa.array(newest), *partial.columns], schema=self.partials
        )

    def _split_columns(self, rows: pa.RecordBatch) -> tuple[list[pa.Array], pa.RecordBatch]:
        count = len(self.spec.keys)
        partials = pa.RecordBatch.from_arrays(rows.columns[count + 1 :], schema=self.aggregation.partial_schema)
        return rows.columns[:count], partials
