"""The streams of a flow as one streaming DataFrame, so that one micro-batch is one epoch of them all.

A `readStream` stream travels in slots, columns that streams share, a `readFiles` stream as the paths of its new files:
Spark tracks the files, and only the split reads them, as Arrow.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DataType

from sluice.model.stream import Stream
from sluice.spark.split import PATH_COLUMN, STREAM_COLUMN, FileFormat, Reading

SPARK_FILE_OPTIONS = (
    "maxFilesPerTrigger",
    "maxBytesPerTrigger",
    "latestFirst",
    "maxFileAge",
    "fileNameOnly",
    "pathGlobFilter",
    "recursiveFileLookup",
    "cleanSource",
    "sourceArchiveDir",
)
_FILES = "path string, modificationTime timestamp, length long, content binary"


@dataclass(frozen=True)
class Source:
    """Where a stream's rows come from: a streaming DataFrame, or files of a format."""

    stream: Stream
    frame: DataFrame | None = None
    path: str | None = None
    format: FileFormat | None = None
    options: Mapping[str, Any] | None = None


def ways_to_read(sources: list[Source]) -> tuple[Reading, ...]:
    """How the split gets each stream's rows: from files, or out of slots of the combined DataFrame."""
    slots = _slots(sources)
    return tuple(s.format or tuple(name for name, _ in slots[i]) for i, s in enumerate(sources))


def combined(spark: SparkSession, sources: list[Source]) -> DataFrame:
    """All sources as one streaming DataFrame of (stream, path, slots)."""
    slots = _slots(sources)
    kinds = dict(slot for mine in slots for slot in mine)
    parts = []
    for number, source in enumerate(sources):
        if source.frame is not None:
            frame, path = source.frame, F.lit(None).cast("string")
            mine = {name: frame[_quoted(c)] for (name, _), c in zip(slots[number], frame.columns, strict=True)}
        else:
            reader = spark.readStream.format("binaryFile").schema(_FILES)
            frame, path, mine = reader.options(**dict(source.options or {})).load(source.path), F.col("path"), {}
        columns = [F.lit(number).alias(STREAM_COLUMN), path.alias(PATH_COLUMN)]
        columns += [mine.get(name, F.lit(None).cast(kind)).alias(name) for name, kind in kinds.items()]
        parts.append(frame.select(*columns))
    return reduce(DataFrame.unionByName, parts)


def _slots(sources: list[Source]) -> list[list[tuple[str, DataType]]]:
    """A slot for every column of every row stream. Streams share slots of one type: so few are empty in any row."""
    kinds: list[DataType] = []
    out = []
    for source in sources:
        mine: list[int] = []
        for field in source.frame.schema if source.frame is not None else ():
            free = (i for i, kind in enumerate(kinds) if kind == field.dataType and i not in mine)
            at = next(free, len(kinds))
            if at == len(kinds):
                kinds.append(field.dataType)
            mine.append(at)
        out.append([(f"slot{i}", kinds[i]) for i in mine])
    return out


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
