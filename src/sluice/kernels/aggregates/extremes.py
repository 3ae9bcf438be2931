"""Least and greatest values, in Spark's order: NaN above every number, texts by their bytes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sluice.expressions.kernels.arrow_numpy import numbers, rebuilt, unscaled_decimal, valid
from sluice.kernels.aggregates.measure import Columns
from sluice.kernels.grouping import Groups
from sluice.kernels.int128 import halves
from sluice.kernels.windows import Windows

_DIGITS_OF_INT64 = 18


@dataclass(frozen=True)
class Extreme:
    """The least or greatest value of a column; nulls are passed over."""

    column: str
    type: pa.DataType
    greatest: bool

    @property
    def name(self) -> str:
        return f"{'max' if self.greatest else 'min'}({self.column})"

    @property
    def fields(self) -> list[pa.Field]:
        return [pa.field(self.name, self.type)]

    def partial(self, rows: pa.RecordBatch, times: np.ndarray, groups: Groups) -> Columns:
        return [self._find(rows.column(self.column), groups)]

    def merge(self, partials: pa.RecordBatch, groups: Groups) -> Columns:
        return [self._find(partials.column(self.name), groups)]

    def roll(self, rows: pa.RecordBatch, windows: Windows) -> Columns:
        column = rows.column(self.column)
        values, back = ordinals(column)
        best = windows.accumulate(self._best(values), self._fill_nulls(values, column))
        has_value = windows.sum(valid(column)) > 0 if column.null_count else np.ones(len(windows), dtype=bool)
        return [back(best, has_value)]

    def _find(self, column: pa.Array, groups: Groups) -> pa.Array:
        values, back = ordinals(column)
        filled = self._fill_nulls(values, column)
        has_value = np.ones(groups.count, dtype=bool)
        if column.null_count:
            has_value = groups.add_up(valid(column).astype(np.int64)) > 0
        return back(groups.find_extreme(self._best(values), filled), has_value)

    def _best(self, values: np.ndarray) -> np.ufunc:
        if self.greatest:
            return np.maximum  # NaN if there is one
        return np.fmin if values.dtype.kind == "f" else np.minimum  # NaN if there is nothing else

    def _fill_nulls(self, values: np.ndarray, column: pa.Array) -> np.ndarray:
        """The values, with one in place of nulls that no other value loses to."""
        if column.null_count == 0:
            return values
        if values.dtype.kind == "f":
            worst = -np.inf if self.greatest else np.nan
        else:
            limits = np.iinfo(values.dtype)
            worst = limits.min if self.greatest else limits.max
        return np.where(valid(column), values, values.dtype.type(worst))


Back = Callable[[np.ndarray, np.ndarray], pa.Array]


def ordinals(column: pa.Array) -> tuple[np.ndarray, Back]:
    """Numbers in the order of the column's values, and the way back from such numbers, where present, to values."""
    kind = column.type
    if pa.types.is_boolean(kind) or (pa.types.is_unsigned_integer(kind) and kind.bit_width < 64):
        return numbers(column.cast(pa.int64())), lambda some, here: rebuilt(some, here, pa.int64()).cast(kind)
    if pa.types.is_signed_integer(kind) or pa.types.is_floating(kind) or pa.types.is_temporal(kind):
        return numbers(column), lambda some, here: rebuilt(some, here, kind)
    if pa.types.is_decimal128(kind) and kind.precision <= _DIGITS_OF_INT64:
        return halves(column)[0], lambda some, here: unscaled_decimal(some, here, kind)
    return _ranks(column)


def _ranks(column: pa.Array) -> tuple[np.ndarray, Back]:
    """Each value's place among the distinct values."""
    encoded = column.dictionary_encode()
    sorted_ = pc.array_sort_indices(encoded.dictionary)
    rank = np.empty(len(sorted_), dtype=np.int64)
    rank[sorted_.to_numpy()] = np.arange(len(sorted_))
    ranks = rank[numbers(encoded.indices)] if len(rank) else np.zeros(len(column), dtype=np.int64)
    distinct = encoded.dictionary.take(sorted_)
    return ranks, lambda some, here: distinct.take(pa.array(some, mask=~here))
