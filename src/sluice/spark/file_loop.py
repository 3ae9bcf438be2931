"""An epoch loop of Sluice's own, where all sources are files: it finds them, picks an epoch's, and has it run.

The journal is the one log. What an epoch takes in is in its record, so an epoch that was not committed never was: the
next one is planned anew, by what is there then. Nothing of Structured Streaming takes part.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from pyspark import InheritableThread

from sluice.engine.agreement import Exchange
from sluice.engine.ended_streams import refuse_input
from sluice.engine.epochs import Epochs
from sluice.engine.file_log import NewFile, NewFiles
from sluice.engine.site_task import SiteTask
from sluice.engine.split import SplitTask
from sluice.model.epoch.times import ENDED
from sluice.model.errors import QueryError
from sluice.model.ids import SiteKey
from sluice.record.reports import SiteReport
from sluice.sources.directory_tree import ListedFile
from sluice.sources.file_search import FileSearch
from sluice.sources.file_tracker import FileTracker
from sluice.sources.input_files import InputFile
from sluice.sources.listing_options import ListingOptions
from sluice.spark.checked_query import CheckedQuery
from sluice.spark.failures import is_cancellation
from sluice.spark.feed import FeedInput, TakeIn
from sluice.spark.sources import Source

_CANCEL_EVERY_S = 0.1
"""Seconds between two tries to cancel what a query that is stopped is at: a job may just be about to begin."""
_KEPT = 100
"""Epochs of which it is told how long they took."""
_INITIALIZING, _LOOKING, _PROCESSING = "Initializing sources", "Looking for files", "Processing new data"
_WAITING, _NEXT_TRIGGER, _STOPPED = "Waiting for data to arrive", "Waiting for next trigger", "Stopped"


ReadAhead = Callable[[SplitTask, Sequence[InputFile]], None]
"""Has the map tasks of the next epoch begin over its files."""


@dataclass(frozen=True)
class _Trigger:
    """One turn of the loop that had input: when it began (seconds since 1970), and how many seconds it looked for files
    and was at the epoch."""

    began: float
    looked: float
    took: float
    rows: int
    since_last: float

    def progress(self, whose: Mapping[str, Any]) -> dict[str, Any]:
        milliseconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(self.began)), int(self.began % 1 * 1000)
        total = round((self.looked + self.took) * 1000)
        durations = {"latestOffset": round(self.looked * 1000), "addBatch": round(self.took * 1000)}
        return {
            **whose,
            "timestamp": "{}.{:03d}Z".format(*milliseconds),
            "batchDuration": total,
            "inputRowsPerSecond": self.rows / self.since_last if self.since_last > 0 else 0.0,
            "durationMs": {**durations, "triggerExecution": total},
        }


class FileLoop:
    """Runs epochs over the files of a query's sources, in a thread of its own."""

    def __init__(
        self,
        query: CheckedQuery,
        query_id: str,
        epochs: Epochs,
        take_in: TakeIn,
        read_ahead: ReadAhead,
        fail: Callable[[BaseException], None],
    ) -> None:
        """`fail` is told what ends the loop, if something does."""
        self._query, self._epochs, self._take_in, self._fail = query, epochs, take_in, fail
        self._read_ahead = read_ahead
        self._context, self._clock = query.spark.sparkContext, epochs.clock
        self._group = f"sluice-{query_id}"
        self._available_now = "availableNow" in query.trigger
        self._whose = {
            "id": str(uuid.uuid5(uuid.NAMESPACE_OID, query_id)),
            "runId": str(uuid.uuid4()),
            "name": query.name,
        }
        self._trackers: list[FileTracker] = []
        self._stopping, self._ended = threading.Event(), threading.Event()
        self._looked = threading.Condition()
        self._looks = self._last_empty_look = 0
        self._message, self._has_input = _INITIALIZING, False
        self._triggers: dict[int, _Trigger] = {}
        self._last_began = self._clock.time()

    def start(self) -> None:
        self._trackers = [self._tracker_of(number, source) for number, source in enumerate(self._query.sources)]
        taken: list[list[tuple[str, int]]] = [[] for _ in self._trackers]
        for file in self._epochs.files_taken():
            taken[file.source].append((file.path, file.modified))
        for tracker, files in zip(self._trackers, taken, strict=True):
            tracker.restore(files)
        # with the local properties of the caller, such as a scheduler pool, as Spark's own queries have
        self._thread = InheritableThread(target=self._run, name=f"{self._group}-files", daemon=True)
        self._thread.start()

    def _tracker_of(self, number: int, source: Source) -> FileTracker:
        assert source.path is not None, "all sources are files"
        options = ListingOptions.of(source.options or {})
        search = FileSearch(source.path, options.name_filter, options.recursive)
        return FileTracker(search, options, self._epochs.checkpoint.newest.taken.forgotten_of(number))

    def _run(self) -> None:
        try:
            self._describe_jobs()
            self._epochs.finish_delivery()
            if self._available_now:
                for tracker in self._trackers:
                    tracker.look_for_the_last_time()
            self._turn_until_over()
        except BaseException as failure:
            if not (self._stopping.is_set() and is_cancellation(failure)):
                self._fail(failure)
        finally:
            self._message, self._has_input = _STOPPED, False
            with suppress(Exception):  # it only saves the next run from showing something again
                self._epochs.note_shown()
            self._ended.set()
            with self._looked:
                self._looked.notify_all()

    def _turn_until_over(self) -> None:
        was_busy = False
        while not self._is_over():
            began, started = self._clock.time(), self._clock.monotonic()
            is_busy = self._turn(began)
            if not is_busy and self._available_now:
                return
            if was_busy and not is_busy:
                self._epochs.note_shown()
            was_busy = is_busy
            self._wait_for_trigger(began, is_busy, self._clock.monotonic() - started)

    def _is_over(self) -> bool:
        return self._stopping.is_set() or self._context._jsc is None  # the user has stopped Spark

    def _turn(self, began: float) -> bool:
        """One epoch, if there are files for it; whether there were."""
        self._looks += 1
        self._message = _LOOKING
        started = self._clock.monotonic()
        files = [tracker.next_files() for tracker in self._trackers]
        if not any(files):
            with self._looked:
                self._last_empty_look = self._looks
                self._looked.notify_all()
            return False
        self._refuse_files_of_ended_streams(files)
        found = self._clock.monotonic()
        self._message, self._has_input = _PROCESSING, True
        try:
            self._describe_jobs()
            self._take_in(self._input_of(files))
        finally:
            self._has_input = False
        for tracker, taken in zip(self._trackers, files, strict=True):
            tracker.take(taken)
        self._note_trigger(began, found - started, self._clock.monotonic() - found)
        return True

    def _refuse_files_of_ended_streams(self, files: Sequence[Sequence[ListedFile]]) -> None:
        newest = self._epochs.checkpoint.newest.newest
        for source, listed, reached in zip(self._query.sources, files, newest, strict=True):
            if listed and reached == ENDED:
                others = f" and {len(listed) - 1:,} more" if len(listed) > 1 else ""
                refuse_input(source.stream.name, f"a new file, {listed[0].path}{others}")

    def _input_of(self, files: Sequence[Sequence[ListedFile]]) -> FeedInput:
        new = tuple(NewFile(i, file.path, file.modified) for i, listed in enumerate(files) for file in listed)
        keep_from = tuple(tracker.keep_from for tracker in self._trackers)
        counts = [len(listed) for listed in files]
        return FeedInput(_rows_of(files), partial(self._run_epoch, NewFiles(new, keep_from), counts))

    def _run_epoch(
        self,
        files: NewFiles,
        counts: Sequence[int],
        site_keys: tuple[SiteKey, ...],
        exchange: Exchange,
        reason: str,
        ingested_at: float,
    ) -> None:
        def read_all(split: SplitTask, site: SiteTask) -> list[SiteReport]:
            reports = exchange(split, site)
            read = sum(split.files for report in reports for split in report.splits)
            if read != len(files.files):
                raise QueryError(f"{read} of {len(files.files)} files were read")
            return reports

        self._epochs.run_with_files(files, site_keys, read_all, reason, ingested_at, partial(self._look_ahead, counts))

    def _look_ahead(self, counts: Sequence[int], split: SplitTask) -> None:
        """Have the next epoch's map tasks begin if its files are known by now: those that this one, which takes so many
        of each source in, leaves of the last look. `split` is how their rows are split."""
        files = [tracker.files_after(count) for tracker, count in zip(self._trackers, counts, strict=True)]
        next_files = [listed for listed in files if listed is not None]
        if len(next_files) == len(files) and any(next_files) and not self._stopping.is_set():
            self._read_ahead(split, _rows_of(next_files))

    def _note_trigger(self, began: float, looked: float, took: float) -> None:
        record = self._epochs.checkpoint.newest
        rows, since_last = record.stats.rows_in, began - self._last_began
        self._last_began = began
        newest = [*self._triggers.items(), (record.batch, _Trigger(began, looked, took, rows, since_last))]
        self._triggers = dict(newest[-_KEPT:])

    def _wait_for_trigger(self, began: float, was_busy: bool, took: float) -> None:
        """Until the next multiple of the interval, if there is one, and not at all if that is over. Else as long as it
        makes sense to wait for files."""
        interval = self._query.interval
        if interval:
            self._message = _NEXT_TRIGGER
            self._stopping.wait(max(0.0, (began // interval + 1) * interval - self._clock.time()))
        elif not was_busy:
            self._message = _WAITING
            self._stopping.wait(max(2 * took, *(tracker.poll_s for tracker in self._trackers)))

    def _describe_jobs(self) -> None:
        """So that Spark's pages tell what runs, and a stop cancels it."""
        batch = self._epochs.record.batch + 1
        lines = [f"{name} = {value}" for name, value in self._whose.items() if name != "name"]
        title = [self._whose["name"]] if self._whose["name"] else []
        self._context.setJobGroup(self._group, "<br/>".join([*title, *lines, f"batch = {batch}"]), True)

    @property
    def id(self) -> str:
        return str(self._whose["id"])

    @property
    def run_id(self) -> str:
        return str(self._whose["runId"])

    @property
    def name(self) -> str | None:
        return self._whose["name"]

    @property
    def is_active(self) -> bool:
        return not self._ended.is_set()

    @property
    def status(self) -> dict[str, Any]:
        message = self._message
        active = message in (_LOOKING, _PROCESSING)
        return {"message": message, "isDataAvailable": self._has_input, "isTriggerActive": active}

    @property
    def failure(self) -> BaseException | None:
        return None  # the running query was told

    @property
    def progress(self) -> Mapping[int, Mapping[str, Any]]:
        return {batch: trigger.progress(self._whose) for batch, trigger in self._triggers.items()}

    def is_input_coming(self) -> bool:
        return self._has_input

    def process_all(self) -> None:
        with self._looked:
            begun = self._looks
            self._looked.wait_for(lambda: self._last_empty_look > begun or self._ended.is_set())

    def wait(self, timeout: float | None) -> bool:
        return self._ended.wait(timeout)

    def stop(self) -> None:
        self._stopping.set()
        if threading.current_thread() is self._thread:
            return
        while self._thread.is_alive():
            with suppress(Exception):  # a context that has been stopped has no jobs
                self._context.cancelJobGroup(self._group)
            self._thread.join(_CANCEL_EVERY_S)

    def release(self) -> None:
        self._trackers = []


def _rows_of(files: Sequence[Sequence[ListedFile]]) -> list[InputFile]:
    """The files of each source as map tasks are given them."""
    return [InputFile(source, file.path, file.size) for source, listed in enumerate(files) for file in listed]
