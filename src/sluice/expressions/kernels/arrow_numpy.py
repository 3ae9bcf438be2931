"""Small steps between Arrow arrays and numpy that the kernels share."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sluice.expressions.nodes import Datum
from sluice.model.errors import EvaluationError


def arrow(*values: Datum, function: str, **options: Any) -> Datum:
    """Arrow's compute function of that name; Arrow's own objects for the options could not be pickled."""
    return getattr(pc, function)(*values, **options)


def align(*values: Datum) -> list[pa.Array]:
    """The values as arrays of one length; at least one of them is an array already."""
    count = next(len(value) for value in values if isinstance(value, pa.Array))
    return [pa.repeat(value, count) if isinstance(value, pa.Scalar) else value for value in values]


def numbers(array: pa.Array) -> Any:
    """The values of a fixed-width array as numpy, zero where there is none."""
    dtype = np.dtype(f"{'f' if pa.types.is_floating(array.type) else 'i'}{array.type.bit_width // 8}")
    if len(array) == 0:
        return np.empty(0, dtype)
    values = np.frombuffer(array.buffers()[1], dtype)[array.offset : array.offset + len(array)]
    return np.where(valid(array), values, dtype.type(0)) if array.null_count else values


def valid(*arrays: pa.Array) -> Any:
    """Where all the arrays have a value."""
    result = np.ones(len(arrays[0]), dtype=bool)
    for array in arrays:
        if array.null_count:
            result &= array.is_valid().to_numpy(zero_copy_only=False)
    return result


def rebuilt(values: Any, present: Any, type_: pa.DataType) -> pa.Array:
    """An Arrow array of the type from its bare numbers and the places that have one."""
    array = pa.array(values, mask=None if present.all() else ~present)
    return array if array.type == type_ else array.view(type_)


def demand(met: Any, present: Any, reason: str) -> None:
    """Raises unless every row that has a value meets the condition."""
    if not np.all(met | ~present):
        raise EvaluationError(reason)


def unscaled_decimal(values: Any, present: Any, type_: pa.DataType) -> pa.Array:
    """A decimal array from 64-bit unscaled values."""
    words = np.empty((len(values), 2), dtype=np.int64)
    words[:, 0], words[:, 1] = values, values >> 63
    bitmap = pa.array(present).buffers()[1] if not present.all() else None
    return pa.Array.from_buffers(type_, len(values), [bitmap, pa.py_buffer(words)])


def element(lists: Datum, index: Datum, *, from_one: bool) -> pa.Array:
    """The element of each list at the index of its row."""
    lists, index = align(lists, index)
    present, asked = valid(lists, index), numbers(index)
    ends = lists.offsets.to_numpy().astype(np.int64)
    count = np.diff(ends)
    place = asked
    if from_one:
        demand(asked != 0, present, "elements are counted from 1")
        place = np.where(asked > 0, asked - 1, count + asked)
    demand((place >= 0) & (place < count), present, "the array is too short for the index")
    return lists.values.take(pa.array(np.where(present, ends[:-1] + place, 0), mask=~present))
