"""Aggregate functions as values: their names, and the types Spark SQL gives their results."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.types as pt

FUNCTIONS = (
    "count", "sum", "avg", "min", "max", "stddev", "variance", "stddev_pop", "var_pop", "first", "last",
)  # fmt: skip

SYNONYMS = {
    "mean": "avg",
    "std": "stddev",
    "stddev_samp": "stddev",
    "var_samp": "variance",
    "first_value": "first",
    "last_value": "last",
}
"""Spark's other names for the same functions."""

_MAX_DIGITS = 38


@dataclass(frozen=True)
class Aggregate:
    """One result column: a function of a column's values, or the number of rows (`count` of no column)."""

    name: str
    function: str
    column: str | None = None

    def __str__(self) -> str:
        return f"{self.function}({self.column or '*'})"


def canonical(function: str) -> str | None:
    """The one name Sluice uses for a function, or None if there is no such function.

    >>> canonical("MEAN"), canonical("sum"), canonical("median")
    ('avg', 'sum', None)
    """
    name = SYNONYMS.get(function.lower(), function.lower())
    return name if name in FUNCTIONS else None


def result_type(function: str, column: pa.DataType | None) -> pa.DataType | None:
    """The type Spark SQL gives the function of such a column (None: of whole rows); None if it does not take it.

    >>> result_type("sum", pa.decimal128(10, 2)), result_type("avg", pa.int32()), result_type("sum", pa.string())
    (Decimal128Type(decimal128(20, 2)), DataType(double), None)
    """
    if function == "count":
        return pa.int64()
    if column is None:
        return None
    if function in ("first", "last"):
        return column
    if function in ("min", "max"):
        return column if _is_ordered(column) else None
    if function == "sum":
        return _sum_type(column)
    if function == "avg" and _is_decimal(column):
        return pa.decimal128(min(_MAX_DIGITS, column.precision + 4), min(_MAX_DIGITS, column.scale + 4))
    if function in ("avg", "stddev", "variance", "stddev_pop", "var_pop"):
        return pa.float64() if _is_number(column) else None
    return None


def _sum_type(column: pa.DataType) -> pa.DataType | None:
    if _is_decimal(column):
        return pa.decimal128(min(_MAX_DIGITS, column.precision + 10), column.scale)
    if pt.is_integer(column):
        return pa.int64()
    return pa.float64() if pt.is_floating(column) else None


def _is_decimal(type_: pa.DataType) -> bool:
    return bool(pt.is_decimal(type_)) and type_.precision <= _MAX_DIGITS


def _is_number(type_: pa.DataType) -> bool:
    return bool(pt.is_integer(type_) or pt.is_floating(type_)) or _is_decimal(type_)


def _is_ordered(type_: pa.DataType) -> bool:
    texts = (pt.is_string, pt.is_large_string, pt.is_binary, pt.is_large_binary, pt.is_fixed_size_binary)
    others = (pt.is_boolean, pt.is_date, pt.is_timestamp, pt.is_duration)
    return _is_number(type_) or any(kind(type_) for kind in (*texts, *others))
