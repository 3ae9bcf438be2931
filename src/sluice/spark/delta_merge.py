"""Merges rows into a Delta table by their keys: rows with the same keys are replaced, others stay.

Keys are equal as group columns are: null equals null, NaN equals NaN, and -0.0 equals 0.0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from sluice.model.errors import FlowError, StorageError

if TYPE_CHECKING:
    from deltalake import CommitProperties, DeltaTable

_SOURCE, _TARGET = "results", "existing"
_PARTITIONS_TO_CHOOSE = 500
"""Of so many partitions at most the table's files are chosen: for more of them the choice takes longer than reading."""
_CODECS = {"none": "UNCOMPRESSED", "lz4": "LZ4_RAW"}
_ORDERED: Sequence[Callable[[pa.DataType], bool]] = (
    pa.types.is_boolean,
    pa.types.is_integer,
    pa.types.is_string,
    pa.types.is_date,
    pa.types.is_timestamp,
)
"""Types of which a table's least and greatest values in a file are exact."""
_COMPARED: Sequence[Callable[[pa.DataType], bool]] = (
    *_ORDERED,
    pa.types.is_float32,
    pa.types.is_float64,
    pa.types.is_decimal128,
    pa.types.is_large_string,
    pa.types.is_binary,
    pa.types.is_large_binary,
)


def refuse_unmergeable(schema: pa.Schema, keys: Sequence[str], partition_by: Sequence[str]) -> None:
    """Refuse results that cannot be merged into a Delta table by these keys."""
    for key in keys:
        if not _is_one_of(_COMPARED, schema.field(key).type):
            raise FlowError(
                f"column {key!r} is {schema.field(key).type}, which rows of a Delta table cannot be told apart by in "
                "outputMode('update'): cast it before groupBy, or say outputMode('complete')"
            )
    for column in schema.names:
        if "`" in column:
            raise FlowError(
                f"column {column!r} has a backtick in its name, which a Delta table cannot be updated by; name it "
                "otherwise with select, or say outputMode('complete')"
            )
    for column in partition_by:
        if pa.types.is_decimal(schema.field(column).type):
            raise FlowError(
                f"partitionBy: column {column!r} is {schema.field(column).type}, and a Delta table that is updated "
                "cannot be partitioned by decimals; cast it, or say outputMode('complete')"
            )
        if ":" in column:
            raise FlowError(
                f"partitionBy: column {column!r} has a colon in its name, and directories of that name are none that a "
                "Delta table can be updated in; name it otherwise with select, or say outputMode('complete')"
            )


def merge_rows(
    table: DeltaTable, rows: pa.Table, keys: Sequence[str], compression: str, commit: CommitProperties
) -> None:
    """Commit rows, of which no two have the same keys, as the next version of a table."""
    from deltalake import WriterProperties

    rows = _with_plain_numbers(rows, keys)
    partition_keys = [column for column in table.metadata().partition_columns if column in keys]
    _refuse_empty_texts(rows, partition_keys)
    codec: Any = _CODECS.get(compression, compression.upper())
    merger = table.merge(
        rows,
        _equal_keys(rows, keys),
        source_alias=_SOURCE,
        target_alias=_TARGET,
        streamed_exec=_count_partitions(rows, partition_keys) > _PARTITIONS_TO_CHOOSE,
        writer_properties=WriterProperties(compression=codec),
        commit_properties=commit,
    )
    merger.when_matched_update_all().when_not_matched_insert_all().execute()


def _equal_keys(rows: pa.Table, keys: Sequence[str]) -> str:
    """The condition on a row of the table and one of `rows`. Without nulls it is one by which Delta leaves out files
    that cannot have the keys. It is of one kind for all keys: else rows would be joined by some keys alone."""
    simple = all(_is_one_of(_ORDERED, rows.schema.field(key).type) and not rows[key].null_count for key in keys)
    equals = "=" if simple else "IS NOT DISTINCT FROM"
    pairs = ((_existing_value(key, rows.schema.field(key).type), f"{_SOURCE}.`{key}`") for key in keys)
    return " AND ".join(f"({existing} {equals} {new})" for existing, new in pairs)


def _existing_value(key: str, type_: pa.DataType) -> str:
    """A key of the table's row. Its bits count in a join, and there are several NaNs and two zeros."""
    column = f"{_TARGET}.`{key}`"
    if not pa.types.is_floating(type_):
        return column
    name = "DOUBLE" if pa.types.is_float64(type_) else "FLOAT"
    return f"CASE WHEN isnan({column}) THEN CAST('NaN' AS {name}) ELSE {column} + CAST(0.0 AS {name}) END"


def _with_plain_numbers(rows: pa.Table, keys: Sequence[str]) -> pa.Table:
    """Rows with one NaN and one zero as keys."""
    for key in keys:
        column = rows[key]
        if pa.types.is_floating(column.type):
            nan, zero = pa.scalar(float("nan"), column.type), pa.scalar(0.0, column.type)
            plain = pc.if_else(pc.is_nan(column), nan, pc.add(column, zero))
            rows = rows.set_column(rows.schema.get_field_index(key), rows.schema.field(key), plain)
    return rows


def _refuse_empty_texts(rows: pa.Table, partition_keys: Sequence[str]) -> None:
    """A Delta table does not tell an empty text from null in a column of its partitions."""
    for column in partition_keys:
        kind = rows.schema.field(column).type
        if (pa.types.is_string(kind) or pa.types.is_large_string(kind)) and pc.any(pc.equal(rows[column], "")).as_py():
            raise StorageError(
                f"a group has an empty text in {column!r}, by which the Delta table is partitioned: such a table reads "
                "it as null, which is another group. Leave the column out of partitionBy, or filter such rows out "
                "before groupBy, with a new checkpointLocation and path"
            )


def _count_partitions(rows: pa.Table, partition_keys: Sequence[str]) -> int:
    return rows.group_by(list(partition_keys)).aggregate([]).num_rows if partition_keys else 0


def _is_one_of(kinds: Sequence[Callable[[pa.DataType], bool]], type_: pa.DataType) -> bool:
    return any(is_kind(type_) for is_kind in kinds)
