"""Spark SQL texts of `filter`, `select` and `withColumn`, compiled over a stream's columns."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from sluice.expressions import ELSEWHERE, compile_condition, compile_expression, split_alias
from sluice.model.errors import FlowError
from sluice.model.stream import BySpark, Expression, Project, Stream
from sluice.spark.sources import analysed, can_be_rows, quoted

if TYPE_CHECKING:
    from sluice.api.stream import StreamHandle


def condition(handle: StreamHandle, text: str) -> Expression:
    return _compiled(compile_condition, handle, text, pa.bool_())


def expression(handle: StreamHandle, text: str) -> Expression:
    return _compiled(compile_expression, handle, text, None)


def _compiled(compile_: Callable[..., Expression], handle: StreamHandle, text: str, kind: Any) -> Expression:
    """The expression for Arrow; or, where Arrow has nothing for it and the rows may come from Spark, by Spark."""
    try:
        return compile_(_text(text), resolver(handle), _schema(handle), time_zone=_zone(handle))
    except FlowError as problem:
        found = _by_spark(handle, text) if ELSEWHERE in str(problem) else None
        if found is None or kind not in (None, found.type):
            raise
        return found


def _by_spark(handle: StreamHandle, text: str) -> BySpark | None:
    """The expression over a source's own columns, if Spark understands it; an operator's results never are its rows."""
    origin = handle.relation.origin
    source = handle.flow.sources.get(origin.name) if isinstance(origin, Stream) else None
    if not isinstance(origin, Stream) or source is None or not can_be_rows(source):
        return None
    names, passed = {f.name for f in origin.shown}, []
    for step in handle.relation.steps:
        if isinstance(step, Project):
            names &= {name for name, e in step.columns if e.columns == (name,) and is_plain(e.text, name)}
        else:
            passed.append(step.condition)
    # only for rows that pass the filters before it, as far as they are conditions on the same columns
    guards = tuple(c.text for c in passed if isinstance(c, BySpark) or set(c.columns) <= names)
    kind = analysed(handle.flow.spark, handle.name, pa.schema([f for f in origin.shown if f.name in names]), text)
    return None if kind is None else BySpark(text, kind, guards, handle.name)


def selection(handle: StreamHandle, text: str) -> list[tuple[str, Expression]]:
    """The columns that one entry of `select` stands for: `*`, a column, or an expression with a name."""
    if _text(text).strip() == "*":
        return [pair for name in handle.columns for pair in selection(handle, quoted(name))]
    inner, name = split_alias(text)
    found = expression(handle, inner)
    if name is None:
        plain = [c for c in found.columns if is_plain(inner, c)]
        if not plain:
            raise FlowError(f"select: the expression {text!r} needs a name: {text} AS name")
        name = plain[0]
    if name.startswith("__"):
        raise FlowError(f"select: {name!r} cannot be the name of a column")
    return [(name, found)]


def resolver(handle: StreamHandle) -> Callable[[str | None, str], str]:
    """Names in a text → the stream's columns."""

    def resolve(stream: str | None, column: str) -> str:
        if stream is not None and stream.lower() != handle.name.lower():
            raise FlowError(f"{stream}.{column} is not a column of {handle.title}; it has {', '.join(handle.columns)}")
        if column in handle.columns:
            return column
        for name in handle.columns:
            if name.lower() == column.lower():
                return name
        raise FlowError(f"{handle.title} has no column {column!r}; it has {', '.join(handle.columns)}")

    return resolve


def is_plain(text: str, column: str) -> bool:
    """Whether a text is nothing but a column's name, perhaps in backticks and with its stream's."""
    written = text.strip().lower()
    ways = (column.lower(), quoted(column.lower()))
    return written in ways or written.split(".", 1)[-1] in ways


def _schema(handle: StreamHandle) -> pa.Schema:
    return pa.schema(handle.stream.shown)


def _zone(handle: StreamHandle) -> str:
    return str(handle.flow.spark.conf.get("spark.sql.session.timeZone"))


def _text(text: str) -> str:
    if not isinstance(text, str):
        raise FlowError(f"expressions are given as Spark SQL text, such as 'price > 3', not as {type(text).__name__}")
    return text
