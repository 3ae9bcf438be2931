"""The streams of a flow as one streaming DataFrame, so that one micro-batch is one epoch of them all.

A `readStream` stream travels in slots, columns that streams share, a `readFiles` stream beside it as the paths of its
new files: Spark tracks the files, and only the split reads them, as Arrow. Where all streams are files there is no such
DataFrame: an epoch loop of Sluice's own (`file_loop.py`) finds them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DataType

from sluice.engine.split import PATH_COLUMN, STREAM_COLUMN, FileFormat, Reading
from sluice.model.errors import FlowError
from sluice.model.plan.stream import BySpark, Stream
from sluice.sources.file_options import FileOptions, options_for_spark
from sluice.sources.listing_options import needs_sparks_source
from sluice.spark.types import arrow_schema, spark_schema

GLOB_CHARACTERS_REFUSED = (
    "has one of *?[]{} in its name, and Spark's file source lists such files more than once (SPARK-58518); rename it "
    "and start the query again"
)
_SPARK_READS = ("parquet", "csv", "json")
SOURCE_NUMBER = "sluiceSource"
"""An option on Spark's file sources that means nothing to them: by it a source's files are known in a batch's plan."""
_FILES = "path string, modificationTime timestamp, length long, content binary"


@dataclass(frozen=True)
class Source:
    """Where a stream's rows come from: a streaming DataFrame, or files of a format."""

    stream: Stream
    frame: DataFrame | None = None
    path: str | None = None
    format: FileFormat | None = None
    options: Mapping[str, Any] | None = None
    file_options: FileOptions = field(default_factory=FileOptions.defaults)
    computed: tuple[str, ...] = ()
    """Expressions that Spark computes because Arrow cannot; the source is read as rows for their sake."""

    @property
    def is_found_here(self) -> bool:
        """Whether its files can be found and read without Spark's file source."""
        return self.frame is None and not needs_sparks_source(self.options or {})

    @property
    def how(self) -> str:
        """How it is read, in words."""
        if self.format is not None and self.frame is None:
            return f"{self.format.format} files as Arrow from {self.path}"
        files = f" out of {self.format.format} files from {self.path}" if self.format is not None else ""
        because = f", because of {', '.join(self.file_options.why_spark)}" if self.file_options.why_spark else ""
        computes = f", which computes {'; '.join(self.computed)}" if self.computed else ""
        return f"rows of Spark{files}{because}{computes}"


def can_be_rows(source: Source) -> bool:
    """Whether Spark itself can read the source."""
    if source.frame is not None:
        return True
    return (
        source.format is not None
        and source.format.format in _SPARK_READS
        and "%" not in source.file_options.timestamp_format
    )


def analyse_type(spark: SparkSession, name: str, schema: pa.Schema, text: str) -> pa.DataType | None:
    """The type Spark gives an expression over these columns, None if it understands it no more than we do."""
    try:
        # inside a struct and beside the others, where neither an aggregate nor explode() is taken for a value
        empty = spark.createDataFrame([], spark_schema(schema)).alias(name)
        analysed = empty.withColumn("x", F.struct(F.expr(text).alias("y"))).select("x.y")
        return arrow_schema(f"stream {name!r}", analysed.schema).field("y").type
    except (PySparkException, FlowError):
        return None


def as_rows(spark: SparkSession, number: int, source: Source, expressions: list[BySpark]) -> Source:
    """The source read by Spark, as rows, with the columns that Spark computes."""
    frame = source.frame
    if frame is None:
        assert source.format is not None
        reader = spark.readStream.format(source.format.format).schema(spark_schema(source.stream.schema))
        tracking = _tracking_options(number, source)
        options = options_for_spark(source.format.format, source.format.options) | tracking
        frame = reader.options(**options).load(source.path)
        frame = _without_glob_characters(frame, F.col("_metadata.file_path"), source.stream.name)
    fields = [pa.field(e.name, e.type) for e in expressions]
    for e in expressions:
        frame = frame.alias(e.scope).withColumn(e.name, F.expr(e.sql))
    stream = replace(source.stream, schema=pa.schema([*source.stream.schema, *fields]))
    return replace(source, stream=stream, frame=frame, computed=tuple(e.text for e in expressions))


