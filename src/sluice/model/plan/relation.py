"""What users write as relations, and the plan that runs them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from sluice.model.plan.assignment import Assignment, Digest, digest
from sluice.model.plan.fragments import UnplacedOperator, place_operators
from sluice.model.plan.join import JoinSpec
from sluice.model.plan.plan import Feed, Inflow, OperatorSpec, Output, Plan
from sluice.model.plan.query_names import name_queries
from sluice.model.plan.steps import StaticTable, Step
from sluice.model.plan.stream import Stream, columns_of


@dataclass(frozen=True, eq=False)
class Relation:
    """Rows as users hold them: those of a source, of an operator or of several relations, after stateless steps;
    `stream` describes them. Those of a table are read when it is time, and come from no origin of a plan."""

    origin: Stream | LateRows | Applied | Union | StaticTable
    steps: tuple[Step, ...]
    stream: Stream

    @property
    def late_streams(self) -> tuple[Stream, ...]:
        """The streams whose late rows are among these."""
        if isinstance(self.origin, Union):
            return tuple(stream for each in self.origin.relations for stream in each.late_streams)
        return (self.origin.stream,) if isinstance(self.origin, LateRows) else ()


@dataclass(frozen=True)
class LateRows:
    """The rows of a source that come too late for its operators, as rows of their own. They go to sinks alone."""

    stream: Stream


@dataclass(frozen=True, eq=False)
class Applied:
    """An operator with the relations it takes in, one for each of its streams."""

    spec: OperatorSpec
    feeds: tuple[Relation, ...]


@dataclass(frozen=True, eq=False)
class Union:
    """The rows of several relations with the same columns and the same event time."""

    relations: tuple[Relation, ...]


def plan_of(
    outputs: Sequence[Relation],
    names: Sequence[str] = (),
    assigned: Assignment | None = None,
    sources: Sequence[Stream] = (),
) -> Plan:
    """What has to run for these relations to be written by queries of these names, by default those of their places.
    What is the same by its structure runs once, whoever wrote it, and however often; states that operators of a
    fragment have in common are kept once.

    `assigned` is where an earlier plan of the checkpoint had its operators. These `sources` come first, whether they
    are read or not.
    """
    origins = _Origins(sources)
    shown = [origins.inflow_of(relation) for relation in outputs]
    placed = place_operators(origins.sources, origins.numbered_operators(), assigned or Assignment())
    schemas = [pa.schema(relation.stream.shown) for relation in outputs]
    names = names or name_queries([None] * len(outputs))
    written = [Output(origins.numbered(f), schema, name) for f, schema, name in zip(shown, schemas, names, strict=True)]
    return Plan(tuple(origins.sources), placed.nodes, tuple(written), placed.labels, placed.states, placed.next_label)


class _Origins:
    """Sources and operators, each once. As long as not all sources are there, operator n has the number -1 - n."""

    def __init__(self, sources: Sequence[Stream]) -> None:
        self.sources: list[Stream] = list(sources)
        self._operators: list[UnplacedOperator] = []
        self._by_structure: dict[Digest, int] = {}
        self._by_object: dict[int, int] = {}

    def inflow_of(self, relation: Relation) -> Inflow:
        """Where a relation's rows come from. Steps behind a union are done to the rows of each of its relations."""
        if isinstance(relation.origin, Union):
            feeds = (feed for each in relation.origin.relations for feed in self.inflow_of(each))
            return tuple(replace(feed, steps=(*feed.steps, *relation.steps)) for feed in feeds)
        if isinstance(relation.origin, StaticTable):
            return ()
        if isinstance(relation.origin, LateRows):
            return (Feed(self._number(relation.origin.stream), relation.steps, late=True),)
        return (Feed(self._number(relation.origin), relation.steps),)

    def numbered(self, inflow: Inflow) -> Inflow:
        """With the numbers that origins have in the plan."""
        first = len(self.sources)
        return tuple(f if f.origin >= 0 else replace(f, origin=first + ~f.origin) for f in inflow)

    def numbered_operators(self) -> list[UnplacedOperator]:
        """All operators, now that all sources are there. The results of a join
        carry their event times if an operator takes them in."""
        taken = {feed.origin for operator in self._operators for inflow in operator.inflows for feed in inflow}
        operators = []
        for number, operator in enumerate(self._operators):
            spec = operator.spec
            if isinstance(spec, JoinSpec) and ~number in taken:
                spec = replace(spec, timed=True)
            inflows = tuple(self.numbered(inflow) for inflow in operator.inflows)
            operators.append(replace(operator, spec=spec, inflows=inflows))
        return operators

    def _number(self, origin: Stream | Applied) -> int:
        if isinstance(origin, Stream):
            if origin not in self.sources:
                self.sources.append(origin)
            return self.sources.index(origin)
        if id(origin) not in self._by_object:
            inflows = tuple(self.inflow_of(relation) for relation in origin.feeds)
            assert not any(feed.late for inflow in inflows for feed in inflow), "late rows go to sinks alone"
            rows = tuple(map(self._structure_of_feed, origin.feeds, inflows))
            structure = _digest_operator(origin.spec, rows)
            if structure not in self._by_structure:
                self._operators.append(UnplacedOperator(origin.spec, inflows, rows, structure))
                self._by_structure[structure] = ~(len(self._operators) - 1)
            self._by_object[id(origin)] = self._by_structure[structure]
        return self._by_object[id(origin)]

    def _structure_of_feed(self, relation: Relation, inflow: Inflow) -> object:
        """What tells the rows that an operator takes in as one stream from others."""
        if isinstance(relation.origin, StaticTable):
            return "table", relation.origin.name
        return self._structure_of_rows(inflow)

    def _structure_of_rows(self, inflow: Inflow) -> object:
        """What tells rows from others: where they are from, and the steps they have passed."""
        if len(inflow) > 1:
            return "union", [self._structure_of_rows((feed,)) for feed in inflow]
        feed = inflow[0]
        origin = self.sources[feed.origin].name if feed.origin >= 0 else self._operators[~feed.origin].structure
        return "source" if feed.origin >= 0 else "operator", origin, [step.structure() for step in feed.steps]


def _digest_operator(spec: OperatorSpec, rows: Sequence[object]) -> Digest:
    """What an operator does to which rows: two with the same structure have the same states and the same results."""
    streams = [(columns_of(stream.schema), stream.event_time, stream.delay) for stream in spec.streams]
    return digest((type(spec).__name__, spec.structure(), streams, rows))
