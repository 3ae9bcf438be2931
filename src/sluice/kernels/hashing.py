"""A 32-bit hash of key columns, vectorised, and the same on every machine and release.

Units are cut from this hash and a checkpoint remembers units, so its values are part of the checkpoint format.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_ODD = np.uint64(0x9E3779B97F4A7C15)
_MIX = np.uint64(0xD6E8FEB86659FD93)
_HALF = np.uint64(32)
_ROWS_AT_ONCE = 1 << 14
"""Rows that are hashed at a time: what is made on the way stays in the processor's cache."""
_EDGE = 128
"""Of longer texts only this many bytes of each end are hashed (the length too); equality is checked on whole keys."""


def hash_keys(columns: Sequence[pa.Array]) -> np.ndarray:
    """One uint32 a row. The columns hold no nulls (null keys match nothing and are dropped before). Those of values in
    a dictionary have the hashes that the values have."""
    words = [word for column in columns for word in _words(column)]
    hashes = np.empty(len(columns[0]), dtype=np.uint32)
    for start in range(0, len(hashes), _ROWS_AT_ONCE):
        rows = slice(start, start + _ROWS_AT_ONCE)
        state = np.full(len(hashes[rows]), len(columns), dtype=np.uint64)
        for word in words:
            state = _mix(state ^ word[rows])
        hashes[rows] = _mix(state) >> _HALF
    return hashes


def is_hashable(type_: pa.DataType) -> bool:
    """Whether a column of this type can be a key."""
    return bool(
        pa.types.is_boolean(type_)
        or pa.types.is_integer(type_)
        or pa.types.is_floating(type_)
        or pa.types.is_decimal(type_)
        or pa.types.is_temporal(type_)
        or _is_text(type_)
    )


def _is_text(type_: pa.DataType) -> bool:
    kinds = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)
    return any(kind(type_) for kind in kinds) or bool(pa.types.is_fixed_size_binary(type_))


def _mix(x: np.ndarray) -> np.ndarray:
    x = x * _ODD
    x ^= x >> _HALF
    x *= _MIX
    x ^= x >> _HALF
    return x


def _words(column: pa.Array) -> list[np.ndarray]:
    """The column's values as one or more arrays of 64-bit words."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        places = column.indices.to_numpy()
        return [word[places] for word in _words(column.dictionary)]
    if pa.types.is_boolean(kind):
        return [column.cast(pa.uint8()).to_numpy().astype(np.uint64)]
    if pa.types.is_floating(kind):
        values = column.cast(pa.float64()).to_numpy() + 0.0  # -0.0 equals 0.0
        values[np.isnan(values)] = np.nan  # and every NaN every other
        return [values.view(np.uint64)]
    if pa.types.is_decimal(kind):
        wide = column.cast(pa.decimal128(38, kind.scale))
        pairs = np.frombuffer(wide.buffers()[1], dtype=np.uint64).reshape(-1, 2)
        pairs = pairs[wide.offset : wide.offset + len(wide)]
        return [pairs[:, 0], pairs[:, 1]]
    if _is_text(kind):
        return _text_words(column)
    if pa.types.is_temporal(kind):
        column = column.cast(pa.int32() if kind.bit_width == 32 else pa.int64())
    return [column.to_numpy().astype(np.int64, copy=False).view(np.uint64)]


def _text_words(column: pa.Array) -> list[np.ndarray]:
    """Hash state per word position would need one array a position, so texts are folded to a single word here."""
    if pa.types.is_fixed_size_binary(column.type):
        column = column.cast(pa.binary())
    wide = pa.types.is_large_string(column.type) or pa.types.is_large_binary(column.type)
    offsets = np.frombuffer(column.buffers()[1], dtype=np.int64 if wide else np.int32)
    offsets = offsets[column.offset : column.offset + len(column) + 1].astype(np.int64)
    if len(column) == 0:
        return [np.empty(0, dtype=np.uint64)]
    data = column.buffers()[2]
    first, last = int(offsets[0]), int(offsets[-1])
    padded = np.zeros(last - first + 8, dtype=np.uint8)
    if last > first:
        padded[:-8] = np.frombuffer(data, dtype=np.uint8, offset=first, count=last - first)
    at_byte = np.ndarray((last - first + 1,), dtype="<u8", buffer=padded.data, strides=(1,))
    start, length = offsets[:-1] - first, np.diff(offsets)
    state = length.astype(np.uint64)
    state = _fold(state, at_byte, start, np.minimum(length, _EDGE))
    long = np.flatnonzero(length > _EDGE)
    if len(long):
        tail = np.minimum(length[long] - _EDGE, _EDGE)
        state[long] = _fold(state[long], at_byte, start[long] + length[long] - tail, tail)
    return [state]


def _fold(state: np.ndarray, at_byte: np.ndarray, start: np.ndarray, length: np.ndarray) -> np.ndarray:
    """Mix each text's bytes into its state, eight bytes of every text at a time."""
    rows: np.ndarray | None = None
    for done in range(0, int(length.max(initial=0)), 8):
        left = length - done
        if rows is not None or int(left.min()) <= 0:
            keep = np.flatnonzero(left > 0)
            start, length, left = start[keep], length[keep], left[keep]
            rows = keep if rows is None else rows[keep]
        word = at_byte[start + done]
        short = left < 8
        if short.any():
            bits = (np.minimum(left, 8) * 8).astype(np.uint64)
            word = np.where(short, word & ((np.uint64(1) << (bits % np.uint64(64))) - np.uint64(1)), word)
        if rows is None:
            state = _mix(state ^ word)
        else:
            state[rows] = _mix(state[rows] ^ word)
    return state


def keys_equal(a: pa.Array, b: pa.Array) -> pa.Array:
    """Spark's equality of keys: like `=`, and NaN equals NaN."""
    if a.type != b.type:
        b = b.cast(a.type)
    equal = pc.equal(a, b)
    if pa.types.is_floating(a.type):
        equal = pc.or_(equal, pc.and_(pc.is_nan(a), pc.is_nan(b)))
    return equal