def read_as_planned(
    spark: SparkSession, sources: Sequence[Source], by_spark: Sequence[list[BySpark]]
) -> tuple[Source, ...]:
    """A plan's sources, as rows where Spark has to read them or to compute something of them."""
    return tuple(
        as_rows(spark, number, source, expressions) if expressions or source.file_options.why_spark else source
        for number, (source, expressions) in enumerate(zip(sources, by_spark, strict=True))
    )


def _tracking_options(number: int, source: Source) -> dict[str, Any]:
    """Options for Spark's file source, which else would go by settings of the session for what it cannot read."""
    ignoring = {
        "ignoreMissingFiles": str(source.file_options.ignore_missing).lower(),
        "ignoreCorruptFiles": str(source.file_options.ignore_corrupt).lower(),
    }
    return {**dict(source.options or {}), **ignoring, SOURCE_NUMBER: str(number)}


def _without_glob_characters(frame: DataFrame, path: Column, stream: str) -> DataFrame:
    """The rows, unless they are of a file that Spark would list more than once."""
    refused = F.raise_error(F.concat(F.lit(f"stream {stream!r}: "), path, F.lit(f" {GLOB_CHARACTERS_REFUSED}")))
    odd = path.rlike(r"[*?\[\]{}]|%(2A|3F|5B|5D|7B|7D)")
    return frame.where(F.when(odd, refused.cast("boolean")).otherwise(F.lit(True)))


def ways_to_read(sources: Sequence[Source]) -> tuple[Reading, ...]:
    """How the split gets each stream's rows: from files, or out of slots of the combined DataFrame."""
    slots = _slots(sources)
    return tuple(
        s.format if s.format and s.frame is None else tuple(name for name, _ in slots[i]) for i, s in enumerate(sources)
    )


def combine_sources(spark: SparkSession, sources: Sequence[Source]) -> DataFrame:
    """All sources as one streaming DataFrame of (stream, path, slots)."""
    slots = _slots(sources)
    kinds = dict(slot for values in slots for slot in values)
    any_files = any(source.frame is None for source in sources)  # every column that crosses costs, an empty one too
    parts = []
    for number, source in enumerate(sources):
        if source.frame is not None:
            frame, path = source.frame, F.lit(None).cast("string")
            values = {name: frame[quote_column(c)] for (name, _), c in zip(slots[number], frame.columns, strict=True)}
        else:
            reader = spark.readStream.format("binaryFile").schema(_FILES)
            path, values = F.col("path"), {}
            frame = reader.options(**_tracking_options(number, source)).load(source.path)
            frame = _without_glob_characters(frame, path, source.stream.name)
        columns = [F.lit(number).alias(STREAM_COLUMN)]
        columns += [path.alias(PATH_COLUMN)] if any_files else []
        columns += [values.get(name, F.lit(None).cast(kind)).alias(name) for name, kind in kinds.items()]
        parts.append(frame.select(*columns))
    return reduce(DataFrame.unionByName, parts)


def directories_of_lists(frame: DataFrame) -> tuple[int, ...]:
    """For each source in the plan of a streaming DataFrame the number by which Spark keeps what it lists. Sources that
    are one and the same have one: it stands in the plan as often as streams are made of it."""
    leaves = frame._jdf.queryExecution().analyzed().collectLeaves()
    distinct: list[Any] = []
    numbers = []
    for leaf in (leaves.apply(at) for at in range(leaves.size())):
        if leaf.isStreaming():
            number = next((n for n, other in enumerate(distinct) if other.equals(leaf)), len(distinct))
            distinct += [leaf] if number == len(distinct) else []
            numbers.append(number)
    return tuple(numbers)


def _slots(sources: Sequence[Source]) -> list[list[tuple[str, DataType]]]:
    """A slot for every column of every row stream. Streams share slots of one type: so few are empty in any row."""
    kinds: list[DataType] = []
    out = []
    for source in sources:
        numbers: list[int] = []
        for column in source.frame.schema if source.frame is not None else ():
            free = (i for i, kind in enumerate(kinds) if kind == column.dataType and i not in numbers)
            at = next(free, len(kinds))
            if at == len(kinds):
                kinds.append(column.dataType)
            numbers.append(at)
        out.append([(f"slot{i}", kinds[i]) for i in numbers])
    return out


def quote_column(name: str) -> str:
    """A column's name as Spark SQL takes it, whatever it consists of."""
    return "`" + name.replace("`", "``") + "`"
