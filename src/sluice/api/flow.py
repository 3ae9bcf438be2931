"""Flow: the streams and continuous queries a user registers together."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from enum import Enum
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from sluice.api.joining import Duration, Keys, Within, build_join, read_kind
from sluice.api.query import Query
from sluice.api.relation import NamedRelation, Registry, result_of
from sluice.api.starting import start_query
from sluice.api.stream import DataStream
from sluice.api.table import Table, table_of
from sluice.api.table_source import build_table, read_rows, read_table_files
from sluice.api.texts import column_name
from sluice.api.whole_query import StartChoices
from sluice.api.writer import DataStreamWriter
from sluice.engine.split import FileFormat
from sluice.model.durations import in_words, microseconds
from sluice.model.errors import FlowError
from sluice.model.plan.join_kind import JoinKind
from sluice.model.plan.relation import Relation
from sluice.model.plan.stream import Stream, is_hidden
from sluice.policies import Policy
from sluice.sources.files import FORMATS, FileOptions, infer_schema, is_there
from sluice.sources.listing_options import SPARK_FILE_OPTIONS, ListingOptions
from sluice.spark.sources import Source, can_be_rows
from sluice.spark.tables import TableRows
from sluice.spark.types import arrow_schema, given_schema
from sluice.spark.watermarks import delay_by_column, united_delays, watermarked_columns
from sluice.sql import translate
from sluice.sql.ddl import read_ddl

NO_DELAY = "0 seconds"


class Unsaid(Enum):
    """What stands for an argument that is not given, where None means something."""

    DELAY = "no delay is given"


class Flow:
    """Streams to join and the queries over them.

    Args:
        spark: a classic session. Without one a flow cannot be started, but described and tested: see `sluice.testing`.
        name: of the flow, in messages and on Spark's pages.

    >>> flow = Flow(spark, name="desk")
    >>> trades = flow.readFiles("trades", "in/trades", eventTime="ts", delay="5 seconds")
    >>> quotes = flow.readFiles("quotes", "in/quotes", eventTime="ts", delay="5 seconds")
    >>> pairs = trades.join(quotes, on="symbol", within="30 seconds")
    """

    def __init__(self, spark: SparkSession | None = None, name: str = "flow") -> None:
        if spark is not None and (not isinstance(spark, SparkSession) or not hasattr(spark, "_jsparkSession")):
            raise FlowError("Flow needs a classic SparkSession (Spark Connect sessions are not supported)")
        self.spark, self.name = spark, name
        self._registry = Registry(spark, name)

    def readStream(
        self,
        name: str,
        df: DataFrame | StructType | pa.Schema | str,
        eventTime: str,
        delay: Duration | Unsaid | None = Unsaid.DELAY,
    ) -> DataStream:
        """Register a streaming DataFrame.

        A row is late when its event time lies below the greatest event time that earlier epochs saw in the stream,
        minus `delay`; late rows are dropped and counted.

        Args:
            name: of the stream, a plain word.
            df: a streaming DataFrame; in a flow without a session its schema: Spark DDL, a StructType or an Arrow
                schema.
            eventTime: the column with the time of each row.
            delay: how late rows may be. Unless given it is what `df.withWatermark` says of the event time, or else no
                time at all. None drops nothing and keeps state for good.

        >>> rates = spark.readStream.format("rate").load()
        >>> flow.readStream("ticks", rates, eventTime="timestamp", delay="5 seconds")
        DataStream(ticks: timestamp, value)
        """
        self._check_name(name)
        eventTime = _read_event_time(name, eventTime)
        if self.spark is None and not isinstance(df, DataFrame):
            no_delay = NO_DELAY if isinstance(delay, Unsaid) else delay
            return self._register(
                Source(_describe_stream(name, self._given_schema(f"stream {name!r}", df), eventTime, no_delay))
            )
        if not isinstance(df, DataFrame):
            raise FlowError(f"stream {name!r} must be given a streaming DataFrame, not {type(df).__name__}")
        if not df.isStreaming:
            raise FlowError(
                f"stream {name!r} was given a batch DataFrame; use spark.readStream, or flow.readFiles for files"
            )
        stream = _describe_stream(
            name, arrow_schema(f"stream {name!r}", df.schema), eventTime, _delay_of(name, df, eventTime, delay)
        )
        return self._register(Source(stream, frame=df))

    def readFiles(
        self,
        name: str,
        path: str | os.PathLike[str],
        format: str = "parquet",
        eventTime: str = "",
        delay: Duration | None = NO_DELAY,
        schema: Any = None,
        **options: Any,
    ) -> DataStream:
        """Register files that arrive in a directory; they are read as Arrow and never become rows of Spark.

        Args:
            name: of the stream, a plain word.
            path: the directory, local or on an object store.
            format: `parquet`, `csv`, `json` or `arrow`.
            eventTime: the column with the time of each row.
            delay: how late rows may be; None drops nothing and keeps state for good.
            schema: Spark DDL, a StructType or an Arrow schema; else the columns are those of a file already there. In a
                flow without a session nothing need be there if it is given.
            options: those of Spark's file source (maxFilesPerTrigger, pathGlobFilter, …) and of the format (`header`
                for CSV, …), which mean what they mean in Spark. What only Spark can read in their way, it reads as
                rows.

        >>> flow.readFiles("fills", "in/trades", eventTime="ts", delay="5 seconds", maxFilesPerTrigger=100)
        DataStream(fills: id, symbol, ts, price, size)
        """
        self._check_name(name)
        eventTime, path = _read_event_time(name, eventTime), os.fspath(path)
        if "://" not in path and not path.startswith("file:"):
            path = os.path.abspath(path)  # Spark would look from where its JVM was started
        if format not in FORMATS:
            raise FlowError(f"stream {name!r}: there is no file format {format!r}; known: {', '.join(FORMATS)}")
        if not eventTime:
            raise FlowError(f"stream {name!r} needs eventTime=, the column with the time of each row")
        tracking = {k: v for k, v in options.items() if k in SPARK_FILE_OPTIONS}
        reading = self._reading_options(format, {k: v for k, v in options.items() if k not in SPARK_FILE_OPTIONS})
        try:
            how = FileOptions.of(format, reading)
        except FlowError as problem:
            option_names = ", ".join(SPARK_FILE_OPTIONS)
            raise FlowError(f"stream {name!r}: {problem} (and for any format: {option_names})") from problem
        try:
            ListingOptions.of(tracking)
        except FlowError as problem:
            raise FlowError(f"stream {name!r}: {problem}") from problem
        if not is_there(path) and (self.spark is not None or schema is None):
            raise FlowError(f"stream {name!r}: there is no directory {path!r}; make it before the flow starts")
        if schema is None and how.why_spark:
            raise FlowError(f"stream {name!r} needs schema=: Spark reads it, because of {', '.join(how.why_spark)}")
        if schema is None:
            columns = infer_schema(name, path, format, reading, str(options.get("pathGlobFilter", "*")))
        else:
            columns = self._given_schema(f"stream {name!r}", schema)
        stream, how = _describe_stream(name, columns, eventTime, delay), how.for_columns(format, columns)
        source = Source(stream, None, path, FileFormat(format, reading), tracking, how)
        if how.why_spark and not can_be_rows(source):
            raise FlowError(
                f"stream {name!r}: Spark has to read its files, because of {', '.join(how.why_spark)}; timestampFormat "
                "must then be one of Spark's patterns"
            )
        return self._register(source)

    def table(
        self,
        name: str,
        rows: str | TableRows | Callable[[], TableRows],
        format: str = "parquet",
        schema: Any = None,
        refresh: Duration | None = None,
        maxSize: str | int | None = None,
        divided: bool = False,
        **options: Any,
    ) -> Table:
        """Register a table to join streams with.

        It is read when a query starts. An epoch has one content of it from beginning to end. The driver and every
        Python worker keep it in memory, unless it is divided.

        Args:
            name: of the table, a plain word.
            rows: an Arrow table, a batch DataFrame, the path of files, or a function that returns one of the first two.
            format: of files.
            schema: of files; else it is that of a file already there.
            refresh: how often it is read again while a query runs, such as "10 minutes"; "onChange" looks before every
                epoch whether files have changed.
            maxSize: how large it may be in memory; 256m unless given.
            divided: whether its rows are divided among the sites by the key of the join, and are state: then it may
                have any size. The tasks of the first epoch read it, and those of later ones as `refresh` says.
            options: of files, as `readFiles` has them.

        >>> listed = flow.table("listed", "ref/symbols", refresh="10 minutes")
        >>> trades.join(listed, on="symbol", how="left").columns[-1]
        'listed_sector'
        >>> accounts = flow.table("accounts", "ref/symbols", divided=True)
        """
        self._check_name(name, "table")
        if isinstance(rows, str):
            name_filter = str(options.pop("pathGlobFilter", "*"))
            reading = self._reading_options(format, options)
            given = None if schema is None else self._given_schema(f"table {name!r}", schema)
            content, columns = read_table_files(name, rows, format, given, reading, name_filter)
        else:
            if schema is not None or options:
                given_name = next(iter(options), "schema")
                raise FlowError(f"table {name!r}: {given_name}= is for files; rows have their columns and types")
            content, columns = read_rows(name, rows)
        source = self._registry.tables[name] = build_table(name, content, columns, refresh, maxSize, divided)
        return table_of(self._registry, source.table)

    def join(
        self,
        streams: Sequence[DataStream],
        on: Keys | None = None,
        within: Within | None = None,
        where: str | None = None,
        how: str = "inner",
    ) -> DataStream:
        """Join several streams: combinations of one row each with equal keys, all within `within` of the newest.

        Args:
            streams: two or more streams of this flow.
            on: the key: a column of all, a list of columns, or a column for each stream by its name.
            within: how far apart the event times are at most.
            where: a further condition in Spark SQL.
            how: `inner`. Outer, semi and anti joins are of two streams, one after the other.

        >>> flow.join([trades, quotes, news], on="symbol", within="1 minute").columns[-1]
        'news_text'
        """
        if not isinstance(streams, list | tuple):
            raise FlowError(
                "flow.join takes its streams in a list, flow.join([trades, quotes], on='symbol', within='1 minute'), "
                f"not {streams!r}"
            )
        sides: Sequence[NamedRelation] = streams
        table = next((side for side in sides if isinstance(side, Table)), None)
        if table is not None:
            raise FlowError(
                f"flow.join takes streams, and {table.name!r} is a table; join it with the result, under a name: "
                f"result.alias('pairs').join({table.name}, on=…)"
            )
        _refuse_other_kinds(read_kind(how), streams)
        return DataStream(self._registry, "", result_of(*build_join(list(streams), on, within, where)))

    def sql(self, text: str, within: str | None = None) -> DataStream:
        """What a SQL query over the flow's streams describes: joins, group-bys, unions and more, see the page on SQL.

        Args:
            text: the query. A join needs conditions that bound how far apart its event times are.
            within: "unbounded" says that those which the text does not bound may be any: state is kept for good.

        >>> flow.sql("SELECT symbol, price FROM trades WHERE size > 10").columns
        ['symbol', 'price']
        >>> joined = "SELECT t.price, q.ask FROM trades t JOIN quotes q ON t.symbol = q.symbol"
        >>> flow.sql(joined, within="unbounded").columns
        ['price', 'ask']
        """
        registered = {name: self._stream_of(source) for name, source in self._registry.sources.items()}
        late = (stream.late() for stream in registered.values() if stream.stream.delay is not None)
        streams = {**{stream.name: stream for stream in late}, **registered}
        tables = {name: table_of(self._registry, source.table) for name, source in self._registry.tables.items()}
        return translate(text, streams, self.join, within, tables)

    def start(
        self,
        *writers: DataStreamWriter,
        policy: str | Policy | None = None,
        processingTime: str | None = None,
        availableNow: bool | None = None,
        **options: Any,
    ) -> Query:
        """Start several writers as one query: every source is read once, what they share is computed once.

        What concerns the whole query is said here, or by any of the writers.

        Args:
            writers: not started yet.
            policy: by name or as an object.
            processingTime: how often there is an epoch, such as "1 second".
            availableNow: whether to take in what is there now and end.
            options: such as checkpointLocation, sites and siteMemory.

        >>> sinks = [stream.writeStream.format("noop").queryName(stream.name) for stream in (trades, quotes)]
        >>> query = flow.start(*sinks, policy="placement", availableNow=True)
        >>> query.awaitTermination()
        >>> [one.name for one in query.queries()]
        ['trades', 'quotes']
        """
        if not writers or not all(isinstance(w, DataStreamWriter) for w in writers):
            raise FlowError("flow.start takes writers that are not started: flow.start(pairs.writeStream.format(…), …)")
        start = StartChoices.read(policy, processingTime, availableNow, options)
        return start_query([w.choices() for w in writers], start)

    def _check_name(self, name: str, what: str = "stream") -> None:
        if not isinstance(name, str) or not name.isidentifier():
            raise FlowError(f"a {what}'s name must be a plain word such as 'trades', not {name!r}")
        for other, names in (("stream", self._registry.sources), ("table", self._registry.tables)):
            if name in names:
                raise FlowError(f"there is a {other} {name!r} in this flow already; give each its own name")

    def _given_schema(self, whose: str, schema: Any) -> pa.Schema:
        """Columns as they are given; Spark reads DDL only where there is a session."""
        text = self.spark is None and isinstance(schema, str)
        return given_schema(whose, read_ddl(whose, schema) if text else schema)

    def _reading_options(self, format: str, options: Mapping[str, Any]) -> dict[str, str]:
        """How files are read, as texts; times without an offset were taken in the session's zone."""
        reading = {name: _option_text(value) for name, value in options.items()}
        if format in ("csv", "json") and "timezone" not in {option.lower() for option in reading}:
            reading["timeZone"] = self._registry.time_zone
        return reading

    def _register(self, source: Source) -> DataStream:
        self._registry.sources[source.stream.name] = source
        return self._stream_of(source)

    def _stream_of(self, source: Source) -> DataStream:
        return DataStream(self._registry, source.stream.name, Relation(source.stream, (), source.stream))


