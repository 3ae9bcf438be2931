"""Whether every file that Spark's source has put into a micro-batch is read.

Spark lists the files once more when it makes the batch. Those that are gone by then, or have no bytes, it passes over:
no task ever hears of them. But the batch's plan has both lists.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from pyspark.sql import SparkSession

from sluice.engine.agreement import Exchange
from sluice.engine.split import SplitTask
from sluice.model.errors import CorruptFile, MissingFile
from sluice.record.reports import SiteReport, SplitReport
from sluice.spark.sources import SOURCE_NUMBER, Source

_QUERY_ID = "sql.streaming.queryId"
# What Java prints of a file's status: one call then does for all files.
_STATUS = re.compile(r"\{path=([^\n]*); isDirectory=\w+; length=(\d+);")


@dataclass(frozen=True)
class BatchFiles:
    """One source's files of a micro-batch, as Spark's plan of it has them (an `InMemoryFileIndex` of the JVM)."""

    source: int
    index: Any

    @cached_property
    def count(self) -> int:
        """How many files Spark's source put in."""
        return int(self.index.rootPaths().size())

    @cached_property
    def some_missing(self) -> bool:
        return self.count > int(self.index.allFiles().size())

    @cached_property
    def _sizes(self) -> dict[str, int]:
        statuses = str(self.index.allFiles().mkString("\n"))
        return {path: int(size) for path, size in _STATUS.findall(statuses)}

    @property
    def missing(self) -> list[str]:
        return [path for path in str(self.index.rootPaths().mkString("\n")).split("\n") if path not in self._sizes]

    @property
    def empty(self) -> list[str]:
        return [path for path, size in self._sizes.items() if size == 0]


def files_of_batch(spark: SparkSession, sources: Sequence[Source]) -> list[BatchFiles]:
    """The files of the micro-batch that the calling `foreachBatch` function is given, by source."""
    if all(source.path is None for source in sources):
        return []
    query = spark._jsparkSession.streams().get(spark.sparkContext.getLocalProperty(_QUERY_ID))
    leaves = query.streamingQuery().lastExecution().analyzed().collectLeaves()
    relations = [leaf.relation() for leaf in _each(leaves) if leaf.getClass().getName().endswith(".LogicalRelation")]
    tagged = [(relation, relation.options().get(SOURCE_NUMBER)) for relation in relations]
    return [BatchFiles(int(number.get()), relation.location()) for relation, number in tagged if number.isDefined()]


def with_all_files(exchange: Exchange, batch: Sequence[BatchFiles], sources: Sequence[Source]) -> Exchange:
    """The exchange of a micro-batch that reads all its files: those that are gone or empty stop it, or are counted."""

    def run(split: SplitTask, site: Any) -> list[SiteReport]:
        for files in batch:
            if files.some_missing or sources[files.source].frame is not None:
                _refuse_unread(files, sources[files.source])
        reports = exchange(split, site)
        splits = [split for report in reports for split in report.splits]
        unread = []
        for files in batch:
            read = sum(split.files for split in splits if split.stream == files.source)
            unread.append(_unread(files, sources[files.source], read))
        return [replace(reports[0], splits=(*reports[0].splits, *unread)), *reports[1:]]

    return run


def _unread(files: BatchFiles, source: Source, read: int) -> SplitReport:
    """What there is to say of files that no task heard of."""
    if source.frame is None and read == files.count:
        return SplitReport(files.source)
    _refuse_unread(files, source)
    empty = len(files.empty)
    missing = len(files.missing) if source.frame is not None else files.count - read - empty
    if missing and not source.file_options.ignore_missing:
        raise MissingFile(f"stream {source.stream.name!r}: {missing} of {files.count} files were not read")
    return SplitReport(files.source, missing=missing, corrupt=empty)


def _refuse_unread(files: BatchFiles, source: Source) -> None:
    name, options = source.stream.name, source.file_options
    if files.missing and not options.ignore_missing:
        raise MissingFile(
            f"stream {name!r}: the file {files.missing[0]!r} is gone, and was not read yet{_more(files.missing)}. "
            "Bring it back under its name and start the query again: nothing is lost. With the option "
            "ignoreMissingFiles=True files that are gone are skipped"
        )
    if files.empty and not options.ignore_corrupt:
        raise CorruptFile(
            f"stream {name!r}: the file {files.empty[0]!r} has no bytes: it has lost its content, or is still being "
            f"written{_more(files.empty)}. Mend it under its name and start the query again: nothing is lost. With the "
            "option ignoreCorruptFiles=True such files are skipped"
        )


def _more(files: Sequence[str]) -> str:
    return f" (and {len(files) - 1} more)" if len(files) > 1 else ""


def _each(sequence: Any) -> Iterator[Any]:
    return (sequence.apply(i) for i in range(sequence.size()))
