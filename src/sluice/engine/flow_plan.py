"""What a flow runs: its plan, and the sinks that its queries' results go to."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from sluice.engine.compiled_plan import compiled
from sluice.engine.delivery import Sink
from sluice.engine.static_tables import TableSource
from sluice.model.ids import InputNumber
from sluice.model.plan.assignment import Assignment
from sluice.model.plan.layout import PlanLayout
from sluice.model.plan.plan import Plan
from sluice.model.plan.planning import plan_of
from sluice.model.plan.recorded_plan import RecordedOperator, RecordedPlan, RecordedQuery, RecordedState
from sluice.model.plan.relation import Relation
from sluice.model.plan.stream import Stream


@dataclass(frozen=True)
class FlowQuery:
    """One of a flow's queries: its name, what it writes, and to where."""

    name: str
    relation: Relation
    sink: Sink


@dataclass(frozen=True)
class FlowPlan:
    """A plan, with a sink for each of its outputs. `relations` are what the outputs write and `streams` those that they
    are made of, as users hold them, in the order of the plan's sources; `time_zone` is that of the session."""

    plan: Plan
    sinks: tuple[Sink, ...]
    relations: tuple[Relation, ...] = ()
    streams: tuple[Stream, ...] = ()
    time_zone: str = ""
    tables: Mapping[str, TableSource] = field(default_factory=dict)
    """Those of the flow, by name: what is in the plan's."""

    @property
    def names(self) -> tuple[str, ...]:
        """Of its queries."""
        return tuple(output.name for output in self.plan.outputs)

    @property
    def queries(self) -> tuple[FlowQuery, ...]:
        return tuple(FlowQuery(*query) for query in zip(self.names, self.relations, self.sinks, strict=True))

    def with_changes(self, added: Sequence[FlowQuery], dropped: Collection[str], assigned: Assignment) -> FlowPlan:
        """With some queries more, which read no other streams, and without others, by name. Operators that stay are
        where they are `assigned` to."""
        queries = [*(query for query in self.queries if query.name not in dropped), *added]
        relations = tuple(query.relation for query in queries)
        plan = plan_of(relations, [query.name for query in queries], assigned, self.streams)
        plan = replace(plan, sources=self.plan.sources, time_zone=self.time_zone if plan.has_expressions else "")
        return replace(self, plan=plan, sinks=tuple(query.sink for query in queries), relations=relations)

    @property
    def recorded(self) -> RecordedPlan:
        """As a checkpoint has it."""
        plan = self.plan
        queries = [
            RecordedQuery(
                name=output.name,
                structure=plan.structure_of(number),
                says=plan.describe_output(number),
                sink=sink.kind,
                shown=sink.shown,
                origins=tuple(feed.origin for feed in output.inflow),
                late=tuple(feed.origin for feed in output.inflow if feed.late),
                kept=None if output.kept is None else dict(output.kept),
            )
            for number, (output, sink) in enumerate(zip(plan.outputs, self.sinks, strict=True))
        ]
        operators = [
            RecordedOperator(
                structure=node.structure,
                says=node.spec.describe().split("\n")[0],
                origins=tuple(feed.origin for feed in node.feeds),
                states=node.inputs,
                level=node.level,
                fragment=node.fragment,
            )
            for node in plan.nodes
        ]
        sources = tuple(source.name for source in plan.sources)
        states, schemas = _record_states(plan)
        return RecordedPlan(
            queries=tuple(queries),
            says=plan.describe(),
            timeZone=plan.time_zone,
            sources=sources,
            operators=tuple(operators),
            nextLabel=plan.next_label,
            layout=PlanLayout.of(plan),
            states=states,
            schemas=schemas,
        )


def _record_states(plan: Plan) -> tuple[tuple[RecordedState, ...], tuple[str, ...]]:
    """The states of a plan, and the schemas of what they hold, each once: most states of many queries have few."""
    places: dict[pa.Schema, int] = {}

    def place_of(schema: pa.Schema) -> int:
        return places.setdefault(schema, len(places))

    states = []
    for number, state in enumerate(plan.inputs):
        node, input_ = state.readers[0]
        reader, layouts = plan.nodes[node], compiled(plan).layouts(InputNumber(number))
        read = reader.spec.inputs[input_]
        stored, pending = (place_of(layout.stored_schema) for layout in (layouts.state, layouts.pending))
        origins = tuple(feed.origin for feed in reader.inflows[read.stream])
        table = plan.divided_tables.get(InputNumber(number))
        states.append(RecordedState(origins, read.keys, stored, pending, "" if table is None else table.name))
    return tuple(states), tuple(b64encode(schema.serialize()).decode() for schema in places)
