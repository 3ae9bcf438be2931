"""Rows in an order that was asked for, as Spark SQL's ORDER BY has it: NaN above every number, texts by their bytes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from sluice.expressions.kernels.arrow_numpy import valid
from sluice.kernels.aggregates.extremes import ordinals
from sluice.kernels.grouping import Groups
from sluice.model.plan.sort_order import SortOrder

_SIGN_BIT, _OTHER_BITS = np.int64(63), np.int64(0x7FFFFFFFFFFFFFFF)


def sort_keys(rows: pa.RecordBatch, by: Sequence[SortOrder]) -> list[np.ndarray]:
    """Arrays of numbers in whose order rows are, the first one most."""
    return [key for order in by for key in _keys_of(rows.column(order.column), order)]


def rank_in_groups(groups: Groups, keys: Sequence[np.ndarray]) -> np.ndarray:
    """Each row's place in its group, from 1 on, by these keys; rows that are equal in all of them stay as they are.

    >>> from sluice.kernels.grouping import group_rows
    >>> rows = pa.record_batch({"k": ["a", "b", "a"], "v": [1.5, 2.5, None]})
    >>> keys = sort_keys(rows, [SortOrder("v", descending=True)])
    >>> rank_in_groups(group_rows([rows["k"]]), keys).tolist()
    [1, 1, 2]
    """
    order = sort_by_keys([groups.ids, *keys])
    ranks = np.empty(len(order), dtype=np.int64)
    ranks[order] = np.arange(len(order)) - groups.spread(groups.cuts[:-1]) + 1
    return ranks


def sort_by_keys(keys: Sequence[np.ndarray]) -> np.ndarray:
    """The order of rows by arrays of whole numbers, the first one most; rows that are equal in all stay as they are.

    As many bits of the keys as there is room for are packed into one number a row, with the row's place below them:
    sorting those numbers is several times as fast as sorting by one key after the other. Only rows that are equal in
    the packed bits are looked at again.

    >>> sort_by_keys([np.array([2, 1, 1, 2]), np.array([5, 7, -1, 5])]).tolist()
    [2, 1, 0, 3]
    """
    count = len(keys[0])
    place_bits = max(count - 1, 0).bit_length()
    packed, unpacked = _pack(keys, 64 - place_bits)
    words = packed << np.uint64(place_bits) | np.arange(count, dtype=np.uint64)
    words.sort()
    order = (words & np.uint64((1 << place_bits) - 1)).astype(np.int64)
    if unpacked:
        heads = words >> np.uint64(place_bits)
        is_equal = heads[1:] == heads[:-1]
        tied = np.flatnonzero(np.append(is_equal, False) | np.append(False, is_equal)) if count else order
        rows = order[tied]
        order[tied] = rows[np.lexsort((*(key[rows] for key in reversed(unpacked)), heads[tied]))]
    return order


def _pack(keys: Sequence[np.ndarray], room: int) -> tuple[np.ndarray, list[np.ndarray]]:
    """The first keys as numbers of at most so many bits in the order of the keys, and the keys that did not fit as a
    whole."""
    packed = np.zeros(len(keys[0]), dtype=np.uint64)
    for number, key in enumerate(keys):
        low, high = (int(key.min()), int(key.max())) if len(key) else (0, 0)
        bits = (high - low).bit_length()
        used = min(bits, room)
        if used:
            above = key.astype(np.uint64) - np.uint64(low % (1 << 64))
            packed = packed << np.uint64(used) | above >> np.uint64(bits - used)
        room -= used
        if used < bits:
            return packed, list(keys[number:])
    return packed, []


def _keys_of(column: pa.Array, order: SortOrder) -> list[np.ndarray]:
    values, _ = ordinals(column)
    if values.dtype.kind == "f":
        floats = values.astype(np.float64) + 0.0  # makes a -0.0 a 0.0
        floats[np.isnan(floats)] = np.nan
        words = floats.view(np.int64)
        values = words ^ ((words >> _SIGN_BIT) & _OTHER_BITS)  # as numbers they are in the order of the floats
    key = ~values if order.descending else values
    if not column.null_count:
        return [key]
    present = valid(column)
    return [present == order.nulls_first, np.where(present, key, 0)]
