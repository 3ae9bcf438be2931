"""Outer, semi and anti joins: which rows appear by themselves, and when.

A row is settled once the watermark of the other leg has passed the last time that a partner of it can have. In the
epoch that settles it, it is looked for among all partners that came, which are in the state for so long: one without
any appears. A row of a semi join appears in the epoch that brings its first partner: one that has a partner which was
there before has appeared already. So a row appears once, wherever its unit is, and nothing is kept beside the rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from sluice.kernels.probe import Run
from sluice.model.epoch.times import Times
from sluice.model.plan.join import JoinSpec
from sluice.model.plan.join_kind import JoinKind
from sluice.model.plan.stream import TIME_COLUMN
from sluice.operators.partner_search import PartnerSearch
from sluice.operators.protocol import Outgoing, ResultBatch, State, hash_rows
from sluice.operators.row_hashing import RowHashing
from sluice.operators.window_join import WindowJoin, span_of
from sluice.state.segment import Layout

ROWS_AT_ONCE = 1 << 20
"""Rows that are looked for at a time."""
EARLIEST = int(np.iinfo(np.int64).min)

NewRuns = Sequence[Sequence[Run]]
"""The new rows of each input, as one run or none."""


class OuterJoin:
    """A join of two legs as an operator, of another kind than inner."""

    def __init__(self, spec: JoinSpec) -> None:
        assert len(spec.legs) == 2 and not spec.is_inner, "more than two legs are joined by inner joins alone"
        self.spec, self.kind = spec, spec.kind
        self.schema = spec.output_schema()
        self.retention = spec.retention()
        self.by_time = spec.kind.waits
        self.shrinks = False
        self._pairs = WindowJoin(spec)
        self._partners = PartnerSearch(spec)
        self._read = [self._partners.columns_read(leg) for leg in (0, 1)]

    def exchange_schema(self, input_: int) -> pa.Schema:
        return self._pairs.exchange_schema(input_)

    def state_layout(self, input_: int) -> Layout:
        """Rows that may appear without a partner are looked up by their time, when they are settled."""
        layout = self._pairs.state_layout(input_)
        step = 1 if self.spec.is_judged(input_) else None
        return Layout(layout.schema, layout.event_time, step, layout.orderings)

    def prepare_input(self, input_: int, rows: pa.RecordBatch) -> Outgoing:
        """Rows with a null in their key match nothing: where rows appear without a partner, those do, too."""
        return hash_rows(self.row_hashing(input_), rows)

    def row_hashing(self, input_: int) -> RowHashing:
        own = self.spec.inputs[input_]
        spread_by = self.spec.streams[own.stream].event_time if self.spec.is_judged(input_) else None
        return RowHashing(own.keys, self.spec.key_types, spread_by)

    def keep_from(self, input_: int, watermarks: Times) -> int | None:
        return self.spec.keep_from(input_, watermarks)

    def due_span(self, before: Times, after: Times) -> tuple[int, int] | None:
        spans = [self._settling(leg, before, after) for leg in self.kind.kept_legs if self.kind.waits]
        due = [span for span in spans if span is not None and span[0] <= span[1]]
        return (min(low for low, _ in due), max(high for _, high in due)) if due else None

    def compact(self, input_: int, run: Run, after: Times) -> Run:
        return run

    def epoch(
        self, number: int, new: Sequence[Run | None], state: State, before: Times, after: Times
    ) -> Iterator[ResultBatch]:
        new_runs = [[] if run is None or not len(run) else [run] for run in new]
        if self.kind.shows_pairs:
            spans = [span_of(runs) for runs in new_runs]
            old = [state.runs(i, self.spec.reachable_span(i, spans)) for i in range(len(new))]
            yield from self._pairs.results(new_runs, old)
        for leg in self.kind.kept_legs:
            if self.kind is JoinKind.SEMI:
                yield from self._with_first_partner(leg, new_runs, state)
            else:
                yield from self._without_partner(leg, new_runs, state, self._settling(leg, before, after))
        for i, run in enumerate(new):
            if run is not None:
                state.stage(i, run)

    def _settling(self, leg: int, before: Times, after: Times) -> tuple[int, int] | None:
        """The first and the last time of rows that are settled now and were not before; None if none has ever been."""
        settled, until = self.spec.settled_before(leg, before), self.spec.settled_before(leg, after)
        return None if until is None else (EARLIEST if settled is None else settled, until - 1)

    def _without_partner(
        self, leg: int, new: NewRuns, state: State, span: tuple[int, int] | None
    ) -> Iterator[ResultBatch]:
        """The rows of a leg that are settled and have no partner. New ones may have been settled before they came."""
        if span is None:
            return
        input_, (low, high) = self.spec.legs[leg].input, span
        old = state.runs(input_, span) if low <= high else []
        due = [(run, run.places_between(low, high + 1)) for run in old]
        due += [(run, np.flatnonzero(run.times <= high)) for run in new[input_]]
        for run, places in in_pieces(due):
            matched = self._find_matched(leg, run, places, state, new)
            yield from show_alone(self.spec, self.schema, leg, run, places[~matched])

    def _with_first_partner(self, leg: int, new: NewRuns, state: State) -> Iterator[ResultBatch]:
        """The rows of a leg with a partner that came now, or that came now themselves, and none before."""
        own, others = (self.spec.legs[side].input for side in (leg, 1 - leg))
        for run, places in in_pieces([(run, np.arange(len(run))) for run in new[own]]):
            matched = self._find_matched(leg, run, places, state, new)
            yield from show_alone(self.spec, self.schema, leg, run, places[matched])
        for partners in new[others]:
            span = self._partners.partner_span(1 - leg, partners.times)
            touched = [(run, self._partners.find_candidates(leg, run, partners)) for run in state.runs(own, span)]
            for run, places in in_pieces(touched):
                places = places[~self._find_matched(leg, run, places, state, None)]
                if len(places):
                    matched = self._partners.find_matched(leg, self._take(leg, run, places), [partners])
                    yield from show_alone(self.spec, self.schema, leg, run, places[matched])

    def _find_matched(self, leg: int, run: Run, places: np.ndarray, state: State, new: NewRuns | None) -> np.ndarray:
        """Whether rows of a leg have a partner in the state, or among the new rows where these count."""
        others = self.spec.legs[1 - leg].input
        rows = self._take(leg, run, places)
        partners = state.runs(others, self._partners.partner_span(leg, rows.times))
        return self._partners.find_matched(leg, rows, [*(new[others] if new is not None else ()), *partners])

    def _take(self, leg: int, run: Run, places: np.ndarray) -> Run:
        """Rows of a run with what decides on their partners."""
        rows = run.rows.select(self._read[leg]).take(pa.array(places))
        return Run(run.order[places], run.times[places], rows, run.scale, run.earliest, run.latest)


def show_alone(spec: JoinSpec, schema: pa.Schema, leg: int, run: Run, places: np.ndarray) -> Iterator[ResultBatch]:
    """Rows of a leg by themselves, as results with this schema: what is shown of the other one is null, and their own
    event time counts."""
    if not len(places):
        return
    rows = run.rows.take(pa.array(places))
    names = [name for name in rows.schema.names if name != TIME_COLUMN]
    columns = {f"{spec.legs[leg].name}_{name}": rows.column(name) for name in names}
    if spec.timed:
        times = rows.column(spec.stream_of(leg).event_time)
        columns[TIME_COLUMN] = times.cast(schema.field(TIME_COLUMN).type)
    shown = [columns[field.name] if field.name in columns else pa.nulls(len(places), field.type) for field in schema]
    yield run.hashes[places], pa.RecordBatch.from_arrays(shown, schema=schema)


def in_pieces(due: Sequence[tuple[Run, np.ndarray]]) -> Iterator[tuple[Run, np.ndarray]]:
    """Some rows of runs, a bounded number at a time."""
    for run, places in due:
        for start in range(0, len(places), ROWS_AT_ONCE):
            yield run, places[start : start + ROWS_AT_ONCE]
