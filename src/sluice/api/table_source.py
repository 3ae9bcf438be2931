"""From the arguments of `flow.table` to a checked TableSource, or an error in the user's own words."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from sluice.engine.static_tables import MOST_BYTES, TableContent, TableSource
from sluice.model.durations import seconds, size_in_bytes
from sluice.model.errors import FlowError
from sluice.model.plan.steps import StaticTable
from sluice.model.plan.stream import is_hidden
from sluice.sources.files import FORMATS, FileOptions, infer_schema, is_there
from sluice.sources.tables import ArrowRows, TableFiles
from sluice.spark.tables import ComputedRows, to_arrow

MAX_SIZE = "256m"
"""How large a table may be that every Python worker keeps, unless it is said."""
ON_CHANGE = "onChange"
"""What `refresh` says if files are looked at before every epoch."""


def build_table(
    name: str, content: TableContent, schema: pa.Schema, refresh: object, most: object, divided: bool
) -> TableSource:
    """A table with this content, checked; `most` is None where nothing is said of its size."""
    for column in schema.names:
        if schema.names.count(column) > 1:
            raise FlowError(f"table {name!r} has two columns {column!r}; rename one")
        if is_hidden(column):
            raise FlowError(f"table {name!r}: the column name {column!r} is taken by Sluice; rename it")
    if divided and most is not None:
        raise FlowError(
            f"table {name!r} is divided among the sites, as state, and may have any size: leave maxSize out. It bounds "
            "tables that every Python worker keeps in memory"
        )
    size = _read_size(name, MAX_SIZE if most is None else most)
    return TableSource(StaticTable(name, schema), content, _read_refresh(name, content, refresh), size, divided)


def read_rows(name: str, rows: Any) -> tuple[TableContent, pa.Schema]:
    """The content of a table that is given as an Arrow table, a DataFrame, or a function that returns one of these; and
    its columns."""
    if callable(rows) and not isinstance(rows, DataFrame):
        return ComputedRows(name, rows), to_arrow(name, rows()).schema
    if isinstance(rows, DataFrame):
        return ComputedRows(name, lambda: rows), to_arrow(name, rows.limit(0) if not rows.isStreaming else rows).schema
    table = to_arrow(name, rows)
    return ArrowRows(name, table), table.schema


def read_table_files(
    name: str, path: str, format: str, schema: pa.Schema | None, options: Mapping[str, str], name_filter: str
) -> tuple[TableContent, pa.Schema]:
    """The content of a table that is given as files, and its columns."""
    if format not in FORMATS:
        raise FlowError(f"table {name!r}: there is no file format {format!r}; known: {', '.join(FORMATS)}")
    if "://" not in path and not path.startswith("file:"):
        path = os.path.abspath(path)
    try:
        how = FileOptions.of(format, options)
    except FlowError as problem:
        raise FlowError(f"table {name!r}: {problem}") from problem
    if not is_there(path):
        raise FlowError(f"table {name!r}: there is no file or directory {path!r}")
    columns = schema
    if columns is None and not how.why_spark:
        columns = infer_schema(name, path, format, options, name_filter, what="table")
    why_spark = how.why_spark if columns is None else how.for_columns(format, columns).why_spark
    if why_spark or columns is None:
        raise FlowError(
            f"table {name!r}: only Spark can read its files, because of {', '.join(why_spark)}; give the DataFrame in "
            f"place of the path: flow.table({name!r}, spark.read…)"
        )
    return TableFiles(name, path, format, columns, dict(options), name_filter), columns


def _read_refresh(name: str, content: TableContent, refresh: Any) -> float | None:
    what = f"refresh of table {name!r}"
    if refresh is None:
        return None
    if isinstance(content, ArrowRows):
        raise FlowError(
            f"{what}: an Arrow table stays as it is; give the path of its files, or a function that returns it anew"
        )
    if isinstance(refresh, str) and refresh.lower() == ON_CHANGE.lower():
        if not isinstance(content, TableFiles):
            raise FlowError(f"{what}: only files tell that they have changed; say how often: refresh='10 minutes'")
        return 0.0
    return seconds(refresh, what)


def _read_size(name: str, most: object) -> int:
    size = size_in_bytes(most, f"maxSize of table {name!r}")
    if not 0 < size <= MOST_BYTES:
        raise FlowError(f"maxSize of table {name!r} must be at least one byte and less than 2g, not {most!r}")
    return size
