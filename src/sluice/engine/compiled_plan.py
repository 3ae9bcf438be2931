"""What follows from a plan alone: it is worked out once in a process, and serves every epoch there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

from sluice.engine.filtered_rows import StepPath
from sluice.model.ids import Fragment, InputNumber, Level
from sluice.model.plan.plan import Plan, Reader
from sluice.model.plan.steps import Step, TableJoin, columns_before
from sluice.model.plan.stream import BY_SPARK, HASH_COLUMN, TIME_COLUMN, Project, plain_column
from sluice.operators import operator
from sluice.operators.protocol import FreezableOperator, Operator, TableOperator
from sluice.operators.row_hashing import RowHashing
from sluice.state.inputs import InputLayouts
from sluice.state.segment import Layout

PLANS_KEPT = 4
"""Plans of which a process keeps what follows from them."""


@dataclass(frozen=True)
class Way:
    """The way of an origin's rows to a state, by the first operator that reads it."""

    number: InputNumber
    level: Level
    fragment: Fragment
    operator: Operator
    input: int
    path: StepPath
    whose: str
    columns: tuple[str, ...]
    """Those that the operator reads."""
    event_time: str
    schema: pa.Schema
    """What a blob has, the hashes first."""


@dataclass(frozen=True)
class Member:
    """A state among those that rows are delivered to together: which columns of the origin it gets, and by what these
    are hashed."""

    way: Way
    columns: tuple[str, ...]
    hashing: RowHashing


@dataclass(frozen=True)
class JointWay:
    """States on one level that get rows of one origin as they are: a row that several of them need at a site goes there
    once. Its `number` is what blobs of it carry in place of an input's."""

    number: int
    level: Level
    schema: pa.Schema
    """The origin's."""
    members: tuple[Member, ...]

    @cached_property
    def _by_number(self) -> dict[int, Member]:
        return {member.way.number: member for member in self.members}

    def member(self, number: int) -> Member:
        """The state of a number."""
        return self._by_number[number]


