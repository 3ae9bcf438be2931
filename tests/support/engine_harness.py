"""Drives the engine without Spark: the same split, site, journal and sink code, called in this process."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import strategies as st

from sluice.control.controller import UNIT_SIZE, Controller
from sluice.control.identity import identify
from sluice.control.journal import Journal
from sluice.engine.checkpoint import PlanOnRecord, open_checkpoint
from sluice.engine.flow_plan import FlowPlan, FlowQuery
from sluice.engine.plan_changes import ChangeRequest
from sluice.engine.settings import QuerySettings
from sluice.engine.site_task import Spill
from sluice.engine.static_tables import TableSource
from sluice.model.clock import Clock, SystemClock
from sluice.model.epoch.results import Results
from sluice.model.identity import BATCHES
from sluice.model.plan.assignment import Assignment
from sluice.model.plan.plan import OperatorSpec, Plan
from sluice.model.plan.planning import plan_of
from sluice.model.plan.relation import Applied, Relation
from sluice.model.plan.stream import Stream
from sluice.policies import Policy, policy
from sluice.policies.planning.freezing import Freezing
from sluice.record.epoch import EpochRecord
from sluice.spark.sinks import ParquetSink
from sluice.state.files.storage import Storage
from sluice.state.files.workspace import Places
from sluice.testing.local_query import LocalQuery


def limits(data: st.DataObject) -> dict[str, Any]:
    """How much memory and time the sites get, and what becomes of what does not fit."""
    return {
        "memory": data.draw(st.sampled_from([0, 3000, 20_000, 1 << 30])),
        "spill": data.draw(st.sampled_from(["unit", "probe"])),
        "seconds": data.draw(st.sampled_from([None, 1e-6, 1e9])),
        "backlog": data.draw(st.sampled_from([0.0, 500.0, float("inf")])),
    }


MakeSink = Callable[[str, pa.Schema], Any]
"""The sink of results with these columns, at a path."""


def _parquet_sink(path: str, schema: pa.Schema) -> ParquetSink:
    return ParquetSink(path, "snappy")


class DirectQuery(LocalQuery):
    """A query on a checkpoint. A new one on the same checkpoint is a restarted driver."""

    def __init__(
        self,
        plan: Plan | OperatorSpec | Mapping[str, Relation],
        root: Path,
        sites: int = 2,
        partitions: int = 16,
        memory: int = 1 << 30,
        name: str = "flow",
        wanted: str | Policy = "static",
        map_tasks: int = 2,
        seconds: float | None = None,
        backlog: float = float("inf"),
        spill: str = "unit",
        freezing: Freezing | None = None,
        place: Callable[[str], str] | None = None,
        most_sites: int | None = None,
        least_sites: int = 1,
        unit_size: int = UNIT_SIZE,
        advise: bool = False,
        clock: Clock | None = None,
        streams: Sequence[Stream] = (),
        confirmed: bool = False,
        input: str = BATCHES,
        tables: Mapping[str, TableSource] | None = None,
        make_sink: MakeSink = _parquet_sink,
        new_id: str = "0" * 16,
    ) -> None:
        """Queries that are given by name, over these `streams`, can be added and dropped; whether another list of them
        than the checkpoint has is `confirmed`. `place` tells where the checkpoint and the outputs lie, if not below the
        root. With `most_sites` the number of sites can be chosen, up to that from `least_sites` on."""
        self.root = root
        places = Places(str(root / "memory"), str(root / "disk"))
        self.place = place = place or (lambda path: str(root / path))
        storage = Storage(place("checkpoint"))
        on_record = PlanOnRecord.read(Journal(storage))
        if isinstance(plan, Mapping):
            queries = [self.query_of(name, relation) for name, relation in plan.items()]
            empty = FlowPlan(
                plan_of((), (), None, streams), (), (), tuple(streams), tables={} if tables is None else tables
            )
            flow = empty.with_changes(queries, (), on_record.assignment if on_record else Assignment())
            self.outs = [root / f"out-{name}" for name in plan]
        else:
            whole = plan if isinstance(plan, Plan) else single(plan)
            self.outs = [root / ("out" if i == 0 else f"out{i}") for i in range(len(whole.outputs))]
            outputs = zip(self.outs, whole.outputs, strict=True)
            sinks = tuple(make_sink(place(out.name), output.schema) for out, output in outputs)
            flow = FlowPlan(whole, sinks, tables={} if tables is None else tables)
        self.sinks = flow.sinks
        capabilities = flow.plan.capabilities
        if most_sites:
            capabilities = replace(capabilities, scalable=True, least_sites=least_sites, most_sites=most_sites)
        self.new_controller = lambda chosen: Controller(chosen, memory, 1e-9, advise, capabilities, backlog, unit_size)
        """A controller as this query's, with a policy."""
        settings = QuerySettings(
            sites,
            partitions,
            memory,
            places,
            self.new_controller(policy(wanted)),
            seconds=seconds,
            backlog=backlog,
            spill=Spill(spill),
            freezing=freezing,
        )
        clock = clock or SystemClock()
        identity = identify(name, flow.plan.sources, partitions, input)
        first = EpochRecord.before_all(flow.plan.first_routing(partitions, sites), len(flow.plan.sources))
        restore = (lambda query: ParquetSink(str(query.shown), "snappy")) if confirmed else None
        made_for = on_record.file if on_record else ""
        checkpoint = open_checkpoint(storage, new_id, identity, first, flow, clock, made_for, restore)
        super().__init__(flow, settings, checkpoint, clock, map_tasks)
        self.query = checkpoint.query

    def query_of(self, name: str, relation: Relation) -> FlowQuery:
        """A query that writes to a directory of its name."""
        return FlowQuery(name, relation, ParquetSink(self.place(f"out-{name}"), "snappy"))

    def change(self, add: Mapping[str, Relation] | None = None, drop: Sequence[str] = ()) -> ChangeRequest:
        """Ask for queries to be added and dropped with the next epoch."""
        queries = tuple(self.query_of(name, relation) for name, relation in (add or {}).items())
        for query in queries:
            query.sink.check_new(self.query)
            query.sink.open(self.query, Results(self.epochs.record.number))
        request = ChangeRequest(queries, tuple(drop))
        self.epochs.standing.changes.add(request)
        return request

    def results_of(self, name: str) -> pa.Table:
        """All results of a query, which may have been dropped."""
        return _read(Storage(self.place(f"out-{name}")))

    def results(self, output: int = 0) -> pa.Table:
        results = _read(self.sinks[output].storage)
        return results if results.num_columns else self.plan.outputs[output].schema.empty_table()


def _read(storage: Storage) -> pa.Table:
    names = sorted(e.name for e in storage.files() if e.name.endswith(".parquet"))
    tables = [pq.read_table(pa.BufferReader(storage.read(name))) for name in names]
    return pa.concat_tables(tables) if tables else pa.table({})


def single(spec: OperatorSpec) -> Plan:
    """One operator over its own streams, all of its results to one sink."""
    feeds = tuple(Relation(s, (), s) for s in spec.streams)
    result = Stream("result", spec.output_schema(), spec.event_time, spec.delay)
    return plan_of([Relation(Applied(spec, feeds), (), result)])
