"""From the arguments of `join` to a checked JoinSpec, or an error in the user's own words."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import reduce
from operator import and_

import pyarrow as pa
from pyspark.sql import Column

from sluice.api.relation import NamedRelation
from sluice.api.spark_columns import name_in, sql_of
from sluice.api.texts import sql_text
from sluice.expressions import Expression, compile_condition
from sluice.expressions.inequalities import Sides, equalities, without
from sluice.expressions.narrowing import narrowing
from sluice.kernels.hashing import is_hashable
from sluice.kernels.key_types import common_key_type
from sluice.model.durations import LONGEST, bound_in_microseconds
from sluice.model.errors import FlowError
from sluice.model.plan.inequalities import Narrowing
from sluice.model.plan.join import JoinSpec, Leg
from sluice.model.plan.join_kind import JoinKind
from sluice.model.plan.relation import Relation
from sluice.model.plan.stream import Input, Stream

Keys = str | Sequence[str] | Mapping[str, str | Sequence[str]]
"""Key columns: the same of every stream, or by stream."""
On = Keys | Column | Sequence[Column]
"""The key; or, as PySpark has it, a condition, or several."""
Duration = str | timedelta
Within = Duration | tuple[Duration, Duration]
"""A bound either way; or how much earlier and how much later. "unbounded" is a bound, too: state is kept for good. In
place of how much later a pair can name a column of the first stream, `auctions.expires`, until which the other's rows
are partners; in place of how much earlier, one of the other stream."""
MOST_ORDERINGS = 3
"""Of a theta join's input: each takes 12 bytes a row of state."""


_SPELLINGS = {
    JoinKind.INNER: ("inner",),
    JoinKind.LEFT: ("left", "leftouter"),
    JoinKind.RIGHT: ("right", "rightouter"),
    JoinKind.FULL: ("full", "outer", "fullouter"),
    JoinKind.SEMI: ("semi", "leftsemi"),
    JoinKind.ANTI: ("anti", "leftanti"),
}
"""As Spark spells them, without underscores."""


def read_kind(how: object) -> JoinKind:
    """The kind of a join by any of Spark's names for it.

    >>> read_kind("left_outer"), read_kind("OUTER")
    (<JoinKind.LEFT: 'left'>, <JoinKind.FULL: 'full'>)
    """
    plain = how.lower().replace("_", "") if isinstance(how, str) else None
    kind = next((kind for kind, spellings in _SPELLINGS.items() if plain in spellings), None)
    if kind is None:
        kinds = ", ".join(kind.value for kind in JoinKind)
        cross = "; every row with every other one is how='inner' with where='true'" if plain == "cross" else ""
        raise FlowError(f"how={how!r} is no kind of join; there are {kinds}{cross}")
    return kind


def build_join(
    sides: Sequence[NamedRelation],
    on: On | None,
    within: Within | None,
    where: str | Column | None,
    kind: JoinKind = JoinKind.INNER,
) -> tuple[JoinSpec, tuple[Relation, ...]]:
    """The join of these streams, checked, and the relations it takes in."""
    on, where = read_condition(on, where)
    if len(sides) < 2:
        raise FlowError("a join needs at least two streams")
    names = check_sides(sides)
    if on is None and where is None:
        raise FlowError(
            "a join needs on=, the key column or columns with equal values on every side, or where=, a condition like "
            f"where='{names[0]}.price > {names[1]}.ask'"
        )
    if on is None and len(sides) > 2:
        raise FlowError(
            f"a join of {len(sides)} streams needs on=; without it join two streams, give the result a name with "
            "alias('pair'), and join that with the next"
        )
    if within is None:
        raise FlowError(
            "a join of streams needs within=, for example within='30 seconds', or 'unbounded' to keep all rows for good"
        )
    _refuse_kind_as_bound(within)
    _check_event_times(sides)
    condition = None if where is None else compile_where(where, sides)
    if on is None and condition is not None:
        on, condition = keys_in(condition, sides)
    keys, kinds = check_keys(sides, on)
    relations = list(dict.fromkeys(s.relation for s in sides))
    streams = [_named(r, sides) for r in relations]
    inputs: list[Input] = []
    legs = []
    reach, until = _reach(within, sides)
    _check_until(until, kind, on)
    for side in sides:
        input_, column = Input(relations.index(side.relation), keys[side.name]), until.get(side.name)
        if column is not None or input_ not in inputs or until:
            inputs.append(input_)
            legs.append(Leg(side.name, len(inputs) - 1, column))
        else:
            legs.append(Leg(side.name, inputs.index(input_)))
    narrowed = _narrowing(condition, sides) if condition and on is None else Narrowing()
    spec = JoinSpec(
        tuple(streams),
        tuple(inputs),
        tuple(legs),
        kinds,
        reach,
        where=condition,
        narrowing=narrowed,
        kind=kind,
    )
    result_columns(sides)
    return spec, tuple(relations)


