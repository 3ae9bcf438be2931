"""Streams of rows as values: their columns, their event time, how late rows may be, and stateless steps on them."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import pyarrow as pa

from sluice.model.errors import EvaluationError

HASH_COLUMN = "__hash"
ORDER_COLUMN = "__order"
BY_TIME_COLUMN = "__by_time"
TIME_COLUMN = "__time"
VALUE_COLUMN, BY_VALUE_COLUMN = "__value_", "__by_value_"
"""Columns Sluice adds to a stream's own: in the exchange, in segments, and for the event time of a result. Those of
values, in the order by which rows are found by them, have a number behind their names."""
HIDDEN = (HASH_COLUMN, ORDER_COLUMN, BY_TIME_COLUMN, TIME_COLUMN)


def is_hidden(column: str) -> bool:
    """Whether a name is one that Sluice gives to columns of its own."""
    return column in HIDDEN or column.startswith((VALUE_COLUMN, BY_VALUE_COLUMN))


EARLIEST, LATEST = -62_135_596_800_000_000, 253_402_300_799_999_999
"""The event times that there are, in microseconds: the years 1 to 9999, which is what Spark's timestamps are made for.
Any two of them, and any of them with a duration added, lie far inside 64 bits (see `durations.LONGEST`)."""
BY_SPARK = "__spark_"
"""Beginning of the names of columns that Spark computes for expressions Arrow cannot evaluate."""


@dataclass(frozen=True)
class Stream:
    """One source of rows: its columns, the column that is its event time, and how late a row may be (microseconds).

    Where it is `of_several` streams, each with its own event times, rows of one wait for those of the slowest, however
    small the delay.
    """

    name: str
    schema: pa.Schema
    event_time: str
    delay: int | None
    of_several: bool = False

    @property
    def shown(self) -> list[pa.Field]:
        """The columns that users see."""
        return [f for f in self.schema if f.name != TIME_COLUMN]


@dataclass(frozen=True)
class Input:
    """A stream as one operator takes it in: partitioned by these key columns."""

    stream: int
    keys: tuple[str, ...]


class Expression(Protocol):
    """A compiled expression over the columns of a batch."""

    @property
    def text(self) -> str: ...

    @property
    def columns(self) -> tuple[str, ...]: ...

    @property
    def type(self) -> pa.DataType: ...

    @property
    def meaning(self) -> str:
        """The same for texts that mean the same: columns go by their names, in backticks."""

    def evaluate(self, table: pa.RecordBatch) -> pa.Array: ...


@dataclass(frozen=True)
class BySpark:
    """An expression that Spark computes on the rows of a source, into a hidden column that then goes along.

    It is computed where all `guards`, conditions that the rows have to pass before, are true. `scope` is the name that
    the stream has in it.
    """

    text: str
    type: pa.DataType
    guards: tuple[str, ...]
    scope: str

    @property
    def sql(self) -> str:
        guard = " AND ".join(f"({g})" for g in self.guards)
        return f"CASE WHEN {guard} THEN {self.text} END" if guard else self.text

    @property
    def meaning(self) -> str:
        return self.text

    @property
    def name(self) -> str:
        return f"{BY_SPARK}{zlib.crc32(f'{self.scope} {self.sql}'.encode()):08x}"

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.name,)

    def evaluate(self, table: pa.RecordBatch) -> pa.Array:
        return table.column(self.name)


@dataclass(frozen=True)
class Filter:
    """Keeps the rows for which the condition is true."""

    condition: Expression

    def apply(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        return rows.filter(self.evaluate(rows), null_selection_behavior="drop")

    def evaluate(self, rows: pa.RecordBatch) -> pa.Array:
        """Its condition for each row."""
        try:
            return self.condition.evaluate(rows)
        except EvaluationError as error:
            raise EvaluationError(f"filter: {error}") from error

    def structure(self) -> object:
        """What it does: two filters with the same structure keep the same rows."""
        return "filter", _meaning(self.condition)

    def describe(self) -> str:
        return f"where {self.condition.text}"


@dataclass(frozen=True)
class Project:
    """Makes each row anew from expressions; hidden columns go along.

    `time` is the column with the event time, where none of the new ones is it: it becomes a hidden one. `time_type` is
    the type of that one, where it has to be another: of streams that are united.
    """

    columns: tuple[tuple[str, Expression], ...]
    time: str | None = None
    time_type: pa.DataType | None = None

    def apply(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        made = {name: _compute(name, expression, rows) for name, expression in self.columns}
        hidden = {n: rows.column(n) for n in rows.schema.names if n == TIME_COLUMN or n.startswith(BY_SPARK)}
        if self.time is not None:
            hidden.setdefault(TIME_COLUMN, rows.column(self.time))
        if self.time_type is not None and TIME_COLUMN in hidden:
            hidden[TIME_COLUMN] = hidden[TIME_COLUMN].cast(self.time_type)
        return pa.RecordBatch.from_pydict(hidden | made)

    @cached_property
    def is_plain(self) -> bool:
        """Whether it only leaves out and renames columns."""
        return all(plain_column(expression) is not None for _, expression in self.columns)

    @property
    def leaves_out(self) -> bool:
        """Whether it leaves out what is not needed behind it, and does nothing that a user asked for."""
        return self.time is None and all(isinstance(expression, PlainColumn) for _, expression in self.columns)

    def describe(self) -> str:
        made = [
            f"{expression.text} as {name}" for name, expression in self.columns if expression.text.strip("`") != name
        ]
        return f"with {', '.join(made)}" if made else f"of it {', '.join(name for name, _ in self.columns)}"

    def structure(self) -> object:
        """What it does: two projections with the same structure make the same rows."""
        made = tuple((name, _meaning(expression)) for name, expression in self.columns)
        return "select", made, self.time, *(() if self.time_type is None else (str(self.time_type),))


def _meaning(expression: Expression) -> tuple[object, ...]:
    """What tells an expression from others over the same columns, as a value that JSON can hold."""
    if isinstance(expression, BySpark):
        return "by spark", expression.text, str(expression.type), expression.guards, expression.scope
    return expression.meaning, str(expression.type)


def _compute(name: str, expression: Expression, rows: pa.RecordBatch) -> pa.Array:
    column = plain_column(expression)
    if column is not None and rows.schema.field(column).type == expression.type:
        return rows.column(column)
    try:
        return expression.evaluate(rows)
    except EvaluationError as error:
        raise EvaluationError(f"column {name!r}: {error}") from error


@dataclass(frozen=True)
class PlainColumn:
    """A column as it is, as an expression."""

    name: str
    type: pa.DataType

    @property
    def text(self) -> str:
        return f"`{self.name}`"

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.name,)

    @property
    def meaning(self) -> str:
        return self.text

    def evaluate(self, rows: pa.RecordBatch) -> pa.Array:
        return rows.column(self.name)


def plain_column(expression: Expression) -> str | None:
    """The column that an expression is, None if it computes anything."""
    if isinstance(expression, BySpark):
        return expression.name
    return next((column for column in expression.columns if expression.meaning == f"`{column}`"), None)


def columns_of(schema: pa.Schema) -> tuple[tuple[str, str], ...]:
    """A schema's columns as names and types."""
    return tuple((f.name, str(f.type)) for f in schema)
