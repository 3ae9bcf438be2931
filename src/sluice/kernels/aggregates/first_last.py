"""First and last values by event time; of rows with equal times, the one that arrived earlier is the earlier."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from sluice.expressions.kernels.arrow_numpy import numbers
from sluice.kernels.aggregates.measure import Columns
from sluice.kernels.grouping import Groups
from sluice.kernels.windows import Windows


@dataclass(frozen=True)
class Edge:
    """The event time and the values, null or not, of each group's first or last row."""

    last: bool
    columns: tuple[pa.Field, ...]

    @property
    def name(self) -> str:
        return "last" if self.last else "first"

    @property
    def fields(self) -> list[pa.Field]:
        values = [pa.field(f"{self.name}({column.name})", column.type) for column in self.columns]
        return [pa.field(f"{self.name} time", pa.int64()), *values]

    def partial(self, rows: pa.RecordBatch, times: np.ndarray, groups: Groups) -> Columns:
        at = self._rows(times, groups)
        taken = pa.array(at)
        return [pa.array(times[at]), *(rows.column(column.name).take(taken) for column in self.columns)]

    def merge(self, partials: pa.RecordBatch, groups: Groups) -> Columns:
        at = pa.array(self._rows(numbers(partials.column(self.fields[0].name)), groups))
        return [partials.column(field.name).take(at) for field in self.fields]

    def roll(self, rows: pa.RecordBatch, windows: Windows) -> Columns:
        at = pa.array(windows.last if self.last else windows.first)
        return [pa.nulls(len(windows), pa.int64()), *(rows.column(column.name).take(at) for column in self.columns)]

    def _rows(self, times: np.ndarray, groups: Groups) -> np.ndarray:
        """The first or last row of each group."""
        gathered = groups.gather(times)
        edge = groups.reduce(np.maximum if self.last else np.minimum, gathered)
        places = np.flatnonzero(gathered == groups.spread(edge))
        if self.last:
            return groups.rows(places[np.searchsorted(places, groups.cuts[1:]) - 1])
        return groups.rows(places[np.searchsorted(places, groups.cuts[:-1])])
