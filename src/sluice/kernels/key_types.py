"""In which type key columns of different types are compared, and hashed."""

from __future__ import annotations

import pyarrow as pa


def common_key_type(a: pa.DataType, b: pa.DataType) -> pa.DataType | None:
    """The type in which two key columns are compared without loss, None if there is none.

    >>> common_key_type(pa.int32(), pa.int64()), common_key_type(pa.string(), pa.int64())
    (DataType(int64), None)
    """
    if a == b:
        return a
    if pa.types.is_integer(a) and pa.types.is_integer(b):
        return pa.decimal128(38, 0) if pa.uint64() in (a, b) else pa.int64()
    if pa.types.is_floating(a) and pa.types.is_floating(b):
        return pa.float64()
    if _is_exact(a) and _is_exact(b):
        x, y = _as_decimal(a), _as_decimal(b)
        scale = max(x.scale, y.scale)
        digits = max(x.precision - x.scale, y.precision - y.scale) + scale
        return pa.decimal128(digits, scale) if digits <= 38 else None
    if _is_text(a) and _is_text(b):
        return pa.large_string()
    if pa.types.is_date(a) and pa.types.is_date(b):
        return pa.date32()
    return None


def _is_exact(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_decimal(kind))


def _as_decimal(kind: pa.DataType) -> pa.DataType:
    return kind if pa.types.is_decimal(kind) else pa.decimal128(20, 0)


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))
