"""Where results go once their epoch has committed.

A site writes its results to a part file that nobody looks at; the journal's record of the epoch names the parts that
count, with their sizes and checksums. Only then are they shown, and showing them again after a crash changes nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from enum import Enum
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from sluice.engine.delivery import SinkRaised
from sluice.engine.part_writer import Staging
from sluice.model.epoch.attempt import epoch_of
from sluice.model.epoch.results import Listing, Part, Results
from sluice.model.errors import CheckpointError, FlowError, StorageError
from sluice.model.plan.query_names import directory_of
from sluice.spark.failures import is_interruption
from sluice.spark.shown_parts import check_parts, check_unshown, refuse_later, remove_waiting
from sluice.spark.sink_log import MARK, SinkLog
from sluice.spark.sources import quote_column
from sluice.spark.types import spark_schema
from sluice.state.files.storage import Storage

_log = logging.getLogger(__name__)

RESULTS = "results"
UNTIL_THE_NEXT_EPOCH = "until-the-next-epoch"
"""The directory of what is handed to a function. Whoever keeps the DataFrame and reads it too late finds this name in
Spark's message."""
SMALL_BYTES = 1 << 20
"""Results of so few bytes, in files and as rows, cross to Spark by the driver: half of a small batch's time is Spark's
planning of a scan of files."""
_ROWS_AT_ONCE = 1 << 8


class SinkKind(str, Enum):
    """The sinks, by the names that users give."""

    PARQUET = "parquet"
    MEMORY = "memory"
    CONSOLE = "console"
    NOOP = "noop"
    DELTA = "delta"
    FOREACH = "foreach"
    FOREACH_BATCH = "foreachBatch"

    @property
    def has_path(self) -> bool:
        """Whether results go to a directory of the user's, and stay there."""
        return self in (SinkKind.PARQUET, SinkKind.DELTA)


class NoopSink:
    """Results are made, counted and dropped."""

    kind = SinkKind.NOOP.value
    staging = Staging(None)
    shown: str | None = None

    def check(self, query: str | None, newest: Results) -> None:
        pass

    def open(self, query: str, newest: Results) -> None:
        pass

    def check_new(self, query: str | None) -> None:
        pass

    def tidy(self, parts: tuple[Part, ...], is_left_over: Callable[[str], bool]) -> None:
        pass

    def leave(self) -> None:
        pass

    def listing_with(self, before: Listing, parts: tuple[Part, ...], committed_at: float) -> Listing:
        return before

    def deliver(self, results: Results) -> None:
        pass


class ParquetSink:
    """Parts wait in a hidden directory of the output and are renamed into it when their epoch has committed.

    Then they are listed for Spark's readers, which see all of an epoch's files from that moment, or none before.
    """

    kind = SinkKind.PARQUET.value

    def __init__(self, path: str, compression: str, partition_by: tuple[str, ...] = ()) -> None:
        self.path, self.compression, self.partition_by = path, compression, partition_by
        self.shown: str | None = path
        self.storage = Storage(path)
        self.log = SinkLog(self.storage)

    def check(self, query: str | None, newest: Results) -> None:
        names = self.storage.names()
        if f"{MARK}{query}" not in names and any(name.startswith(MARK) for name in names):
            raise FlowError(
                f"path {self.path!r} holds the results of another query, and those of a new checkpoint would come on "
                "top. Give a new path, or remove the old results"
            )
        if f"{MARK}{query}" not in names and newest.listing.files:
            raise CheckpointError(
                f"path {self.path!r} has none of the results that this checkpoint has shown so far: it is another path "
                "than before, or its content was removed. Give the path as it was, or start anew with a new "
                "checkpointLocation"
            )
        refuse_later(self.path, names, newest.epoch)
        if self.log.has(newest):
            check_parts(self.storage, f"{MARK}{query}", newest.parts, thoroughly=True)
        else:
            check_unshown(self.storage, f"{MARK}{query}", newest.directories, newest, thoroughly=True)
        self.log.check(newest)

    def check_new(self, query: str | None) -> None:
        """One in which parts of this very checkpoint wait, and none was ever shown, is left from an attempt."""
        names = self.storage.names()
        marks = [name for name in names if name.startswith(MARK)]
        if any(mark != f"{MARK}{query}" for mark in marks) or (marks and any(n.startswith("part-") for n in names)):
            raise FlowError(
                f"path {self.path!r} holds the results of another query, which may have had the same name, and those "
                "of this one would come on top. Give a new path, or remove the old results"
            )

    def open(self, query: str, newest: Results) -> None:
        self.staging = Staging(self.path, f"{MARK}{query}", self.compression, self.partition_by)
        self.storage.make_dir(self.staging.directory)
        self.log.tidy(newest.listing.number)
        if not self.log.has(newest):  # the driver died before, or the list was deleted: the next one would leave a gap
            self.deliver(newest)

    def tidy(self, parts: tuple[Part, ...], is_left_over: Callable[[str], bool]) -> None:
        remove_waiting(self.storage, self.staging.directory, parts, is_left_over)

    def leave(self) -> None:
        """The directory in which parts waited stays, and tells whose output it is."""
        self.storage.delete_all(self.storage.files_in(self.staging.directory))

    def listing_with(self, before: Listing, parts: tuple[Part, ...], committed_at: float) -> Listing:
        return self.log.listing_with(before, parts, committed_at) if parts else before

    def deliver(self, results: Results) -> None:
        if results.parts:
            check_parts(self.storage, self.staging.directory, results.parts)
            for directory in results.directories:
                if directory:
                    self.storage.make_dir(directory)
            try:
                self.storage.move_all([(f"{self.staging.directory}/{part.name}", part.place) for part in results.parts])
            except StorageError:
                if not self.log.has(results):  # else all were renamed before, and some have been deleted since
                    check_unshown(self.storage, self.staging.directory, results.directories, results)
                    raise
            self.log.add(results)


