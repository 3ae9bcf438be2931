"""A running query: Structured Streaming drives it, one micro-batch an epoch, and it leaves nothing behind."""

from __future__ import annotations

import atexit
import logging
import math
import os
import shutil
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any
from weakref import WeakValueDictionary

import pyarrow as pa
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from sluice.control.journal import Journal
from sluice.engine.checkpoint import open_checkpoint
from sluice.engine.delivery import Sink
from sluice.engine.epochs import Epochs
from sluice.engine.settings import Settings
from sluice.model.clock import SystemClock
from sluice.model.durations import seconds
from sluice.model.errors import CheckpointError, QueryError
from sluice.model.plan import Plan
from sluice.spark.batch_files import files_of_batch, with_all_files
from sluice.spark.callbacks import BatchCallback, as_error
from sluice.spark.exchange import Sites
from sluice.spark.failures import QueryFailed, in_words
from sluice.spark.idling import IDLE, Failing, Idling
from sluice.spark.sinks import BatchSink, MemorySink, NoopSink, ParquetSink, SinkKind, console
from sluice.spark.sources import Source, combined, directories_of_lists, ways_to_read
from sluice.spark.sparks_part import SPARK, SparksPart
from sluice.state.storage import Storage
from sluice.state.workspace import scratch

log = logging.getLogger(__name__)

Trigger = dict[str, Any]
"""The arguments of Spark's `trigger`; none is its default."""
POLL_S = 0.1
"""Seconds between two looks at what somebody waits for."""
_PY4J, _INTERRUPTED = "py4j.protocol.Py4JJavaError", "java.lang.InterruptedException"
_running: WeakValueDictionary[str, RunningQuery] = WeakValueDictionary()
"""The query that this process runs on each checkpoint, also while it is being closed."""
_temporary: set[str] = set()
"""Checkpoints that go with this process."""


@dataclass(frozen=True)
class SinkChoice:
    """Which sink, with its options, as the user chose it."""

    kind: SinkKind
    path: str | None
    compression: str
    name: str | None
    function: Callable[..., Any] | None
    rows: int
    truncate: bool

    def build(self, spark: SparkSession, checkpoint: str, output: int, schema: pa.Schema) -> Sink:
        match self.kind:
            case SinkKind.PARQUET:
                return ParquetSink(_absolute(str(self.path)), self.compression)
            case SinkKind.MEMORY:
                return MemorySink(spark, checkpoint, output, schema, str(self.name))
            case SinkKind.CONSOLE:
                return BatchSink(spark, checkpoint, output, schema, console(self.rows, self.truncate))
            case SinkKind.FOREACH_BATCH:
                assert self.function is not None, "foreachBatch comes with its function"
                return BatchSink(spark, checkpoint, output, schema, self.function)
            case SinkKind.NOOP:
                return NoopSink()


