"""The first rows of each group in some order: once, when the group has ended, or after every epoch as they are then.

Only rows that may be among the first of their group cross the exchange and are kept: what an epoch brings is reduced
before, and merged runs are reduced again.

- Where groups end, what there is of a group is ranked when the watermark has passed its time.
- Where they do not, an epoch looks up the first rows of the groups that it has rows of, and ranks these anew. A place
  is shown if another row has it now. Rows have numbers in the order in which they came, which decide between rows that
  are equal in the order: so a place changes hands only if a row comes before it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from sluice.kernels.existence import find_candidates
from sluice.kernels.grouping import Groups, group_rows
from sluice.kernels.probe import Run, cut_by_hash
from sluice.kernels.sort_keys import rank_in_groups, sort_keys
from sluice.model.epoch.times import Times
from sluice.model.plan.top_rows import TopRows
from sluice.operators.last_rows import SEQUENCE
from sluice.operators.protocol import Outgoing, ResultBatch, State
from sluice.operators.row_hashing import RowHashing
from sluice.state.segment import Layout, run_of

ROWS_AT_ONCE = 1 << 20
"""Rows of a whole table that are ranked at a time, about."""
_ALWAYS = (int(np.iinfo(np.int64).min), int(np.iinfo(np.int64).max))


class TopRowsOfGroups:
    """The operator; its state's time is the event time."""

    def __init__(self, spec: TopRows) -> None:
        self.spec, self.schema = spec, spec.output_schema()
        self.retention = spec.delay if spec.ends else None
        self.by_time = spec.ends
        self.shrinks = not spec.ends
        self.shows_all = spec.complete
        self._hashing = RowHashing(spec.keys)
        numbered = [] if spec.ends else [pa.field(SEQUENCE, pa.int64())]
        self._stored = pa.schema([*spec.stream.schema, *numbered])

    def exchange_schema(self, input_: int) -> pa.Schema:
        return self.spec.stream.schema

    def state_layout(self, input_: int) -> Layout:
        """Rows are looked up by their time when their group has ended, else by their group."""
        return Layout(self._stored, self.spec.event_time, 1 if self.spec.ends else None)

    def prepare_input(self, input_: int, rows: pa.RecordBatch) -> Outgoing:
        hashes = self._hashing.hash(rows)
        first = np.flatnonzero(self._rank(hashes, rows)[1] <= self.spec.count)
        if len(first) == rows.num_rows:
            return Outgoing(hashes, rows)
        return Outgoing(hashes[first], rows.take(pa.array(first)))

    def row_hashing(self, input_: int) -> RowHashing | None:
        return None

    def keep_from(self, input_: int, watermarks: Times) -> int | None:
        return self.spec.keep_from(input_, watermarks)

    def due_span(self, before: Times, after: Times) -> tuple[int, int] | None:
        if not self.spec.ends:
            return None
        done, now = (self.spec.ended_before(times[0]) for times in (before, after))
        if now is None or now == done:
            return None
        return (_ALWAYS[0] if done is None else done), now - 1

    def compact(self, input_: int, run: Run, after: Times) -> Run:
        """Without the rows that others of their group have pushed out."""
        first = np.flatnonzero(self._rank(run.hashes, run.rows)[1] <= self.spec.count)
        if len(first) == len(run):
            return run
        rows = run.rows.take(pa.array(first))
        return Run(run.order[first], run.times[first], rows, run.scale, run.earliest, run.latest)

    def epoch(
        self, number: int, new: Sequence[Run | None], state: State, before: Times, after: Times
    ) -> Iterator[ResultBatch]:
        if self.spec.ends:
            yield from self._show_ended(new[0], state, before, after)
        elif new[0] is not None and len(new[0]):
            yield from self._show_changed(self._number_rows(new[0], number), state)

    def show_all(self, runs: Sequence[Run]) -> Iterator[ResultBatch]:
        """The first rows of all groups of some runs, which are all that there is of them."""
        for parts in cut_by_hash(runs, ROWS_AT_ONCE):
            hashes = np.concatenate([part.hashes for part in parts])
            rows = pa.concat_batches([part.rows for part in parts])
            ranks = self._rank(hashes, rows)[1]
            yield self._results(hashes, rows, ranks, ranks <= self.spec.count)

    def _show_ended(self, new: Run | None, state: State, before: Times, after: Times) -> Iterator[ResultBatch]:
        """The first rows of the groups whose time the watermark has passed now; the others wait."""
        fresh = self.compact(0, new, after) if new is not None else None
        due = self.due_span(before, after)
        if due is not None:
            runs = [*state.runs(0, due), *([fresh] if fresh is not None else [])]
            ended = [(run, run.places_between(due[0], due[1] + 1)) for run in runs]
            hashes = np.concatenate([np.empty(0, dtype=np.uint32), *(run.hashes[at] for run, at in ended)])
            if len(hashes):
                rows = pa.concat_batches([run.rows.take(pa.array(at)) for run, at in ended])
                ranks = self._rank(hashes, rows)[1]
                yield self._results(hashes, rows, ranks, ranks <= self.spec.count)
        if fresh is not None:
            waiting = np.arange(len(fresh)) if due is None else np.flatnonzero(fresh.times > due[1])
            self._stage(fresh, waiting, state)

    def _show_changed(self, fresh: Run, state: State) -> Iterator[ResultBatch]:
        """The places of groups with new rows that another row has now. Only rows that have a place are kept."""
        always = [np.full(len(fresh), bound) for bound in _ALWAYS]
        found = [(run, find_candidates(run, fresh.hashes, *always)) for run in state.runs(0, _ALWAYS)]
        hashes = np.concatenate([*(run.hashes[at] for run, at in found), fresh.hashes])
        rows = pa.concat_batches([*(run.rows.take(pa.array(at)) for run, at in found), fresh.rows])
        groups, ranks = self._rank(hashes, rows)
        is_new = np.arange(len(hashes)) >= len(hashes) - len(fresh)
        has_place = ranks <= self.spec.count
        first_new = np.where(is_new & has_place, ranks, self.spec.count + 1)
        changed_from = groups.reduce(np.minimum, groups.gather(first_new))[groups.ids]
        if not self.shows_all:
            yield self._results(hashes, rows, ranks, has_place & (ranks >= changed_from))
        self._stage(fresh, np.flatnonzero(has_place[is_new]), state)

    def _number_rows(self, run: Run, epoch: int) -> Run:
        """The rows with their numbers, those of an epoch in the order in which they lie."""
        sequence = (np.int64(epoch) << np.int64(32)) + np.arange(len(run))
        rows = pa.RecordBatch.from_arrays([*run.rows.columns, pa.array(sequence)], schema=self._stored)
        return Run(run.order, run.times, rows, run.scale, run.earliest, run.latest)

    @staticmethod
    def _stage(fresh: Run, places: np.ndarray, state: State) -> None:
        if len(places):
            state.stage(0, run_of(fresh.hashes[places], fresh.times[places], fresh.rows.take(pa.array(places))))

    def _results(self, hashes: np.ndarray, rows: pa.RecordBatch, ranks: np.ndarray, shown: np.ndarray) -> ResultBatch:
        at = np.flatnonzero(shown)
        own = rows.select(self.spec.stream.schema.names).take(pa.array(at))
        columns = [*own.columns, pa.array(ranks[at].astype(np.int32))]
        return hashes[at], pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _rank(self, hashes: np.ndarray, rows: pa.RecordBatch) -> tuple[Groups, np.ndarray]:
        """The groups of rows, and each row's place in its own."""
        groups = group_rows([rows.column(key) for key in self.spec.keys], hashes)
        keys = sort_keys(rows, self.spec.order)
        if SEQUENCE in rows.schema.names:
            keys.append(rows.column(SEQUENCE).to_numpy())
        return groups, rank_in_groups(groups, keys)
