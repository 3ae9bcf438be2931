"""Whether the files that Spark's source has put into a micro-batch are still there.

Spark lists the files once more when it makes the batch, and passes over those that are gone: no task ever hears of
them. But the batch's plan has both lists.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

from sluice.model.errors import CorruptFile, MissingFile
from sluice.spark.epochs import Exchange, Report
from sluice.spark.sources import SOURCE_NUMBER, Source
from sluice.spark.split import SplitTask, file_figures

_QUERY_ID = "sql.streaming.queryId"
# What Java prints of a file's status: one call then does for all files.
_PATH = re.compile(r"\{path=([^\n]*); isDirectory=")
_EMPTY = re.compile(r"\{path=([^\n]*); isDirectory=false; length=0; ")


@dataclass(frozen=True)
class Listing:
    """One source's files of a micro-batch: how many Spark's source put in, which of them are gone, which are empty."""

    source: int
    files: int
    missing: tuple[str, ...]
    empty: tuple[str, ...]


def files_of_batch(spark: SparkSession, sources: Sequence[Source]) -> list[Listing]:
    """The files of the micro-batch that the calling `foreachBatch` function is given, by source."""
    if all(source.path is None for source in sources):
        return []
    query = spark._jsparkSession.streams().get(spark.sparkContext.getLocalProperty(_QUERY_ID))
    leaves = query.streamingQuery().lastExecution().analyzed().collectLeaves()
    return [_listing(leaf.relation(), sources) for leaf in _each(leaves) if _is_ours(leaf)]


def with_listing(exchange: Exchange, listings: Sequence[Listing], sources: Sequence[Source]) -> Exchange:
    """The exchange of a micro-batch after a look at its files: those that are gone or empty stop it, or are counted."""

    def run(split: SplitTask, site: Any) -> list[Report]:
        for listing in listings:
            _refuse(listing, sources[listing.source])
        reports = exchange(split, site)
        splits = [s for report in reports for s in report["splits"]]
        for listing in listings:
            read = sum(s["files"] for s in splits if s["stream"] == listing.source)
            reports[0]["splits"].append(_figures(listing, sources[listing.source], read))
        return reports

    return run


def _refuse(listing: Listing, source: Source) -> None:
    name, options = source.stream.name, source.file_options
    if listing.missing and not options.ignore_missing:
        raise MissingFile(
            f"stream {name!r}: {_first_of(listing.missing)} gone, though not read yet. Bring it back under its name "
            "and start the query again: nothing is lost. With the option ignoreMissingFiles=True such files are skipped"
        )
    if source.frame is not None and listing.empty and not options.ignore_corrupt:  # else its task finds it
        raise CorruptFile(
            f"stream {name!r}: {_first_of(listing.empty)} without any bytes: content was lost, or is being written. "
            "Mend it under its name and start the query again; with the option ignoreCorruptFiles=True it is skipped"
        )


def _figures(listing: Listing, source: Source, read: int) -> dict[str, Any]:
    """What the tasks could not count: files they never heard of."""
    if source.frame is not None:
        return file_figures(listing.source, missing=len(listing.missing), corrupt=len(listing.empty))
    return file_figures(listing.source, missing=listing.files - read)


def _first_of(files: Sequence[str]) -> str:
    others = f" and {len(files) - 1} other files are" if len(files) > 1 else " is"
    return f"the file {files[0]!r}{others}"


def _is_ours(leaf: Any) -> bool:
    name = str(leaf.getClass().getName())
    return name.endswith(".LogicalRelation") and leaf.relation().options().get(SOURCE_NUMBER).isDefined()


def _listing(relation: Any, sources: Sequence[Source]) -> Listing:
    number, index = int(relation.options().get(SOURCE_NUMBER).get()), relation.location()
    files, found = int(index.rootPaths().size()), index.allFiles()
    if files <= int(found.size()) and sources[number].frame is None:
        return Listing(number, files, (), ())
    statuses = str(found.mkString("\n"))
    there = set(_PATH.findall(statuses))
    missing = tuple(path for path in str(index.rootPaths().mkString("\n")).split("\n") if path not in there)
    return Listing(number, files, missing, tuple(_EMPTY.findall(statuses)))


def _each(sequence: Any) -> Iterator[Any]:
    return (sequence.apply(i) for i in range(sequence.size()))
