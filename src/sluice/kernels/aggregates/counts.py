"""Numbers of rows, and of rows in which a column has a value."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from sluice.expressions.kernels.arrow_numpy import numbers, valid
from sluice.kernels.aggregates.measure import Columns
from sluice.kernels.grouping import Groups
from sluice.kernels.windows import Windows


@dataclass(frozen=True)
class Count:
    """How many rows have a value in the column, or how many there are if it is None."""

    column: str | None

    @property
    def name(self) -> str:
        return "rows" if self.column is None else f"count({self.column})"

    @property
    def fields(self) -> list[pa.Field]:
        return [pa.field(self.name, pa.int64())]

    def partial(self, rows: pa.RecordBatch, times: np.ndarray, groups: Groups) -> Columns:
        present = self._present(rows)
        if present is None:
            return [pa.array(groups.sizes)]
        return [pa.array(groups.add_up(present.astype(np.int64)))]

    def merge(self, partials: pa.RecordBatch, groups: Groups) -> Columns:
        return [pa.array(groups.add_up(self.of(partials)))]

    def roll(self, rows: pa.RecordBatch, windows: Windows) -> Columns:
        present = self._present(rows)
        return [pa.array(windows.sizes if present is None else windows.sum(present))]

    def of(self, partials: pa.RecordBatch) -> np.ndarray:
        """The counts in a partial state."""
        counts: np.ndarray = numbers(partials.column(self.name))
        return counts

    def _present(self, rows: pa.RecordBatch) -> np.ndarray | None:
        if self.column is None or rows.column(self.column).null_count == 0:
            return None
        present: np.ndarray = valid(rows.column(self.column))
        return present
