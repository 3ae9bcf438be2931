"""A running query: Structured Streaming drives it, one micro-batch an epoch, and it leaves nothing behind."""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import threading
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from sluice.model.errors import FlowError
from sluice.model.join import JoinSpec
from sluice.spark.epochs import Epochs, Settings, Sink
from sluice.spark.exchange import Sites
from sluice.spark.sinks import BatchSink, MemorySink, NoopSink, ParquetSink, console
from sluice.spark.sources import Source, combined
from sluice.state.storage import Storage, open_filesystem
from sluice.state.workspace import scratch

SPARK = "spark"


@dataclass(frozen=True)
class SinkChoice:
    """Which sink, with its options, as the user chose it."""

    kind: str
    path: str | None
    compression: str
    name: str | None
    function: Callable[..., Any] | None
    rows: int
    truncate: bool

    def build(self, spark: SparkSession, checkpoint: str, spec: JoinSpec) -> Sink:
        schema = spec.output_schema()
        if self.kind == "parquet":
            return ParquetSink(_absolute(str(self.path)), self.compression)
        if self.kind == "memory":
            return MemorySink(spark, checkpoint, schema, str(self.name))
        if self.kind == "console":
            return BatchSink(spark, checkpoint, schema, console(self.rows, self.truncate))
        if self.function is not None:
            return BatchSink(spark, checkpoint, schema, self.function)
        return NoopSink()


class RunningQuery:
    """Starts the query on construction; `stop` ends it and removes everything but the checkpoint and the results."""

    def __init__(
        self,
        spark: SparkSession,
        flow: str,
        name: str | None,
        spec: JoinSpec,
        sources: list[Source],
        settings: Settings,
        sink: SinkChoice,
        trigger: dict[str, Any],
        temporary: bool,
    ) -> None:
        _use_this_python(spark)
        self.spec, self.sources, self.settings, self.temporary = spec, sources, settings, temporary
        checkpoint = _absolute(settings.checkpoint)
        formats = tuple(s.format for s in sources)
        settings = Settings(**{**settings.__dict__, "checkpoint": checkpoint})
        self.sink = sink.build(spark, checkpoint, spec)
        self.epochs = Epochs(flow, spec, formats, settings, self.sink)
        self.query = self.epochs.recover(uuid.uuid4().hex[:16])
        self.sites = Sites(spark, settings.sites)
        frame = combined(spark, sources)
        writer = frame.writeStream.foreachBatch(self._epoch).option("checkpointLocation", f"{checkpoint}/{SPARK}")
        writer = writer.trigger(**trigger) if trigger else writer
        writer = writer.queryName(name) if name else writer
        self.spark_query = writer.start()
        self._closed = threading.Event()
        threading.Thread(target=self._close_when_over, name=f"sluice-{self.query}", daemon=True).start()

    def _epoch(self, batch: DataFrame, number: int) -> None:
        self.epochs.run(number, self.sites.tokens, self.sites.exchange(batch))

    def stop(self) -> None:
        self.spark_query.stop()
        self._closed.wait()

    def wait(self, timeout: float | None) -> bool:
        """Until the query has ended and everything is cleaned up; False if the time is over before. Raises its error."""
        try:
            ended = self.spark_query.awaitTermination(timeout) if timeout is not None else None
            if timeout is None:
                self.spark_query.awaitTermination()
            elif not ended:
                return False
        finally:
            if not self.spark_query.isActive:
                self._closed.wait()
        return True

    def _close_when_over(self) -> None:
        try:
            self.spark_query.awaitTermination()
        except Exception:  # the user gets it from awaitTermination or exception(); here only the end matters
            pass
        try:
            self.sites.close(self.settings.places, self.query)
        finally:
            if self.temporary:
                if isinstance(self.sink, MemorySink):
                    atexit.register(shutil.rmtree, self.settings.checkpoint, ignore_errors=True)
                else:
                    shutil.rmtree(self.settings.checkpoint, ignore_errors=True)
            self._closed.set()


def temporary_checkpoint() -> str:
    """A directory for a query without a checkpointLocation; it goes with the query, or with this process."""
    return scratch(uuid.uuid4().hex[:16])


def _absolute(path: str) -> str:
    """A path every executor understands: local ones made absolute, URIs as they are."""
    if "://" in path or path.startswith("file:"):
        try:
            filesystem, inside = open_filesystem(path)
        except Exception as problem:
            raise FlowError(f"cannot open {path!r}: {problem}") from problem
        return inside if Storage(path).local else path
    return os.path.abspath(path)


def _use_this_python(spark: SparkSession) -> None:
    """Have local executors run this interpreter, where Sluice is installed, unless the user chose another."""
    context = spark.sparkContext
    if context.master.startswith("local") and not os.environ.get("PYSPARK_PYTHON"):
        context.pythonExec = sys.executable