def read_condition(on: On | None, where: str | Column | None) -> tuple[On | None, str | Column | None]:
    """The key and the condition of a join, where PySpark's `on` may be a condition, or several in a list."""
    if isinstance(on, list | tuple) and on and all(isinstance(one, Column) for one in on):
        on = reduce(and_, on)
    if isinstance(on, Column) and name_in(on, "") is None:
        return None, _both(sql_of(on), where)
    return on, where


def check_sides(sides: Sequence[NamedRelation]) -> list[str]:
    """The names of the sides of a join, which are of one flow and all different."""
    for side in sides:
        if not isinstance(side, NamedRelation):
            raise FlowError(
                f"only streams and tables of a flow can be joined, not {type(side).__name__}; a DataFrame or an Arrow "
                "table becomes a table of the flow by flow.table('name', rows)"
            )
        if not side.name:
            raise FlowError("a result needs a name before it can be joined: result.alias('name')")
        if side.registry is not sides[0].registry:
            raise FlowError(f"{side.title} belongs to another Flow; register it in this one")
    names = [s.name for s in sides]
    for name in names:
        if names.count(name) > 1:
            raise FlowError(f"{name!r} stands twice in this join; name one side: {name}.alias('other')")
    return names


def check_keys(
    sides: Sequence[NamedRelation], on: On | None
) -> tuple[dict[str, tuple[str, ...]], tuple[pa.DataType, ...]]:
    """The key columns of each side by its name, none if there is no key, and the types in which they are compared."""
    names = [side.name for side in sides]
    keys = {side.name: () if on is None else _keys_of(side, on, names) for side in sides}
    return keys, _key_types(sides, keys)


def result_columns(sides: Sequence[NamedRelation]) -> pa.Schema:
    """The columns that users see of the result, which conditions read."""
    columns = [pa.field(f"{s.name}_{c.name}", c.type) for s in sides for c in s.stream.shown]
    names = [column.name for column in columns]
    if len(set(names)) < len(names):
        twice = next(n for n in names if names.count(n) > 1)
        raise FlowError(f"two result columns would be named {twice!r}; rename a stream or a column")
    return pa.schema(columns)


def _both(condition: str, where: str | Column | None) -> str:
    return condition if where is None else f"({condition}) AND ({sql_text(where, 'where', 'price > 3')})"


def _refuse_kind_as_bound(within: Within) -> None:
    """Where Spark has `how` third, there is `within` here."""
    plain = within.lower().replace("_", "") if isinstance(within, str) else None
    if any(plain in spellings for spellings in _SPELLINGS.values()):
        raise FlowError(
            f"within={within!r} is a kind of join, and here the third argument is how far apart event times may be: "
            f"write how={within!r}, and within='30 seconds'"
        )


def compile_where(where: str | Column, sides: Sequence[NamedRelation]) -> Expression:
    """The condition of a join, over the columns of its result."""
    zone = sides[0].registry.time_zone
    text = sql_text(where, "where", f"{sides[0].name}.price > {sides[1].name}.ask")
    return compile_condition(text, _resolver(sides), result_columns(sides), time_zone=zone)


