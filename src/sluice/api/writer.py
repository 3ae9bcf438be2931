"""DataStreamWriter: where the results go, how often, and how the query runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql.streaming.readwriter import DataStreamWriter as SparkWriter

from sluice.api.checking import check_request
from sluice.api.options import OPTIONS
from sluice.api.output_mode import OutputMode, read_mode
from sluice.api.query import Query
from sluice.api.relation import NamedRelation
from sluice.api.request import WriterChoices, read_request
from sluice.api.spark_names import refuse_name
from sluice.api.starting import start_query
from sluice.api.texts import column_name
from sluice.api.whole_query import PolicyChoice, choose_policy, choose_trigger
from sluice.model.errors import FlowError
from sluice.model.option import find_option
from sluice.policies import Policy
from sluice.spark.catalog_tables import locate_table
from sluice.spark.checked_query import Trigger
from sluice.spark.foreach import write_each
from sluice.spark.sinks import SinkKind
from sluice.spark.types import spark_schema

_TRIGGERS_INSTEAD = {
    "once": "availableNow=True takes in all that is there, in as many epochs as the limits of the sources ask for, and "
    "ends",
    "continuous": "leave the trigger out, and one epoch follows the other",
    "realTime": "leave the trigger out, and one epoch follows the other",
}
"""What takes the place of those of Spark's triggers that there are not."""


