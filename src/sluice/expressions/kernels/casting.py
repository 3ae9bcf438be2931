"""Spark's casts (ANSI: what does not fit raises), as kernels from one type to another."""

from __future__ import annotations

from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sluice.expressions.kernels import times
from sluice.expressions.kernels.arithmetic import double_to_decimal, rescale, to_unscaled
from sluice.expressions.kernels.arrow_numpy import demand, numbers, rebuilt, valid
from sluice.expressions.kernels.calendar_text import BLANKS, demand_readable, text_to_date, text_to_time, time_to_text
from sluice.expressions.nodes import Kernel
from sluice.expressions.types import (
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    INTEGRALS,
    LONG,
    STRING,
    decimal_for,
    is_decimal,
    is_floating,
    is_instant,
    is_integral,
    is_numeric,
    is_temporal,
)

_TRUE, _FALSE = pa.array(["t", "true", "y", "yes", "1"]), pa.array(["f", "false", "n", "no", "0"])


def cast_kernel(source: pa.DataType, target: pa.DataType) -> tuple[Kernel, bool] | None:
    """The kernel for a cast and whether it can raise; None where Spark has no such cast or we cannot match it."""
    if source == STRING:
        return _from_text(target)
    if target == STRING:
        return _to_text(source)
    if source == BOOLEAN and is_numeric(target):
        return partial(_number_of_boolean, type_=target), is_decimal(target) and target.precision == target.scale
    if is_numeric(source) and target == BOOLEAN:
        return _not_zero, False
    if is_numeric(source) and is_numeric(target):
        return _between_numbers(source, target)
    if is_temporal(source) and is_temporal(target):
        return _between_times(source, target)
    if is_instant(source) and is_integral(target):
        return partial(_seconds, type_=target), target != LONG
    if is_instant(source) and target == DOUBLE:
        return _fractional_seconds, False
    if is_integral(source) and is_instant(target):
        return partial(times.from_seconds, zone=target.tz), False
    return None


def _between_numbers(source: pa.DataType, target: pa.DataType) -> tuple[Kernel, bool] | None:
    if is_decimal(target):
        if is_floating(source):
            fits = source == DOUBLE and target.scale <= 18
            return (partial(double_to_decimal, type_=target), True) if fits else None
        exact = decimal_for(source)
        narrower = target.precision - target.scale < exact.precision - exact.scale
        lossless = not narrower and target.scale >= exact.scale
        return partial(_to_decimal, type_=target), not lossless
    if is_integral(target):
        if is_integral(source):
            return partial(pc.cast, target_type=target), INTEGRALS.index(source) > INTEGRALS.index(target)
        return partial(_truncate_float if is_floating(source) else _truncate_decimal, type_=target), True
    if is_decimal(source):
        return partial(_decimal_to_float, type_=target), False
    return partial(pc.cast, target_type=target, safe=False), False


def _between_times(source: pa.DataType, target: pa.DataType) -> tuple[Kernel, bool]:
    if target == DATE:
        return times.date_of, False
    if source == DATE:
        return partial(times.midnight, zone=target.tz), True
    if is_instant(source):
        return times.local_time, False
    return partial(times.instant, zone=target.tz), False


def _to_text(source: pa.DataType) -> tuple[Kernel, bool] | None:
    if is_integral(source) or source == BOOLEAN or (is_decimal(source) and source.scale <= 6):
        return partial(pc.cast, target_type=STRING), False  # longer fractions Arrow would write with an exponent
    if is_temporal(source):
        return time_to_text, True
    return None


def _from_text(target: pa.DataType) -> tuple[Kernel, bool] | None:
    if is_numeric(target):
        return partial(_text_to_number, type_=target), True
    if target == BOOLEAN:
        return _text_to_boolean, True
    if target == BINARY:
        return partial(pc.cast, target_type=BINARY), False
    if target == DATE:
        return text_to_date, True
    if is_temporal(target):
        return partial(text_to_time, type_=target), True
    return None


def _number_of_boolean(array: pa.Array, *, type_: pa.DataType) -> pa.Array:
    return pc.cast(pc.cast(array, pa.int8()).cast(pa.decimal128(3, 0)) if is_decimal(type_) else array, type_)


def _not_zero(array: pa.Array) -> pa.Array:
    return pc.not_equal(array, pa.scalar(0, array.type))


def _to_decimal(array: pa.Array, *, type_: pa.DataType) -> pa.Array:
    return rescale(pc.cast(array, decimal_for(array.type)), type_=type_)


def _truncate_float(array: pa.Array, *, type_: pa.DataType) -> pa.Array:
    values, present = numbers(array).astype(np.float64), valid(array)
    limits = np.iinfo(type_.to_pandas_dtype())
    low, high = float(limits.min), float(limits.max)
    demand((np.floor(values) <= high) & (np.ceil(values) >= low), present, f"a number does not fit into {type_}")
    kept = np.where(np.abs(values) < 2.0**63, values, 0.0).astype(np.int64)
    kept = np.where(values >= 2.0**63, limits.max, np.where(values <= -(2.0**63), limits.min, kept))
    return rebuilt(kept.astype(limits.dtype), present, type_)


def _truncate_decimal(array: pa.Array, *, type_: pa.DataType) -> pa.Array:
    return pc.cast(pc.trunc(array), type_)


def _decimal_to_float(array: pa.Array, *, type_: pa.DataType) -> pa.Array:
    if type_ == DOUBLE and array.type.precision <= 15:
        # Both are exact as doubles, so the division rounds once, and correctly.
        return rebuilt(to_unscaled(array) / 10.0**array.type.scale, valid(array), type_)
    return pc.cast(pc.cast(array, STRING), type_)


def _seconds(array: pa.Array, *, type_: pa.DataType) -> pa.Array:
    return pc.cast(times.epoch(array, micros=times.SECOND), type_)


def _fractional_seconds(array: pa.Array) -> pa.Array:
    return rebuilt(numbers(array) / float(times.SECOND), valid(array), DOUBLE)


def _text_to_number(array: pa.Array, *, type_: pa.DataType) -> pa.Array:
    texts = pc.utf8_trim(array, characters=BLANKS)
    if is_integral(type_):
        pattern = r"\A[+-]?\d+\z"
    elif is_floating(type_):
        pattern = r"(?i)\A(?:[+-]?(?:(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?[df]?|inf|infinity)|nan)\z"
    else:
        pattern = r"(?i)\A[+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?\z"
    demand_readable(array, pc.match_substring_regex(texts, pattern=pattern), type_)
    texts = pc.replace_substring_regex(texts, pattern=r"\A\+", replacement="")
    if is_floating(type_):
        texts = pc.replace_substring_regex(texts, pattern=r"(?i)(\d|\.)[df]\z", replacement=r"\1")
    if is_decimal(type_):
        return rescale(pc.cast(texts, pa.decimal256(76, 38)), type_=type_)
    return pc.cast(texts, type_)


def _text_to_boolean(array: pa.Array) -> pa.Array:
    texts = pc.ascii_lower(pc.utf8_trim(array, characters=BLANKS))
    true, false = pc.is_in(texts, value_set=_TRUE), pc.is_in(texts, value_set=_FALSE)
    demand_readable(array, pc.or_(true, false), BOOLEAN)
    return pc.if_else(pc.is_valid(array), true, pa.scalar(None, BOOLEAN))
