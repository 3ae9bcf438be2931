"""What aggregates mean, written as plain Python and as DuckDB's SQL, and random columns to try them on.

Tolerances: sums of floats within 1e-9 of the sum of the magnitudes, and variances within 1e-6, of the exact result.
Where values are so close together that doubles hardly tell them apart, variances may be off by the square of the
distance between two doubles of their size. Everything else is exact.
"""

from __future__ import annotations

import math
from decimal import ROUND_HALF_UP, Decimal, localcontext
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from sluice.kernels.aggregation import Aggregation
from sluice.model.plan.aggregate import FUNCTIONS, Aggregate, result_type

NAN, INF = float("nan"), float("inf")
LONGS = [0, 1, -1, 7, 2**31, 2**62, 2**63 - 1, -(2**63), -(2**62)]
doubles = st.one_of(st.sampled_from([0.0, -0.0, 1.0, 1e9, 1e9 + 1e-3, 1e15, -1e15]), st.floats(-1e6, 1e6))
VALUES: dict[str, tuple[pa.DataType, st.SearchStrategy]] = {
    "byte": (pa.int8(), st.integers(-128, 127)),
    "long": (pa.int64(), st.sampled_from(LONGS) | st.integers(-100, 100)),
    "unsigned": (pa.uint64(), st.sampled_from([0, 1, 2**63, 2**64 - 1])),
    "float": (pa.float32(), st.sampled_from([0.0, -0.0, 3e38, -3e38, NAN, INF, -INF]) | st.floats(-9, 9, width=32)),
    "double": (pa.float64(), doubles),
    "odd double": (pa.float64(), doubles | st.sampled_from([NAN, INF, -INF])),
    "decimal": (pa.decimal128(10, 2), st.decimals(-(10**7), 10**7, places=2)),
    "long decimal": (pa.decimal128(30, 4), st.sampled_from([Decimal(10**25), Decimal(-(10**25)), Decimal("0.0001")])),
    "longest decimal": (pa.decimal128(38, 0), st.sampled_from([Decimal(10**38 - 1), Decimal(1 - 10**38), Decimal(1)])),
    "string": (pa.string(), st.sampled_from(["", "a", "B", "ab", "é", "\U0001f600", "\uffff", "a\0"])),
    "binary": (pa.binary(), st.binary(max_size=3)),
    "bool": (pa.bool_(), st.booleans()),
    "date": (pa.date32(), st.dates()),
    "timestamp": (pa.timestamp("us", "UTC"), st.integers(-(2**40), 2**40)),
    "struct": (pa.struct({"a": pa.int64()}), st.fixed_dictionaries({"a": st.integers(0, 3) | st.none()})),
    "list": (pa.list_(pa.string()), st.lists(st.sampled_from(["x", "y"]), max_size=2)),
}  # fmt: skip
COMPARED_WITH_DUCKDB = ["byte", "long", "double", "decimal", "string", "binary", "bool", "date", "timestamp"]


def aggregates_of(type_: pa.DataType) -> list[Aggregate]:
    """Every function that takes the type, and the number of rows."""
    return [Aggregate("rows", "count")] + [Aggregate(f, f, "v") for f in FUNCTIONS if result_type(f, type_) is not None]


@st.composite
def columns(draw: st.DrawFn, kinds: list[str], at_most: int = 40) -> pa.Array:
    type_, values = VALUES[draw(st.sampled_from(kinds))]
    return pa.array(draw(st.lists(st.none() | values | values, max_size=at_most)), type_)


def total(values: list[Any], type_: pa.DataType) -> Any:
    if not pa.types.is_floating(type_):
        with localcontext() as context:
            context.prec = 100
            return sum(values)
    if all(map(math.isfinite, values)):
        return float(sum(map(Fraction, values)))
    return sum(v for v in values if not math.isfinite(v))


def rounded(value: Fraction, digits: int) -> Decimal:
    with localcontext() as context:
        context.prec = 200
        return (Decimal(value.numerator) / Decimal(value.denominator)).quantize(
            Decimal(1).scaleb(-digits), ROUND_HALF_UP
        )