class BatchSink:
    """Hands every epoch's results to a function as a DataFrame, with the epoch's number. It can be read until the
    function has been called for the next epoch."""

    kind = SinkKind.FOREACH_BATCH.value

    def __init__(
        self,
        spark: SparkSession,
        checkpoint: str,
        schema: pa.Schema,
        name: str,
        function: Callable[[DataFrame, int], Any],
    ) -> None:
        self.spark, self.function, self.schema = spark, function, spark_schema(schema)
        self.storage = Storage(checkpoint)
        self.directory = f"{RESULTS}/{directory_of(name)}/{UNTIL_THE_NEXT_EPOCH}"
        self.staging = Staging(checkpoint, self.directory)
        self.handed_over: tuple[Part, ...] = ()
        self.shown: str | None = None

    def check(self, query: str | None, newest: Results) -> None:
        check_parts(self.storage, self.directory, newest.parts, thoroughly=True)

    def open(self, query: str, newest: Results) -> None:
        self.storage.make_dir(self.directory)

    def check_new(self, query: str | None) -> None:
        pass

    def tidy(self, parts: tuple[Part, ...], is_left_over: Callable[[str], bool]) -> None:
        remove_waiting(self.storage, self.directory, parts, is_left_over)

    def leave(self) -> None:
        self.storage.delete_tree(self.directory)

    def listing_with(self, before: Listing, parts: tuple[Part, ...], committed_at: float) -> Listing:
        return before

    def deliver(self, results: Results) -> None:
        check_unshown(self.storage, self.directory, (), results)
        frame = self._handed_frame(results.parts)
        try:
            self.function(frame, results.epoch)
        except Exception as problem:
            if is_interruption(problem):  # the query is being stopped
                raise
            raise SinkRaised(problem) from problem
        outdated = [p for p in self.handed_over if p not in results.parts]
        self.storage.delete_all(f"{self.directory}/{part.name}" for part in outdated)
        self.handed_over = results.parts

    def _handed_frame(self, parts: tuple[Part, ...]) -> DataFrame:
        rows = self._read_few(parts)
        if rows is None:
            return self._frame([part.name for part in parts], self.directory)
        return self.spark.createDataFrame(rows, self.schema)

    def _read_few(self, parts: tuple[Part, ...]) -> pa.Table | None:
        """The rows of parts, None if there are none or many. A small file may have many: it has equal values once."""
        if not parts or sum(part.bytes for part in parts) > SMALL_BYTES:
            return None
        batches, room = [], SMALL_BYTES
        for part in parts:
            file = pq.ParquetFile(pa.BufferReader(self.storage.read(f"{self.directory}/{part.name}")))
            for batch in file.iter_batches(_ROWS_AT_ONCE):
                batches.append(batch)
                room -= batch.nbytes
                if room < 0:
                    return None
        return pa.Table.from_batches(batches)

    def _frame(self, parts: list[str], directory: str) -> DataFrame:
        if not parts:
            return self.spark.createDataFrame([], self.schema)
        return self.spark.read.schema(self.schema).parquet(*(f"{self._uri(directory)}/{name}" for name in parts))

    def _uri(self, directory: str) -> str:
        base = self.staging.uri if "://" in str(self.staging.uri) else "file://" + self.storage.root
        return f"{base}/{directory}"