def _refuse_other_kinds(kind: JoinKind, streams: Sequence[DataStream]) -> None:
    """Refuse a join of several streams that is not an inner one."""
    if kind is JoinKind.INNER:
        return
    names = [stream.name if isinstance(stream, DataStream) else "" for stream in streams]
    first, second, *others = (name or f"stream{place}" for place, name in enumerate([*names, "", ""], 1))
    chain = f"{first}.join({second}, on=…, within=…, how={kind.value!r})"
    if len(names) > 2:
        chain += f".alias('pair').join({others[0]}, …)"
    raise FlowError(
        "flow.join gives combinations of rows of all its streams, an inner join; "
        f"how={kind.value!r} is of two streams: write {chain}"
    )


def _read_event_time(name: str, event_time: object) -> str:
    return column_name(event_time, f"eventTime of stream {name!r}", "make the column first, with df.withColumn")


def _describe_stream(name: str, schema: pa.Schema, event_time: str, delay: Duration | None) -> Stream:
    seen: set[str] = set()
    for column in schema.names:
        if column in seen:
            raise FlowError(f"stream {name!r} has two columns {column!r}; rename one")
        if is_hidden(column):
            raise FlowError(f"stream {name!r}: the column name {column!r} is taken by Sluice; rename it")
        seen.add(column)
    if event_time not in seen:
        raise FlowError(f"stream {name!r} has no column {event_time!r} for its event time; it has {_list(schema)}")
    kind = schema.field(event_time).type
    if not pa.types.is_timestamp(kind):
        raise FlowError(
            f"event time {event_time!r} of stream {name!r} must be a timestamp, it is {kind}; cast it first, "
            "or for files of text say what it is: schema= or timestampFormat="
        )
    late = None if delay is None else microseconds(delay, f"delay of stream {name!r}")
    return Stream(name, schema, event_time, late)


