"""The types that columns have inside Sluice, and how a file's column is brought to one of them.

A type's form (dictionary, view, time unit) is the writer's business and is dropped; its meaning is not. A column
may widen, or narrow when every value fits, but text never turns into numbers and a time without a zone never
turns into an instant behind the user's back.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as kind

from sluice.model.errors import StorageError

INSTANT = pa.timestamp("us", "UTC")


def normal_type(t: pa.DataType) -> pa.DataType:
    """The type a column has inside Sluice, whatever form its file gave it.

    >>> normal_type(pa.timestamp("ns", "Europe/Berlin"))
    TimestampType(timestamp[us, tz=UTC])
    >>> normal_type(pa.list_(pa.dictionary(pa.int8(), pa.string())))
    ListType(list<item: string>)
    """
    if kind.is_timestamp(t):
        return pa.timestamp("us") if t.tz is None else INSTANT
    if kind.is_dictionary(t) or kind.is_run_end_encoded(t):
        return normal_type(t.value_type)
    if isinstance(t, pa.BaseExtensionType):
        return normal_type(t.storage_type)
    if kind.is_string_view(t):
        return pa.string()
    if kind.is_binary_view(t):
        return pa.binary()
    if kind.is_struct(t):
        return pa.struct([(field.name, normal_type(field.type)) for field in t])
    if kind.is_map(t):
        return pa.map_(normal_type(t.key_type), normal_type(t.item_type))
    if kind.is_fixed_size_list(t):
        return pa.list_(normal_type(t.value_type), t.list_size)
    if kind.is_large_list(t) or kind.is_large_list_view(t):
        return pa.large_list(normal_type(t.value_type))
    if kind.is_list(t) or kind.is_list_view(t):
        return pa.list_(normal_type(t.value_type))
    return t


def normal_schema(s: pa.Schema) -> pa.Schema:
    """The schema with normal types; every column may be null, and the writer's metadata is gone."""
    return pa.schema([(field.name, normal_type(field.type)) for field in s])


def fit(values: pa.Array, to: pa.DataType, path: str, column: str) -> pa.Array:
    """The values as type `to`; a StorageError names the file and column if that would change what they mean."""
    file_type = values.type
    if file_type == to:
        return values
    if not _fits(file_type, to):
        raise misfit(path, column, file_type, to)
    try:
        if kind.is_run_end_encoded(file_type):
            values = pc.run_end_decode(values)
        normal = normal_type(file_type)
        if values.type != normal:
            # Sluice counts microseconds, as Spark does: a writer's nanoseconds are cut off, not refused.
            values = values.cast(options=pc.CastOptions(normal, allow_time_truncate=True))
        return values if normal == to else values.cast(to)
    except pa.ArrowException as e:
        raise misfit(path, column, file_type, to, str(e)) from e


def misfit(path: str, column: str, file_type: object, to: pa.DataType, why: str = "") -> StorageError:
    detail = f" ({why})" if why else ""
    return StorageError(
        f"file {path!r}, column {column!r}: found {file_type}, expected {to}{detail}; "
        "give a schema= that fits all files, or repair this one under its name"
    )


def _fits(file_type: pa.DataType, to: pa.DataType) -> bool:
    """Whether values of one type may be read as another; Arrow then checks each value (range, UTF-8, scale)."""
    if kind.is_list_view(file_type) or kind.is_large_list_view(file_type):
        return False  # Arrow's cast from list views makes arrays that fail its own validation
    file_type, to = normal_type(file_type), normal_type(to)
    if file_type == to or kind.is_null(file_type):
        return True
    if kind.is_struct(file_type) and kind.is_struct(to):
        shared = [field for field in to if file_type.get_field_index(field.name) >= 0]
        return bool(shared) and all(_fits(file_type.field(field.name).type, field.type) for field in shared)
    if kind.is_map(file_type) and kind.is_map(to):
        return _fits(file_type.key_type, to.key_type) and _fits(file_type.item_type, to.item_type)
    if _is_list(file_type) and _is_list(to):
        return _fits(file_type.value_type, to.value_type)
    if kind.is_integer(file_type):
        return bool(kind.is_integer(to) or kind.is_floating(to) or kind.is_decimal(to))
    if kind.is_floating(file_type):
        return bool(kind.is_floating(to) and file_type.bit_width <= to.bit_width)
    if kind.is_date(file_type):
        return kind.is_date(to) or (kind.is_timestamp(to) and to.tz is None)
    if _is_bytes(file_type):
        return _is_bytes(to)
    # Times with and without a zone are already told apart: their normal types differ, and no rule joins them.
    return any(same(file_type) and same(to) for same in (kind.is_decimal, kind.is_time, kind.is_duration))


def _is_list(t: pa.DataType) -> bool:
    return bool(kind.is_list(t) or kind.is_large_list(t) or kind.is_fixed_size_list(t))


def _is_bytes(t: pa.DataType) -> bool:
    return bool(
        kind.is_string(t)
        or kind.is_large_string(t)
        or kind.is_binary(t)
        or kind.is_large_binary(t)
        or kind.is_fixed_size_binary(t)
    )
