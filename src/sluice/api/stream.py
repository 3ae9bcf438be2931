"""Streams as users hold them: sources and results alike can be filtered, joined, grouped and written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn, overload

import pyarrow as pa
from pyspark.sql import Column, DataFrame, GroupedData
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from sluice.api.deduplicating import drop_duplicates
from sluice.api.grouping import (
    Windows,
    aggregate,
    group_keys,
    groups_alone,
    last_rows,
    session_windows,
    time_windows,
    top_rows,
)
from sluice.api.joining import Duration, On, Within, build_join, read_kind
from sluice.api.relation import NamedRelation, add_step, late_rows, result_of
from sluice.api.spark_grouping import check_window, read_aggregates, split_windows
from sluice.api.spark_names import INSTEAD, refuse_name
from sluice.api.steps import condition, expression, project, selection
from sluice.api.table import Table, join_table
from sluice.api.texts import listed
from sluice.api.union import unite, unite_by_name
from sluice.api.writer import DataStreamWriter
from sluice.model.errors import FlowError
from sluice.model.plan.planning import plan_of
from sluice.model.plan.relation import Relation
from sluice.model.plan.stream import Filter
from sluice.spark.sources import quote_column
from sluice.spark.types import spark_schema

_BEFORE_OR_AFTER = (
    "do it to the DataFrame before flow.readStream, or to the results: in writeStream.foreachBatch, or where they are "
    "written to"
)
_AGGREGATE = "say it by agg, such as agg(n=('*', 'count'), mean=('price', 'avg'))"


class DataStream(NamedRelation):
    """A stream: registered in the flow, or the result of operators; under its own name or an alias.

    Every method gives a new stream and leaves this one as it is; nothing runs before a writer is started. A column is
    `trades["price"]` or `trades.price`, as in PySpark.

    >>> trades
    DataStream(trades: id, symbol, ts, price, size)
    >>> trades.filter(trades.price > 3).select("symbol", "price * size AS value")
    DataStream(trades: symbol, value)
    """

    def alias(self, name: str) -> DataStream:
        """The same stream under another name: to join it with itself, or to name a result. It is read once.

        Args:
            name: a plain word; columns of joins begin with it.

        >>> trades.join(trades.alias("later"), on="symbol", within=("0 seconds", "10 seconds")).columns[-1]
        'later_size'
        """
        if not isinstance(name, str) or not name.isidentifier():
            raise FlowError(f"an alias must be a plain word such as 'later', not {name!r}")
        return DataStream(self.registry, name, self.relation)

    @property
    def schema(self) -> StructType:
        """The columns, with Spark's types.

        >>> trades.schema["price"].dataType
        DoubleType()
        """
        return spark_schema(pa.schema(self.stream.shown))

    @property
    def dtypes(self) -> list[tuple[str, str]]:
        """The columns, each with the name of its type.

        >>> quotes.dtypes
        [('symbol', 'string'), ('ts', 'timestamp'), ('ask', 'double')]
        """
        return [(field.name, field.dataType.simpleString()) for field in self.schema]

    def printSchema(self) -> None:
        """Print the columns, as Spark does.

        >>> quotes.printSchema()
        root
         |-- symbol: string (nullable = true)
         |-- ts: timestamp (nullable = true)
         |-- ask: double (nullable = true)
        """
        print(self.schema.treeString())

    @property
    def isStreaming(self) -> bool:
        """True: rows come as they arrive.

        >>> trades.isStreaming
        True
        """
        return True

    def __getitem__(self, column: str) -> Column:
        """A column, for PySpark's expressions: `trades.filter(trades["price"] > 3)`."""
        name = self.find_column(column)
        if name is None:
            raise FlowError(f"{self.title} has no column {column!r}; it has {', '.join(self.columns)}")
        if self.registry.spark is None:
            raise FlowError(
                f"flow {self.registry.flow!r} has no Spark session, and PySpark makes no columns without one: write "
                f"Spark SQL text, such as filter('{name} IS NOT NULL')"
            )
        return F.col(".".join(quote_column(part) for part in (self.name, name) if part))

    def __getattr__(self, name: str) -> Any:
        """A column by its name, as in PySpark, where nothing else is called so."""
        if not name.startswith("_") and name in self.columns and not hasattr(DataFrame, name):
            try:
                return self[name]
            except FlowError as problem:
                raise AttributeError(str(problem)) from problem
        refuse_name(self, name, DataFrame, INSTEAD.get(name, _BEFORE_OR_AFTER))

    def withWatermark(self, eventTime: str, delayThreshold: str) -> NoReturn:
        """Refused: the delay is said once, when the stream is registered.

        Args:
            eventTime: as in Spark.
            delayThreshold: as in Spark.

        >>> trades.withWatermark("ts", "5 seconds")
        Traceback (most recent call last):
        sluice.model.errors.FlowError: stream 'trades' got its event time and its delay when it was registered: ...
        """
        raise FlowError(
            f"{self.title} got its event time and its delay when it was registered: say there eventTime={eventTime!r} "
            f"and delay={delayThreshold!r}, or call withWatermark on the DataFrame before"
        )

    def filter(self, condition_: str | Column) -> DataStream:
        """The rows for which a condition is true. `where` is the same.

        Args:
            condition_: Spark SQL, or a column of PySpark.

        >>> trades.filter("price > 3 AND size IS NOT NULL").columns
        ['id', 'symbol', 'ts', 'price', 'size']
        """
        return self._with(add_step(self, Filter(condition(self, condition_)), self.stream.schema))

    where = filter

    def select(self, *columns: str | Column | Sequence[str | Column]) -> DataStream:
        """Columns and expressions; the event time goes along.

        Args:
            columns: names, Spark SQL such as `price * size AS value`, or columns of PySpark.

        >>> trades.select("symbol", "price * size AS value").columns
        ['symbol', 'value']
        """
        chosen = tuple(pair for one in listed(columns) for pair in selection(self, one))
        if not chosen:
            raise FlowError("select needs columns, such as select('symbol', 'price'), or select('*') for all")
        return self._with(project(self, chosen))

    def withColumn(self, name: str, expression_: str | Column) -> DataStream:
        """All columns and one more, or one replaced.

        Args:
            name: of the column.
            expression_: its value: Spark SQL, or a column of PySpark.

        >>> trades.withColumn("value", "price * size").columns[-1]
        'value'
        """
        if not isinstance(name, str) or not name or name.startswith("__"):
            raise FlowError(f"{name!r} cannot be the name of a column")
        value = expression(self, expression_)
        columns = [(n, expression(self, quote_column(n))) for n in self.columns]
        same = self.find_column(name)
        if same is None:
            return self._with(project(self, (*columns, (name, value))))
        return self._with(project(self, tuple((name, value) if n == same else (n, e) for n, e in columns)))

    def join(
        self,
        other: DataStream | Table,
        on: On | None = None,
        within: Within | None = None,
        where: str | Column | None = None,
        how: str = "inner",
    ) -> DataStream:
        """Rows of both streams with equal keys whose event times differ by at most `within`.

        Args:
            other: a stream of the same flow, or a table of it. A table has no event time: `within` is left out, and
                `how` is `inner`, `left`, `semi` or `anti`.
            on: the key: a column of both sides, a list of columns, or a column for each side by its name. Without it
                `where` is the only condition.
            within: how far apart the event times are at most. A pair bounds each direction: with `("10 seconds", "30
                seconds")` the other stream's row is at most 10 s earlier and at most 30 s later. `"unbounded"` keeps
                state for good.
            where: a further condition: Spark SQL with columns such as `trades.price`, or a column of PySpark.
            how: what becomes of rows without a partner, as in Spark: `inner`, `left`, `right`, `full`, `semi`, `anti`.

        >>> trades.join(quotes, on="symbol", within="30 seconds", where="trades.price > quotes.ask").columns[-1]
        'quotes_ask'
        >>> trades.join(quotes, where="trades.price > quotes.ask", within="5 seconds", how="left").columns[0]
        'trades_id'
        >>> trades.join(symbols, on="symbol", how="left").columns[-1]
        'symbols_sector'
        """
        if isinstance(other, Table):
            return DataStream(self.registry, "", join_table(self, other, on, within, where, read_kind(how)))
        return DataStream(self.registry, "", result_of(*build_join([self, other], on, within, where, read_kind(how))))

    def union(self, other: DataStream) -> DataStream:
        """The rows of both streams, duplicates too; columns go by their places, types as in Spark. `unionAll` is the
        same.

        Each stream keeps its own event times and its own delay. The watermark is that of the slowest.

        Args:
            other: a stream of the same flow with as many columns.

        >>> trades.union(corrections).columns
        ['id', 'symbol', 'ts', 'price', 'size']
        """
        return DataStream(self.registry, "", unite(self, other))

    unionAll = union

    def unionByName(self, other: DataStream, allowMissingColumns: bool = False) -> DataStream:
        """The rows of both streams, duplicates too; columns go by their names, in the order of this one.

        Args:
            other: a stream of the same flow.
            allowMissingColumns: whether what a stream does not have is null; else it is refused.

        >>> trades.unionByName(quotes, allowMissingColumns=True).columns
        ['id', 'symbol', 'ts', 'price', 'size', 'ask']
        """
        return DataStream(self.registry, "", unite_by_name(self, other, allowMissingColumns))

    def late(self) -> DataStream:
        """The rows of this stream that come too late, which operators do not see: to be written.

        >>> writer = trades.late().writeStream.format("parquet").option("path", "late/trades")
        """
        return DataStream(self.registry, f"late_{self.name}", late_rows(self))

    @overload
    def groupBy(self, *columns: str) -> GroupedStream: ...

    @overload
    def groupBy(self, *columns: str | Column | Sequence[str | Column]) -> Any: ...

    def groupBy(self, *columns: str | Column | Sequence[str | Column]) -> Any:
        """Groups of rows with equal values in these columns; without any, one group of all rows. `groupby` is the same.

        Args:
            columns: names. One of them may be PySpark's `F.window` or `F.session_window` of the event time.

        >>> trades.groupBy("symbol").last(100).agg(mean=("price", "avg")).columns[-1]
        'mean'
        >>> from pyspark.sql import functions as F
        >>> trades.groupBy("symbol", F.window("ts", "1 minute")).agg(F.avg("price").alias("mean")).columns
        ['symbol', 'window_start', 'window_end', 'mean']
        """
        keys, window = split_windows(self, listed(columns))
        grouped = GroupedStream(self, group_keys(self, keys))
        if window is None:
            return grouped
        check_window(self, window)
        return getattr(grouped, window.function)(*window.durations)

    groupby = groupBy

    def dropDuplicates(self, subset: list[str] | None = None, within: Duration | None = None) -> DataStream:
        """The first row by event time of those that are equal in these columns. `drop_duplicates` is the same.

        A row appears when the watermark has passed it.

        Args:
            subset: names of columns; all unless given.
            within: a row is dropped if it is at most this much later than a row of its key that stays. Without it each
                key appears once, and is kept for good.

        >>> trades.dropDuplicates(["id"], within="10 minutes").columns
        ['id', 'symbol', 'ts', 'price', 'size']
        """
        return self._without_duplicates(subset, within, "dropDuplicates")

    drop_duplicates = dropDuplicates

    def dropDuplicatesWithinWatermark(self, subset: list[str] | None = None) -> DataStream:
        """`dropDuplicates` within the delay of the stream, as Spark calls it.

        Args:
            subset: names of columns; all unless given.

        >>> trades.dropDuplicatesWithinWatermark(["id"]).columns
        ['id', 'symbol', 'ts', 'price', 'size']
        """
        delay = self.stream.delay
        within = None if delay is None else f"{delay} microseconds"
        return self._without_duplicates(subset, within, "dropDuplicatesWithinWatermark")

    def distinct(self) -> DataStream:
        """Each row once, of those that are equal in all columns.

        >>> trades.select("symbol").distinct().columns
        ['symbol']
        """
        return self._without_duplicates(None, None, "distinct")

    def _without_duplicates(self, subset: object, within: object, method: str) -> DataStream:
        return self._with(result_of(drop_duplicates(self, subset, within, method), (self.relation,)))

    @property
    def writeStream(self) -> DataStreamWriter:
        """Where the results go, how often, and how the query runs.

        >>> writer = trades.writeStream.format("noop").trigger(availableNow=True)
        """
        return DataStreamWriter(self)

    def explain(self) -> None:
        """Print what has to run for this stream.

        >>> pairs.explain()  # doctest: +ELLIPSIS
        Window join...
        """
        plan = plan_of([self.relation])
        print(plan.describe())
        for number, source in enumerate(plan.sources):
            why_spark = self.registry.sources[source.name].file_options.why_spark
            if why_spark:
                print(f"Source {source.name!r} is read as rows of Spark, because of {', '.join(why_spark)}")
            for each in plan.by_spark(number):
                print(f"Source {source.name!r} is read as rows of Spark, which computes {each.text}")

    def __repr__(self) -> str:
        return f"DataStream({self.name + ': ' if self.name else ''}{', '.join(self.columns)})"

    def _with(self, relation: Relation) -> DataStream:
        return DataStream(self.registry, self.name, relation)


