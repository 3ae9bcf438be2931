"""A schema as Spark's DDL text, read without Spark."""

from __future__ import annotations

import pyarrow as pa
from sqlglot import exp
from sqlglot.errors import SqlglotError

from sluice.expressions.type_names import scalar_type
from sluice.model.errors import FlowError

_INSTANT = pa.timestamp("us", "UTC")


def read_ddl(whose: str, text: str) -> pa.Schema:
    """The columns of a stream or a table, by the name that messages call it.

    >>> read_ddl("stream 'trades'", "symbol STRING NOT NULL, ts timestamp, sizes array<int>").types
    [DataType(string), TimestampType(timestamp[us, tz=UTC]), ListType(list<element: int32>)]
    """
    example = "write for example 'id long, ts timestamp'"
    try:
        columns = exp.DataType.build(f"STRUCT<{text}>", dialect="databricks").expressions
    except SqlglotError as problem:
        raise FlowError(f"schema of {whose} cannot be read: {text!r}; {example}") from problem
    if not columns or not all(isinstance(column, exp.ColumnDef) and column.kind for column in columns):
        raise FlowError(f"schema of {whose} cannot be read: {text!r}; {example}")
    return pa.schema([_field(whose, column) for column in columns])


def _field(whose: str, column: exp.ColumnDef) -> pa.Field:
    return pa.field(column.name, _type(whose, column.kind))


def _type(whose: str, named: exp.Expression | None) -> pa.DataType:
    assert isinstance(named, exp.DataType), "only columns with types are asked for"
    inner = named.expressions
    match getattr(named.this, "name", ""):
        case "ARRAY" if len(inner) == 1:
            return pa.list_(pa.field("element", _type(whose, inner[0])))
        case "MAP" if len(inner) == 2:
            return pa.map_(_type(whose, inner[0]), _type(whose, inner[1]))
        case "STRUCT":
            return pa.struct([_field(whose, column) for column in inner])
        case _:
            scalar = scalar_type(named, _INSTANT)
    if scalar is None:
        raise FlowError(
            f"schema of {whose}: without Spark the type {named.sql('databricks')} is not known; give an "
            "Arrow schema or a StructType"
        )
    return scalar
