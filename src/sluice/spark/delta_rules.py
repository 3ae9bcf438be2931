"""Whether results fit a Delta table: its columns, its partitions, and what else it wants of its rows."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from sluice.model.errors import FlowError

if TYPE_CHECKING:
    from deltalake import DeltaTable

_CONSTRAINT = "delta.constraints."
_NOT_IN_NAMES = set(" ,;{}()\n\t=")
_COLUMN_RULES = ("delta.generationExpression", "delta.identity", "delta.invariants")


def delta_schema(schema: pa.Schema) -> Any:
    """The columns of results as those of a Delta table."""
    from deltalake import Schema

    for column in schema:
        try:
            Schema.from_arrow(pa.schema([column]))
        except Exception as problem:
            raise FlowError(
                f"a Delta table has no type for the result column {column.name!r}, which is {column.type}; "
                "cast it, or leave it out"
            ) from problem
    return Schema.from_arrow(schema)


def refuse_names(columns: Iterable[pa.Field]) -> None:
    """Refuse names with which Delta on Spark makes no table."""
    for column in columns:
        if _NOT_IN_NAMES & set(column.name):
            raise FlowError(
                f"a Delta table takes no column named {column.name!r}: names have no spaces, parentheses, braces, "
                "commas, semicolons or equals signs there; give it another one with AS"
            )
        if pa.types.is_struct(column.type):
            refuse_names(column.type)


def refuse_other_columns(path: str, table: DeltaTable, schema: pa.Schema, partition_by: tuple[str, ...]) -> None:
    """Refuse a table that has other columns or partitions than results."""
    own, theirs = (_columns_of(columns) for columns in (delta_schema(schema), table.schema()))
    if own != theirs:
        raise FlowError(
            f"Delta table {path!r} has other columns than these results: it has {_in_words(theirs)}, they "
            f"have {_in_words(own)}. Select its columns, or give a new path"
        )
    its_partitions = tuple(table.metadata().partition_columns)
    if its_partitions != partition_by:
        written = ", ".join(map(repr, its_partitions))
        raise FlowError(
            f"Delta table {path!r} is partitioned otherwise than these results: write partitionBy({written})"
        )


def refuse_rules(path: str, table: DeltaTable, rows_stay: bool) -> None:
    """Refuse a table that wants more of its rows than names and types: nobody would see to it."""
    settings = table.metadata().configuration
    rules = [f"constraint {name.removeprefix(_CONSTRAINT)!r}" for name in settings if name.startswith(_CONSTRAINT)]
    if settings.get("delta.appendOnly") == "true" and not rows_stay:
        rules.append("delta.appendOnly")
    if settings.get("delta.columnMapping.mode", "none") != "none":
        rules.append("column mapping")
    for field in table.schema().fields:
        if not field.nullable:
            rules.append(f"column {field.name!r} that takes no nulls")
        if any(name.startswith(_COLUMN_RULES) for name in field.metadata):
            rules.append(f"column {field.name!r} with values of its own rule")
    if rules:
        raise FlowError(
            f"Delta table {path!r} has rules that the delta sink does not follow: {', '.join(rules)}. Write the "
            "results by foreachBatch with a package that does, or give a new path"
        )


def _columns_of(schema: Any) -> list[tuple[str, str]]:
    return [(field.name, json.dumps(json.loads(field.type.to_json()))) for field in schema.fields]


def _in_words(columns: Sequence[tuple[str, str]]) -> str:
    return ", ".join(f"{name} {json.loads(kind)}" for name, kind in columns)
