"""Sums of whole numbers and decimals that are exact and never overflow on the way.

A number is taken apart into digits to the base 2^32, each digit is summed in an int64 of its own, and the sums are
put together again as 128-bit decimals. Because digits wrap around like any int64, differences of running sums are
exact too.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from sluice.expressions.kernels.arrow_numpy import numbers, valid

_DIGIT = 32
_MASK = (1 << _DIGIT) - 1
DIGITS = 38
"""Decimal digits that 128 bits hold."""


def digits(column: pa.Array, at_once: int) -> list[np.ndarray]:
    """The column's whole numbers, or its decimals without their point, digit by digit, the lowest first.

    Of each digit, `at_once` rows can be added (fewer than 2^31). The last digit has the sign; nulls are 0.
    """
    if pa.types.is_uint64(column.type):
        column = column.cast(pa.decimal128(20, 0))
    elif pa.types.is_integer(column.type):
        return _narrow(numbers(column.cast(pa.int64())), at_once)
    low, high = halves(column)
    if column.null_count:
        present = valid(column)
        low, high = np.where(present, low, 0), np.where(present, high, 0)
    if np.array_equal(low >> 63, high):
        return _narrow(low, at_once)
    return [low & _MASK, (low >> _DIGIT) & _MASK, high & _MASK, high >> _DIGIT]


def _narrow(values: np.ndarray, at_once: int) -> list[np.ndarray]:
    largest = max(-int(values.min(initial=0)), int(values.max(initial=0)))
    if largest * at_once < 1 << 63:
        return [values]
    return [values & _MASK, values >> _DIGIT]


def together(sums: Sequence[np.ndarray], scale: int) -> pa.Array:
    """Sums of digits as decimals of 38 digits, which all whole numbers fit; raises ArrowInvalid if some do not."""
    parts = list(sums)
    for i in range(len(parts) - 1):
        parts[i + 1] = parts[i + 1] + (parts[i] >> _DIGIT)
        parts[i] = parts[i] & _MASK
    pairs = np.empty((len(parts[0]), 2), dtype=np.int64)
    if len(parts) == 1:
        pairs[:, 0], pairs[:, 1] = parts[0], parts[0] >> 63
    elif len(parts) == 2:
        pairs[:, 0], pairs[:, 1] = (parts[1] << _DIGIT) | parts[0], parts[1] >> _DIGIT
    else:
        if not np.array_equal((parts[3] << _DIGIT) >> _DIGIT, parts[3]):
            raise pa.ArrowInvalid("more than 128 bits")
        pairs[:, 0], pairs[:, 1] = (parts[1] << _DIGIT) | parts[0], (parts[3] << _DIGIT) | parts[2]
    result = pa.Array.from_buffers(pa.decimal128(DIGITS, scale), len(pairs), [None, pa.py_buffer(pairs)])
    if len(parts) > 2:
        result.validate(full=True)
    return result


def halves(column: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """The low and the high 64 bits of decimals without their point; anything where they are null."""
    if not pa.types.is_decimal128(column.type):
        column = column.cast(pa.decimal128(DIGITS, column.type.scale))
    if len(column) == 0:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    pairs = np.frombuffer(column.buffers()[1], np.int64).reshape(-1, 2)[column.offset : column.offset + len(column)]
    return pairs[:, 0], pairs[:, 1]


def doubles(column: pa.Array) -> np.ndarray:
    """Decimals without their point as the nearest doubles, or nearly."""
    low, high = halves(column)
    far = high * 2.0**64 + low.astype(np.uint64)
    return np.where(low >> 63 == high, low.astype(np.float64), far)
