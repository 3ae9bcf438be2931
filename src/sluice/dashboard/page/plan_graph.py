"""The plan as a graph: streams, operators and queries, with the rows that went from one to the other in an epoch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sluice.model.identity import StreamIdentity
from sluice.model.plan.recorded_plan import RecordedPlan
from sluice.record.epoch import EpochRecord

MOST_APART = 8
"""Queries that are drawn each by itself. If there are more, those that read the same are one node."""
MOST_DRAWN = 60
"""Nodes of queries that are drawn, those that did most; the table has all."""
NAMED = 12
"""Queries of a node that are named."""


@dataclass(frozen=True)
class GraphNode:
    """A stream, an operator or a query. `level` is its column, `seconds` the processor time of an epoch, `busy` its
    share of that of all."""

    id: str
    kind: str
    name: str
    says: str
    level: int
    rows: int
    seconds: float = 0.0
    busy: float = 0.0
    state_bytes: float = 0.0


@dataclass(frozen=True)
class GraphEdge:
    """Rows from one node to another, and about how many bytes: as many a row as the receiver's state has; None where
    that keeps none."""

    source: str
    target: str
    rows: int
    bytes: float | None = None


@dataclass(frozen=True)
class PlanGraph:
    """The plan after an epoch; `left_out` queries are not drawn."""

    epoch: int
    nodes: tuple[GraphNode, ...]
    edges: tuple[GraphEdge, ...]
    left_out: int = 0


@dataclass(frozen=True)
class _StateSize:
    rows: int = 0
    bytes: float = 0.0


def plan_graph(plan: RecordedPlan, record: EpochRecord, streams: Sequence[StreamIdentity] = ()) -> PlanGraph:
    """The graph of the plan that an epoch went by; `streams` say what its sources are."""
    written = dict(zip(record.stats.outputs.output.tolist(), record.stats.outputs.rows.tolist(), strict=True))
    every = _group_queries(plan)
    results = {queries: sum(written.get(query, 0) for query in queries) for queries in every}
    drawn = sorted(sorted(every, key=lambda queries: -results[queries])[:MOST_DRAWN])
    operators = sorted({operator for first, *_ in drawn for operator in plan.operators_of(first)})
    used = {origin for first, *_ in drawn for origin in plan.queries[first].origins}
    used |= {origin for operator in operators for origin in plan.operators[operator].origins}
    sizes = _state_sizes(record)
    nodes = [*_streams(plan, record, used, streams), *_operators(plan, record, operators, sizes)]
    above = max((node.level for node in nodes), default=0) + 1
    nodes += (_query_node(plan, queries, above, results[queries]) for queries in drawn)
    rows = {node.id: node.rows for node in nodes}
    edges = [
        GraphEdge(_name(plan, origin), f"o{n}", rows[_name(plan, origin)], _edge_bytes(plan, n, origin, rows, sizes))
        for n in operators
        for origin in plan.operators[n].origins
    ]
    edges += (edge for queries in drawn for edge in _edges_to_query(plan, record, queries[0], results[queries], rows))
    return PlanGraph(record.number, tuple(nodes), tuple(edges), len(plan.queries) - sum(map(len, drawn)))


def _group_queries(plan: RecordedPlan) -> list[tuple[int, ...]]:
    """Each query, or, if they are many, those that read the same together."""
    if len(plan.queries) <= MOST_APART:
        return [(query,) for query in range(len(plan.queries))]
    groups: dict[tuple[tuple[int, ...], tuple[int, ...]], list[int]] = {}
    for number, query in enumerate(plan.queries):
        groups.setdefault((query.origins, query.late), []).append(number)
    return [tuple(numbers) for numbers in groups.values()]


def _query_node(plan: RecordedPlan, queries: tuple[int, ...], level: int, rows: int) -> GraphNode:
    """The node of a query, or of several, which has the number of the first."""
    first = plan.queries[queries[0]]
    if len(queries) == 1:
        return GraphNode(f"q{queries[0]}", "query", first.name, first.says, level, rows)
    names = [plan.queries[query].name for query in queries[:NAMED]]
    says = ", ".join(names) + (f" and {len(queries) - NAMED} more" if len(queries) > NAMED else "")
    return GraphNode(f"q{queries[0]}", "queries", f"{len(queries)} queries", says, level, rows)


def _streams(
    plan: RecordedPlan, record: EpochRecord, used: set[int], streams: Sequence[StreamIdentity]
) -> list[GraphNode]:
    says = {stream.name: stream.describe() for stream in streams}
    rows = {stream.name: stream.rows - stream.late for stream in record.stats.streams}
    return [
        GraphNode(f"s{n}", "stream", name, f"stream {says.get(name, name)}", 0, rows.get(name, 0))
        for n, name in enumerate(plan.sources)
        if n in used
    ]


def _operators(
    plan: RecordedPlan, record: EpochRecord, drawn: list[int], sizes: Mapping[int, _StateSize]
) -> list[GraphNode]:
    columns = record.stats.operators
    work = {
        operator: (rows_out, seconds)
        for operator, rows_out, seconds in zip(
            columns.operator.tolist(), columns.rows_out.tolist(), columns.seconds.tolist(), strict=True
        )
    }
    whole = sum(seconds for _, seconds in work.values()) or 1.0
    depths: dict[int, int] = {}
    nodes = []
    for n, operator in enumerate(plan.operators):
        depths[n] = 1 + max(
            (depths[o - len(plan.sources)] for o in operator.origins if o >= len(plan.sources)), default=0
        )
        if n not in drawn:
            continue
        rows_out, seconds = work.get(n, (0, 0.0))
        state = sum(sizes.get(state, _StateSize()).bytes for state in set(operator.states))
        name = operator.says.split("\n")[0]
        nodes.append(
            GraphNode(
                f"o{n}",
                "operator",
                name,
                operator.says,
                depths[n],
                rows_out,
                seconds,
                seconds / whole,
                state,
            )
        )
    return nodes


def _edges_to_query(
    plan: RecordedPlan, record: EpochRecord, query: int, written: int, rows: Mapping[str, int]
) -> list[GraphEdge]:
    """What a query got: its results where they come from one node, else what each of several has; and late rows."""
    target, sources = f"q{query}", plan.queries[query].late
    in_time = [_name(plan, origin) for origin in Counter(plan.queries[query].origins) - Counter(sources)]
    alone = len(in_time) == 1 and not sources
    late = {stream.name: stream.late for stream in record.stats.streams}
    edges = [GraphEdge(origin, target, written if alone else rows[origin]) for origin in in_time]
    return [*edges, *(GraphEdge(f"s{n}", target, late.get(plan.sources[n], 0)) for n in set(sources))]


def _name(plan: RecordedPlan, origin: int) -> str:
    """The node of an origin: sources are numbered first, then the operators."""
    return f"s{origin}" if origin < len(plan.sources) else f"o{origin - len(plan.sources)}"


def _state_sizes(record: EpochRecord) -> dict[int, _StateSize]:
    sizes: dict[int, _StateSize] = {}
    for manifest in record.manifests:
        for run in manifest:
            before = sizes.get(run.segment.input, _StateSize())
            sizes[run.segment.input] = _StateSize(before.rows + run.rows, before.bytes + run.bytes)
    return sizes


def _edge_bytes(
    plan: RecordedPlan, operator: int, origin: int, rows: Mapping[str, int], sizes: Mapping[int, _StateSize]
) -> float | None:
    """Rows of this epoch at the size that the rows of the state have."""
    for state in plan.operators[operator].states:
        size = sizes.get(state)
        if state < len(plan.states) and origin in plan.states[state].origins and size is not None and size.rows:
            return rows[_name(plan, origin)] * size.bytes / size.rows
    return None
