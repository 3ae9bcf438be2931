"""Rows in the order of a value, so that those between two values are found by binary search.

Values of all types become doubles, in a way that never turns their order round: of two values that differ, those that
come out may be equal, but the lesser one is never the greater. So what is found by them is all that there is, and
perhaps some more. What has no value (null) becomes NaN and is found by nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from sluice.model.errors import SluiceError
from sluice.model.plan.inequalities import Ordering

_PREFIX = 8


@dataclass(frozen=True)
class ValueOrder:
    """The values of a run's rows from least to greatest, those without one last, and the places of their rows."""

    values: np.ndarray
    places: np.ndarray

    @staticmethod
    def of(ordering: Ordering, rows: pa.RecordBatch) -> ValueOrder:
        """Where a value cannot be computed, which need not concern any pair that matches, no row has one."""
        values = values_of(ordering, rows)
        if values is None:
            return ValueOrder(np.full(rows.num_rows, np.nan), np.arange(rows.num_rows, dtype=np.uint32))
        places = np.argsort(values, kind="stable")
        return ValueOrder(values[places], places.astype(np.uint32))

    @cached_property
    def is_usable(self) -> bool:
        """Whether rows have values at all; else they are not known."""
        return len(self.values) > 0 and not np.isnan(self.values[0])

    @cached_property
    def end(self) -> int:
        """Where those without a value begin."""
        return int(np.searchsorted(self.values, np.nan))

    @property
    def span(self) -> tuple[float, float]:
        """The least and the greatest value, where there are any."""
        return float(self.values[0]), float(self.values[self.end - 1])

    def outside(self, least: float, most: float) -> np.ndarray:
        """The places of rows whose values are less or greater."""
        first, last = np.searchsorted(self.values, least), np.searchsorted(self.values, most, side="right")
        places = np.concatenate([self.places[:first], self.places[min(last, self.end) : self.end]])
        return places.astype(np.int64)

    def ranges(self, least: np.ndarray | None, most: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
        """Of each of many pairs of bounds, where what lies between them begins here, and how many there are."""
        guide = most if least is None else least
        assert guide is not None, "without any bound there is nothing to search by"
        ascending = np.argsort(guide)  # searches then walk through memory instead of jumping
        first, last = np.zeros(len(guide), dtype=np.int64), np.full(len(guide), self.end)
        if least is not None:
            first[ascending] = np.searchsorted(self.values, least[ascending])
        if most is not None:
            last[ascending] = np.searchsorted(self.values, most[ascending], side="right")
        return first, np.maximum(np.minimum(last, self.end) - first, 0)


def values_of(ordering: Ordering, rows: pa.RecordBatch) -> np.ndarray | None:
    """The rows' values as doubles, NaN for null; None where some cannot be computed."""
    try:
        column = ordering.expression.evaluate(rows)
    except SluiceError:
        return None
    return as_doubles(column, nan_is_least=ordering.nan_is_least)


def as_doubles(column: pa.Array, *, nan_is_least: bool = False) -> np.ndarray:
    """Values in Spark's order as doubles, NaN for null.

    >>> as_doubles(pa.array([2, None, -1])).tolist()
    [2.0, nan, -1.0]
    """
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        values = _prefixes(column)
    elif pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        values = column.cast(pa.float64()).to_numpy(zero_copy_only=False)
        unordered = np.isnan(values)
        if unordered.any():
            values = np.where(unordered, -np.inf if nan_is_least else np.inf, values)
    elif pa.types.is_boolean(kind):
        values = column.cast(pa.int8()).to_numpy(zero_copy_only=False).astype(np.float64)
    else:
        if pa.types.is_temporal(kind):
            column = column.cast(pa.int32() if kind.bit_width == 32 else pa.int64())
        values = column.to_numpy(zero_copy_only=False).astype(np.float64)
    if column.null_count:
        values = np.where(column.is_null().to_numpy(zero_copy_only=False), np.nan, values)
    return values


def _prefixes(column: pa.Array) -> np.ndarray:
    """The first bytes of texts as numbers; those of shorter ones count as if zeros followed."""
    if len(column) == 0:
        return np.empty(0)
    offsets = np.frombuffer(column.buffers()[1], dtype=np.int32)
    offsets = offsets[column.offset : column.offset + len(column) + 1].astype(np.int64)
    first, last = int(offsets[0]), int(offsets[-1])
    padded = np.zeros(last - first + _PREFIX, dtype=np.uint8)
    if last > first:
        padded[:-_PREFIX] = np.frombuffer(column.buffers()[2], dtype=np.uint8, offset=first, count=last - first)
    at_byte = np.ndarray((last - first + 1,), dtype=">u8", buffer=padded.data, strides=(1,))
    missing = (_PREFIX - np.minimum(np.diff(offsets), _PREFIX)) * 8
    words = at_byte[offsets[:-1] - first].astype(np.uint64)
    kept = np.uint64(2**64 - 1) << np.minimum(missing, 63).astype(np.uint64)
    return np.where(missing == 64, 0, words & kept).astype(np.float64)