def _sides_of_columns(sides: Sequence[NamedRelation]) -> Sides:
    return {f"{s.name}_{c.name}": (number, c.name) for number, s in enumerate(sides) for c in s.stream.shown}


def _narrowing(condition: Expression, sides: Sequence[NamedRelation]) -> Narrowing:
    times = tuple(side.event_time for side in sides)
    return narrowing(condition, _sides_of_columns(sides), times, MOST_ORDERINGS)


def keys_in(condition: Expression, sides: Sequence[NamedRelation]) -> tuple[Keys | None, Expression | None]:
    """The equalities of a condition as `on=`, where they can be, and what is left of it."""
    left, right = sides
    usable = []
    for equality in equalities(condition, _sides_of_columns(sides)):
        kinds = [s.stream.schema.field(c).type for s, c in ((left, equality.left), (right, equality.right))]
        if all(map(is_hashable, kinds)) and common_key_type(*kinds) is not None:
            usable.append(equality)
    if not usable:
        return None, condition
    on = {left.name: [e.left for e in usable], right.name: [e.right for e in usable]}
    return on, without(condition, usable)


def _named(relation: Relation, sides: Sequence[NamedRelation]) -> Stream:
    """A result is called by its alias, a registered stream by its own name."""
    if isinstance(relation.origin, Stream):
        return relation.stream
    return replace(relation.stream, name=next(s.name for s in sides if s.relation is relation))


def _keys_of(side: NamedRelation, on: On, names: list[str]) -> tuple[str, ...]:
    if isinstance(on, Mapping):
        unknown = [n for n in on if n not in names]
        if unknown:
            raise FlowError(f"on= names {unknown[0]!r}, which is not in this join; it joins {', '.join(names)}")
        if side.name not in on:
            raise FlowError(f"on= says nothing of {side.title}; give its key column too")
        columns: object = on[side.name]
    else:
        columns = on
    keys = (columns,) if isinstance(columns, str) else tuple(columns) if isinstance(columns, list | tuple) else None
    if keys is None or not all(isinstance(k, str) for k in keys):
        raise FlowError(f"on= takes names of columns, one or a list, for {side.title}; not {columns!r}")
    if not keys:
        raise FlowError("on= is empty; give at least one key column")
    found = tuple(map(side.find_column, keys))
    for key, column in zip(keys, found, strict=True):
        if column is None:
            raise FlowError(f"{side.title} has no column {key!r} to join on; it has {', '.join(side.columns)}")
    return tuple(column for column in found if column is not None)


def _key_types(sides: Sequence[NamedRelation], keys: Mapping[str, tuple[str, ...]]) -> tuple[pa.DataType, ...]:
    first = sides[0]
    for side in sides:
        if len(keys[side.name]) != len(keys[first.name]):
            raise FlowError(
                f"on= gives {len(keys[first.name])} key columns for {first.name!r} and {len(keys[side.name])} for "
                f"{side.name!r}"
            )
    kinds = []
    for position, key in enumerate(keys[first.name]):
        common = first.stream.schema.field(key).type
        for side in sides:
            column = keys[side.name][position]
            kind = side.stream.schema.field(column).type
            if not is_hashable(kind):
                raise FlowError(
                    f"column {column!r} of {side.title} has type {kind}, which cannot be a key; use its "
                    "fields as several key columns"
                )
            merged = common_key_type(common, kind)
            if merged is None:
                raise FlowError(
                    f"{first.name}.{key} ({common}) and {side.name}.{column} ({kind}) cannot be compared; cast one"
                )
            common = merged
        kinds.append(common)
    return tuple(kinds)


