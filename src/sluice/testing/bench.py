"""Where a test's query runs: its checkpoint and outputs in a directory of its own, its drivers one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from sluice.api.checking import query_settings, record_before_all
from sluice.api.request import QueryRequest
from sluice.api.settling import check_that_rows_settle
from sluice.control.identity import identify
from sluice.control.journal import Journal
from sluice.engine.checkpoint import PlanOnRecord, open_checkpoint
from sluice.engine.flow_plan import FlowPlan
from sluice.model.clock import Clock
from sluice.model.errors import FlowError
from sluice.model.plan.plan import Plan
from sluice.model.plan.planning import plan_of
from sluice.record.epoch import EpochRecord
from sluice.record.progress import EpochProgress
from sluice.spark.sinks import ParquetSink
from sluice.state.files.storage import Storage
from sluice.state.files.workspace import Places
from sluice.testing.arrivals import Batch
from sluice.testing.local_query import LocalQuery
from sluice.testing.outcome import EpochOutcome, Outcome

AnyLocalQuery = TypeVar("AnyLocalQuery", bound=LocalQuery)


def plan_request(request: QueryRequest, on_record: PlanOnRecord | None = None) -> Plan:
    """The plan of what was asked for; what only Spark can compute is refused."""
    plan = plan_of(request.outputs, request.names, on_record.assignment if on_record else None)
    check_that_rows_settle(plan, request.options.close_at_end)
    for number, source in enumerate(plan.sources):
        for expression in plan.by_spark(number):
            raise FlowError(
                f"stream {source.name!r}: Spark computes {expression.text}, and a test runs without it. Compute that "
                "column before the stream is registered, and give its values to the test"
            )
    return replace(plan, time_zone=request.registry.time_zone if plan.has_expressions else "")


class Bench:
    """What outlives the drivers of a test: the checkpoint, the outputs, and what was committed so far."""

    def __init__(self, request: QueryRequest, root: Path, clock: Clock) -> None:
        self.request, self.root, self.clock = request, root, clock
        self.plan = plan_request(request)
        self._records: dict[int, EpochRecord] = {}

    def start(self, kind: type[AnyLocalQuery], sites: int) -> AnyLocalQuery:
        """A driver on the checkpoint."""
        request, storage = self.request, Storage(str(self.root / "checkpoint"))
        on_record = PlanOnRecord.read(Journal(storage))
        plan = plan_request(request, on_record)
        sinks = tuple(ParquetSink(str(self._output(number)), "none") for number in range(len(plan.outputs)))
        registry = request.registry
        flow = FlowPlan(plan, sinks, request.outputs, plan.sources, registry.time_zone, registry.tables)
        policy = copy(request.policy.policy)  # what a policy has learned ends with its driver
        request = replace(request, policy=replace(request.policy, policy=policy))
        places = Places(str(self.root / "memory"), str(self.root / "disk"))
        settings = replace(query_settings(request, plan, sites), places=places)
        checkpoint = open_checkpoint(
            storage,
            "0" * 16,
            identify(registry.flow, plan.sources, settings.partitions),
            record_before_all(request, plan, sites),
            flow,
            self.clock,
            on_record.file if on_record else "",
        )
        return kind(flow, settings, checkpoint, self.clock)

    def note_newest(self, query: LocalQuery) -> None:
        """Keep what a driver has just committed."""
        record = replace(query.epochs.record, stats=query.epochs.measured)
        self._records[record.number] = record

    def note_all(self, query: LocalQuery) -> None:
        """Keep what was committed since the last look, by whichever driver. An epoch that was taken for failed may be
        committed anew."""
        new = query.epochs.record.number - max(self._records, default=-1)
        for record in query.epochs.journal.epochs(most=max(0, new) + 2):
            self._records[record.number] = record

    def outcome(self, batches: Sequence[Batch], disturbances: Sequence[str] = ()) -> Outcome:
        """What came of all epochs so far, as it is shown."""
        outputs = self.plan.outputs
        shown = [self._read_output(number) for number in range(len(outputs))]
        epochs = []
        for number, record in sorted(self._records.items()):
            results = {output.name: _collect(record, i, output.schema, shown[i]) for i, output in enumerate(outputs)}
            late = [rows.slice(0, 0) for rows in batches[0].late] if batches else []
            if not record.stats.catch_up:
                late = list(batches[record.batch].late)
            by_stream = {stream.name: rows for stream, rows in zip(self.plan.sources, late, strict=True)}
            progress = EpochProgress.of(record, self.plan, record.stats.seconds.elapsed)
            epochs.append(EpochOutcome(number, results, by_stream, progress))
        for output, left in zip(outputs, shown, strict=True):
            assert not left, f"results of query {output.name!r} are shown that no epoch has: {sorted(left)}"
        return Outcome(
            tuple(epochs),
            {output.name: output.schema for output in outputs},
            {stream.name: stream.schema for stream in self.plan.sources},
            tuple(disturbances),
        )

    def _output(self, number: int) -> Path:
        return self.root / f"out-{number}"

    def _read_output(self, number: int) -> dict[str, pa.Table]:
        """What a reader of the output finds, by file."""
        return {file.name: pq.read_table(file) for file in self._output(number).glob("*.parquet")}


def _collect(record: EpochRecord, output: int, schema: pa.Schema, shown: dict[str, pa.Table]) -> pa.Table:
    """The results of an epoch, taken out of what is shown."""
    tables = []
    for part in record.results_of(output).parts:
        assert part.name in shown, f"results of epoch {record.number} are not shown: {part.name}"
        tables.append(shown.pop(part.name).cast(schema))
    return pa.concat_tables([schema.empty_table(), *tables])
