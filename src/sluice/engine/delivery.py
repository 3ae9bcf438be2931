"""From a committed epoch to what users see: its results go to the sinks, once, however often that is tried."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from sluice.engine.part_writer import Staging
from sluice.model.epoch.attempt import Attempt
from sluice.model.epoch.results import Listing, Part, Results
from sluice.model.errors import SluiceError
from sluice.model.plan.query_names import directory_of
from sluice.record.epoch import EpochRecord
from sluice.state.files.storage import Storage

_log = logging.getLogger(__name__)

DELIVERED = "delivered"
"""Directory with a file named after the last epoch whose results were shown, of those that Spark's log does not tell
of. Where one epoch follows the other the next one's record tells it, and there is no file."""


class Sink(Protocol):
    """Takes the results of a committed epoch to where the user wants them."""

    kind: str
    """Which it is, by the name that users give."""
    staging: Staging
    shown: str | None
    """Where parts lie once they are shown: a URI or path, or one inside the checkpoint; None if they do not stay."""

    def check(self, query: str | None, newest: Results) -> None:
        """See that results can go there after the newest epoch's, before anything is touched; a query of None has no
        checkpoint yet."""

    def check_new(self, query: str | None) -> None:
        """See that results can go there of an output that the checkpoint did not have, before anything is touched."""

    def open(self, query: str, newest: Results) -> None:
        """Get ready to take results."""

    def listing_with(self, before: Listing, parts: tuple[Part, ...], committed_at: float) -> Listing:
        """How the output's files will be listed once the epoch with these parts is shown; nothing is done yet."""

    def deliver(self, results: Results) -> None:
        """Show the results of a committed epoch; after a crash it is called again and must not show them twice."""

    def tidy(self, parts: tuple[Part, ...], is_left_over: Callable[[str], bool]) -> None:
        """Remove waiting parts that are left over, except `parts`, those of the newest committed epoch."""

    def leave(self) -> None:
        """No more results come: remove what is of no use to anybody then. What was shown stays."""


class SinkRaised(Exception):
    """A user's own function raised a `problem` when it was handed results."""

    def __init__(self, problem: Exception) -> None:
        super().__init__(str(problem))
        self.problem = problem


@dataclass(frozen=True)
class SetAside:
    """A query whose sink could not take the results of an epoch: it gets no others, and is dropped."""

    name: str
    sink: str
    epoch: int
    problem: str

    def __str__(self) -> str:
        return f"set aside: the results of epoch {self.epoch} could not be shown: {self.problem}"


