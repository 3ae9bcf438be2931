"""Kernels for comparisons and arithmetic where Spark's meaning is not Arrow's.

Spark holds NaN equal to itself and greater than any number, raises on division by zero for doubles too, and rounds
decimals half away from zero. Rounding of a double works on the decimal number that its shortest text shows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sluice.expressions.kernels import strict_math
from sluice.expressions.kernels.arrow_numpy import align, demand, numbers, rebuilt, unscaled_decimal, valid
from sluice.expressions.nodes import Datum
from sluice.expressions.types import MAX_DIGITS, decimal_result
from sluice.model.errors import EvaluationError

_HALF_UP = "half_towards_infinity"  # Arrow's name for rounding half away from zero
WIDE_DIGITS = 76


def compare_floats(left: Datum, right: Datum, *, operation: str) -> Datum:
    """A comparison of floats or doubles in Spark's order."""
    if not (_has_nan(left) or _has_nan(right)):
        return pc.call_function(operation, [left, right])
    if operation in ("greater", "greater_equal"):
        mirrored = {"greater": "less", "greater_equal": "less_equal"}
        return compare_floats(right, left, operation=mirrored[operation])
    if operation == "not_equal":
        return pc.invert(compare_floats(left, right, operation="equal"))
    if operation == "equal":
        return pc.or_(pc.equal(left, right), pc.and_(pc.is_nan(left), pc.is_nan(right)))
    if operation == "less":
        return pc.or_(pc.less(left, right), pc.and_(pc.is_nan(right), pc.invert(pc.is_nan(left))))
    return pc.or_(pc.less_equal(left, right), pc.and_(pc.is_nan(right), pc.is_valid(left)))


def _has_nan(value: Datum) -> bool:
    return pc.any(pc.is_nan(value)).as_py() is True


def member(values: pa.Array, *, options: pa.Array, unknown: bool) -> pa.Array:
    """Spark's IN: null for a null, and for what is not found among options of which some are null."""
    if pa.types.is_floating(values.type):
        values, options = pc.add(values, 0.0), pc.add(options, 0.0)  # to which a negative zero is equal, too
    is_member = pc.is_in(values, value_set=options)
    undecided = pc.invert(is_member) if unknown else pc.is_null(values)
    return pc.if_else(undecided, pa.scalar(None, pa.bool_()), is_member)


def null_safe(left: Datum, right: Datum, *, equal: Any) -> Datum:
    """Spark's `<=>`: two nulls are equal, a null and a value are not."""
    both_null = pc.and_(pc.is_null(left), pc.is_null(right))
    return pc.or_(pc.fill_null(equal(left, right), False), both_null)


def extreme(*values: Datum, less: Any, greatest: bool) -> Datum:
    """The greatest or least of the values that are not null, the first of equals."""
    best = values[0]
    for value in values[1:]:
        better = less(best, value) if greatest else less(value, best)
        best = pc.if_else(pc.coalesce(better, pc.is_null(best)), value, best)
    return best


def divide(divisor: Datum, dividend: Datum) -> Datum:
    """Division, of integers to whole numbers; the divisor comes first, because Spark looks at it first."""
    _demand_divisor(divisor, dividend)  # Arrow would make an error of every zero, which takes long if there are many
    return pc.divide_checked(dividend, divisor)


def remainder(divisor: Datum, dividend: Datum) -> Datum:
    """What division leaves over, with the dividend's sign."""
    by, of = align(divisor, dividend)
    demand(numbers(by) != 0, valid(by, of), "division by zero")
    safe = np.where(numbers(by) == 0, numbers(by).dtype.type(1), numbers(by))
    with np.errstate(invalid="ignore"):
        return rebuilt(np.fmod(numbers(of), safe), valid(by, of), of.type)


def decimal_arithmetic(left: Datum, right: Datum, *, operation: str, type_: pa.DataType) -> Datum:
    """Sum, difference or product of decimals, rounded to the type where that gives up digits."""
    if decimal_result(operation, left.type, right.type)[0] <= MAX_DIGITS:
        return pc.call_function(operation, [left, right])
    return rescale(pc.call_function(operation, [_wide(left), _wide(right)]), type_=type_)


