"""A flow's operators in the order they run: which rows each takes in, and which rows each sink gets.

Operators stand on levels: those of one level take rows of sources and of lower levels. A level is one exchange.
A fragment is operators that share units: those that are chained on the same key, whose rows stay at the site where they
are, and those that read the same states, which are kept once for all of them.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, lru_cache
from typing import NamedTuple, Protocol, TypeGuard

import pyarrow as pa

from sluice.model.epoch.times import Times
from sluice.model.ids import Fragment, InputNumber, Level
from sluice.model.plan.assignment import Assignment, ColumnsKept, Digest, Label, StateKey, digest
from sluice.model.plan.data_flow import DataFlow
from sluice.model.plan.join import JoinSpec
from sluice.model.plan.steps import StaticTable, Step, TableJoin
from sluice.model.plan.stream import BySpark, Expression, Filter, Input, Project, Stream, columns_of
from sluice.model.plan.table_lookup import TABLE, TableLookup
from sluice.model.routing.routing import Routing, spread_homes

PLANS_KEPT = 4
"""Plans that a process keeps of those that it was sent."""


class OperatorSpec(Protocol):
    """What a plan asks of the description of an operator: a frozen value that can be pickled."""

    @property
    def streams(self) -> tuple[Stream, ...]:
        """What it takes in."""

    @property
    def inputs(self) -> tuple[Input, ...]:
        """Its streams as they are partitioned; of each it reads a state."""

    @property
    def output_keys(self) -> tuple[tuple[str, ...], ...]:
        """The columns of its results that have the key of its inputs: each time it is there, under one name or more."""

    @property
    def event_time(self) -> str:
        """The column of its results with their event time."""

    @property
    def delay(self) -> int | None:
        """How late its results may be (microseconds); None if nothing bounds it."""

    def columns_read(self, input_: int) -> tuple[str, ...]:
        """The columns of an input's rows that it keeps, or makes something of."""

    def output_schema(self) -> pa.Schema:
        """The columns of its results."""

    def watermark(self, watermarks: Times) -> int | None:
        """That of its results, given those of its streams."""

    def keep_from(self, input_: int, watermarks: Times) -> int | None:
        """The time below which no row of an input's state is needed any more, given the watermarks of its streams; None
        keeps all."""

    def state_structure(self, input_: int) -> object:
        """What the state of an input holds of the rows that come in, as a value that JSON can hold: operators with the
        same one can read one state."""

    def structure(self) -> dict[str, object]:
        """What tells it from other operators of its kind on the same rows, as values that JSON can hold."""

    def identity(self) -> dict[str, object]:
        """What must be the same for a checkpoint to be continued."""

    def describe(self) -> str:
        """What it computes, for `explain`."""


@dataclass(frozen=True)
class Feed:
    """Rows on their way to an operator or a sink: those of an origin, after stateless steps.

    Origins are numbered: the sources first, then the operators. Those of a source are the ones that are in time, or
    the `late` ones, which go to sinks alone.
    """

    origin: int
    steps: tuple[Step, ...] = ()
    late: bool = False


Inflow = tuple[Feed, ...]
"""What comes in as one stream: one feed, or those of a union; none where rows of a table are read into state."""


@dataclass(frozen=True)
class OperatorNode:
    """An operator in its place: what comes in as each of its streams, a state for each of its inputs, and a digest of
    its `structure`, by which it is known in other plans."""

    spec: OperatorSpec
    inflows: tuple[Inflow, ...]
    level: Level
    fragment: Fragment
    inputs: tuple[InputNumber, ...]
    structure: Digest

    @property
    def feeds(self) -> tuple[Feed, ...]:
        """Those of all its streams."""
        return tuple(feed for inflow in self.inflows for feed in inflow)


class Reader(NamedTuple):
    """An operator that reads a state: its place in the plan, and the number that the state's input has there."""

    node: int
    input: int


@dataclass(frozen=True)
class StateInput:
    """A state: what is kept of some rows at one level, once for all operators of a fragment that read it."""

    fragment: Fragment
    level: Level
    readers: tuple[Reader, ...]


@dataclass(frozen=True)
class Output:
    """What a sink gets: the results of one of the flow's queries, by its name, and which columns the query has `kept`,
    None for all."""

    inflow: Inflow
    schema: pa.Schema
    name: str = ""
    kept: ColumnsKept | None = None


