"""Streams of rows as values: their columns, their event time, how late rows may be, and stateless steps on them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

HASH_COLUMN = "__hash"
ORDER_COLUMN = "__order"
TIME_COLUMN = "__time"
"""Columns Sluice adds to a stream's own: in the exchange, in segments, and for the event time of a result."""
HIDDEN = (HASH_COLUMN, ORDER_COLUMN, TIME_COLUMN)


@dataclass(frozen=True)
class Stream:
    """One source of rows: its columns, the column that is its event time, and how late a row may be (microseconds)."""

    name: str
    schema: pa.Schema
    event_time: str
    delay: int | None

    @property
    def shown(self) -> list[pa.Field]:
        """The columns that users see."""
        return [f for f in self.schema if f.name != TIME_COLUMN]


@dataclass(frozen=True)
class Input:
    """A stream as one operator takes it in: partitioned by these key columns. Its state is held once."""

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

    def evaluate(self, table: pa.RecordBatch) -> pa.Array: ...


@dataclass(frozen=True)
class Filter:
    """Keeps the rows for which the condition is true."""

    condition: Expression

    def apply(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        return rows.filter(self.condition.evaluate(rows), null_selection_behavior="drop")

    def identity(self) -> object:
        return {"filter": self.condition.text}


@dataclass(frozen=True)
class Project:
    """Makes each row anew from expressions. The event time goes along, hidden, unless a column still is it.

    `time` is the column to take it from; a hidden one is kept wherever there is one.
    """

    columns: tuple[tuple[str, Expression], ...]
    time: str | None = None

    def apply(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        names = [name for name, _ in self.columns]
        arrays = [expression.evaluate(rows) for _, expression in self.columns]
        hidden = TIME_COLUMN if TIME_COLUMN in rows.schema.names else self.time
        if hidden is not None:
            names, arrays = [TIME_COLUMN, *names], [rows.column(hidden), *arrays]
        return pa.RecordBatch.from_arrays(arrays, names=names)

    def identity(self) -> object:
        return {"select": [[name, expression.text] for name, expression in self.columns]}


Step = Filter | Project


def applied(steps: tuple[Step, ...], rows: pa.RecordBatch) -> pa.RecordBatch:
    """Rows after stateless steps."""
    for step in steps:
        rows = step.apply(rows)
    return rows


def columns_of(schema: pa.Schema) -> list[list[str]]:
    """A schema's columns as names and types, for identities and messages."""
    return [[f.name, str(f.type)] for f in schema]
