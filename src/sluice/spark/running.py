"""A running query: its feed has an epoch run whenever there is input, and it leaves nothing behind."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from functools import partial

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from sluice.engine.epochs import Epochs
from sluice.engine.plan_changes import ChangeRequest
from sluice.engine.split import SplitTask
from sluice.model.clock import Clock
from sluice.model.errors import CheckpointError, QueryError
from sluice.model.plan.plan import Plan
from sluice.sources.input_files import InputFile
from sluice.spark.callbacks import as_error
from sluice.spark.checked_query import CheckedQuery
from sluice.spark.exchange import Sites
from sluice.spark.failures import QueryFailed, in_words
from sluice.spark.feed import Feed, FeedInput
from sluice.spark.file_loop import FileLoop
from sluice.spark.idling import IDLE, Failing, Idling
from sluice.spark.listener_events import ListenerEvents
from sluice.spark.query_checkpoint import QueryCheckpoint
from sluice.spark.sinks import BatchSink
from sluice.spark.streaming_feed import StreamingFeed

log = logging.getLogger(__name__)

POLL_S = 0.1
"""Seconds between two looks at what somebody waits for."""


class RunningQuery:
    """A query that was started: its feed calls for an epoch whenever there is input, and `stop` ends it and removes
    everything but the checkpoint and the results."""

    def __init__(self, query: CheckedQuery, checkpoint: QueryCheckpoint, sites: Sites, clock: Clock) -> None:
        self._query, self._checkpoint, self.sites = query, checkpoint, sites
        self.sources, self.settings, self.trigger = query.sources, query.settings, query.trigger
        self.id = checkpoint.opened.query
        self.epochs = Epochs(checkpoint.flow, query.reading, query.settings, checkpoint.opened, clock)
        self._interval = query.interval
        self._idling = Idling(self.epochs, self._interval)
        self.feed = self._choose_feed()
        self._events = self._choose_events()
        self._closed, self._stopping = threading.Event(), threading.Event()
        self._turn = threading.Lock()
        self.failure: Exception | None = None
        self._cause: BaseException | None = None
        """What ended the last epoch with input, if it failed, before it went through Spark."""
        self.draining = False

    def _choose_feed(self) -> Feed:
        """Files are found here; all else Structured Streaming has to read."""
        sparks_part = self._checkpoint.sparks_part
        if sparks_part is None:
            return FileLoop(self._query, self.id, self.epochs, self._take_in, self._read_ahead, self._fail)
        return StreamingFeed(self._query, sparks_part, self.epochs, self._take_in)

    def _choose_events(self) -> ListenerEvents | None:
        """Spark's listeners hear of Structured Streaming's own queries anyway."""
        if self._checkpoint.sparks_part is not None:
            return None
        return ListenerEvents(self.session, self.feed.id, self.feed.run_id, self.feed.name)

    def start(self) -> None:
        """Have it run. From here on it ends by itself, or with `stop`, and cleans up then."""
        if self._events is not None:
            self._events.tell_start(self.epochs.clock.time())
        try:
            self.epochs.read_tables()
            self.feed.start()
        except BaseException as failure:
            self._tell_end(failure)
            raise
        for work in (self._close_when_over, self._catch_up_when_idle):
            threading.Thread(target=work, name=f"sluice-{self.id}", daemon=True).start()

    @property
    def session(self) -> SparkSession:
        """The user's."""
        return self._query.spark

    @property
    def closes_at_end(self) -> bool:
        """Whether all streams end with this run."""
        return self._query.closes_at_end

    @property
    def plan(self) -> Plan:
        """What runs."""
        return self.epochs.plan

    @property
    def is_closed(self) -> bool:
        """Whether it has ended and everything is cleaned up."""
        return self._closed.is_set()

    def _take_in(self, input: FeedInput) -> None:
        """One epoch over some input."""
        try:
            with self._turn:
                ingested_at = self.epochs.clock.time()
                site_change_reason = self._follow()
                exchange = self.sites.exchange(input.content, self._sites_next)
                input.run(self.sites.site_keys, exchange, site_change_reason, ingested_at)
                self._tell_epoch()
            self._idling.batch_is_over()
        except BaseException as failure:
            self._cause = failure
            raise

    def _read_ahead(self, split: SplitTask, files: Sequence[InputFile]) -> None:
        """Have the next epoch's map tasks begin, unless Spark runs jobs for a sink: those would come after them."""
        if not any(isinstance(sink, BatchSink) for sink in self.epochs.standing.flow.sinks):
            self.sites.read_ahead(split, files)

    def _tell_epoch(self) -> None:
        """Tell Spark's listeners of the newest epoch."""
        recent = self.epochs.standing.recent
        if self._events is not None and recent:
            self._events.tell_epoch(recent[-1])

    def _tell_end(self, failure: BaseException | None) -> None:
        if self._events is not None:
            self._events.tell_end(failure)

    def _follow(self) -> str:
        """Have the sites be where executors are, and as many as they are to be; why they changed, if they did."""
        ran_on, sites_next = self.epochs.standing.ran_on, self.epochs.sites_next
        site_change_reason = self.sites.follow(self._checkpoint.workspace, ran_on, sites_next)
        self.settings.controller.slots = self.sites.slots
        return site_change_reason

    def _next_batch(self) -> float:
        """When the feed looks for the next input: at whole multiples of the trigger's interval."""
        return (self.epochs.clock.time() // self._interval + 1) * self._interval if self._interval else math.inf

    def _is_input_coming(self) -> bool:
        """Whether there is input, or the feed is about to look for some, or may just have done so. Spark may list the
        files of a batch in tasks, which sites would keep from running."""
        if self.feed.is_input_coming():
            return True
        near, left = min(IDLE, self._interval / 4), self._next_batch() - self.epochs.clock.time()
        return left < near or left > self._interval - near > 0

    def _sites_next(self) -> int | None:
        return self.epochs.sites_next

    def _catch_up_when_idle(self) -> None:
        """Process input that waits, go on with what is under way, do what the user asks for: the feed calls for nothing
        as long as no new input comes. If that cannot be looked after any more, the query ends."""
        failing = Failing()
        while not self._closed.wait(IDLE / 4) and self.failure is None:
            try:
                self._look_after()
                failing.note_success()
            except BaseException as failure:
                log.info("query %s cannot be looked after while it is idle: %s", self.id, failure)
                if failing.note_failure() or not isinstance(failure, Exception):
                    self._fail(failure)

    def _look_after(self) -> None:
        """One epoch, if there is something to do and no batch comes."""
        if self.epochs.busy.locked() or not self._idling.is_epoch_due(self._can_resize):
            return
        running = self.feed.is_active and not self._stopping.is_set()
        if running and not self._is_input_coming():
            self._catch_up()

    def _can_resize(self) -> bool:
        return self.sites.can_have(self.epochs.sites_next)

    def _fail(self, failure: BaseException) -> None:
        """End the query because of something that Spark knows nothing of."""
        self._cause = failed = as_error(failure)
        self.failure = failed if isinstance(failed, CheckpointError) else self._in_words(failed)
        with suppress(Exception):  # where Spark is not reached any more it has ended
            self.feed.stop()

    def _catch_up(self, ending: bool = False) -> bool:
        """One epoch for input that waits, units to be cleaned up or what is under way, if any, or an idle one; or that
        with which all streams end. What goes wrong ends the query."""
        context = self.sites.session.sparkContext
        try:
            context.setJobGroup(f"sluice-{self.id}", "input that waits")
            with self._turn:
                if self.epochs.closed:
                    return False
                before = self.sites.count
                site_change_reason = self._follow()
                if self.sites.count != before:
                    self._idling.sites_have_changed()
                exchange = self.sites.exchange(None, self._sites_next)
                if ending:
                    did = self.epochs.end_input(self.sites.site_keys, exchange, site_change_reason)
                else:
                    did = self.epochs.catch_up(self.sites.site_keys, exchange, site_change_reason, self._next_batch())
                if did:
                    self._tell_epoch()
                elif not ending and self._idling.is_idle_epoch_due and self.feed.is_active:
                    self.epochs.run_idle_epoch(self.sites.site_keys, exchange, site_change_reason)
                    self._idling.idle_epoch_is_over()
                return did
        except BaseException as failure:
            if not self._stopping.is_set():
                log.info("query %s ends, because an epoch for input that waits failed: %s", self.id, failure)
                self._fail(failure)
            return False
        finally:
            with suppress(Exception):  # so that a stop cancels no other job of this thread
                context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]

    @property
    def location(self) -> str:
        """Where its checkpoint is."""
        return self._checkpoint.location

    @property
    def is_temporary(self) -> bool:
        """Whether its checkpoint goes with it."""
        return self._checkpoint.temporary

    def change(self, request: ChangeRequest) -> None:
        """Have queries added and dropped with the next epoch; returns when that is committed, or raises why not."""
        self.epochs.standing.refuse_change(request)
        self.epochs.standing.changes.add(request)
        self._wait_while(lambda: not request.done.is_set())
        if request.refusal is not None:
            raise request.refusal
        if not request.done.is_set():
            raise QueryError("the query ended before its queries were changed; its next start may do it")

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
        with self._translate_failures():
            self.feed.process_all()
        self.settle()

    def _raise_failure(self) -> None:
        if self.failure is not None:
            raise self.failure from self.failure.__cause__  # and from nothing else: all is in it

    @property
    def exception(self) -> Exception | None:
        """Why the query failed, if it did."""
        sparks_failure = self.feed.failure
        return self.failure if sparks_failure is None else self._in_words(sparks_failure)

    @contextmanager
    def _translate_failures(self) -> Iterator[None]:
        """What Spark raises, in words: its own text begins with the function that it calls for a batch."""
        try:
            yield
        except StreamingQueryException as told:
            raise self._in_words(told) from None

    def _in_words(self, failure: BaseException) -> QueryFailed:
        failed = self.epochs.delivery.failed_epoch
        epoch = self.epochs.record.number + 1 if failed is None else failed
        return in_words(self._query.title, epoch, self._cause or failure, failure)

    def stop(self) -> None:
        self._stopping.set()
        self.epochs.delivery.fails_fast = True  # whatever a sink raises now may be because of this
        with suppress(Exception):  # a context that has been stopped has no jobs
            self.sites.session.sparkContext.cancelJobGroup(f"sluice-{self.id}")
        self.feed.stop()
        self._closed.wait()

    def wait(self, timeout: float | None) -> bool:
        """Until the query has ended and everything is cleaned up; False if time runs out before. Raises its error."""
        deadline = None if timeout is None else time.monotonic() + timeout
        try:
            # Spark notices other owners too, and cannot tell whose they are; a temporary checkpoint, which may be gone
            # by now, has none
            owners = nullcontext() if self._checkpoint.temporary else self._checkpoint.opened.translate_fencing_errors()
            with self._translate_failures(), owners:
                ended = self.feed.wait(timeout)
        finally:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            over = not self.feed.is_active and self._closed.wait(left)
        if over:
            self._raise_failure()
        return ended and over

    def _close_when_over(self) -> None:
        with suppress(Exception):  # the user gets it from awaitTermination or exception(); here only the end matters
            self.feed.wait(None)
            if "availableNow" in self.trigger:  # nothing more is taken in, but what has arrived is to be processed
                self.draining = True
                self._drain()
                if self.closes_at_end and self._is_going_on and self._catch_up(ending=True):
                    self._drain()
        try:
            self.feed.release()
            with self._turn:  # nobody asks for executors after this
                self.epochs.end()
                self.draining = False
                self.sites.close(self._checkpoint.workspace)
        finally:
            try:
                self.epochs.close()
            finally:
                self._checkpoint.leave()
                self._tell_end(self.failure)
                self._closed.set()

    def _drain(self) -> None:
        """Process all input that waits, and find all results that are missing."""
        self.epochs.clean_up()
        while (self.epochs.is_behind or self.epochs.standing.is_changing) and self._is_going_on and self._catch_up():
            self.epochs.clean_up()

    @property
    def _is_going_on(self) -> bool:
        """Whether nobody has stopped the query, and it has not failed."""
        return not self._stopping.is_set() and self.failure is None