class RunningQuery:
    """Starts the query on construction; `stop` ends it and removes everything but the checkpoint and the results."""

    def __init__(
        self,
        spark: SparkSession,
        flow: str,
        name: str | None,
        plan: Plan,
        sources: list[Source],
        settings: Settings,
        checkpoint: str,
        sinks: Sequence[SinkChoice],
        trigger: Trigger,
        temporary: bool,
    ) -> None:
        self._closed, self._stopping = threading.Event(), threading.Event()
        self._turn = threading.Lock()
        self._interval = seconds(trigger.get("processingTime", "0 seconds"), "trigger's processingTime")
        self.failure: Exception | None = None
        self._whose = f"query {name!r}" if name else "the query"
        self._cause: BaseException | None = None
        """What ended the last of Spark's batches, if it failed, before it went through Spark."""
        self.draining = False
        self.spark = spark
        _use_this_python(spark)
        checkpoint = _absolute(checkpoint)
        earlier = _running.get(checkpoint)
        if earlier is not None and not earlier._closed.is_set():
            earlier.stop()  # Spark, too, ends the run before when a query is started again
        self.plan, self.sources, self.temporary, self.trigger = plan, sources, temporary, trigger
        self.settings, clock = settings, SystemClock()
        self.sinks = [
            sink.build(spark, checkpoint, i, output.schema)
            for i, (sink, output) in enumerate(zip(sinks, plan.outputs, strict=True))
        ]
        try:
            storage, frame = Storage(checkpoint), combined(spark, sources)
            self._sparks_part = SparksPart(storage, directories_of_lists(frame))
            self._sparks_part.check_with(Journal(storage))
            taken = open_checkpoint(storage, flow, uuid.uuid4().hex[:16], plan, settings, self.sinks, clock)
            self.epochs, self.query = Epochs(plan, ways_to_read(sources), settings, taken, clock), taken.query
            self._idling = Idling(self.epochs, self._interval)
            self._log_recovery()
            most = settings.partitions if settings.follow else None
            self.sites = Sites(spark, settings.sites, most, settings.controller.turnout is not None)
            self._callback = BatchCallback(spark.sparkContext, self._epoch)
            writer = frame.writeStream.foreachBatch(self._callback)
            writer = writer.option("checkpointLocation", f"{checkpoint}/{SPARK}")
            writer = writer.trigger(**trigger) if trigger else writer
            writer = writer.queryName(name) if name else writer
            self.spark_query = writer.start()
        except BaseException:
            if temporary:
                _remove(checkpoint)
            if hasattr(self, "_callback"):
                self._callback.release()
            if hasattr(self, "sites"):
                self.sites.close(self.epochs.workspace)
            raise
        _running[checkpoint] = self
        for work in (self._close_when_over, self._catch_up_when_idle):
            threading.Thread(target=work, name=f"sluice-{self.query}", daemon=True).start()

    def _log_recovery(self) -> None:
        record, checkpoint = self.epochs.record, self.epochs.storage.uri
        if record.number < 0:
            log.info("query %s begins on the new checkpoint %s", self.query, checkpoint)
        else:
            log.info("query %s takes over the checkpoint %s, from epoch %d on", self.query, checkpoint, record.number)

    def _epoch(self, batch: DataFrame, number: int) -> None:
        try:
            with self._turn:
                ingested_at = self.epochs.clock.time()
                site_change_reason = self._follow()
                files = files_of_batch(self.spark, self.sources)
                exchange = with_all_files(self.sites.exchange(batch, self._sites_next), files, self.sources)
                self._sparks_part.make_durable(number)
                batch_input = self._sparks_part.describe_batch(number)
                self.epochs.run(number, self.sites.site_keys, exchange, site_change_reason, ingested_at, batch_input)
            self._idling.batch_is_over()
        except BaseException as failure:
            self._cause = failure
            if not isinstance(failure, Py4JJavaError) or _INTERRUPTED not in str(failure.java_exception):
                raise
            # Spark looks for these words to tell a stop from a failure, by an expression that overflows on a long trace
            raise QueryError(f"{_PY4J}: An error occurred while calling an epoch.\n: {_INTERRUPTED}") from None

    def _follow(self) -> str:
        """Have the sites be where executors are, and as many as they are to be; why they changed, if they did."""
        site_change_reason = self.sites.follow(self.epochs.workspace, self.epochs.ran_on, self.epochs.sites_next)
        self.settings.controller.slots = self.sites.slots
        return site_change_reason

    def _next_batch(self) -> float:
        """When Spark looks for the next batch's input: at whole multiples of the trigger's interval."""
        return (self.epochs.clock.time() // self._interval + 1) * self._interval if self._interval else math.inf

    def _is_batch_coming(self) -> bool:
        """Whether Spark has found input for a batch, or is about to look for some, or may just have done so. It may
        list the files of a batch in tasks, which sites would keep from running."""
        status = self.spark_query.status
        if status["isTriggerActive"] and status["isDataAvailable"]:
            return True
        near, left = min(IDLE, self._interval / 4), self._next_batch() - self.epochs.clock.time()
        return left < near or left > self._interval - near > 0

    def _sites_next(self) -> int | None:
        return self.epochs.sites_next

    def _catch_up_when_idle(self) -> None:
        """Process input that waits, go on with what is under way, do what the user asks for: Spark has no batches as
        long as no new input comes. If that cannot be looked after any more, the query ends."""
        failing = Failing()
        while not self._closed.wait(IDLE / 4) and self.failure is None:
            try:
                self._look_after()
                failing.succeeded()
            except BaseException as failure:
                log.info("query %s cannot be looked after while it is idle: %s", self.query, failure)
                if failing.failed() or not isinstance(failure, Exception):
                    self._fail(failure)

    def _look_after(self) -> None:
        """One epoch, if there is something to do and no batch comes."""
        if self.epochs.busy.locked() or not self._idling.is_epoch_due(self._can_resize):
            return
        running = self.spark_query.isActive and not self._stopping.is_set()
        if running and not self._is_batch_coming():
            self._catch_up()

    def _can_resize(self) -> bool:
        return self.sites.can_have(self.epochs.sites_next)

    def _fail(self, failure: BaseException) -> None:
        """End the query because of something that Spark knows nothing of."""
        self._cause, failed = failure, as_error(failure)
        self.failure = failed if isinstance(failed, CheckpointError) else self._in_words(failed)
        with suppress(Exception):  # where Spark is not reached any more it has ended
            self.spark_query.stop()

    def _catch_up(self) -> bool:
        """One epoch for input that waits, units to be cleaned up or what is under way, if any, or an idle
        one; what goes wrong ends the query."""
        context = self.sites.session.sparkContext
        try:
            context.setJobGroup(f"sluice-{self.query}", "input that waits")
            with self._turn:
                if self.epochs.closed:
                    return False
                before = self.sites.count
                site_change_reason = self._follow()
                if self.sites.count != before:
                    self._idling.sites_have_changed()
                exchange = self.sites.exchange(None, self._sites_next)
                did = self.epochs.catch_up(self.sites.site_keys, exchange, site_change_reason, self._next_batch())
                if not did and self._idling.is_idle_epoch_due and self.spark_query.isActive:
                    self.epochs.run_idle_epoch(self.sites.site_keys, exchange, site_change_reason)
                    self._idling.idle_epoch_is_over()
                return did
        except BaseException as failure:
            if not self._stopping.is_set():
                log.info("query %s ends, because an epoch for input that waits failed: %s", self.query, failure)
                self._fail(failure)
            return False
        finally:
            with suppress(Exception):  # so that a stop cancels no other job of this thread
                context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]

    def settle(self) -> None:
        """Wait until no input waits, and no unit that is to be cleaned up, or the query ends; raises why it failed."""
        self._wait_while(lambda: self.epochs.is_behind)

    def clean_up(self) -> None:
        """Find all results that are missing, and those that input misses which waits by now; returns when they are
        there, or the query ends. What comes in meanwhile is taken in beside it, and may miss something again.

        Each time it is asked for, what waits at a level is taken in, and what was missing there is found; both may have
        something missing, or wait, at the next."""
        for _ in range(2 * self.plan.levels):
            asked_after = self.epochs.clean_up()
            self._wait_while(partial(self.epochs.is_cleaning_up, asked_after))

    def _wait_while(self, holds: Callable[[], bool]) -> None:
        """Wait as long as something holds, and the query runs; raises why it failed."""
        while holds() and self.failure is None and not self._closed.wait(POLL_S):
            pass
        with self.epochs.busy:  # the last of those epochs is over, and in the progress
            pass
        self._raise_failure()

    def process_all(self) -> None:
        """Wait until everything that is there now has been processed."""
        with self._telling_what_went_wrong():
            self.spark_query.processAllAvailable()
        self.settle()

    def _raise_failure(self) -> None:
        if self.failure is not None:
            raise self.failure

    @property
    def exception(self) -> Exception | None:
        """Why the query failed, if it did."""
        told = self.spark_query.exception()
        return self.failure if told is None else self._in_words(told)

    @contextmanager
    def _telling_what_went_wrong(self) -> Iterator[None]:
        """What Spark raises, in words: its own text begins with the function that it calls for a batch."""
        try:
            yield
        except StreamingQueryException as told:
            raise self._in_words(told) from None

    def _in_words(self, told: BaseException) -> QueryFailed:
        return in_words(self._whose, self.epochs.record.number + 1, self._cause or told, told)

    def stop(self) -> None:
        self._stopping.set()
        with suppress(Exception):  # a context that has been stopped has no jobs
            self.sites.session.sparkContext.cancelJobGroup(f"sluice-{self.query}")
        self.spark_query.stop()
        self._closed.wait()

    def wait(self, timeout: float | None) -> bool:
        """Until the query has ended and everything is cleaned up; False if time runs out before. Raises its error."""
        deadline = None if timeout is None else time.monotonic() + timeout
        try:
            # Spark notices other owners too, and cannot tell whose they are; a temporary checkpoint, which may be gone
            # by now, has none
            owners = nullcontext() if self.temporary else self.epochs.checkpoint.translate_fencing_errors()
            with self._telling_what_went_wrong(), owners:
                ended = self.spark_query.awaitTermination(timeout)  # type: ignore[arg-type]  # seconds, parts too
        finally:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            over = not self.spark_query.isActive and self._closed.wait(left)
        if over:
            self._raise_failure()
        return ended is not False and over

    def _close_when_over(self) -> None:
        with suppress(Exception):  # the user gets it from awaitTermination or exception(); here only the end matters
            self.spark_query.awaitTermination()
            if "availableNow" in self.trigger:  # Spark has no more batches, but what has arrived is to be processed
                self.draining = True
                self.epochs.clean_up()
                while self._is_to_drain and self._catch_up():
                    self.epochs.clean_up()
        try:
            self._callback.release()
            with self._turn:  # nobody asks for executors after this
                self.epochs.end()
                self.draining = False
                self.sites.close(self.epochs.workspace)
        finally:
            try:
                self.epochs.close()
            finally:
                self._remove_temporary()
                self._closed.set()

    @property
    def _is_to_drain(self) -> bool:
        return self.epochs.is_behind and not self._stopping.is_set() and self.failure is None

    def _remove_temporary(self) -> None:
        if not self.temporary:
            return
        if not any(isinstance(sink, MemorySink) for sink in self.sinks):  # a view is for looking at afterwards, too
            _remove(self.epochs.storage.uri)


def temporary_checkpoint() -> str:
    """A directory for a query without a checkpointLocation; it goes with the query, or with this process."""
    directory = scratch(uuid.uuid4().hex[:16])
    _temporary.add(directory)
    return directory


def _remove(temporary: str) -> None:
    shutil.rmtree(temporary, ignore_errors=True)
    _temporary.discard(temporary)


@atexit.register
def _remove_all_temporary() -> None:
    for directory in tuple(_temporary):
        _remove(directory)


def _absolute(path: str) -> str:
    """A path every executor understands: local ones made absolute, URIs as they are."""
    if "://" in path or path.startswith("file:"):
        storage = Storage(path)
        return storage.root if storage.local else path
    return os.path.abspath(path)


def _use_this_python(spark: SparkSession) -> None:
    """Have local executors run this interpreter, where Sluice is installed, unless the user chose another."""
    context = spark.sparkContext
    if str(context.master).startswith("local") and not os.environ.get("PYSPARK_PYTHON"):
        context.pythonExec = sys.executable