class MemorySink(BatchSink):
    """All results so far as a temporary view named after the query.

    The view looks for parts whenever it is read, so that an epoch that adds some costs the same however many there are.
    """

    kind = SinkKind.MEMORY.value

    def __init__(self, spark: SparkSession, checkpoint: str, schema: pa.Schema, name: str) -> None:
        super().__init__(spark, checkpoint, schema, name, lambda frame, epoch: None)
        self.name, self.directory = name, f"{RESULTS}/{directory_of(name)}"
        self.view = f"{self.directory}/shown"
        self.shown = self.view
        self.staging = Staging(checkpoint, self.directory)
        self.looks_by_itself = False

    def check(self, query: str | None, newest: Results) -> None:
        super().check(query, newest)
        check_unshown(self.storage, self.directory, (self.view,), newest, thoroughly=True)
        refuse_later(f"view {self.name}", (e.name for e in self.storage.files(self.view)), newest.epoch)

    def check_new(self, query: str | None) -> None:
        if self.storage.files(self.view):
            raise FlowError(
                f"view {self.name!r} has the results of another query, which had the same name, and those of this one "
                "would come on top. Give another queryName"
            )

    def leave(self) -> None:
        """What the view shows stays."""
        self.storage.delete_all(self.storage.files_in(self.directory))

    def open(self, query: str, newest: Results) -> None:
        self.storage.make_dir(self.view)
        self._show(bool(self.storage.files(self.view)))

    def deliver(self, results: Results) -> None:
        """Only parts of committed epochs are ever moved to where the view looks."""
        if results.parts:
            check_parts(self.storage, self.directory, results.parts)
            moves = [(f"{self.directory}/{part.name}", f"{self.view}/{part.name}") for part in results.parts]
            self.storage.move_all(moves)
            if not self.looks_by_itself:
                self._show(True)

    def _show(self, any_results: bool) -> None:
        """Make the view: one that Spark resolves anew whenever it is read, or else the directory as it is now."""
        frame = self._frame([""] if any_results else [], self.view)
        self.looks_by_itself = any_results and self._is_read_alike()
        if self.looks_by_itself:
            source = f"parquet.{quote_column(self._uri(self.view))}"
            self.spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW {quote_column(self.name)} AS SELECT * FROM {source}")
        else:
            frame.createOrReplaceTempView(self.name)

    def _is_read_alike(self) -> bool:
        """Whether Spark resolves such a view each time, and reads the same types out of the files as are meant: those
        of intervals are not."""
        resolved = self.spark.conf.get("spark.sql.legacy.storeAnalyzedPlanForView", "false") == "false"
        if not resolved or self.spark.conf.get("spark.sql.runSQLOnFiles", "true") != "true":
            return False
        read = self.spark.read.parquet(self._uri(self.view)).schema
        return [(f.name, f.dataType.simpleString()) for f in read] == [
            (f.name, f.dataType.simpleString()) for f in self.schema
        ]


class TableSink(MemorySink):
    """The results of the newest epoch as a temporary view: each epoch has all of them. Those of the epoch before stay
    as long, for those who read the view meanwhile."""

    def open(self, query: str, newest: Results) -> None:
        self.storage.make_dir(self.view)
        shown = {entry.name for entry in self.storage.files(self.view)}
        self._show_parts([part.name for part in newest.parts if part.name in shown])

    def deliver(self, results: Results) -> None:
        check_parts(self.storage, self.directory, results.parts)
        self.storage.move_all([(f"{self.directory}/{part.name}", f"{self.view}/{part.name}") for part in results.parts])
        self._show_parts([part.name for part in results.parts])
        outdated = (e.name for e in self.storage.files(self.view) if epoch_of(e.name) < results.epoch - 1)
        self.storage.delete_all(f"{self.view}/{name}" for name in outdated)

    def _show_parts(self, names: list[str]) -> None:
        self._frame(names, self.view).createOrReplaceTempView(self.name)


class FormerMemorySink(MemorySink):
    """That of a query that nobody writes any more: there is no view, but all results are where one would look."""

    def _show(self, any_results: bool) -> None:
        pass


class FormerBatchSink(BatchSink):
    """That of a query whose function is not there any more. Results that were not handed over stay in their files."""

    def __init__(self, spark: SparkSession, checkpoint: str, name: str) -> None:
        super().__init__(spark, checkpoint, pa.schema([]), name, lambda frame, epoch: None)
        self.name, self.lost = name, False

    def deliver(self, results: Results) -> None:
        if results.parts:
            self.lost = True
            where = self.storage.path(self.directory)
            _log.error(
                "query %r is not written any more, and results of epoch %d may not have been handed over to its "
                "function: they are in %s",
                self.name,
                results.epoch,
                where,
            )

    def leave(self) -> None:
        if not self.lost:
            super().leave()


def console(rows: int, truncate: bool) -> Callable[[DataFrame, int], None]:
    """A function for BatchSink that prints an epoch's results as Spark's console sink does."""

    def show(frame: DataFrame, epoch: int) -> None:
        print(
            f"-------------------------------------------\nEpoch: {epoch}\n-------------------------------------------"
        )
        frame.show(rows, truncate)

    return show
