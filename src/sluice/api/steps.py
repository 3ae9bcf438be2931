"""Spark SQL texts of `filter`, `select` and `withColumn`, compiled over a stream's columns."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
from pyspark.sql import Column

from sluice.api.relation import NamedRelation, add_step
from sluice.api.texts import sql_text
from sluice.expressions import ELSEWHERE, compile_condition, compile_expression, split_alias
from sluice.model.errors import FlowError
from sluice.model.plan.relation import Relation
from sluice.model.plan.steps import TableJoin
from sluice.model.plan.stream import TIME_COLUMN, BySpark, Expression, Project, Stream
from sluice.spark.sources import analyse_type, can_be_rows, quote_column


def condition(rows: NamedRelation, text: str | Column) -> Expression:
    """A text that is true or false for every row."""
    return _compile(compile_condition, rows, _sql_text(text), pa.bool_())


def expression(rows: NamedRelation, text: str | Column) -> Expression:
    """A text that has a value for every row."""
    return _compile(compile_expression, rows, _sql_text(text), None)


def _compile(
    compile_: Callable[..., Expression], rows: NamedRelation, text: str, kind: pa.DataType | None
) -> Expression:
    """The expression for Arrow; or, where Arrow has nothing for it and the rows may come from Spark, by Spark."""
    try:
        schema = pa.schema(rows.stream.shown)
        return compile_(text, resolver(rows), schema, time_zone=rows.registry.time_zone)
    except FlowError as problem:
        by_spark = _by_spark(rows, text) if ELSEWHERE in str(problem) else None
        if by_spark is None or kind not in (None, by_spark.type):
            raise
        return by_spark


def _by_spark(rows: NamedRelation, text: str) -> BySpark | None:
    """The expression over a source's own columns, if Spark understands it; an operator's results never are its rows."""
    origin = rows.relation.origin
    source = rows.registry.sources.get(origin.name) if isinstance(origin, Stream) else None
    spark = rows.registry.spark
    if spark is None or not isinstance(origin, Stream) or source is None or not can_be_rows(source):
        return None
    names, passed = {f.name for f in origin.shown}, []
    for step in rows.relation.steps:
        if isinstance(step, TableJoin):
            return None
        if isinstance(step, Project):
            names &= {name for name, e in step.columns if e.columns == (name,) and is_plain(e.text, name)}
        else:
            passed.append(step.condition)
    # only for rows that pass the filters before it, as far as they are conditions on the same columns
    guards = tuple(c.text for c in passed if isinstance(c, BySpark) or set(c.columns) <= names)
    kind = analyse_type(spark, rows.name, pa.schema([f for f in origin.shown if f.name in names]), text)
    return None if kind is None else BySpark(text, kind, guards, rows.name)


def selection(rows: NamedRelation, entry: str | Column) -> list[tuple[str, Expression]]:
    """The columns that one entry of `select` stands for: `*`, a column, or an expression with a name."""
    text = _sql_text(entry)
    if text.strip() == "*":
        return [pair for name in rows.columns for pair in selection(rows, quote_column(name))]
    inner, name = split_alias(text)
    value = expression(rows, inner)
    if name is None:
        plain = [c for c in value.columns if is_plain(inner, c)]
        if not plain:
            raise FlowError(f"select: the expression {text!r} needs a name: {text} AS name")
        name = plain[0]
    if name.startswith("__"):
        raise FlowError(f"select: {name!r} cannot be the name of a column")
    return [(name, value)]


def resolver(rows: NamedRelation) -> Callable[[str | None, str], str]:
    """Names in a text → the stream's columns."""

    def resolve(stream: str | None, column: str) -> str:
        if stream is not None and stream.lower() != rows.name.lower():
            raise FlowError(f"{stream}.{column} is not a column of {rows.title}; it has {', '.join(rows.columns)}")
        name = rows.find_column(column)
        if name is not None:
            return name
        raise FlowError(f"{rows.title} has no column {column!r}; it has {', '.join(rows.columns)}")

    return resolve


def project(rows: NamedRelation, columns: tuple[tuple[str, Expression], ...]) -> Relation:
    """The rows made anew from these columns; the event time goes along, hidden where none of them is it."""
    names = [name for name, _ in columns]
    for name in names:
        if names.count(name) > 1:
            raise FlowError(f"{rows.title} would have two columns {name!r}; name one of them with AS")
    time = rows.event_time
    same = any(name == time and e.columns == (time,) and is_plain(e.text, time) for name, e in columns)
    fields = [pa.field(name, e.type) for name, e in columns]
    if not same:
        fields.insert(0, pa.field(TIME_COLUMN, rows.stream.schema.field(time).type))
    step = Project(columns, None if same or time == TIME_COLUMN else time)
    return add_step(rows, step, pa.schema(fields), time if same else TIME_COLUMN)


def is_plain(text: str, column: str) -> bool:
    """Whether a text is nothing but a column's name, perhaps in backticks and with its stream's."""
    written = text.strip().lower()
    ways = (column.lower(), quote_column(column.lower()))
    return written in ways or written.split(".", 1)[-1] in ways


def _sql_text(text: object) -> str:
    return sql_text(text, "an expression", "price > 3")
