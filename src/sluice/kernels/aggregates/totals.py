"""Sums and averages: of whole numbers and decimals exact, of floats in double precision."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from sluice.expressions.kernels.arithmetic import decimal_divide
from sluice.expressions.kernels.arrow_numpy import numbers, rebuilt
from sluice.kernels import int128
from sluice.kernels.aggregates.counts import Count
from sluice.kernels.aggregates.measure import Columns
from sluice.kernels.grouping import Groups
from sluice.kernels.windows import Windows
from sluice.model.errors import EvaluationError


def total_of(column: str, type_: pa.DataType) -> ExactTotal | FloatTotal:
    """The measure that sums up a column of the type."""
    if pa.types.is_floating(type_):
        return FloatTotal(column)
    return ExactTotal(column, type_.scale if pa.types.is_decimal(type_) else 0)


@dataclass(frozen=True)
class FloatTotal:
    """The sum of a float or double column; nulls add nothing."""

    column: str

    @property
    def name(self) -> str:
        return f"sum({self.column})"

    @property
    def fields(self) -> list[pa.Field]:
        return [pa.field(self.name, pa.float64())]

    def partial(self, rows: pa.RecordBatch, times: np.ndarray, groups: Groups) -> Columns:
        return [self._add(rows.column(self.column), groups)]

    def merge(self, partials: pa.RecordBatch, groups: Groups) -> Columns:
        return [self._add(partials.column(self.name), groups)]

    def roll(self, rows: pa.RecordBatch, windows: Windows) -> Columns:
        with np.errstate(all="ignore"):
            return [pa.array(windows.accumulate(np.add, _doubles(rows.column(self.column))))]

    def sums(self, partials: pa.RecordBatch, type_: pa.DataType) -> pa.Array:
        return rebuilt(numbers(partials.column(self.name)), Count(self.column).of(partials) > 0, pa.float64())

    def averages(self, partials: pa.RecordBatch, type_: pa.DataType) -> pa.Array:
        return _mean(numbers(partials.column(self.name)), Count(self.column).of(partials))

    def _add(self, column: pa.Array, groups: Groups) -> pa.Array:
        with np.errstate(all="ignore"):
            return pa.array(groups.add_up(_doubles(column)))


@dataclass(frozen=True)
class ExactTotal:
    """The exact sum of an integer or decimal column; nulls add nothing.

    Whether a sum of integers fits into a bigint is decided on the whole sum, so it never depends on how rows were
    split or in which order they came. Decimals must fit 38 digits in every partial state.
    """

    column: str
    scale: int

    @property
    def name(self) -> str:
        return f"sum({self.column})"

    @property
    def fields(self) -> list[pa.Field]:
        return [pa.field(self.name, pa.decimal128(int128.DIGITS, self.scale))]

    def partial(self, rows: pa.RecordBatch, times: np.ndarray, groups: Groups) -> Columns:
        return [self._add(rows.column(self.column), groups)]

    def merge(self, partials: pa.RecordBatch, groups: Groups) -> Columns:
        return [self._add(partials.column(self.name), groups)]

    def roll(self, rows: pa.RecordBatch, windows: Windows) -> Columns:
        digits = int128.digits(rows.column(self.column), windows.longest)
        return [self._together([windows.sum(digit) for digit in digits])]

    def sums(self, partials: pa.RecordBatch, type_: pa.DataType) -> pa.Array:
        totals, present = partials.column(self.name), Count(self.column).of(partials) > 0
        low, high = int128.halves(totals)
        if pa.types.is_integer(type_):
            if not np.array_equal(low >> 63, high):
                raise EvaluationError(f"overflow, in sum({self.column})")
            return rebuilt(low, present, pa.int64())
        return _mask(totals, present).cast(type_)

    def averages(self, partials: pa.RecordBatch, type_: pa.DataType) -> pa.Array:
        totals, counts = partials.column(self.name), Count(self.column).of(partials)
        if pa.types.is_floating(type_):
            return _mean(int128.doubles(totals), counts)
        divisor = pa.array(counts, mask=counts == 0).cast(pa.decimal128(19, 0))
        try:
            return decimal_divide(divisor, totals, type_=type_)
        except pa.ArrowInvalid as error:
            raise EvaluationError(f"overflow, in avg({self.column})") from error

    def _add(self, column: pa.Array, groups: Groups) -> pa.Array:
        largest = int(groups.sizes.max(initial=0))
        return self._together([groups.add_up(digit) for digit in int128.digits(column, largest)])

    def _together(self, sums: list[np.ndarray]) -> pa.Array:
        try:
            return int128.together(sums, self.scale)
        except pa.ArrowInvalid as error:
            raise EvaluationError(f"overflow, in the sum of the decimals of {self.column}") from error


def _doubles(column: pa.Array) -> np.ndarray:
    values: np.ndarray = numbers(column).astype(np.float64, copy=False)
    return values


def _mean(sums: np.ndarray, counts: np.ndarray) -> pa.Array:
    return rebuilt(sums / np.maximum(counts, 1), counts > 0, pa.float64())


def _mask(values: pa.Array, present: np.ndarray) -> pa.Array:
    """The values where they are present, else nulls."""
    if present.all():
        return values
    return values.take(pa.array(np.arange(len(values)), mask=~present))