def _check_event_times(sides: Sequence[NamedRelation]) -> None:
    def has_zone(s: Stream) -> bool:
        return s.schema.field(s.event_time).type.tz is not None

    first = sides[0]
    for side in sides:
        if has_zone(side.stream) != has_zone(first.stream):
            raise FlowError(
                f"event times {first.name}.{first.event_time} and {side.name}.{side.event_time} "
                "cannot be compared: one is TIMESTAMP, the other TIMESTAMP_NTZ; cast one"
            )


Reach = tuple[tuple[int, ...], ...]
Until = Mapping[str, str]
"""The columns until which rows of a side have partners, by the side's name."""


def _check_until(until: Until, kind: JoinKind, on: On | None) -> None:
    """Refuses columns as bounds where none can be."""
    if not until:
        return
    (side, column), *others = until.items()
    bound = f"within= names the column {side}.{column}"
    if others:
        raise FlowError(f"{bound} and another one; one of the two bounds can be a column, the other is a duration")
    if kind is not JoinKind.INNER:
        raise FlowError(f"{bound}, which is for how='inner'; with how={kind.value!r} it takes durations")
    if on is None:
        raise FlowError(f"{bound}, which is for joins with on=; without a key it takes durations")


def _until_column(bound: object, side: NamedRelation) -> str | None:
    """The column of a side that a bound names, as `side.column`; None if it is a duration."""
    name, dot, column = bound.partition(".") if isinstance(bound, str) else ("", "", "")
    if not dot or name.strip().lower() != side.name.lower():
        return None
    known = side.find_column(column.strip().strip("`"))
    if known is None:
        raise FlowError(f"within= names {bound}, but stream {side.name!r} has only {', '.join(side.columns)}")
    kind, times = (side.stream.schema.field(name).type for name in (known, side.event_time))
    if not pa.types.is_timestamp(kind) or (kind.unit, kind.tz is None) != ("us", times.tz is None):
        raise FlowError(f"within= names {bound}, which is {kind} and no time like {side.event_time!r}; cast it")
    return known


def _reach(within: Within, sides: Sequence[NamedRelation]) -> tuple[Reach, Until]:
    """How much later each may be than the other, and the columns that say it instead."""
    names = [side.name for side in sides]
    if isinstance(within, tuple | list):
        if len(within) != 2:
            raise FlowError("within= takes one duration or a pair (how much earlier, how much later)")
        if len(names) != 2:
            raise FlowError("within= as a pair is for a join of two streams; give one duration")
        columns = [_until_column(bound, side) for bound, side in zip(within, reversed(sides), strict=True)]
        before, after = (
            LONGEST if column is not None else bound_in_microseconds(bound, "within")
            for bound, column in zip(within, columns, strict=True)
        )
        until = {side.name: c for side, c in zip(reversed(sides), columns, strict=True) if c is not None}
        return ((0, after), (before, 0)), until
    bound = bound_in_microseconds(within, "within")
    return tuple(tuple(0 if i == j else bound for j in range(len(names))) for i in range(len(names))), {}


def _resolver(sides: Sequence[NamedRelation]) -> Callable[[str | None, str], str]:
    """Names in `where` → result columns."""

    def resolve(stream: str | None, column: str) -> str:
        if stream is not None:
            for side in sides:
                if side.name.lower() == stream.lower():
                    return _result_column(side, column)
            side_names = ", ".join(s.name for s in sides)
            raise FlowError(
                f"where= names {stream}.{column}, but this join has no stream {stream!r}; it joins {side_names}"
            )
        having = [s for s in sides if s.find_column(column) is not None]
        if not having:
            raise FlowError(f"where= names {column!r}, which is a column of none of the joined streams")
        if len(having) > 1:
            choices = " or ".join(f"{s.name}.{column}" for s in having)
            raise FlowError(f"where= names {column!r}, which is ambiguous; write {choices}")
        return _result_column(having[0], column)

    return resolve


def _result_column(side: NamedRelation, column: str) -> str:
    name = side.find_column(column)
    if name is None:
        columns = ", ".join(side.columns)
        raise FlowError(f"where= names {side.name}.{column}, but {side.title} has only {columns}")
    return f"{side.name}_{name}"
