"""Where results go once their epoch has committed.

A site writes its results to a part file that nobody looks at; the journal's record of the epoch names the parts that
count. Only then are they shown, and showing them again after a crash changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from sluice.model.epoch import Part
from sluice.model.errors import FlowError
from sluice.spark.results import Staging
from sluice.spark.sink_log import SinkLog
from sluice.spark.types import spark_schema
from sluice.state.storage import Storage

RESULTS = "results"
MARK = "_sluice-"
"""Begins the name of the directory in an output where a query's parts wait; it stays, and tells whose output it is."""


class NoopSink:
    """Results are made, counted and dropped."""

    staging = Staging(None)

    def check(self, query: str | None) -> None:
        pass

    def open(self, query: str) -> None:
        pass

    def tidy(self, parts: tuple[Part, ...], left_over: Callable[[str], bool]) -> None:
        pass

    def deliver(self, number: int, parts: tuple[Part, ...]) -> None:
        pass


class ParquetSink:
    """Parts wait in a hidden directory of the output and are renamed into it when their epoch has committed.

    Then they are listed for Spark's readers, which see all of an epoch's files from that moment, or none before.
    """

    def __init__(self, path: str, compression: str) -> None:
        self.path, self.compression = path, compression
        self.storage = Storage(path)
        self.log = SinkLog(self.storage)

    def check(self, query: str | None) -> None:
        names = self.storage.names()
        if f"{MARK}{query}" not in names and any(name.startswith(MARK) for name in names):
            raise FlowError(
                f"path {self.path!r} holds the results of another query, and those of a new checkpoint would come on "
                "top. Give a new path, or remove the old results"
            )

    def open(self, query: str) -> None:
        self.staging = Staging(self.path, f"{MARK}{query}", self.compression)
        self.storage.make_dir(self.staging.directory)
        self.log.tidy()

    def tidy(self, parts: tuple[Part, ...], left_over: Callable[[str], bool]) -> None:
        _remove_waiting(self.storage, self.staging.directory, parts, left_over)

    def deliver(self, number: int, parts: tuple[Part, ...]) -> None:
        for part in parts:
            self.storage.move(f"{self.staging.directory}/{part.name}", part.name)
        self.log.add(parts)


class BatchSink:
    """Hands every epoch's results to a function as a DataFrame, with the epoch's number."""

    def __init__(
        self,
        spark: SparkSession,
        checkpoint: str,
        output: int,
        schema: pa.Schema,
        function: Callable[[DataFrame, int], Any],
    ) -> None:
        self.spark, self.function, self.schema = spark, function, spark_schema(schema)
        self.storage = Storage(checkpoint)
        self.directory = f"{RESULTS}/{output}"
        self.staging = Staging(checkpoint, self.directory)
        self.handed_over: tuple[Part, ...] = ()

    def check(self, query: str | None) -> None:
        pass

    def open(self, query: str) -> None:
        self.storage.make_dir(self.directory)

    def tidy(self, parts: tuple[Part, ...], left_over: Callable[[str], bool]) -> None:
        _remove_waiting(self.storage, self.directory, parts, left_over)

    def deliver(self, number: int, parts: tuple[Part, ...]) -> None:
        self.function(self._frame([p.name for p in parts], self.directory), number)
        for part in self.handed_over:
            if part not in parts:
                self.storage.delete(f"{self.directory}/{part.name}")
        self.handed_over = parts

    def _frame(self, parts: list[str], directory: str) -> DataFrame:
        if not parts:
            return self.spark.createDataFrame([], self.schema)
        base = self.staging.uri if "://" in str(self.staging.uri) else "file://" + self.storage.root
        return self.spark.read.schema(self.schema).parquet(*(f"{base}/{directory}/{name}" for name in parts))


class MemorySink(BatchSink):
    """All results so far as a temporary view named after the query."""

    def __init__(self, spark: SparkSession, checkpoint: str, output: int, schema: pa.Schema, name: str) -> None:
        super().__init__(spark, checkpoint, output, schema, lambda frame, epoch: None)
        self.name = name
        self.view = f"{self.directory}/shown"

    def open(self, query: str) -> None:
        self.storage.make_dir(self.view)
        self._show(bool(self.storage.files(self.view)))

    def deliver(self, number: int, parts: tuple[Part, ...]) -> None:
        """Only parts of committed epochs are ever moved to where the view looks."""
        for part in parts:
            self.storage.move(f"{self.directory}/{part.name}", f"{self.view}/{part.name}")
        if parts:
            self._show(True)

    def _show(self, any_results: bool) -> None:
        """The directory as it is now, in one listing however many parts there are."""
        self._frame([""] if any_results else [], self.view).createOrReplaceTempView(self.name)


def _remove_waiting(
    storage: Storage, directory: str, parts: tuple[Part, ...], left_over: Callable[[str], bool]
) -> None:
    committed = {p.name for p in parts}
    for entry in storage.files(directory):
        if entry.name not in committed and left_over(entry.name):
            storage.delete(f"{directory}/{entry.name}")


def console(rows: int, truncate: bool) -> Callable[[DataFrame, int], None]:
    """A function for BatchSink that prints an epoch's results as Spark's console sink does."""

    def show(frame: DataFrame, epoch: int) -> None:
        print(
            f"-------------------------------------------\nEpoch: {epoch}\n-------------------------------------------"
        )
        frame.show(rows, truncate)

    return show