def decimal_divide(divisor: Datum, dividend: Datum, *, type_: pa.DataType) -> Datum:
    """The quotient of decimals, rounded to the type."""
    _demand_divisor(divisor, dividend)
    more = division_digits(dividend.type, divisor.type, type_)
    source = dividend.type
    longer = pc.cast(dividend, pa.decimal256(source.precision + more, source.scale + more))
    # Arrow cuts the quotient off one digit or more behind the last one kept, so rounding still sees the half.
    return rescale(pc.divide(longer, _wide(_without_zeros(divisor))), type_=type_)


def division_digits(dividend: pa.DataType, divisor: pa.DataType, result: pa.DataType) -> int:
    """How many digits to lengthen the dividend by so that Arrow's quotient has one digit more than the result."""
    natural: int = dividend.scale + divisor.precision - divisor.scale + 1
    return max(0, int(result.scale) + 1 - natural)


def decimal_remainder(divisor: Datum, dividend: Datum, *, type_: pa.DataType) -> Datum:
    by, of = _alike(divisor, dividend)
    return rescale(pc.subtract(of, pc.multiply(_whole_quotient(by, of), by)), type_=type_)


def decimal_div(divisor: Datum, dividend: Datum) -> Datum:
    return pc.cast(_whole_quotient(*_alike(divisor, dividend)), pa.int64())


def _alike(divisor: Datum, dividend: Datum) -> list[Datum]:
    """Both in one scale, zeros of the divisor as nulls."""
    _demand_divisor(divisor, dividend)
    wide = pa.decimal256(shared_digits(divisor.type, dividend.type), max(divisor.type.scale, dividend.type.scale))
    return [pc.cast(_without_zeros(divisor), wide), pc.cast(dividend, wide)]


def _whole_quotient(by: Datum, of: Datum) -> Datum:
    return pc.cast(pc.trunc(pc.divide(of, by)), pa.decimal256(of.type.precision, 0))


def shared_digits(left: pa.DataType, right: pa.DataType) -> int:
    """The digits it takes to hold both in one scale."""
    return int(max(left.scale, right.scale) + max(left.precision - left.scale, right.precision - right.scale))


def _demand_divisor(divisor: Datum, dividend: Datum) -> None:
    zero = pc.equal(divisor, pa.scalar(0, divisor.type))
    if pc.any(pc.and_(zero, pc.is_valid(dividend))).as_py():
        raise EvaluationError("division by zero")


def _without_zeros(divisor: Datum) -> Datum:
    zero = pc.equal(divisor, pa.scalar(0, divisor.type))
    return pc.if_else(zero, pa.scalar(None, divisor.type), divisor)


def _wide(value: Datum) -> Datum:
    return pc.cast(value, pa.decimal256(value.type.precision, value.type.scale))


def to_unscaled(array: pa.Array) -> Any:
    """The unscaled values of decimals of at most 18 digits."""
    if len(array) == 0:
        return np.empty(0, np.int64)
    words = np.frombuffer(array.buffers()[1], np.int64)[::2][array.offset : array.offset + len(array)]
    return np.where(valid(array), words, 0)


def rescale(value: Datum, *, type_: pa.DataType) -> Datum:
    """Decimals in another precision and scale; those that do not fit raise."""
    if value.type.scale > type_.scale:
        # Arrow rounds to 0 what needs one digit more afterwards, so there must be room for it.
        roomy = pa.decimal256(min(value.type.precision + 1, WIDE_DIGITS), value.type.scale)
        value = pc.round(pc.cast(value, roomy), type_.scale, round_mode=_HALF_UP)
    return pc.cast(value, type_)


def round_double(array: pa.Array, *, digits: int) -> pa.Array:
    """Rounds half away from zero at that many decimal digits."""
    values, present = numbers(array), valid(array)
    # Larger ones have no digit that could be rounded away.
    finite = np.isfinite(values) & (np.abs(values) < (2.0**52 if digits >= 0 else 1e32))
    plain = np.where(finite, values, 0.0)
    if np.all(np.abs(plain) * 10.0**digits < 1e15):
        units = _half_up(plain, digits).astype(np.float64)
        result = units / 10.0**digits if digits >= 0 else units * 10.0**-digits
    else:
        exact = decimals_of(pa.array(np.where(np.abs(plain) < 1e-20, 0.0, plain)))
        result = numbers(pc.round(exact, digits, round_mode=_HALF_UP).cast(pa.string()).cast(pa.float64())) + 0.0
    return rebuilt(np.where(finite, result, values), present, array.type)


