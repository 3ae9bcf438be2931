"""Which sink the results of an output go to, as the user chose it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from sluice.engine.delivery import Sink
from sluice.model.plan.recorded_plan import RecordedQuery
from sluice.spark.catalog_tables import CatalogSink
from sluice.spark.delta_modes import DeltaMode, DeltaWrite
from sluice.spark.delta_sink import DeltaSink
from sluice.spark.foreach import write_each
from sluice.spark.locations import absolute
from sluice.spark.sinks import (
    BatchSink,
    FormerBatchSink,
    FormerMemorySink,
    MemorySink,
    NoopSink,
    ParquetSink,
    SinkKind,
    TableSink,
    console,
)


@dataclass(frozen=True)
class SinkChoice:
    """Which sink, with its options, as the user chose it."""

    kind: SinkKind
    path: str | None
    compression: str
    name: str
    """That of its query."""
    function: Callable[..., Any] | None
    rows: int
    truncate: bool
    complete: bool = False
    """Whether the results of an epoch take the place of those before."""
    row_keys: tuple[str, ...] | None = None
    """The columns by which a result takes the place of one before, if it does."""
    partition_by: tuple[str, ...] = ()
    table: str | None = None
    """That of Spark's catalog whose directory the path is, if it is one's."""

    @property
    def delta_mode(self) -> DeltaMode:
        """What an epoch does to a Delta table."""
        if self.complete:
            return DeltaMode(DeltaWrite.COMPLETE)
        return DeltaMode() if self.row_keys is None else DeltaMode(DeltaWrite.UPDATE, self.row_keys)

    def build(self, spark: SparkSession, checkpoint: str, schema: pa.Schema) -> Sink:
        """The sink of one output of a query on a checkpoint; nothing is touched yet."""
        match self.kind:
            case SinkKind.PARQUET:
                path = absolute(str(self.path))
                if self.table is not None:
                    return CatalogSink(spark, self.table, path, self.compression, self.partition_by)
                return ParquetSink(path, self.compression, self.partition_by)
            case SinkKind.DELTA:
                return DeltaSink(absolute(str(self.path)), self.compression, self.partition_by, schema, self.delta_mode)
            case SinkKind.MEMORY:
                kind = TableSink if self.complete else MemorySink
                return kind(spark, checkpoint, schema, self.name)
            case SinkKind.CONSOLE:
                return BatchSink(spark, checkpoint, schema, self.name, console(self.rows, self.truncate))
            case SinkKind.FOREACH:
                return BatchSink(spark, checkpoint, schema, self.name, write_each(self.function))
            case SinkKind.FOREACH_BATCH:
                assert self.function is not None, "foreachBatch comes with its function"
                return BatchSink(spark, checkpoint, schema, self.name, self.function)
            case SinkKind.NOOP:
                return NoopSink()


def restore_sink(spark: SparkSession, checkpoint: str, query: RecordedQuery) -> Sink:
    """The sink of a query that a checkpoint has and nobody writes any more: it shows what was not shown yet."""
    match SinkKind(query.sink):
        case SinkKind.PARQUET:
            return ParquetSink(str(query.shown), "none")
        case SinkKind.DELTA:
            return DeltaSink(str(query.shown), "none", (), None)
        case SinkKind.MEMORY:
            return FormerMemorySink(spark, checkpoint, pa.schema([]), query.name)
        case SinkKind.NOOP:
            return NoopSink()
        case _:
            return FormerBatchSink(spark, checkpoint, query.name)
