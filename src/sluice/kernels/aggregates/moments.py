"""Mean and sum of squared deviations, from which variance and standard deviation follow.

Squares of the values themselves are never added up: where the values are large and close together nothing would be
left of their spread. States are combined by the formula of Chan, Golub and LeVeque.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isqrt

import numpy as np
import pyarrow as pa

from sluice.expressions.kernels.arrow_numpy import numbers, rebuilt, valid
from sluice.kernels.aggregates.counts import Count
from sluice.kernels.aggregates.measure import Columns
from sluice.kernels.grouping import Groups
from sluice.kernels.windows import SHORT_ROW_CELLS, Arrays, Windows


@dataclass(frozen=True)
class Moments:
    """The mean of a numeric column's values and the sum of their squared distances from it, as doubles."""

    column: str

    @property
    def fields(self) -> list[pa.Field]:
        return [pa.field(f"mean({self.column})", pa.float64()), pa.field(f"m2({self.column})", pa.float64())]

    def partial(self, rows: pa.RecordBatch, times: np.ndarray, groups: Groups) -> Columns:
        column = rows.column(self.column)
        weights = valid(column).astype(np.float64)
        return _unite(weights, _doubles(column), np.zeros(1), groups)

    def merge(self, partials: pa.RecordBatch, groups: Groups) -> Columns:
        mean, m2 = (numbers(partials.column(field.name)) for field in self.fields)
        return _unite(Count(self.column).of(partials).astype(np.float64), mean, m2, groups)

    def roll(self, rows: pa.RecordBatch, windows: Windows) -> Columns:
        column = rows.column(self.column)
        values = [_doubles(column)] if column.null_count == 0 else [_doubles(column), valid(column).astype(np.float64)]
        with np.errstate(all="ignore"):
            mean, m2, *_ = windows.combine(values, scan, _unite_running)
        return [pa.array(mean), pa.array(m2)]

    def spread(self, partials: pa.RecordBatch, *, sample: bool, root: bool) -> pa.Array:
        """Variances or, by their root, standard deviations; those of a sample are null for a single value."""
        counts, m2 = Count(self.column).of(partials), numbers(partials.column(self.fields[1].name))
        freedom = counts - 1 if sample else counts
        with np.errstate(all="ignore"):
            result = m2 / np.maximum(freedom, 1)
            return rebuilt(np.sqrt(result) if root else result, freedom > 0, pa.float64())


def _doubles(column: pa.Array) -> np.ndarray:
    values: np.ndarray = numbers(column.cast(pa.float64(), safe=False))
    return values


def _unite(count: np.ndarray, mean: np.ndarray, m2: np.ndarray, groups: Groups) -> Columns:
    """One mean and m2 a group from states that are each about `count` values."""
    count, mean = groups.gather(count), groups.gather(mean)
    m2 = groups.gather(m2) if len(m2) == len(count) else m2
    with np.errstate(all="ignore"):
        counts = np.maximum(groups.reduce(np.add, count), 1.0)
        center = groups.reduce(np.add, count * mean) / counts
        if not np.isfinite(center).all():  # a sum too large for a double may still have a mean that is not
            center = groups.reduce(np.add, mean * (count / groups.spread(counts)))
        distance = mean - groups.spread(center)
        weighted = count * distance
        # What rounding left of the distances, which would add up to 0, is taken out of both.
        rest = groups.reduce(np.add, weighted) / counts
        squares = groups.reduce(np.add, m2 + weighted * distance) - rest * rest * counts
        return [pa.array(center + rest), pa.array(np.maximum(squares, 0.0))]


def combine(a: Sequence[np.ndarray], b: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Count, mean and m2 of two sets of values together."""
    count = a[0] + b[0]
    distance = b[1] - a[1]
    share = b[0] / np.maximum(count, 1)
    mean = np.where(a[0] == 0, b[1], np.where(b[0] == 0, a[1], a[1] + distance * share))
    between = np.where((a[0] == 0) | (b[0] == 0), 0.0, distance * distance * share * a[0])
    return count, mean, a[2] + b[2] + between


def _unite_running(older: Arrays, old_rows: np.ndarray, newer: Arrays, new_rows: np.ndarray) -> Arrays:
    """Running results of older and of newer rows together; all of these rows count unless the results say how many."""
    if len(older) > 2:
        count, mean, m2 = combine((older[2], *older[:2]), (newer[2], *newer[:2]))
        return [mean, m2, count]
    share = new_rows / (old_rows + new_rows)
    distance = newer[0] - older[0]
    between = distance * distance
    between *= share * old_rows
    between += older[1]
    between += newer[1]
    distance *= share
    distance += older[0]
    return [distance, between]


def scan(cells: Arrays) -> Arrays:
    """Running mean and m2 down each column of values. A second array of 0 and 1, if given, says which values count;
    then a third result is how many did."""
    steps, columns = cells[0].shape
    if steps > SHORT_ROW_CELLS and columns < 4 * SHORT_ROW_CELLS:
        return _scan_long(cells)
    return _scan_stepwise(cells)


def _scan_stepwise(cells: Arrays) -> Arrays:
    """Welford's method, one step of all columns at a time."""
    values = cells[0]
    mean, m2 = np.zeros_like(values), np.zeros_like(values)
    counts = [np.zeros_like(values)] if len(cells) > 1 else []
    now, squares, seen = np.zeros(values.shape[1]), np.zeros(values.shape[1]), np.zeros(values.shape[1])
    for step, row in enumerate(values):
        distance = row - now
        if len(cells) > 1:
            distance *= cells[1][step]
            seen += cells[1][step]
            counts[0][step] = seen
            now = now + distance / np.maximum(seen, 1.0)
        else:
            now = now + distance / (step + 1)
        distance *= row - now
        squares += distance
        mean[step], m2[step] = now, squares
    return [mean, m2, *counts]


def _scan_long(cells: Arrays) -> Arrays:
    """The same for few long columns: cut into pieces that are scanned side by side and then strung together."""
    steps, columns = cells[0].shape
    inner = isqrt(steps)
    outer = -(-steps // inner)
    weights = cells[1] if len(cells) > 1 else np.ones_like(cells[0])
    pieces = [_side_by_side(array, outer, inner) for array in (cells[0], weights)]
    shape = (inner, outer, columns)
    mean, m2, count = (array.reshape(shape) for array in _scan_stepwise(pieces))
    local = count, mean, m2
    before = [np.zeros((outer, columns)) for _ in local]
    for piece in range(1, outer):
        carried = combine([array[piece - 1] for array in before], [array[-1, piece - 1] for array in local])
        for array, value in zip(before, carried, strict=True):
            array[piece] = value
    count, mean, m2 = combine(before, local)
    whole = [mean, m2] if len(cells) == 1 else [mean, m2, count]
    return [array.transpose(1, 0, 2).reshape(outer * inner, columns)[:steps] for array in whole]


def _side_by_side(array: np.ndarray, outer: int, inner: int) -> np.ndarray:
    steps, columns = array.shape
    padded = np.zeros((outer * inner, columns))
    padded[:steps] = array
    return padded.reshape(outer, inner, columns).transpose(1, 0, 2).reshape(inner, outer * columns)
