"""What follows from a plan alone: it is worked out once in a process, and serves every epoch there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

from sluice.engine.filtered_rows import StepPath
from sluice.model.ids import Fragment, InputNumber, Level
from sluice.model.plan.plan import Plan
from sluice.model.plan.stream import BY_SPARK, HASH_COLUMN, TIME_COLUMN, Project, Step, plain_column
from sluice.operators import operator
from sluice.operators.protocol import Operator
from sluice.operators.row_hashing import RowHashing

PLANS_KEPT = 4
"""Plans of which a process keeps what follows from them."""


def blob_schema(columns: pa.Schema) -> pa.Schema:
    return pa.schema([pa.field(HASH_COLUMN, pa.uint32()), *columns])


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
    """Those that the operator takes in."""
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

    def operator(self, node: int) -> Operator:
        """The operator at a place of the plan."""
        if node not in self._operators:
            self._operators[node] = operator(self.plan.nodes[node].spec)
        return self._operators[node]

    @cached_property
    def ways(self) -> dict[int, tuple[Way, ...]]:
        """The ways from each origin, by its number, to all states that keep its rows."""
        ways: dict[int, list[Way]] = {}
        for number, state in enumerate(self.plan.inputs):
            reader = state.readers[0]
            node, own = self.plan.nodes[reader.node], self.operator(reader.node)
            stream = node.spec.inputs[reader.input].stream
            described, feed = node.spec.streams[stream], node.feeds[stream]
            ways.setdefault(feed.origin, []).append(
                Way(
                    InputNumber(number),
                    state.level,
                    state.fragment,
                    own,
                    reader.input,
                    StepPath.of(feed.steps),
                    f"stream {described.name!r}",
                    tuple(described.schema.names),
                    described.event_time,
                    blob_schema(own.exchange_schema(reader.input)),
                )
            )
        return {origin: tuple(own) for origin, own in ways.items()}

    @cached_property
    def joint_ways(self) -> dict[int, tuple[JointWay, ...]]:
        """The states that get rows of each origin together, where there are several on a level."""
        joint: dict[int, tuple[JointWay, ...]] = {}
        number = 2 * len(self.plan.inputs)
        for origin, ways in self.ways.items():
            schema = self._origin_schema(origin)
            by_level: dict[Level, list[Member]] = {}
            for way in ways:
                member = _member(way, schema)
                if member is not None:
                    by_level.setdefault(way.level, []).append(member)
            together = [(level, members) for level, members in by_level.items() if len(members) > 1]
            joint[origin] = tuple(
                JointWay(number + place, level, schema, tuple(members))
                for place, (level, members) in enumerate(together)
            )
            number += len(together)
        return joint

    def joint_ways_to(self, level: Level) -> dict[int, JointWay]:
        """Those that lead to a level, by their numbers."""
        return {way.number: way for ways in self.joint_ways.values() for way in ways if way.level == level}

    def _origin_schema(self, origin: int) -> pa.Schema:
        sources = self.plan.sources
        if origin < len(sources):
            return sources[origin].schema
        return self.plan.nodes[origin - len(sources)].spec.output_schema()


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
    """The origin's column that each column is after stateless steps; None if one of them computes any."""
    names = {column: column for column in columns}
    for step in steps:
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