def _half_up(values: Any, digits: int) -> Any:
    """The nearest whole numbers of 10^-digits, exact for fewer than 10^15 of them."""
    size = np.abs(values)
    below = np.floor(size * 10.0**digits) if digits >= 0 else np.floor(size / 10.0**-digits)
    # Both factors are whole and below 2^53, so this is the double whose shortest text is the halfway number.
    half = (2 * below + 1) / (2 * 10.0**digits) if digits >= 0 else (2 * below + 1) * (10.0**-digits / 2)
    return np.where(values < 0, -1, 1) * (below + (size >= half)).astype(np.int64)


def decimals_of(array: pa.Array) -> pa.Array:
    """Doubles as the decimal numbers their shortest text shows."""
    return array.cast(pa.string()).cast(pa.decimal256(WIDE_DIGITS, 38))


def double_to_decimal(array: pa.Array, *, type_: pa.DataType) -> pa.Array:
    values, present = numbers(array), valid(array)
    demand(np.isfinite(values) & (np.abs(values) < 1e37), present, f"a number does not fit into {type_}")
    if type_.precision <= 18 and np.all(np.abs(values) * 10.0**type_.scale < 1e15):
        return unscaled_decimal(_half_up(values, type_.scale), present, pa.decimal128(18, type_.scale)).cast(type_)
    tiny = np.abs(values) < 10.0 ** -(type_.scale + 2)
    plain = rebuilt(np.where(tiny, 0.0, values), present, pa.float64())
    return rescale(decimals_of(plain), type_=type_)


def whole(array: pa.Array, *, upwards: bool) -> pa.Array:
    """floor or ceil of doubles, as bigint; NaN becomes 0."""
    values, present = numbers(array), valid(array)
    values = np.nan_to_num(np.ceil(values) if upwards else np.floor(values), nan=0.0, posinf=np.inf, neginf=-np.inf)
    demand((values < 2.0**63) & (values >= -(2.0**63)), present, "overflow")
    return rebuilt(np.where(np.abs(values) < 2.0**63, values, -(2.0**63)).astype(np.int64), present, pa.int64())


def sign(array: pa.Array) -> pa.Array:
    """-1, 0 or 1; a zero keeps its own sign."""
    values = numbers(array)
    return rebuilt(np.where(values == 0, values, np.sign(values)), valid(array), array.type)


def exponential(array: pa.Array) -> pa.Array:
    return rebuilt(strict_math.exp(numbers(array)), valid(array), pa.float64())


def power(base: Datum, exponent: Datum) -> pa.Array:
    """Java's pow: one to an infinite or undefined power is undefined."""
    base, exponent = align(base, exponent)
    x, y = numbers(base), numbers(exponent)
    usual = np.isfinite(x) & np.isfinite(y) & (x != 0)
    values = strict_math.pow(np.where(usual, x, 1.0), np.where(usual, y, 1.0))
    if not usual.all():
        with np.errstate(all="ignore"):
            limits = np.where((np.abs(x) == 1) & ~np.isfinite(y), np.nan, np.power(x, y))
        values = np.where(usual, values, limits)
    return rebuilt(values, valid(base, exponent), pa.float64())


def logarithm(array: pa.Array, *, ten: bool = False) -> pa.Array:
    """A logarithm, null for numbers that have none."""
    values = numbers(array)
    present = valid(array) & ~(values <= 0)
    logarithms = (strict_math.log10 if ten else strict_math.log)(np.where(present, values, 1.0))
    return rebuilt(logarithms, present, pa.float64())


def logarithm_to_base(base: Datum, value: Datum) -> Datum:
    base, value = align(base, value)
    return pc.divide(logarithm(value), logarithm(base))