@dataclass(frozen=True)
class Capabilities:
    """Units of the `freezable` fragments can be frozen; those of the `shareable` ones, each a join of these inputs,
    can have several holders. Those of the `divisible` ones can be split and merged. `scalable`: how many sites take
    part can be chosen, from `least_sites` to `most_sites`. `data_flow` says which rows fragments take in."""

    freezable: frozenset[Fragment] = frozenset()
    shareable: Mapping[Fragment, tuple[InputNumber, ...]] = field(default_factory=dict)
    divisible: frozenset[Fragment] = frozenset()
    scalable: bool = False
    least_sites: int = 1
    most_sites: int = sys.maxsize
    data_flow: DataFlow = field(default_factory=DataFlow)


@dataclass(frozen=True)
class Plan:
    """Sources, operators (each after those it takes rows from), and what the sinks get.

    `labels` has the label of each fragment, in ascending order, and `states` what each state is known by. The next
    fragment that is added to the flow gets `next_label`.
    """

    sources: tuple[Stream, ...]
    nodes: tuple[OperatorNode, ...]
    outputs: tuple[Output, ...]
    labels: tuple[Label, ...]
    states: tuple[StateKey, ...]
    next_label: Label
    time_zone: str = ""
    """In which expressions read the clock; empty where there are none."""

    def __reduce__(self) -> tuple[Callable[[bytes], Plan], tuple[bytes]]:
        """Travels as bytes, which are made once: a process that gets the same ones again has the plan already, with all
        that was worked out from it."""
        return _unpack_plan, (self._packed,)

    @cached_property
    def _packed(self) -> bytes:
        return pickle.dumps(tuple(getattr(self, f.name) for f in fields(self)), protocol=pickle.HIGHEST_PROTOCOL)

    @cached_property
    def inputs(self) -> tuple[StateInput, ...]:
        """All states, with the operators that read them. Blobs and segments carry the position in here."""
        readers: list[list[Reader]] = [[] for _ in self.states]
        for place, node in enumerate(self.nodes):
            for input_, number in enumerate(node.inputs):
                readers[number].append(Reader(place, input_))
        first = [self.nodes[own[0].node] for own in readers]
        return tuple(
            StateInput(node.fragment, node.level, tuple(own)) for node, own in zip(first, readers, strict=True)
        )

    def state_key(self, input_: InputNumber) -> StateKey:
        """What a state is known by in other plans of the checkpoint."""
        return self.states[input_]

    def name_state(self, input_: InputNumber) -> str:
        """The same as a text."""
        key = self.states[input_]
        return f"{key.label}-{key.digest}"

    @property
    def assignment(self) -> Assignment:
        """Where its operators are: for the next plan, which has them in the same fragments."""
        labels = {node.structure: self.labels[node.fragment] for node in self.nodes}
        kept = {output.name: output.kept for output in self.outputs}
        return Assignment(labels, frozenset(self.states), self.next_label, kept=kept)

    @property
    def levels(self) -> int:
        """How many exchanges there are: one even if there is no operator, for what map tasks report."""
        return 1 + max((node.level for node in self.nodes), default=0)

    @property
    def fragments(self) -> int:
        return len(self.labels)

    def fragments_at(self, level: Level) -> list[Fragment]:
        """Those with operators on a level."""
        return sorted({node.fragment for node in self.nodes if node.level == level})

    @cached_property
    def keyed_fragments(self) -> frozenset[Fragment]:
        """Those that can have several units: without a key there is nothing to tell them apart by."""
        return frozenset(n.fragment for n in self.nodes if any(input_.keys for input_ in n.spec.inputs))

    def first_routing(self, partitions: int, sites: int) -> Routing:
        """Where units are before there was an epoch."""
        units = [self.units_of(Fragment(fragment), partitions) for fragment in range(self.fragments)]
        return replace(Routing.of_fragments(units, sites), homes=spread_homes(len(self.sources), sites))

    def units_of(self, fragment: Fragment, partitions: int) -> int:
        """How many units a fragment begins with: keyed fragments have so many `partitions` in all."""
        return max(1, partitions // len(self.keyed_fragments)) if fragment in self.keyed_fragments else 1

    @property
    def freezable(self) -> frozenset[Fragment]:
        """The fragments with units that can be frozen: those with an inner join."""
        return frozenset(node.fragment for node in self.nodes if is_inner_join(node.spec))

    @cached_property
    def shareable(self) -> dict[Fragment, tuple[InputNumber, ...]]:
        """The fragments with units that can have several holders, and the inputs of each: those that are one
        inner join of two. What more is chained to it on the same key would have to be where its results are, and is at
        one site; of joins that share a state, each would want its own holders. The holders of a unit each find a part
        of its pairs, and none of them can tell that a row has no partner at all."""
        nodes_of: dict[Fragment, list[OperatorNode]] = {}
        for node in self.nodes:
            nodes_of.setdefault(node.fragment, []).append(node)
        alone = {fragment: nodes[0] for fragment, nodes in sorted(nodes_of.items()) if len(nodes) == 1}
        return {
            fragment: node.inputs
            for fragment, node in alone.items()
            if is_inner_join(node.spec) and len(node.spec.legs) == 2
        }

    @property
    def capabilities(self) -> Capabilities:
        """What can be done to units."""
        return Capabilities(self.freezable, self.shareable, divisible=self.keyed_fragments, data_flow=self.data_flow)

    @property
    def data_flow(self) -> DataFlow:
        """Which streams reach which fragments, and which fragments take in each other's results."""
        streams: list[dict[int, None]] = [{} for _ in range(self.fragments)]
        links: dict[tuple[Fragment, Fragment], None] = {}
        for node in self.nodes:
            for origin in (feed.origin for feed in node.feeds):
                if origin < len(self.sources):
                    streams[node.fragment][origin] = None
                    continue
                below = self.nodes[origin - len(self.sources)].fragment
                streams[node.fragment].update(streams[below])
                if below != node.fragment:
                    links[below, node.fragment] = None
        return DataFlow(tuple(map(tuple, streams)), tuple(links))

    @cached_property
    def meetings(self) -> tuple[frozenset[int], ...]:
        """The sources whose rows meet in each union and each join of several: the slowest holds back all of them."""
        below: list[frozenset[int]] = [frozenset([source]) for source in range(len(self.sources))]
        for node in self.nodes:
            below.append(frozenset().union(*(below[feed.origin] for feed in node.feeds)))
        below += [frozenset().union(*(below[feed.origin] for feed in output.inflow)) for output in self.outputs]
        return tuple(dict.fromkeys(sources for sources in below if len(sources) > 1))

    def probe_only_number(self, input_: InputNumber) -> InputNumber:
        """What blobs with rows of an input carry where those only meet what is there and are stored elsewhere."""
        return InputNumber(len(self.inputs) + input_)

    def describe_fragment(self, fragment: Fragment) -> str:
        """Its operators, by their places in `describe`."""
        places = [str(place + 1) for place, node in enumerate(self.nodes) if node.fragment == fragment]
        return f"operator{'s' if len(places) > 1 else ''} {', '.join(places)}"

    def inputs_of(self, node: int) -> tuple[InputNumber, ...]:
        """The positions of the states that an operator reads."""
        return self.nodes[node].inputs

    def origin_of(self, node: int) -> int:
        return len(self.sources) + node

    @property
    def has_expressions(self) -> bool:
        conditions = (node.spec.where for node in self.nodes if isinstance(node.spec, JoinSpec | TableLookup))
        steps = (step for feed in self._feeds for step in feed.steps)
        return not all(isinstance(step, Project) and step.leaves_out for step in steps) or any(conditions)

    @property
    def _feeds(self) -> list[Feed]:
        """All that there are."""
        return [*(f for node in self.nodes for f in node.feeds), *(f for output in self.outputs for f in output.inflow)]

    def by_spark(self, source: int) -> list[BySpark]:
        """The expressions that Spark has to compute for what is taken from a source."""
        steps = [step for feed in self._feeds if feed.origin == source for step in feed.steps]
        used = [expression for step in steps for expression in _expressions_of(step)]
        return list(dict.fromkeys(e for e in used if isinstance(e, BySpark)))

    @cached_property
    def tables(self) -> tuple[StaticTable, ...]:
        """The tables that rows are joined with, each once, in the order of their names."""
        steps = (step for feed in self._feeds for step in feed.steps)
        by_name = {step.table.name: step.table for step in steps if isinstance(step, TableJoin)}
        return tuple(by_name[name] for name in sorted(by_name))

    @cached_property
    def divided_tables(self) -> dict[InputNumber, StaticTable]:
        """The states that are rows of tables, with these."""
        lookups = [(node.inputs[TABLE], node.spec) for node in self.nodes if isinstance(node.spec, TableLookup)]
        return {number: spec.table for number, spec in lookups}

    def structure_of(self, output: int) -> Digest:
        """What an output gets: the same for the same query, whatever else the plan has."""
        columns = columns_of(self.outputs[output].schema)
        rows = [self._structure_of_rows(feed) for feed in self.outputs[output].inflow]
        return digest((*rows[0], columns) if len(rows) == 1 else ("union", rows, columns))

    def _structure_of_rows(self, feed: Feed) -> tuple[object, ...]:
        """What tells the rows of a feed from others: where they are from, and the steps they have passed."""
        is_source = feed.origin < len(self.sources)
        origin = self.sources[feed.origin].name if is_source else self._node_of(feed.origin).structure
        return is_source, ("late", origin) if feed.late else origin, [step.structure() for step in feed.steps]

    def _node_of(self, origin: int) -> OperatorNode:
        return self.nodes[origin - len(self.sources)]

    def describe(self) -> str:
        """All operators for `explain`, each with the stateless steps before it, and those before the outputs."""
        lines = [line for node in range(len(self.nodes)) for line in self.describe_node(node)]
        lines += [f"Result: {line}" for output in self.outputs for line in self.describe_inflow(output.inflow)]
        return "\n".join(lines)

    def describe_node(self, node: int) -> list[str]:
        """An operator, and what comes in as each of its streams where that is more than the stream itself."""
        spec, lines = self.nodes[node].spec, [self.nodes[node].spec.describe()]
        for stream, inflow in zip(spec.streams, self.nodes[node].inflows, strict=True):
            if len(inflow) == 1:
                lines += [f"  {stream.name}: {step.describe()}" for step in inflow[0].steps]
            elif inflow:
                lines += [f"  {stream.name}: {line}" for line in self.describe_inflow(inflow)]
        return lines

    def describe_inflow(self, inflow: Inflow) -> list[str]:
        """The rows of one origin, or of each that a union has; of an operator alone, the steps behind it."""
        if len(inflow) == 1 and inflow[0].origin >= len(self.sources):
            return [step.describe() for step in inflow[0].steps]
        feeds = ["; ".join([self.name_origin(f), *(step.describe() for step in f.steps)]) for f in inflow]
        return feeds if len(feeds) == 1 else [f"union of {feeds[0]}", *(f"and {feed}" for feed in feeds[1:])]

    def name_origin(self, feed: Feed) -> str:
        """Where the rows of a feed come from, in words."""
        if feed.origin < len(self.sources):
            return f"{'late rows of ' if feed.late else ''}stream {self.sources[feed.origin].name!r}"
        return f"operator {feed.origin - len(self.sources) + 1}"

    def describe_output(self, output: int) -> str:
        """What one of the outputs gets, in one line: all that leads to it."""
        inflow = self.outputs[output].inflow
        needed = {feed.origin for feed in inflow}
        for node in range(len(self.nodes) - 1, -1, -1):
            if self.origin_of(node) in needed:
                needed |= {below.origin for below in self.nodes[node].feeds}
        nodes = [node for node in range(len(self.nodes)) if self.origin_of(node) in needed]
        lines = [line.strip() for node in nodes for text in self.describe_node(node) for line in text.split("\n")]
        return "; ".join([*lines, *self.describe_inflow(inflow)])


def _expressions_of(step: Step) -> list[Expression]:
    """Those of a step that Spark may have to compute."""
    match step:
        case Filter():
            return [step.condition]
        case Project():
            return [expression for _, expression in step.columns]
        case TableJoin():
            return []


def is_inner_join(spec: OperatorSpec) -> TypeGuard[JoinSpec]:
    """Whether it is a join that finds pairs alone: what it has not found yet says nothing about rows without any."""
    return isinstance(spec, JoinSpec) and spec.is_inner


@lru_cache(maxsize=PLANS_KEPT)
def _unpack_plan(packed: bytes) -> Plan:
    return Plan(*pickle.loads(packed))
