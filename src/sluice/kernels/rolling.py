"""Aggregates over the newest k rows of a group, at a cost that does not depend on k."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from sluice.kernels.aggregation import Aggregation
from sluice.kernels.windows import Windows


def aggregate_windows(
    aggregation: Aggregation, rows: pa.RecordBatch, starts: np.ndarray, at: np.ndarray, k: int
) -> pa.RecordBatch:
    """The results for each row of `at`, over its window: itself and the up to k - 1 rows before it in its group.

    The rows lie group by group, in each by time; group g's are those from `starts[g]` to `starts[g + 1]`. `at` is
    ascending.

    >>> from sluice.model.plan.aggregate import Aggregate
    >>> rows = pa.record_batch({"price": pa.array([1, 2, 3, 10, 20])})
    >>> two = Aggregation([Aggregate("total", "sum", "price")], rows.schema)
    >>> aggregate_windows(two, rows, starts=np.array([0, 3, 5]), at=np.array([1, 2, 3, 4]), k=2)["total"].to_pylist()
    [3, 5, 10, 30]
    """
    return aggregation.finish(aggregation.roll(rows, Windows.newest(starts, at, k)))
