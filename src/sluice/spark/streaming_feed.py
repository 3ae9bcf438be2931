"""Structured Streaming as the feed of a query: it plans what each micro-batch has, and one of these is one epoch."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame

from sluice.engine.agreement import Exchange
from sluice.engine.epochs import Epochs
from sluice.model.errors import SPARKS_ACCOUNT, FlowError, QueryError
from sluice.model.ids import SiteKey
from sluice.spark.batch_files import BatchFiles, files_of_batch, with_all_files
from sluice.spark.callbacks import BatchCallback
from sluice.spark.checked_query import CheckedQuery
from sluice.spark.failures import INTERRUPTED, is_interruption, sentence_of
from sluice.spark.feed import FeedInput, TakeIn
from sluice.spark.sparks_part import SPARK, SparksPart

_PY4J = "py4j.protocol.Py4JJavaError"


class StreamingFeed:
    """One of Spark's streaming queries, which calls for an epoch with every micro-batch."""

    def __init__(self, query: CheckedQuery, sparks_part: SparksPart, epochs: Epochs, take_in: TakeIn) -> None:
        self._query, self._sparks_part, self._epochs, self._take_in = query, sparks_part, epochs, take_in
        self._callback = BatchCallback(query.spark.sparkContext, self._on_batch)

    def start(self) -> None:
        query = self._query
        assert query.frame is not None, "Structured Streaming reads a streaming DataFrame"
        try:
            writer = query.frame.writeStream.foreachBatch(self._callback)
            writer = writer.option("checkpointLocation", f"{self._sparks_part.storage.uri}/{SPARK}")
            writer = writer.trigger(**query.trigger) if query.trigger else writer
            writer = writer.queryName(query.name) if query.name else writer
            self._spark_query = writer.start()
        except BaseException as problem:
            self._callback.release()
            if isinstance(problem, AnalysisException):
                raise FlowError(
                    "Spark cannot compute as a stream what this flow asks of it, in the DataFrame of a stream or in an "
                    f"expression that is Spark's to compute: {sentence_of(problem)}\n\n{SPARKS_ACCOUNT}\n{problem}"
                ) from problem
            raise

    def _on_batch(self, batch: DataFrame, number: int) -> None:
        try:
            files = files_of_batch(self._query.spark, self._query.sources)
            self._take_in(FeedInput(batch, partial(self._run, number, files)))
        except BaseException as failure:
            if not is_interruption(failure):
                raise
            # Spark looks for these words to tell a stop from a failure, by an expression that overflows on a long trace
            raise QueryError(f"{_PY4J}: An error occurred while calling an epoch.\n: {INTERRUPTED}") from None

    def _run(
        self,
        number: int,
        files: list[BatchFiles],
        site_keys: tuple[SiteKey, ...],
        exchange: Exchange,
        site_change_reason: str,
        ingested_at: float,
    ) -> None:
        self._sparks_part.make_durable(number)
        batch_input = self._sparks_part.describe_batch(number)
        checked = with_all_files(exchange, files, self._query.sources)
        self._epochs.run(number, site_keys, checked, site_change_reason, ingested_at, batch_input)

    @property
    def id(self) -> str:
        return str(self._spark_query.id)

    @property
    def run_id(self) -> str:
        return str(self._spark_query.runId)

    @property
    def name(self) -> str | None:
        return self._spark_query.name

    @property
    def is_active(self) -> bool:
        return bool(self._spark_query.isActive)

    @property
    def status(self) -> dict[str, Any]:
        return self._spark_query.status

    @property
    def failure(self) -> BaseException | None:
        return self._spark_query.exception()

    @property
    def progress(self) -> Mapping[int, Mapping[str, Any]]:
        return {batch["batchId"]: dict(batch) for batch in self._spark_query.recentProgress}

    def is_input_coming(self) -> bool:
        """Whether Spark has found input for a batch."""
        status = self._spark_query.status
        return bool(status["isTriggerActive"] and status["isDataAvailable"])

    def process_all(self) -> None:
        self._spark_query.processAllAvailable()

    def wait(self, timeout: float | None) -> bool:
        ended = self._spark_query.awaitTermination(timeout)  # type: ignore[arg-type]  # seconds, parts too
        return ended is not False

    def stop(self) -> None:
        self._spark_query.stop()

    def release(self) -> None:
        self._callback.release()
