"""Schemas between Spark and Arrow. Inside Sluice a TIMESTAMP is timestamp[us, UTC], a TIMESTAMP_NTZ timestamp[us]."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from sluice.model.errors import FlowError
from sluice.sources.files import normal_schema


def arrow_schema(whose: str, schema: StructType) -> pa.Schema:
    """A DataFrame's columns as Arrow types; `whose` they are is for errors."""
    try:
        return normal_schema(to_arrow_schema(schema, timezone="UTC"))
    except Exception as problem:
        raise FlowError(f"{whose} has a column that Arrow cannot carry: {problem}") from problem


def spark_schema(schema: pa.Schema) -> StructType:
    """The types under which Spark sees results."""
    try:
        return from_arrow_schema(schema)
    except Exception as problem:
        raise FlowError(
            f"Spark has no type for a result column ({problem}); write to the parquet sink or leave the column out"
        ) from problem


def given_schema(whose: str, schema: object) -> pa.Schema:
    """A schema as users give it: Spark DDL, a StructType or an Arrow schema; `whose` it is is for errors."""
    if isinstance(schema, pa.Schema):
        return normal_schema(schema)
    if isinstance(schema, str):
        try:
            schema = StructType.fromDDL(schema)
        except Exception as problem:
            raise FlowError(f"schema of {whose} cannot be read: {schema!r}: {problem}") from problem
    if not isinstance(schema, StructType):
        raise FlowError(f"schema of {whose} must be a DDL text, a StructType or an Arrow schema")
    return arrow_schema(whose, schema)
