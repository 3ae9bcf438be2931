"""What users write as relations, and the plan that runs them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from sluice.model.ids import Fragment, Level
from sluice.model.plan.join import JoinSpec
from sluice.model.plan.plan import Feed, OperatorNode, OperatorSpec, Output, Plan
from sluice.model.plan.query_names import name_queries
from sluice.model.plan.stream import Project, Step, Stream, columns_of


@dataclass(frozen=True, eq=False)
class Relation:
    """Rows as users hold them: those of a source or of an operator, after stateless steps; `stream` describes them."""

    origin: Stream | Applied
    steps: tuple[Step, ...]
    stream: Stream


@dataclass(frozen=True, eq=False)
class Applied:
    """An operator with the relations it takes in, one for each of its streams."""

    spec: OperatorSpec
    feeds: tuple[Relation, ...]


def plan_of(outputs: Sequence[Relation], names: Sequence[str] = ()) -> Plan:
    """What has to run for these relations to be written by queries of these names, by default those of their places.
    What is the same by its structure runs once, whoever wrote it, and however often."""
    origins = _Origins()
    shown = [origins.feed_of(relation) for relation in outputs]
    sources = tuple(origins.sources)
    taken = {feed.origin for _, feeds in origins.operators for feed in feeds}
    nodes: list[OperatorNode] = []
    for number, (spec, feeds) in enumerate(origins.operators):
        feeds = tuple(origins.numbered(feed) for feed in feeds)
        below = [nodes[feed.origin - len(sources)].level for feed in feeds if feed.origin >= len(sources)]
        if isinstance(spec, JoinSpec) and ~number in taken:
            spec = replace(spec, timed=True)
        fragment = _find_chained_fragment(spec, feeds, nodes, len(sources))
        if fragment is None:
            fragment = Fragment(1 + max((node.fragment for node in nodes), default=-1))
        nodes.append(OperatorNode(spec, feeds, Level(1 + max(below, default=-1)), fragment))
    schemas = [pa.schema(relation.stream.shown) for relation in outputs]
    names = names or name_queries([None] * len(outputs))
    written = [Output(origins.numbered(f), schema, name) for f, schema, name in zip(shown, schemas, names, strict=True)]
    return Plan(sources, tuple(nodes), tuple(written))


class _Origins:
    """Sources and operators, each once. As long as not all sources are there, operator n has the number -1 - n."""

    def __init__(self) -> None:
        self.sources: list[Stream] = []
        self.operators: list[tuple[OperatorSpec, tuple[Feed, ...]]] = []
        self._by_structure: dict[object, int] = {}
        self._by_object: dict[int, int] = {}

    def feed_of(self, relation: Relation) -> Feed:
        return Feed(self._number(relation.origin), relation.steps)

    def numbered(self, feed: Feed) -> Feed:
        """With the number that its origin has in the plan."""
        return feed if feed.origin >= 0 else replace(feed, origin=len(self.sources) + ~feed.origin)

    def _number(self, origin: Stream | Applied) -> int:
        if isinstance(origin, Stream):
            if origin not in self.sources:
                self.sources.append(origin)
            return self.sources.index(origin)
        if id(origin) not in self._by_object:
            feeds = tuple(self.feed_of(relation) for relation in origin.feeds)
            structure = _structure(origin.spec, feeds)
            if structure not in self._by_structure:
                self.operators.append((origin.spec, feeds))
                self._by_structure[structure] = ~(len(self.operators) - 1)
            self._by_object[id(origin)] = self._by_structure[structure]
        return self._by_object[id(origin)]


def _structure(spec: OperatorSpec, feeds: Sequence[Feed]) -> tuple[object, ...]:
    """What an operator does to which rows: two with the same structure have the same state and the same results."""
    streams = tuple((columns_of(stream.schema), stream.event_time, stream.delay) for stream in spec.streams)
    from_where = tuple((feed.origin, tuple(step.structure() for step in feed.steps)) for feed in feeds)
    return type(spec), json.dumps(spec.identity(), sort_keys=True), streams, from_where


def _find_chained_fragment(
    spec: OperatorSpec, feeds: Sequence[Feed], nodes: Sequence[OperatorNode], sources: int
) -> Fragment | None:
    """The fragment of an operator that passes its own key on to this one as the key, if any does. A join without a key
    is a fragment of its own."""
    if isinstance(spec, JoinSpec) and spec.is_theta:
        return None
    for stream, feed in enumerate(feeds):
        if feed.origin >= sources:
            below = nodes[feed.origin - sources]
            keys = [_rename_columns(key, feed.steps) for key in below.spec.output_keys]
            if any(input_.stream == stream and input_.keys in keys for input_ in spec.inputs):
                return below.fragment
    return None


def _rename_columns(columns: tuple[str, ...], steps: Sequence[Step]) -> tuple[str | None, ...]:
    """What columns are called after stateless steps, None for one that is gone."""
    names: tuple[str | None, ...] = columns
    for step in steps:
        if isinstance(step, Project):
            made = {expression.text.strip("`"): name for name, expression in step.columns}
            names = tuple(None if name is None else made.get(name) for name in names)
    return names
