"""The streams of a flow as one streaming DataFrame, so that one micro-batch is one epoch of them all.

A `readStream` stream travels as a struct column of its rows, a `readFiles` stream as the paths of its new files: Spark
tracks the files, and only the split reads them, as Arrow.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sluice.model.join import Stream
from sluice.spark.split import PATH_COLUMN, STREAM_COLUMN, FileFormat, row_column

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


def combined(spark: SparkSession, sources: list[Source]) -> DataFrame:
    """All sources as one streaming DataFrame of (stream, path, one struct column for every row stream)."""
    typed = {i: s.frame.schema for i, s in enumerate(sources) if s.frame is not None}
    parts = []
    for number, source in enumerate(sources):
        if source.frame is not None:
            frame, path = source.frame, F.lit(None).cast("string")
        else:
            reader = spark.readStream.format("binaryFile").schema(_FILES)
            frame, path = reader.options(**dict(source.options or {})).load(source.path), F.col("path")
        columns = [F.lit(number).alias(STREAM_COLUMN), path.alias(PATH_COLUMN)]
        for other, schema in typed.items():
            rows = F.struct(*(frame[_quoted(c)] for c in frame.columns)) if other == number else F.lit(None)
            columns.append(rows.cast(schema).alias(row_column(other)))
        parts.append(frame.select(*columns))
    return reduce(DataFrame.unionByName, parts)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