class Delivery:
    """Shows the results of committed epochs: those of each one go to the sinks of the plan that it went by. `done` is
    whether those of the newest one have been shown, as far as is known.

    A sink that raises is set aside, if there are others, unless the whole query `fails_fast`.
    """

    def __init__(
        self,
        storage: Storage,
        fails_fast: bool = False,
        refuse_if_taken_over: Callable[[Exception], None] = lambda problem: None,
    ) -> None:
        """Where another driver has taken the checkpoint over, that is why a sink raises."""
        self.storage, self.fails_fast, self._refuse_if_taken_over = storage, fails_fast, refuse_if_taken_over
        self.done = False
        self.failed_epoch: int | None = None
        """The epoch whose results could not be shown, which ends the query."""
        self._marked = -1
        """The newest epoch of which a file says that its results were shown."""
        self.set_aside: dict[str, SetAside] = {}
        """The queries whose sinks have failed, by their names, until others are added under these."""
        self._failed: list[Sink] = []
        """Sinks of queries that are not dropped yet, and get nothing any more."""
        self._sinks: dict[str, dict[str, Sink]] = {}
        """By name for each output of the plans that the newest epoch went by and the next one will, by their files."""

    def sinks_of(self, record: EpochRecord) -> tuple[Sink, ...]:
        """Where the results of an epoch go."""
        return tuple(self._sinks[record.plan].values())

    def has_plan(self, record: EpochRecord) -> bool:
        """Whether it is known where the results of an epoch go."""
        return record.plan in self._sinks

    def use(self, plan: str, names: Iterable[str], sinks: Iterable[Sink]) -> None:
        """The results of epochs that go by the plan in this file go to these sinks."""
        self._sinks[plan] = dict(zip(names, sinks, strict=True))
        for name, sink in self._sinks[plan].items():
            if name in self.set_aside and sink not in self._failed:
                del self.set_aside[name]

    def failed_queries(self, names: Iterable[str], sinks: Iterable[Sink]) -> tuple[str, ...]:
        """Those of some queries that are to be dropped, because their sinks have failed."""
        return tuple(name for name, sink in zip(names, sinks, strict=True) if sink in self._failed)

    def keep_plan_of(self, record: EpochRecord) -> None:
        """An epoch was committed, and all results of those before it have been shown: where those went that went by
        other plans does not matter any more."""
        stay = self._sinks[record.plan]
        others = [item for plan, sinks in self._sinks.items() if plan != record.plan for item in sinks.items()]
        for name, sink in dict.fromkeys(others):
            if sink not in stay.values() and sink not in self._failed:  # else its results wait in their files
                try:
                    sink.leave()
                except SluiceError as problem:
                    _log.warning("what the dropped query %r leaves could not be removed: %s", name, problem)
        self._sinks = {record.plan: stay}
        self._failed = [sink for sink in self._failed if sink in stay.values()]

    def check(self, query: str | None, newest: EpochRecord) -> None:
        """See that results can go to all sinks after the newest epoch's, before anything is touched."""
        for output, sink in enumerate(self.sinks_of(newest)):
            sink.check(query, newest.results_of(output))

    def open(self, query: str, newest: EpochRecord) -> None:
        """Get ready to take results after the newest epoch's."""
        marks = self.storage.files_in(DELIVERED)
        for output, (name, sink) in enumerate(self._sinks[newest.plan].items()):
            sink.open(query, newest.results_of(output))
            if _failure_mark(newest, name) in marks:  # its driver died before the query was dropped
                self._deliver(newest, output, name, sink)
        self.done = _mark(newest) in marks
        self._marked = newest.number if self.done else -1
        if newest.stats.catch_up:  # Spark does not ask for its results again
            self.finish(newest)

    def deliver(self, record: EpochRecord) -> None:
        """Show the results of the newest epoch, now that it is committed."""
        for output, (name, sink) in enumerate(self._sinks[record.plan].items()):
            self._deliver(record, output, name, sink)
        self.done = True
        if record.lagging or record.missing_units or record.stats.catch_up:  # of the others Spark's own commit says it
            self.note_shown(record)

    def note_shown(self, record: EpochRecord) -> None:
        """Have a restart know that the results of the newest epoch were shown, if they were."""
        if self.done and self._marked < record.number:
            self.storage.make_dir(DELIVERED)
            self.storage.write(_mark(record), [])
            self._remove_other_marks(record)
            self._marked = record.number

    def _deliver(self, record: EpochRecord, output: int, name: str, sink: Sink) -> None:
        """Hand one query's results over; if that fails, the query is set aside, before Spark takes the epoch for
        done."""
        if sink in self._failed:
            return
        problem = _try_to_deliver(sink, record.results_of(output))
        if problem is None:
            return
        self._refuse_if_taken_over(problem)
        others = (other for other in self._sinks[record.plan].values() if other is not sink)
        if self.fails_fast or all(other in self._failed for other in others):
            self.failed_epoch = record.number
            raise problem
        self.storage.make_dir(DELIVERED)
        self.storage.write(_failure_mark(record, name), [])
        self._failed.append(sink)
        self.set_aside[name] = SetAside(name, sink.kind, record.number, f"{type(problem).__name__}: {problem}")
        _log.error("query %r is %s", name, self.set_aside[name], exc_info=problem)

    def finish(self, record: EpochRecord) -> None:
        """Show the results of the newest epoch, if that was not done: nobody will ask for them again."""
        if not self.done:
            self.deliver(record)

    def tidy(self, record: EpochRecord, is_left_over: Callable[[str], bool]) -> None:
        """Remove what failed attempts left; `record` is the newest epoch."""
        self._remove_other_marks(record)
        for output, sink in enumerate(self.sinks_of(record)):
            if sink not in self._failed:
                sink.tidy(record.results_of(output).parts, is_left_over)

    def _remove_other_marks(self, record: EpochRecord) -> None:
        of_epoch = f"{DELIVERED}/{Attempt.prefix(record.number)}"
        self.storage.delete_all(name for name in self.storage.files_in(DELIVERED) if not name.startswith(of_epoch))


def _try_to_deliver(sink: Sink, results: Results) -> Exception | None:
    """Hand results over; what the sink raises by itself."""
    try:
        sink.deliver(results)
    except SinkRaised as raised:
        return raised.problem
    except SluiceError as problem:
        return problem
    return None


def list_results(
    sinks: Sequence[Sink], before: EpochRecord, record: EpochRecord
) -> tuple[tuple[Listing, Listing], ...]:
    """How each output's files are listed before and after an epoch that is about to be committed."""
    listings_now = []
    for output, sink in enumerate(sinks):
        listing, new = before.results_of(output).listing, record.results_of(output)
        listings_now.append((listing, sink.listing_with(listing, new.parts, new.committed_at)))
    return tuple(listings_now)


def _failure_mark(record: EpochRecord, name: str) -> str:
    """The file that says that a query's results were not shown. It is there until an epoch without the query is."""
    return f"{DELIVERED}/{Attempt.prefix(record.number)}failed-{directory_of(name)}"


def _mark(record: EpochRecord) -> str:
    return f"{DELIVERED}/{Attempt.prefix(record.number)}shown"