class GroupedStream:
    """A stream's rows by group; `last`, `window` or `session_window` says over which of them to aggregate; without any
    of these `agg` is over all.

    >>> trades.groupBy("symbol").window("1 minute").agg(n=("*", "count")).columns
    ['symbol', 'window_start', 'window_end', 'n']
    """

    def __init__(self, rows: DataStream, keys: tuple[str, ...]) -> None:
        self._rows, self._keys = rows, keys

    def __getattr__(self, name: str) -> NoReturn:
        refuse_name(self, name, GroupedData, _AGGREGATE)

    def last(self, count: int) -> WindowedStream:
        """Aggregate, for every row, over its group's newest rows up to and including it.

        Args:
            count: of how many rows.

        >>> trades.groupBy("symbol").last(100).agg(mean=("price", "avg")).columns[-1]
        'mean'
        """
        return WindowedStream(self._rows, last_rows(self._rows, self._keys, count))

    def window(self, length: Duration, slide: Duration | None = None, by: str | None = None) -> WindowedStream:
        """Aggregate over windows of event time.

        Args:
            length: of a window, such as "1 minute".
            slide: after how long the next one starts; after `length` unless given.
            by: over the results of windows, whose event time is the window's end, which of the window's times counts:
                `window_time`, its last microsecond, `window_start`, or `window_end`.

        >>> trades.groupBy("symbol").window("1 minute", "10 seconds").agg(high=("price", "max")).columns[-1]
        'high'
        >>> bars.groupBy("symbol").window("1 hour", by="window_time").agg(high=("high", "max")).columns[-1]
        'high'
        """
        return WindowedStream(self._rows, time_windows(self._rows, self._keys, length, slide, by))

    def session_window(self, gap: Duration) -> WindowedStream:
        """Aggregate over sessions: rows of a group of which none is more than a gap later than the one before it.

        Args:
            gap: such as "5 minutes".

        >>> clicks.groupBy("user").session_window("5 minutes").agg(n=("*", "count")).columns
        ['user', 'window_start', 'window_end', 'n']
        """
        return WindowedStream(self._rows, session_windows(self._rows, self._keys, gap))

    def top(self, count: int, *order: str, number: str = "row_number") -> DataStream:
        """The first rows of each group in an order, with their places.

        Groups that have the event time as one of their columns, as the end of windows is of their results, come once.
        Others never end: results change, so they are not appended.

        Args:
            count: how many rows of each group.
            order: columns, as in ORDER BY: `price DESC`, `price ASC NULLS LAST`.
            number: the name of the column with a row's place, from 1.

        >>> bars.groupBy("window_end").top(3, "volume DESC", "symbol").columns[-1]
        'row_number'
        >>> writer = trades.groupBy("symbol").top(10, "price DESC").writeStream.outputMode("update")
        """
        spec = top_rows(self._rows, self._keys, count, order, number)
        return DataStream(self._rows.registry, "", result_of(spec, (self._rows.relation,)))

    def agg(self, *unnamed: Any, **aggregates: tuple[str, str]) -> DataStream:
        """Aggregate over all rows of a group so far, kept for good: results change, so they are not appended.

        Groups that have the event time as one of their columns, as the end of windows is of their results, come once.

        Args:
            unnamed: aggregates as PySpark has them: `F.avg("price")`, `{"price": "avg"}`.
            aggregates: by the name of the result's column, each a column and a function.

        >>> writer = trades.groupBy("symbol").agg(n=("*", "count")).writeStream.outputMode("update")
        >>> bars.groupBy("window_start", "window_end").agg(most=("volume", "max")).columns
        ['window_start', 'window_end', 'most']
        """
        return WindowedStream(self._rows, groups_alone(self._rows, self._keys)).agg(*unnamed, **aggregates)


class WindowedStream:
    """Groups over a window; `agg` says what to compute.

    >>> trades.groupBy().window("1 minute").agg(n=("*", "count")).columns
    ['window_start', 'window_end', 'n']
    """

    def __init__(self, rows: DataStream, windows: Windows) -> None:
        self._rows, self._windows = rows, windows

    def __getattr__(self, name: str) -> NoReturn:
        refuse_name(self, name, GroupedData, _AGGREGATE)

    def agg(self, *unnamed: Column | Mapping[str, str], **aggregates: tuple[str, str]) -> DataStream:
        """What to compute over each window.

        Args:
            unnamed: aggregates as PySpark has them: `F.avg("price").alias("mean")`, `{"price": "avg"}`.
            aggregates: by the name of the result's column, each a column and a function: `mean=("price", "avg")`; `*`
                for `count`.

        >>> trades.groupBy("symbol").last(10).agg(mean=("price", "avg"), n=("*", "count")).columns[-2:]
        ['mean', 'n']
        """
        spec = aggregate(self._rows, self._windows, {**read_aggregates(self._rows, unnamed), **aggregates})
        return DataStream(self._rows.registry, "", result_of(spec, (self._rows.relation,)))
