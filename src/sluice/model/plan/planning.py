"""From relations, as users write them, to the plan that runs them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from sluice.model.plan.assignment import Assignment, Digest, digest
from sluice.model.plan.columns_kept import choose_columns, narrow
from sluice.model.plan.fragments import UnplacedOperator, place_operators
from sluice.model.plan.join import JoinSpec
from sluice.model.plan.plan import Feed, Inflow, OperatorSpec, Output, Plan
from sluice.model.plan.query_names import name_queries
from sluice.model.plan.relation import Applied, LateRows, Relation, Union
from sluice.model.plan.steps import StaticTable
from sluice.model.plan.stream import Stream, columns_of


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
    assigned = assigned or Assignment()
    names = names or name_queries([None] * len(outputs))
    as_written = _Origins(sources)
    kept = choose_columns(dict(zip(names, outputs, strict=True)), assigned.kept, as_written.name_rows)
    origins = _Origins(sources)
    shown = [
        origins.inflow_of(narrow(relation, kept[name], as_written.name_rows))
        for name, relation in zip(names, outputs, strict=True)
    ]
    placed = place_operators(origins.sources, origins.numbered_operators(), assigned)
    written = [
        Output(origins.numbered(inflow), pa.schema(relation.stream.shown), name, kept[name])
        for name, relation, inflow in zip(names, outputs, shown, strict=True)
    ]
    return Plan(tuple(origins.sources), placed.nodes, tuple(written), placed.labels, placed.states, placed.next_label)


class _Origins:
    """Sources and operators, each once. As long as not all sources are there, operator n has the number -1 - n."""

    def __init__(self, sources: Sequence[Stream]) -> None:
        self.sources: list[Stream] = list(sources)
        self._operators: list[UnplacedOperator] = []
        self._by_structure: dict[Digest, int] = {}
        self._by_object: dict[Applied, int] = {}

    def name_rows(self, relation: Relation) -> Digest:
        """What tells the rows of a relation from others."""
        return digest(self._structure_of_feed(relation, self.inflow_of(relation)))

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
        if origin not in self._by_object:
            inflows = tuple(self.inflow_of(relation) for relation in origin.feeds)
            assert not any(feed.late for inflow in inflows for feed in inflow), "late rows go to sinks alone"
            rows = tuple(map(self._structure_of_feed, origin.feeds, inflows))
            structure = _digest_operator(origin.spec, rows)
            if structure not in self._by_structure:
                self._operators.append(UnplacedOperator(origin.spec, inflows, rows, structure))
                self._by_structure[structure] = ~(len(self._operators) - 1)
            self._by_object[origin] = self._by_structure[structure]
        return self._by_object[origin]

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
