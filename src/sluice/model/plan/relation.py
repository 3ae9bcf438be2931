"""What users write as relations, and the plan that runs them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from sluice.model.ids import Fragment, Level
from sluice.model.plan.join import JoinSpec
from sluice.model.plan.plan import Feed, OperatorNode, OperatorSpec, Output, Plan
from sluice.model.plan.stream import Project, Step, Stream


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


def plan_of(outputs: Sequence[Relation]) -> Plan:
    """What has to run for these relations to be written; what they share runs once."""
    sources: list[Stream] = []
    applied: list[Applied] = []

    def visit(relation: Relation) -> None:
        origin = relation.origin
        if isinstance(origin, Stream):
            if origin not in sources:
                sources.append(origin)
        elif origin not in applied:
            for feed in origin.feeds:
                visit(feed)
            applied.append(origin)

    for output in outputs:
        visit(output)

    def feed_of(relation: Relation) -> Feed:
        origin = relation.origin
        at = sources.index(origin) if isinstance(origin, Stream) else len(sources) + applied.index(origin)
        return Feed(at, relation.steps)

    taken = {id(feed.origin) for a in applied for feed in a.feeds}
    nodes: list[OperatorNode] = []
    for each in applied:
        feeds = tuple(feed_of(f) for f in each.feeds)
        below = [nodes[f.origin - len(sources)].level for f in feeds if f.origin >= len(sources)]
        spec = each.spec
        if isinstance(spec, JoinSpec) and id(each) in taken:
            spec = replace(spec, timed=True)
        fragment = _find_chained_fragment(spec, feeds, nodes, len(sources))
        if fragment is None:
            fragment = Fragment(1 + max((node.fragment for node in nodes), default=-1))
        nodes.append(OperatorNode(spec, feeds, Level(1 + max(below, default=-1)), fragment))
    shown = tuple(Output(feed_of(r), pa.schema(r.stream.shown)) for r in outputs)
    return Plan(tuple(sources), tuple(nodes), shown)


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
