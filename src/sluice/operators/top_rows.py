"""The first rows of each group in some order, when the group has ended.

Only rows that may be among the first of their group cross the exchange and are kept: what an epoch brings is reduced
before, and merged runs are reduced again. When the watermark has passed a group's time, what there is of it is ranked,
once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from sluice.kernels.grouping import group_rows
from sluice.kernels.probe import Run
from sluice.kernels.sort_keys import rank_in_groups, sort_keys
from sluice.model.epoch.times import Times
from sluice.model.plan.top_rows import TopRows
from sluice.operators.protocol import Outgoing, ResultBatch, State
from sluice.operators.row_hashing import RowHashing
from sluice.state.segment import Layout, run_of

_EARLIEST = int(np.iinfo(np.int64).min)


class TopRowsOfGroups:
    """The operator; its state's time is the event time, which rows of a group have in common."""

    def __init__(self, spec: TopRows) -> None:
        self.spec, self.schema = spec, spec.output_schema()
        self.retention = spec.delay
        self.by_time = True
        self.shrinks = False
        self._hashing = RowHashing(spec.keys)

    def exchange_schema(self, input_: int) -> pa.Schema:
        return self.spec.stream.schema

    def state_layout(self, input_: int) -> Layout:
        """Rows are looked up by their time when their group has ended."""
        return Layout(self.spec.stream.schema, self.spec.event_time, 1)

    def prepare_input(self, input_: int, rows: pa.RecordBatch) -> Outgoing:
        hashes = self._hashing.hash(rows)
        first = np.flatnonzero(self._rank(hashes, rows) <= self.spec.count)
        if len(first) == rows.num_rows:
            return Outgoing(hashes, rows)
        return Outgoing(hashes[first], rows.take(pa.array(first)))

    def row_hashing(self, input_: int) -> RowHashing | None:
        return None

    def keep_from(self, input_: int, watermarks: Times) -> int | None:
        return self.spec.keep_from(input_, watermarks)

    def due_span(self, before: Times, after: Times) -> tuple[int, int] | None:
        done, now = (self.spec.ended_before(times[0]) for times in (before, after))
        if now is None or now == done:
            return None
        return (_EARLIEST if done is None else done), now - 1

    def compact(self, input_: int, run: Run, after: Times) -> Run:
        """Without the rows that others of their group have pushed out."""
        first = np.flatnonzero(self._rank(run.hashes, run.rows) <= self.spec.count)
        if len(first) == len(run):
            return run
        rows = run.rows.take(pa.array(first))
        return Run(run.order[first], run.times[first], rows, run.scale, run.earliest, run.latest)

    def epoch(
        self, number: int, new: Sequence[Run | None], state: State, before: Times, after: Times
    ) -> Iterator[ResultBatch]:
        fresh = self.compact(0, new[0], after) if new[0] is not None else None
        due = self.due_span(before, after)
        if due is not None:
            runs = [*state.runs(0, due), *([fresh] if fresh is not None else [])]
            ended = [(run, run.places_between(due[0], due[1] + 1)) for run in runs]
            hashes = np.concatenate([np.empty(0, dtype=np.uint32), *(run.hashes[at] for run, at in ended)])
            if len(hashes):
                yield self._results(hashes, pa.concat_batches([run.rows.take(pa.array(at)) for run, at in ended]))
        if fresh is not None:
            waiting = np.arange(len(fresh)) if due is None else np.flatnonzero(fresh.times > due[1])
            if len(waiting):
                rows = fresh.rows.take(pa.array(waiting))
                state.stage(0, run_of(fresh.hashes[waiting], fresh.times[waiting], rows))

    def _results(self, hashes: np.ndarray, rows: pa.RecordBatch) -> ResultBatch:
        ranks = self._rank(hashes, rows)
        first = np.flatnonzero(ranks <= self.spec.count)
        numbers = pa.array(ranks[first].astype(np.int32))
        columns = [*rows.take(pa.array(first)).columns, numbers]
        return hashes[first], pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _rank(self, hashes: np.ndarray, rows: pa.RecordBatch) -> np.ndarray:
        groups = group_rows([rows.column(key) for key in self.spec.keys], hashes)
        return rank_in_groups(groups, sort_keys(rows, self.spec.order))