class CompiledPlan:
    """The operators of a plan, and the ways of rows to their states."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self._operators: dict[int, Operator] = {}
        self._layouts: dict[InputNumber, InputLayouts] = {}
        self._times_kept: dict[InputNumber, int | None] = {}
        self._columns_read: dict[int, frozenset[str]] = {}

    def operator(self, node: int) -> Operator:
        """The operator at a place of the plan."""
        if node not in self._operators:
            self._operators[node] = operator(self.plan.nodes[node].spec)
        return self._operators[node]

    @cached_property
    def by_time(self) -> frozenset[int]:
        """The operators that may have results without new rows."""
        return frozenset(node for node in range(len(self.plan.nodes)) if self.operator(node).by_time)

    @cached_property
    def tables(self) -> frozenset[int]:
        """The operators of which all is shown after each epoch."""
        return frozenset(node for node in range(len(self.plan.nodes)) if _shows_table(self.operator(node)))

    @cached_property
    def readers(self) -> tuple[dict[InputNumber, tuple[Reader, ...]], ...]:
        """The states of each level, with the operators that read them."""
        by_level: tuple[dict[InputNumber, tuple[Reader, ...]], ...] = tuple({} for _ in range(self.plan.levels))
        for number, state in enumerate(self.plan.inputs):
            by_level[state.level][InputNumber(number)] = state.readers
        return by_level

    @cached_property
    def fragments(self) -> tuple[dict[Fragment, tuple[InputNumber, ...]], ...]:
        """The fragments with states on each level, in their order, and those states."""
        by_level: list[dict[Fragment, tuple[InputNumber, ...]]] = []
        for level in self.readers:
            of: dict[Fragment, list[InputNumber]] = {}
            for input_ in level:
                of.setdefault(self.plan.inputs[input_].fragment, []).append(input_)
            by_level.append({fragment: tuple(inputs) for fragment, inputs in sorted(of.items())})
        return tuple(by_level)

    @cached_property
    def freezable(self) -> frozenset[InputNumber]:
        """The states of operators whose units can be frozen."""
        numbers = [InputNumber(number) for number in range(len(self.plan.inputs))]
        return frozenset(i for i in numbers if isinstance(self.first_reader(i)[0], FreezableOperator))

    def first_reader(self, input_: InputNumber) -> tuple[Operator, int]:
        """The operator that stands for all that read a state where they do the same, and the input's number there."""
        node, number = self.plan.inputs[input_].readers[0]
        return self.operator(node), number

    def layouts(self, input_: InputNumber) -> InputLayouts:
        """What the segments of a state hold."""
        if input_ not in self._layouts:
            reader, number = self.first_reader(input_)
            state = reader.state_layout(number)
            pending = Layout(reader.exchange_schema(number), state.event_time)
            self._layouts[input_] = InputLayouts(state, pending)
        return self._layouts[input_]

    def blob_schema(self, input_: InputNumber) -> pa.Schema:
        """What blobs with rows for a state have, the hashes first."""
        return self._ways_by_number[input_].schema

    @cached_property
    def _ways_by_number(self) -> dict[InputNumber, Way]:
        return {way.number: way for ways in self.ways.values() for way in ways} | self.table_ways

    def time_kept(self, input_: InputNumber) -> int | None:
        """For how long, in its own time, rows of a state may be needed by any of its readers; None is for good."""
        if input_ not in self._times_kept:
            times = [self.operator(reader.node).retention for reader in self.plan.inputs[input_].readers]
            self._times_kept[input_] = None if None in times else max(time for time in times if time is not None)
        return self._times_kept[input_]

    @cached_property
    def ways(self) -> dict[int, tuple[Way, ...]]:
        """The ways from each origin, by its number, to all states that keep its rows."""
        ways: dict[int, list[Way]] = {}
        for number, state in enumerate(self.plan.inputs):
            reader = state.readers[0]
            node = self.plan.nodes[reader.node]
            for feed in node.inflows[node.spec.inputs[reader.input].stream]:
                ways.setdefault(feed.origin, []).append(self._way(InputNumber(number), feed.steps, "stream"))
        return {origin: tuple(own) for origin, own in ways.items()}

    @cached_property
    def table_ways(self) -> dict[InputNumber, Way]:
        """The ways of the rows of tables to the states that they are, by the numbers of these."""
        return {number: self._way(number, (), "table") for number in self.plan.divided_tables}

    def _way(self, number: InputNumber, steps: tuple[Step, ...], what: str) -> Way:
        """The way of rows to a state; `what` they are of is for errors."""
        state = self.plan.inputs[number]
        reader = state.readers[0]
        spec, own = self.plan.nodes[reader.node].spec, self.operator(reader.node)
        described = spec.streams[spec.inputs[reader.input].stream]
        return Way(
            number,
            state.level,
            state.fragment,
            own,
            reader.input,
            StepPath.of(steps),
            f"{what} {described.name!r}",
            spec.columns_read(reader.input),
            described.event_time,
            pa.schema([pa.field(HASH_COLUMN, pa.uint32()), *own.exchange_schema(reader.input)]),
        )

    @cached_property
    def sinks(self) -> dict[int, tuple[tuple[int, StepPath], ...]]:
        """The outputs that get rows of each origin, and what happens to these on the way."""
        return self._sinks(late=False)

    @cached_property
    def late_sinks(self) -> dict[int, tuple[tuple[int, StepPath], ...]]:
        """The outputs that get the late rows of each source, likewise."""
        return self._sinks(late=True)

    @property
    def has_results_of_splits(self) -> bool:
        """Whether rows go from the split to a sink, without an operator in between."""
        return bool(self.late_sinks) or any(origin < len(self.plan.sources) for origin in self.sinks)

    def _sinks(self, late: bool) -> dict[int, tuple[tuple[int, StepPath], ...]]:
        sinks: dict[int, list[tuple[int, StepPath]]] = {}
        for number, output in enumerate(self.plan.outputs):
            for feed in output.inflow:
                if feed.late == late:
                    sinks.setdefault(feed.origin, []).append((number, StepPath.of(feed.steps)))
        return {origin: tuple(outputs) for origin, outputs in sinks.items()}

    def paths_with_tables(self, origin: int, late: bool = False) -> tuple[StepPath, ...]:
        """The paths of an origin's rows, or of its late ones, on which they are joined with tables."""
        if late:
            paths = [path for _, path in self.late_sinks.get(origin, ())]
        else:
            paths = [way.path for way in self.ways.get(origin, ())]
            paths += [path for _, path in self.sinks.get(origin, ())]
        return tuple(path for path in paths if path.has_tables)

    def columns_read(self, source: int) -> frozenset[str]:
        """The columns of a source's rows, late ones too, that anybody reads; the event time is always among them."""
        if source not in self._columns_read:
            read = {self.plan.sources[source].event_time}
            for way in self.ways.get(source, ()):
                read |= columns_before(way.path.steps, way.columns)
            for number, path in (*self.sinks.get(source, ()), *self.late_sinks.get(source, ())):
                read |= columns_before(path.steps, self.plan.outputs[number].schema.names)
            self._columns_read[source] = frozenset(read)
        return self._columns_read[source]

    @cached_property
    def joint_ways(self) -> dict[int, tuple[JointWay, ...]]:
        """The states that get rows of each origin together, where there are several on a level."""
        joint: dict[int, tuple[JointWay, ...]] = {}
        number = 2 * len(self.plan.inputs)
        for origin, ways in self.ways.items():
            schema = self._origin_schema(origin)
            by_level: dict[Level, list[Member]] = {}
            times_taken = Counter(way.number for way in ways)
            for way in ways:
                # a state that takes rows of one origin in two ways, as a union of them, may get a row twice
                member = _member(way, schema) if times_taken[way.number] == 1 else None
                if member is not None:
                    by_level.setdefault(way.level, []).append(member)
            together = [(level, members) for level, members in by_level.items() if len(members) > 1]
            joint[origin] = tuple(
                JointWay(number + place, level, schema, tuple(members))
                for place, (level, members) in enumerate(together)
            )
            number += len(together)
        return joint

    @cached_property
    def joint_ways_to(self) -> tuple[dict[int, JointWay], ...]:
        """Those that lead to each level, by their numbers."""
        by_level: tuple[dict[int, JointWay], ...] = tuple({} for _ in range(self.plan.levels))
        for ways in self.joint_ways.values():
            for way in ways:
                by_level[way.level][way.number] = way
        return by_level

    def _origin_schema(self, origin: int) -> pa.Schema:
        sources = self.plan.sources
        if origin < len(sources):
            return sources[origin].schema
        return self.plan.nodes[origin - len(sources)].spec.output_schema()


