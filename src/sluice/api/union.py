"""From the arguments of `union` and `unionByName` to one relation of all rows, or an error in the user's own words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from sluice.api.relation import NamedRelation, refuse_changing
from sluice.api.steps import expression
from sluice.api.table import Table
from sluice.expressions.types import common_type, spark_name, spark_type
from sluice.model.errors import FlowError
from sluice.model.plan.relation import Relation, Union
from sluice.model.plan.stream import TIME_COLUMN, Expression, Project, Stream
from sluice.spark.sources import quote_column

Columns = Sequence[str | None]
"""The column of a side that each column of the union has, None where it has none."""


def unite(first: NamedRelation, other: object) -> Relation:
    """The rows of both, columns by their places and under the names that they have in the first."""
    second = _check_side(first, other, "union")
    if len(first.columns) != len(second.columns):
        raise FlowError(
            f"union takes columns by their places, and {first.title} has {len(first.columns)} ({_list(first)}), "
            f"{second.title} {len(second.columns)} ({_list(second)}); choose them with select, or by name: "
            "unionByName(..., allowMissingColumns=True)"
        )
    return _unite_columns(first.columns, first, first.columns, second, second.columns)


def unite_by_name(first: NamedRelation, other: object, allow_missing: bool) -> Relation:
    """The rows of both, columns by their names; those that a side does not have are null there, if that is allowed."""
    second = _check_side(first, other, "unionByName")
    own: list[str | None] = [*first.columns]
    theirs = [second.find_column(name) for name in first.columns]
    names, more = list(first.columns), [c for c in second.columns if c not in theirs]
    missing = [(second, name) for name, column in zip(names, theirs, strict=True) if column is None]
    missing += [(first, name) for name in more]
    if missing and not allow_missing:
        side, name = missing[0]
        raise FlowError(
            f"unionByName: {side.title} has no column {name!r}; it has {_list(side)}. With allowMissingColumns=True it "
            "is null there"
        )
    return _unite_columns([*names, *more], first, [*own, *(None for _ in more)], second, [*theirs, *more])


def _check_side(first: NamedRelation, other: object, method: str) -> NamedRelation:
    if not isinstance(other, NamedRelation):
        raise FlowError(f"{method} takes a stream of the flow, not {type(other).__name__}; register it with readStream")
    if isinstance(other, Table):
        raise FlowError(f"{method} takes a stream, and {other.name!r} is a table, of which no rows come; join it")
    if other.registry is not first.registry:
        raise FlowError(f"{other.title} belongs to another Flow; register it in this one")
    refuse_changing((first.relation, other.relation))
    own, theirs = _time_type(first), _time_type(other)
    if (own.tz is None) != (theirs.tz is None):
        kinds = [spark_name(type_).upper() for type_ in (own, theirs)]
        raise FlowError(
            f"{method}: the event time of {first.title} is {kinds[0]}, that of {other.title} {kinds[1]}; cast one of "
            "them before it becomes a stream"
        )
    return other


def _time_type(side: NamedRelation) -> pa.DataType:
    return side.stream.schema.field(side.event_time).type


def _unite_columns(
    names: Sequence[str], first: NamedRelation, own: Columns, second: NamedRelation, theirs: Columns
) -> Relation:
    places = list(zip(own, theirs, strict=True))
    is_time = [pair == (first.event_time, second.event_time) for pair in places]
    time = names[is_time.index(True)] if any(is_time) else TIME_COLUMN
    types = [
        None if same else _find_type(name, first, a, second, b)
        for name, (a, b), same in zip(names, places, is_time, strict=True)
    ]
    hidden = _time_type(first) if time == TIME_COLUMN else None
    sides = (_conform(names, types, time, hidden, *side) for side in ((first, own), (second, theirs)))
    relations = tuple(part for side in sides for part in _parts_of(side))
    delays = [relation.stream.delay for relation in relations]
    delay = None if None in delays else max(delay for delay in delays if delay is not None)
    return Relation(Union(relations), (), Stream("union", relations[0].stream.schema, time, delay, of_several=True))


def _parts_of(side: Relation) -> tuple[Relation, ...]:
    """What of a union's relations nothing was done to is of the union around it."""
    return side.origin.relations if isinstance(side.origin, Union) and not side.steps else (side,)


def _find_type(
    name: str, first: NamedRelation, own: str | None, second: NamedRelation, other: str | None
) -> pa.DataType:
    """The type that a column of the union has, as in Spark: the one that both sides' values can become."""
    stored = [side.stream.schema.field(c).type for side, c in ((first, own), (second, other)) if c is not None]
    if len(stored) == 1 or stored[0] == stored[1]:
        return stored[0]
    zone = first.registry.time_zone
    left, right = (spark_type(type_, zone) for type_ in stored)
    common = None if left is None or right is None else common_type(left, right)
    if common is None:
        names = [_name_type(type_, zone) for type_ in stored]
        raise FlowError(
            f"column {name!r} would be {names[0]} of {first.title} and {names[1]} of {second.title}, and nothing is "
            f"both; cast one of them: withColumn({own!r}, 'CAST({own} AS string)')"
        )
    return common


def _name_type(type_: pa.DataType, zone: str) -> str:
    return spark_name(spark_type(type_, zone) or type_)


def _conform(
    names: Sequence[str],
    types: Sequence[pa.DataType | None],
    time: str,
    hidden_type: pa.DataType | None,
    side: NamedRelation,
    columns: Columns,
) -> Relation:
    """A side with the columns of the union, and the event time in one of them, or in a hidden one of this type. What
    is so already stays as it is."""
    made = [(name, _column(side, column, type_)) for name, column, type_ in zip(names, columns, types, strict=True)]
    fields = [pa.field(name, value.type) for name, value in made]
    schema = pa.schema([*([] if hidden_type is None else [pa.field(TIME_COLUMN, hidden_type)]), *fields])
    if side.event_time == time and schema == side.stream.schema:
        return side.relation
    becomes_hidden = hidden_type is not None and side.event_time != TIME_COLUMN
    time_type = None if hidden_type == _time_type(side) else hidden_type
    step = Project(tuple(made), side.event_time if becomes_hidden else None, time_type)
    stream = replace(side.stream, schema=schema, event_time=time)
    return Relation(side.relation.origin, (*side.relation.steps, step), stream)


def _column(side: NamedRelation, column: str | None, type_: pa.DataType | None) -> Expression:
    """A column of a side as one of the union; `type_` is None for the event time, which stays as it is."""
    text = "NULL" if column is None else quote_column(column)
    if column is not None and type_ in (None, side.stream.schema.field(column).type):
        return expression(side, text)
    return expression(side, f"CAST({text} AS {spark_name(type_)})")


def _list(side: NamedRelation) -> str:
    return ", ".join(side.columns)