def variance(values: list[Any], freedom: int) -> float:
    numbers = [float(v) for v in values]
    if not all(map(math.isfinite, numbers)):
        return NAN
    exact = [Fraction(v) for v in numbers]
    mean = sum(exact) / len(exact)
    return float(sum((v - mean) ** 2 for v in exact) / freedom)


def order(value: Any) -> Any:
    """Spark's order: NaN last, texts by their UTF-8 bytes."""
    if isinstance(value, float):
        return (math.isnan(value), 0.0 if math.isnan(value) else value)
    return value.encode() if isinstance(value, str) else value


class Overflow(Exception):
    pass


def expected(function: str, column: list[Any], type_: pa.DataType) -> Any:
    """The aggregate of a group's or a window's values, which are in the order of their times."""
    values = [v for v in column if v is not None]
    if function == "rows":
        return len(column)
    if function == "count":
        return len(values)
    if function in ("first", "last"):
        return column[0 if function == "first" else -1]
    if not values:
        return None
    if function in ("min", "max"):
        return (min if function == "min" else max)(values, key=order)
    if function == "sum":
        result = total(values, type_)
        if (pa.types.is_integer(type_) and not -(2**63) <= result < 2**63) or (
            pa.types.is_decimal(type_) and abs(result).scaleb(type_.scale) >= 10**38
        ):
            raise Overflow
        return result
    if function == "avg":
        if pa.types.is_decimal(type_):
            if abs(total(values, type_)).scaleb(type_.scale) >= 10**38:
                raise Overflow
            average = rounded(Fraction(total(values, type_)) / len(values), min(38, type_.scale + 4))
            if abs(average).scaleb(min(38, type_.scale + 4)) >= 10**38:
                raise Overflow
            return average
        return float(total(values, type_)) / len(values)
    freedom = len(values) - (function in ("stddev", "variance"))
    if freedom == 0:
        return None
    result = variance(values, freedom)
    return math.sqrt(result) if function.startswith("stddev") else result


def assert_same(function: str, found: Any, wanted: Any, column: list[Any]) -> None:
    if not (isinstance(found, float) and isinstance(wanted, float)) or not math.isfinite(wanted):
        assert found == wanted or (found != found and wanted != wanted), (function, found, wanted, column)
        return
    if function in ("min", "max", "first", "last"):
        assert found == wanted
        return
    values = [abs(float(v)) for v in column if v is not None]
    if function in ("sum", "avg"):
        assert abs(found - wanted) <= 1e-9 * sum(values), (function, found, wanted, column)
        return
    if function.startswith("stddev"):
        found, wanted = found**2, wanted**2
    resolution = len(values) * (4 * np.finfo(float).eps * max(values)) ** 2
    assert abs(found - wanted) <= 1e-6 * wanted + resolution, (function, found, wanted, column)


def assert_results(results: pa.RecordBatch, contents: list[list[Any]], type_: pa.DataType) -> None:
    results.validate(full=True)
    assert results.num_rows == len(contents)
    for name in results.schema.names:
        for found, content in zip(results.column(name).to_pylist(), contents, strict=True):
            assert_same(name, found, expected(name, content, type_), content)


def overflows(contents: list[list[Any]], aggregation: Aggregation, type_: pa.DataType) -> bool:
    try:
        for content in contents:
            for name in aggregation.result_schema.names:
                expected(name, content, type_)
    except Overflow:
        return True
    return False


DUCKDB = {"stddev": "stddev_samp", "variance": "var_samp", "first": "arg_min_null", "last": "arg_max_null"}


def in_duckdb(function: str, type_: pa.DataType) -> str:
    if function == "rows":
        return "count(*)"
    if function in ("first", "last"):
        return f"{DUCKDB[function]}(v, t)"
    # Its averages and variances of decimals and of large integers are taken in doubles, as in Spark.
    value = "v::DOUBLE" if function not in ("count", "sum", "min", "max") else "v"
    return f"{DUCKDB.get(function, function)}({value})"


def compared(name: str, found: Any, wanted: Any, content: list[Any]) -> None:
    if isinstance(found, Decimal) and isinstance(wanted, float):
        assert abs(float(found) - wanted) <= 1e-9 * sum(abs(float(v)) for v in content if v is not None) + 1e-6
    else:
        assert_same(name, found, wanted, content)
