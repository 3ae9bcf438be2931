"""Spark SQL expressions, compiled to run vectorised on Arrow with Spark 4's meaning (ANSI mode).

>>> import pyarrow as pa
>>> schema = pa.schema({"trades_price": pa.float64(), "quotes_ask": pa.float64()})
>>> condition = compile_condition("trades.price > quotes.ask", lambda stream, column: f"{stream}_{column}", schema)
>>> table = pa.table({"trades_price": [1.5, 2.5, None], "quotes_ask": [2.0, 2.0, 2.0]}, schema)
>>> condition.evaluate(table).to_pylist()
[False, True, None]
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pyarrow as pa

from sluice.expressions.kernels.times import fixed_offset
from sluice.expressions.nodes import Node, Rows, spread
from sluice.expressions.types import BOOLEAN, spark_name
from sluice.model.errors import EvaluationError, FlowError

ELSEWHERE = "compute it as a column of the stream first, with Spark's withColumn"
"""In every refusal of what Spark has and is not available here."""
__all__ = ["ELSEWHERE", "EvaluationError", "Expression", "compile_condition", "compile_expression", "split_alias"]


@dataclass(frozen=True)
class Expression:
    """A compiled expression: what it reads, what it yields, and how to get it. Texts that differ in spaces, capitals or
    the names of streams have the same `meaning`."""

    text: str
    columns: tuple[str, ...]
    type: pa.DataType
    root: Node = field(repr=False, compare=False)
    meaning: str = field(default="", repr=False, compare=False)

    def __post_init__(self) -> None:
        if not self.meaning:
            object.__setattr__(self, "meaning", self.text)

    def evaluate(self, table: pa.Table | pa.RecordBatch) -> pa.Array:
        """The value for each row of the table, which has at least the columns the expression reads."""

        def fetch(name: str) -> pa.Array:
            return _whole(table.column(name))

        try:
            value = self.root.evaluate(Rows(table.num_rows, fetch, careful=False))
        except EvaluationError:
            value = self.root.evaluate(Rows(table.num_rows, fetch, careful=True))
        return spread(value, table.num_rows)


def _whole(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def compile_expression(
    text: str, resolve: Callable[[str | None, str], str], schema: pa.Schema, *, time_zone: str = "UTC"
) -> Expression:
    """Compiles a Spark SQL expression over the columns of a schema.

    `resolve` maps a stream's name (or None) and a column's to the name in the schema, or raises FlowError. Dates and
    clock times of timestamps are those of `time_zone`, Spark's spark.sql.session.timeZone.
    """
    # Only where expressions are written is a parser needed; the sites, which unpickle them, go without.
    from sluice.expressions.compiler import Compiler
    from sluice.expressions.meaning import canonical_text
    from sluice.expressions.parsing import SourceText

    _demand_zone(time_zone)
    source = SourceText(text)
    try:
        tree = source.parse()
        compiler = Compiler(source, resolve, schema, time_zone)
        root = compiler.node(tree)
    except RecursionError:
        raise FlowError(f'"{text[:200]} ..." is nested too deeply; split it up into columns of the stream') from None
    if pa.types.is_interval(root.type):
        source.refuse(tree, "an interval of months is no value of its own; add it to a date or timestamp")
    expression = Expression(
        text, tuple(compiler.columns), root.type, root, canonical_text(text, compiler.column_places)
    )
    expression.evaluate(schema.empty_table())
    return expression


def compile_condition(
    text: str, resolve: Callable[[str | None, str], str], schema: pa.Schema, *, time_zone: str = "UTC"
) -> Expression:
    """Compiles an expression that must be a condition: true, false or null for each row."""
    expression = compile_expression(text, resolve, schema, time_zone=time_zone)
    if expression.type != BOOLEAN:
        raise FlowError(f'a condition is true or false, but "{text}" yields {spark_name(expression.type)}')
    return expression


def split_alias(text: str) -> tuple[str, str | None]:
    """An expression and the name it is given by AS, if any.

    >>> split_alias("price * 2 AS twice"), split_alias("CAST(price AS int)")
    (('price * 2', 'twice'), ('CAST(price AS int)', None))
    """
    from sluice.expressions.parsing import alias_at_end

    return alias_at_end(text)


def _demand_zone(time_zone: str) -> None:
    try:
        if fixed_offset(time_zone) is None:
            pa.compute.local_timestamp(pa.array([0], pa.timestamp("us", time_zone)))
    except pa.ArrowInvalid:
        advice = "use a region like 'Europe/Berlin' or an offset like '+02:00'"
        raise FlowError(f"the time zone {time_zone!r} is not known; {advice}") from None
