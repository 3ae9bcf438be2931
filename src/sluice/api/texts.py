"""What users write as text or as one of PySpark's columns, checked: expressions, and names of columns."""

from __future__ import annotations

from typing import Any

from pyspark.sql import Column

from sluice.api.spark_columns import name_in, sql_of
from sluice.model.errors import FlowError


def sql_text(value: object, what: str, example: str) -> str:
    """An expression as Spark SQL text; `what` names the argument in the error."""
    if isinstance(value, Column):
        return sql_of(value)
    if not isinstance(value, str):
        raise FlowError(f"{what} takes Spark SQL text, such as {example!r}, or a column of Spark, not {value!r}")
    return value


def column_name(value: object, what: str, advice: str, owner: str = "") -> str:
    """The name of a column, of the stream `owner`; what else to write, if it was none, is in `advice`."""
    name = name_in(value, owner) if isinstance(value, Column) else value
    if not isinstance(name, str):
        kind = f"Spark's {value}" if isinstance(value, Column) else f"{value!r}"
        raise FlowError(f"{what} takes names of columns, not {kind}; {advice}")
    return name


def listed(columns: tuple[Any, ...]) -> tuple[Any, ...]:
    """The columns of a call, each an argument, or all of them in one list, as PySpark takes them."""
    return tuple(columns[0]) if len(columns) == 1 and isinstance(columns[0], list | tuple) else columns
