"""Aggregates of groups: partial states from rows, merged in any order, and results with Spark SQL's meaning."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from sluice.kernels.aggregates.counts import Count
from sluice.kernels.aggregates.extremes import Extreme
from sluice.kernels.aggregates.first_last import Edge
from sluice.kernels.aggregates.measure import Measure
from sluice.kernels.aggregates.moments import Moments
from sluice.kernels.aggregates.totals import total_of
from sluice.kernels.grouping import Groups
from sluice.kernels.windows import Windows
from sluice.model.errors import FlowError
from sluice.model.plan.aggregate import Aggregate, result_type


def name_key(place: int) -> str:
    """What a column of the key of groups is called in their stored state."""
    return f"key{place}"


class Aggregation:
    """Several aggregates over rows of one schema. It keeps nothing but what it is asked to compute.

    >>> from sluice.kernels.grouping import group_rows
    >>> rows = pa.record_batch({"price": pa.array([1.0, 3.0, None])})
    >>> both = Aggregation([Aggregate("mean", "avg", "price"), Aggregate("n", "count")], rows.schema)
    >>> both.partial_schema.names
    ['count(price)', 'sum(price)', 'rows']
    >>> partial = both.partial(rows, np.array([10, 20, 30]), group_rows([], rows=3))
    >>> both.finish(both.merge(pa.concat_batches([partial, partial]), group_rows([], rows=2))).to_pylist()
    [{'mean': 2.0, 'n': 6}]
    """

    def __init__(self, aggregates: Sequence[Aggregate], schema: pa.Schema) -> None:
        self.aggregates = tuple(aggregates)
        self.schema = schema
        self.result_schema = pa.schema([pa.field(a.name, self._result_type(a)) for a in self.aggregates])
        self._measures: list[Measure] = list(dict.fromkeys(m for a in self.aggregates for m in self._measures_of(a)))
        self.partial_schema = pa.schema([field for measure in self._measures for field in measure.fields])

    def stored_schema(self, keys: Sequence[str], numbers: Sequence[str]) -> pa.Schema:
        """How partial states are stored: the columns of their group, some with times or numbers, the states."""
        groups = [pa.field(name_key(i), self.schema.field(key).type) for i, key in enumerate(keys)]
        return pa.schema([*groups, *(pa.field(name, pa.int64()) for name in numbers), *self.partial_schema])

    def partial(self, rows: pa.RecordBatch, times: np.ndarray, groups: Groups) -> pa.RecordBatch:
        """The partial state of each group of rows, given the rows' event times in microseconds."""
        return self._state(lambda measure: measure.partial(rows, times, groups))

    def merge(self, partials: pa.RecordBatch, groups: Groups) -> pa.RecordBatch:
        """The partial state of each group of partial states."""
        return self._state(lambda measure: measure.merge(partials, groups))

    def aggregate_newest(self, rows: pa.RecordBatch, starts: np.ndarray, at: np.ndarray, k: int) -> pa.RecordBatch:
        """The results for the rows at these places, ascending, each over itself and the up to k - 1 rows before it in
        its group. The cost does not depend on k.

        The rows lie group by group, in each by time; group g's are those from `starts[g]` to `starts[g + 1]`.

        >>> rows = pa.record_batch({"price": pa.array([1, 2, 3, 10, 20])})
        >>> total = Aggregation([Aggregate("total", "sum", "price")], rows.schema)
        >>> total.aggregate_newest(rows, np.array([0, 3, 5]), at=np.array([1, 2, 3, 4]), k=2)["total"].to_pylist()
        [3, 5, 10, 30]
        """
        windows = Windows.newest(starts, at, k)
        return self.finish(self._state(lambda measure: measure.roll(rows, windows)))

    def finish(self, partials: pa.RecordBatch) -> pa.RecordBatch:
        """The results, one row for each partial state."""
        columns = zip(self.aggregates, self.result_schema, strict=True)
        results = [self._result(aggregate, partials, field.type) for aggregate, field in columns]
        return pa.RecordBatch.from_arrays(results, schema=self.result_schema)

    def _state(self, columns: Callable[[Measure], Sequence[pa.Array]]) -> pa.RecordBatch:
        arrays = [array for measure in self._measures for array in columns(measure)]
        return pa.RecordBatch.from_arrays(arrays, schema=self.partial_schema)

    def _result_type(self, aggregate: Aggregate) -> pa.DataType:
        column = None if aggregate.column is None else self.schema.field(aggregate.column).type
        type_ = result_type(aggregate.function, column)
        if type_ is None:
            raise FlowError(f"{aggregate} is not possible: {aggregate.function} does not take {column or 'whole rows'}")
        return type_

    def _measures_of(self, aggregate: Aggregate) -> Iterator[Measure]:
        """What the aggregate is computed from."""
        function, column = aggregate.function, aggregate.column
        if function == "count" or column is None:
            yield Count(column)
        elif function in ("first", "last"):
            columns = dict.fromkeys(a.column for a in self.aggregates if a.function == function)
            yield Edge(function == "last", tuple(self.schema.field(name) for name in columns))
        elif function in ("min", "max"):
            yield Extreme(column, self.schema.field(column).type, function == "max")
        else:
            yield Count(column)
            yield total_of(column, self.schema.field(column).type) if function in ("sum", "avg") else Moments(column)

    def _result(self, aggregate: Aggregate, partials: pa.RecordBatch, type_: pa.DataType) -> pa.Array:
        function, column = aggregate.function, aggregate.column
        if function == "count" or column is None:
            return partials.column(Count(column).name)
        if function in ("min", "max", "first", "last"):
            return partials.column(f"{function}({column})")
        if function == "sum":
            return total_of(column, self.schema.field(column).type).sums(partials, type_)
        if function == "avg":
            return total_of(column, self.schema.field(column).type).averages(partials, type_)
        return Moments(column).spread(
            partials, sample=function in ("stddev", "variance"), root=function.startswith("stddev")
        )
