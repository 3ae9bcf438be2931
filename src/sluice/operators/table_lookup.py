"""The join with a table whose rows are state: rows of the stream meet those of their key, and leave.

All rows of a table come in the same epoch, before or with the first rows of the stream that a unit takes in. So a row
meets the whole of what the table has for its key, and is settled at once. Where a table is read again, its rows have a
later time, and those of before have expired when the epoch begins that brings them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from sluice.kernels.probe import Run
from sluice.model.epoch.times import Times
from sluice.model.plan.join_kind import JoinKind
from sluice.model.plan.stream import EARLIEST, LATEST
from sluice.model.plan.table_lookup import PASSING, TABLE, TableLookup
from sluice.operators.outer_join import in_pieces, show_alone
from sluice.operators.partner_search import PartnerSearch
from sluice.operators.protocol import Outgoing, ResultBatch, State, hash_rows
from sluice.operators.row_hashing import RowHashing
from sluice.operators.window_join import WindowJoin
from sluice.state.segment import Layout


class LookupInTable:
    """A join with a table as an operator. Of its inputs that of the table alone has state, which is kept until the
    table is read again."""

    def __init__(self, spec: TableLookup) -> None:
        self.spec, self.kind = spec, spec.kind
        self.schema = spec.output_schema()
        self.retention: int | None = None
        self.by_time = self.shrinks = False
        self._pairs = WindowJoin(spec.join)
        self._partners = PartnerSearch(spec.join)
        self._read = self._partners.columns_read(PASSING)

    def exchange_schema(self, input_: int) -> pa.Schema:
        return self.spec.streams[input_].schema

    def state_layout(self, input_: int) -> Layout:
        stream = self.spec.streams[input_]
        return Layout(stream.schema, stream.event_time)

    def prepare_input(self, input_: int, rows: pa.RecordBatch) -> Outgoing:
        """Rows with a null in their key match nothing: those of the stream appear where rows without a partner do."""
        return hash_rows(self.row_hashing(input_), rows)

    def row_hashing(self, input_: int) -> RowHashing:
        spread_by = self.spec.stream.event_time if self.spec.join.is_judged(input_) else None
        return RowHashing(self.spec.inputs[input_].keys, self.spec.key_types, spread_by)

    def keep_from(self, input_: int, watermarks: Times) -> int | None:
        return self.spec.keep_from(input_, watermarks)

    def due_span(self, before: Times, after: Times) -> tuple[int, int] | None:
        return None

    def compact(self, input_: int, run: Run, after: Times) -> Run:
        return run

    def epoch(
        self, number: int, new: Sequence[Run | None], state: State, before: Times, after: Times
    ) -> Iterator[ResultBatch]:
        rows, loaded = new[PASSING], new[TABLE]
        if rows is not None and len(rows):
            partners = [*state.runs(TABLE, (EARLIEST, LATEST)), *([] if loaded is None else [loaded])]
            yield from self._look_up(rows, partners)
        if loaded is not None:
            state.stage(TABLE, loaded)

    def _look_up(self, rows: Run, partners: list[Run]) -> Iterator[ResultBatch]:
        if self.kind.shows_pairs:
            yield from self._pairs.results([[rows], []], [[], partners])
        if self.kind is JoinKind.INNER:
            return
        for run, places in in_pieces([(rows, np.arange(len(rows)))]):
            matched = self._partners.find_matched(PASSING, self._take(run, places), partners)
            shown = places[matched if self.kind is JoinKind.SEMI else ~matched]
            yield from show_alone(self.spec.join, self.schema, PASSING, run, shown)

    def _take(self, run: Run, places: np.ndarray) -> Run:
        """Rows with what decides on their partners."""
        rows = run.rows.select(self._read).take(pa.array(places))
        return Run(run.order[places], run.times[places], rows, run.scale, run.earliest, run.latest)
