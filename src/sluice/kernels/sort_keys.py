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
    order = np.lexsort((*reversed(keys), groups.ids))
    ranks = np.empty(len(order), dtype=np.int64)
    ranks[order] = np.arange(len(order)) - groups.spread(groups.cuts[:-1]) + 1
    return ranks


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