def _shows_table(operator: Operator) -> bool:
    return isinstance(operator, TableOperator) and operator.shows_all


def _member(way: Way, origin: pa.Schema) -> Member | None:
    """A state as one among others; None if what it gets is not rows of the origin as they are."""
    hashing = way.operator.row_hashing(way.input)
    names = _origin_columns(way.path.steps, origin.names)
    if hashing is None or names is None:
        return None
    fields = list(way.schema)[1:]
    if any(origin.field(names[own.name]).type != own.type for own in fields):
        return None
    return Member(way, tuple(names[own.name] for own in fields), hashing.renamed(names))


def _origin_columns(steps: Sequence[Step], columns: Sequence[str]) -> dict[str, str] | None:
    """The origin's column that each column is after stateless steps; None if one of them computes any, or
    makes other rows."""
    names = {column: column for column in columns}
    for step in steps:
        if isinstance(step, TableJoin):
            return None
        if isinstance(step, Project):
            made = [(name, plain_column(expression)) for name, expression in step.columns]
            if any(column not in names for _, column in made):
                return None
            hidden = {name: was for name, was in names.items() if name == TIME_COLUMN or name.startswith(BY_SPARK)}
            if step.time is not None:
                hidden.setdefault(TIME_COLUMN, names[step.time])
            names = hidden | {name: names[column] for name, column in made if column is not None}
    return names


_compiled: dict[int, CompiledPlan] = {}


def compiled(plan: Plan) -> CompiledPlan:
    """What follows from a plan, of which there is one in a process as long as it is used."""
    known = _compiled.get(id(plan))
    if known is None or known.plan is not plan:
        while len(_compiled) >= PLANS_KEPT:
            _compiled.pop(next(iter(_compiled)), None)
        known = _compiled[id(plan)] = CompiledPlan(plan)
    return known