class DataStreamWriter:
    """Describes a continuous query; nothing runs before `start`. Every method gives the writer back.

    >>> query = pairs.writeStream.format("noop").trigger(availableNow=True).start()
    >>> query.awaitTermination()
    """

    def __init__(self, rows: NamedRelation) -> None:
        self._rows = rows
        self._format: SinkKind | None = None
        self._options: dict[str, Any] = {}
        self._name: str | None = None
        self._trigger: Trigger = {}
        self._function: Callable[..., Any] | None = None
        self._policy: PolicyChoice | None = None
        self._mode = OutputMode.APPEND
        self._partition_by: tuple[str, ...] = ()
        self._table: str | None = None

    def __getattr__(self, name: str) -> NoReturn:
        advice = "foreachBatch(f) hands each epoch's results to a function of yours, as a DataFrame"
        refuse_name(self, name, SparkWriter, advice)

    def format(self, source: str) -> DataStreamWriter:
        """The sink.

        Args:
            source: "parquet", "delta", "memory" (with `queryName`), "console" or "noop".

        >>> writer = bars.writeStream.format("console")
        """
        methods = (SinkKind.FOREACH, SinkKind.FOREACH_BATCH)
        names = [kind.value for kind in SinkKind if kind not in methods]
        if source not in names:
            sinks = f"{', '.join(names)}, and as methods {' and '.join(kind.value for kind in methods)}"
            raise FlowError(f"there is no sink {source!r}; known: {sinks}")
        self._format = SinkKind(source)
        return self

    def foreachBatch(self, func: Callable[..., Any]) -> DataStreamWriter:
        """Call a function with every epoch's results; after a crash the last epoch may be handed over again.

        Args:
            func: takes a DataFrame and the epoch's number.

        >>> writer = bars.writeStream.foreachBatch(lambda df, epoch: df.write.mode("append").saveAsTable("bars"))
        """
        if not callable(func):
            raise FlowError("foreachBatch takes a function of a DataFrame and the epoch's number")
        self._format, self._function = SinkKind.FOREACH_BATCH, func
        return self

    def foreach(self, f: Any) -> DataStreamWriter:
        """Hand every row to a function or an object, on the executors.

        After a crash the last epoch may be handed over again. `foreachBatch` takes all rows of an epoch at once, and is
        many times as fast.

        Args:
            f: a function of a row, or an object with `process(row)`. It may have `open(partition, epoch)`, which says
                whether it wants the rows, and `close(error)`.

        >>> writer = bars.writeStream.foreach(print)
        """
        write_each(f)
        self._format, self._function = SinkKind.FOREACH, f
        return self

    def partitionBy(self, *columns: str | Column | Sequence[str]) -> DataStreamWriter:
        """Columns by whose values files lie in directories, such as `day=2026-01-01`, for "parquet" and "delta".

        Args:
            columns: names.

        >>> writer = bars.writeStream.format("parquet").partitionBy("symbol")
        """
        names = [name for one in columns for name in (one if isinstance(one, list | tuple) else [one])]
        self._partition_by = tuple(self._partition_column(name) for name in names)
        return self

    def option(self, key: str, value: Any) -> DataStreamWriter:
        """One option.

        Args:
            key: its name; the page on options lists them all.
            value: text, or a number.

        >>> writer = bars.writeStream.option("siteMemory", "2g")
        """
        self._options[find_option(OPTIONS, key).name] = value
        return self

    def options(self, **options: Any) -> DataStreamWriter:
        """Several options at once.

        Args:
            options: by name.

        >>> writer = bars.writeStream.format("parquet").options(path="out", checkpointLocation="ck")
        """
        for key, value in options.items():
            self.option(key, value)
        return self

    def outputMode(self, mode: str) -> DataStreamWriter:
        """What an epoch shows.

        Args:
            mode: "append", which need not be said; of a group-by without a window "update", the groups that have
                changed, or "complete", all of them.

        >>> writer = trades.groupBy("symbol").agg(n=("*", "count")).writeStream.outputMode("complete")
        """
        self._mode = read_mode(mode)
        return self

    def queryName(self, name: str) -> DataStreamWriter:
        """The query's name in its flow, and what Spark calls it if it is started by itself.

        Args:
            name: for the memory sink also the name of the view with its results. Without one it is called `query-1`,
                `query-2`, ... by its place.

        >>> writer = bars.writeStream.format("memory").queryName("bars")
        """
        if not isinstance(name, str) or not name.strip():
            raise FlowError("queryName must be a name that is not empty")
        self._name = name
        return self

    def trigger(
        self, *, processingTime: str | None = None, availableNow: bool | None = None, **others: Any
    ) -> DataStreamWriter:
        """How often there is an epoch; without a trigger one follows the other.

        Args:
            processingTime: such as "1 second".
            availableNow: take in what is there now, and end.
            others: Spark's other triggers are refused.

        >>> writer = bars.writeStream.trigger(processingTime="1 second")
        """
        for other in others:
            instead = _TRIGGERS_INSTEAD.get(other, "use processingTime='1 second' or availableNow=True")
            raise FlowError(f"there is no trigger {other!r} here; {instead}")
        self._trigger = choose_trigger(processingTime, availableNow)
        return self

    def policy(
        self, wanted: str | Policy, advise: bool = False, collect: str = "5 seconds", **settings: object
    ) -> DataStreamWriter:
        """How state is placed while the query runs.

        Args:
            wanted: a name or an object; `static`, which holds unless given, moves nothing.
            advise: report decisions, as refused, and move nothing.
            collect: for how long statistics are gathered at least before the policy is asked.
            settings: of a policy given by name.

        >>> writer = bars.writeStream.policy("hybrid", collect="10 seconds", share=False)
        """
        self._policy = choose_policy(wanted, advise, collect, **settings)
        return self

    def start(self, path: str | None = None) -> Query:
        """Check everything, claim the checkpoint, and start the query.

        Args:
            path: the option of that name.

        >>> query = bars.writeStream.format("memory").queryName("minutes").trigger(availableNow=True).start()
        >>> query.awaitTermination()
        >>> spark.table("minutes").columns
        ['symbol', 'window_start', 'window_end', 'high', 'volume']
        """
        if path is not None:
            self.option("path", path)
        return start_query([self.choices()])

    def toTable(
        self,
        tableName: str,
        format: str | None = None,
        outputMode: str | None = None,
        partitionBy: str | Sequence[str] | None = None,
        queryName: str | None = None,
        **options: Any,
    ) -> Query:
        """Start the query, with a table of Spark's catalog for its results, which is made if it is not there.

        Its files are Parquet, exactly once, as those of the parquet sink.

        Args:
            tableName: of the catalog.
            format: "parquet", which need not be said.
            outputMode: as the method.
            partitionBy: as the method.
            queryName: as the method.
            options: by name.

        >>> bars.writeStream.toTable("bars", format="console")
        Traceback (most recent call last):
        sluice.model.errors.FlowError: toTable writes tables of parquet files, not of 'console'; ...
        """
        if format is not None:
            self.format(format)
        if self._format not in (None, SinkKind.PARQUET):
            raise FlowError(
                f"toTable writes tables of parquet files, not of {self._format.value!r}; for others give start a path"
            )
        if outputMode is not None:
            self.outputMode(outputMode)
        if partitionBy is not None:
            self.partitionBy(partitionBy)
        if queryName is not None:
            self.queryName(queryName)
        self.options(**options)
        if not isinstance(tableName, str) or not tableName.strip():
            raise FlowError(f"toTable takes the name of a table of the catalog, not {tableName!r}")
        self._format, self._table = SinkKind.PARQUET, tableName
        check_request(read_request([self.choices()]))  # what is wrong with it is said before a table is made
        schema = spark_schema(pa.schema(self._rows.stream.shown))
        return self.start(locate_table(self._rows.registry.session, tableName, schema, self._partition_by))

    def choices(self) -> WriterChoices:
        """All that this writer was told so far, for `Flow.start`.

        >>> bars.writeStream.queryName("bars").choices().name
        'bars'
        """
        return WriterChoices(
            self._rows,
            self._format,
            self._function,
            self._name,
            dict(self._options),
            self._trigger,
            self._policy,
            self._mode,
            self._partition_by,
            self._table,
        )

    def _partition_column(self, column: object) -> str:
        name = column_name(column, "partitionBy", "make the column first", self._rows.name)
        return self._rows.find_column(name) or name