def _delay_of(name: str, df: DataFrame, event_time: str, delay: Duration | Unsaid | None) -> Duration | None:
    """The delay of a streaming DataFrame's rows: as given, or as its own watermark has it, and never two of them."""
    by_column, united = delay_by_column(df), united_delays(df)
    own = None if united else by_column.get(event_time)
    if not isinstance(delay, Unsaid):
        delay_micros = None if delay is None else microseconds(delay, f"delay of stream {name!r}")
        if own is not None and delay_micros != own:
            raise FlowError(
                f"stream {name!r}: delay={delay!r} contradicts its DataFrame, which has "
                f"withWatermark({event_time!r}, {in_words(own)!r}); leave one of them out"
            )
        return delay
    if own is not None:
        return timedelta(microseconds=own)
    if united:
        parts = " and ".join(repr(in_words(part)) if part is not None else "none" for part in united)
        raise FlowError(
            f"stream {name!r}: its DataFrame unites rows with different watermarks, {parts}; register each part as a "
            "stream, and unite those, or say how late all rows may be: delay='1 minute'"
        )
    others = list(by_column) or watermarked_columns(df)
    if others:
        raise FlowError(
            f"stream {name!r}: its DataFrame has withWatermark on {others[0]!r}, which says nothing of its event time "
            f"{event_time!r}; say how late rows may be: delay='1 minute', or delay='0 seconds' for none"
        )
    return NO_DELAY


def _list(schema: pa.Schema) -> str:
    return ", ".join(schema.names)


def _option_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
