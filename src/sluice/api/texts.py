"""What users write as text, checked: SQL expressions and names of columns, where Spark would take a Column as well."""

from __future__ import annotations

from pyspark.sql import Column

from sluice.model.errors import FlowError


def sql_text(value: object, what: str, example: str) -> str:
    """An expression as Spark SQL text; `what` names the argument in the error."""
    if not isinstance(value, str):
        raise FlowError(f"{what} takes Spark SQL text, such as {example!r}, not {_kind(value)}")
    return value


def column_name(value: object, what: str, advice: str) -> str:
    """The name of a column; what else to write, if it was none, is in `advice`."""
    if not isinstance(value, str):
        raise FlowError(f"{what} takes names of columns, not {_kind(value)}; {advice}")
    return value


def _kind(value: object) -> str:
    return f"Spark's {value}" if isinstance(value, Column) else f"{value!r}"
