"""Spark's types in Arrow's clothes, and the rules by which Spark 4 (ANSI) brings two of them together."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.types as pt

NULL, BOOLEAN, STRING, BINARY, DATE = pa.null(), pa.bool_(), pa.string(), pa.binary(), pa.date32()
BYTE, SHORT, INT, LONG = INTEGRALS = (pa.int8(), pa.int16(), pa.int32(), pa.int64())
FLOAT, DOUBLE = pa.float32(), pa.float64()
LOCAL_TIME = pa.timestamp("us")  # Spark's timestamp_ntz
INTERVAL = pa.duration("us")  # Spark's day-time interval

_SAME = {
    pa.uint8(): SHORT, pa.uint16(): INT, pa.uint32(): LONG, pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): FLOAT, pa.date64(): DATE,
    pa.large_string(): STRING, pa.string_view(): STRING, pa.large_binary(): BINARY, pa.binary_view(): BINARY,
}  # fmt: skip
_NAMES = {
    NULL: "void", BOOLEAN: "boolean", STRING: "string", BINARY: "binary", DATE: "date", BYTE: "tinyint",
    SHORT: "smallint", INT: "int", LONG: "bigint", FLOAT: "float", DOUBLE: "double", LOCAL_TIME: "timestamp_ntz",
    INTERVAL: "interval day to second", pa.month_day_nano_interval(): "interval year to month",
}  # fmt: skip
_DECIMAL_DIGITS = {BYTE: 3, SHORT: 5, INT: 10, LONG: 20}
MAX_DIGITS = 38


def spark_type(stored: pa.DataType, time_zone: str) -> pa.DataType | None:
    """The type Spark gives values stored so, spelled in one way only; None where Spark has none."""
    if pt.is_dictionary(stored):
        return spark_type(stored.value_type, time_zone)
    if pt.is_timestamp(stored):
        # Nanoseconds would have to be cut off, which is for the user to decide.
        return None if stored.unit == "ns" else pa.timestamp("us", time_zone if stored.tz else None)
    if pt.is_decimal(stored) and not pt.is_decimal256(stored) and 0 <= stored.scale <= stored.precision:
        return pa.decimal128(stored.precision, stored.scale)
    if pt.is_duration(stored):
        return None if stored.unit == "ns" else INTERVAL
    if stored in _NAMES or pt.is_struct(stored) or pt.is_map(stored) or pt.is_list(stored) or pt.is_large_list(stored):
        return stored
    return _SAME.get(stored)


def spark_name(type_: pa.DataType) -> str:
    """How Spark SQL writes the type."""
    if is_decimal(type_):
        return f"decimal({type_.precision},{type_.scale})"
    if is_instant(type_):
        return "timestamp"
    for nested, name in ((pt.is_struct, "struct"), (pt.is_map, "map"), (is_array, "array")):
        if nested(type_):
            return name
    return _NAMES.get(type_, str(type_))


def is_integral(type_: pa.DataType) -> bool:
    return type_ in INTEGRALS


def is_decimal(type_: pa.DataType) -> bool:
    return bool(pt.is_decimal(type_))


def is_floating(type_: pa.DataType) -> bool:
    return type_ in (FLOAT, DOUBLE)


def is_numeric(type_: pa.DataType) -> bool:
    return is_integral(type_) or is_decimal(type_) or is_floating(type_)


def is_instant(type_: pa.DataType) -> bool:
    return bool(pt.is_timestamp(type_)) and type_.tz is not None


def is_timestamp(type_: pa.DataType) -> bool:
    return bool(pt.is_timestamp(type_))


def is_temporal(type_: pa.DataType) -> bool:
    return is_timestamp(type_) or type_ == DATE


def is_array(type_: pa.DataType) -> bool:
    return bool(pt.is_list(type_) or pt.is_large_list(type_))


def is_ordered(type_: pa.DataType) -> bool:
    """Whether values of the type can be compared here."""
    return is_numeric(type_) or is_temporal(type_) or type_ in (BOOLEAN, STRING, BINARY, INTERVAL, NULL)


def decimal_for(type_: pa.DataType) -> pa.DataType:
    """The decimal type that holds every value of an integral type."""
    return type_ if is_decimal(type_) else pa.decimal128(_DECIMAL_DIGITS[type_], 0)


def wider_decimal(left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    """The decimal type that holds the values of both without loss; Spark would round where there is none."""
    scale = max(left.scale, right.scale)
    digits = max(left.precision - left.scale, right.precision - right.scale) + scale
    return pa.decimal128(digits, scale) if digits <= MAX_DIGITS else None


def common_type(left: pa.DataType, right: pa.DataType, *, promote_text: bool = True) -> pa.DataType | None:
    """The type in which Spark compares or mixes values of two types, if there is one.

    >>> spark_name(common_type(INT, pa.decimal128(4, 2)))
    'decimal(12,2)'
    >>> spark_name(common_type(STRING, INT))
    'bigint'
    """
    if left == right or right == NULL:
        return left
    if left == NULL:
        return right
    if is_numeric(left) and is_numeric(right):
        return _common_number(left, right)
    if is_temporal(left) and is_temporal(right):
        instants = [type_ for type_ in (left, right) if is_instant(type_)]
        return instants[0] if instants else LOCAL_TIME
    if promote_text and STRING in (left, right):
        other = right if left == STRING else left
        if is_integral(other):
            return LONG
        if is_numeric(other):
            return DOUBLE
        if is_temporal(other) or other in (BOOLEAN, BINARY):
            return other
    return None


def _common_number(left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    if is_floating(left) or is_floating(right):
        return DOUBLE  # float with anything but float: Spark goes to double to lose no integer digits
    if is_decimal(left) or is_decimal(right):
        return wider_decimal(decimal_for(left), decimal_for(right))
    return max(left, right, key=INTEGRALS.index)


def decimal_result(operation: str, left: pa.DataType, right: pa.DataType) -> tuple[int, int]:
    """Digits and scale of the exact result of decimal arithmetic, before Spark cuts them down to 38 digits."""
    whole_left, whole_right = left.precision - left.scale, right.precision - right.scale
    scale = max(left.scale, right.scale)
    if operation in ("add", "subtract"):
        return max(whole_left, whole_right) + scale + 1, scale
    if operation == "multiply":
        return left.precision + right.precision + 1, left.scale + right.scale
    if operation == "remainder":
        return min(whole_left, whole_right) + scale, scale
    scale = max(6, left.scale + right.precision + 1)
    return whole_left + right.scale + scale, scale


def bounded_decimal(digits: int, scale: int) -> pa.DataType:
    """The type Spark settles for: 38 digits at most, giving up fraction digits but keeping six of them."""
    if digits <= MAX_DIGITS:
        return pa.decimal128(digits, scale)
    return pa.decimal128(MAX_DIGITS, max(MAX_DIGITS - (digits - scale), min(scale, 6)))
