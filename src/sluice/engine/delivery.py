"""From a committed epoch to what users see: its results go to the sinks, once, however often that is tried."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Protocol

from sluice.engine.part_writer import Staging
from sluice.model.epoch.attempt import Attempt
from sluice.model.epoch.results import Listing, Part, Results
from sluice.model.errors import SluiceError
from sluice.record.epoch import EpochRecord
from sluice.state.files.storage import Storage

_log = logging.getLogger(__name__)

DELIVERED = "delivered"
"""Directory with a file named after the last epoch whose results were shown, of those that Spark's log does not tell
of."""


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


class Delivery:
    """Shows the results of committed epochs: those of each one go to the sinks of the plan that it went by. `done` is
    whether those of the newest one have been shown, as far as is known."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        self.done = False
        self._sinks: dict[str, tuple[Sink, ...]] = {}
        """For each output of the plans that the newest epoch went by and the next one will, by their files."""

    def sinks_of(self, record: EpochRecord) -> tuple[Sink, ...]:
        """Where the results of an epoch go."""
        return self._sinks[record.plan]

    def has_plan(self, record: EpochRecord) -> bool:
        """Whether it is known where the results of an epoch go."""
        return record.plan in self._sinks

    def use(self, plan: str, sinks: Sequence[Sink]) -> None:
        """The results of epochs that go by the plan in this file go to these sinks."""
        self._sinks[plan] = tuple(sinks)

    def change_plan(self, previous: EpochRecord, record: EpochRecord) -> None:
        """An epoch was committed that went by another plan than the one before, whose results have all been shown."""
        stay = self.sinks_of(record)
        for sink in self.sinks_of(previous):
            if sink not in stay:
                try:
                    sink.leave()
                except SluiceError as problem:
                    _log.warning("what a dropped query leaves could not be removed: %s", problem)
        self._sinks = {record.plan: stay}

    def check(self, query: str | None, newest: EpochRecord) -> None:
        """See that results can go to all sinks after the newest epoch's, before anything is touched."""
        for output, sink in enumerate(self.sinks_of(newest)):
            sink.check(query, newest.results_of(output))

    def open(self, query: str, newest: EpochRecord) -> None:
        """Get ready to take results after the newest epoch's."""
        for output, sink in enumerate(self.sinks_of(newest)):
            sink.open(query, newest.results_of(output))
        self.done = _mark(newest) in self.storage.files_in(DELIVERED)
        if newest.stats.catch_up:  # Spark does not ask for its results again
            self.finish(newest)

    def deliver(self, record: EpochRecord) -> None:
        """Show the results of the newest epoch, now that it is committed."""
        for output, sink in enumerate(self.sinks_of(record)):
            sink.deliver(record.results_of(output))
        self.done = True
        if record.lagging or record.missing_units or record.stats.catch_up:  # of the others Spark's own commit says it
            self.storage.make_dir(DELIVERED)
            self.storage.write(_mark(record), [])
            self._remove_other_marks(record)

    def finish(self, record: EpochRecord) -> None:
        """Show the results of the newest epoch, if that was not done: nobody will ask for them again."""
        if not self.done:
            self.deliver(record)

    def tidy(self, record: EpochRecord, is_left_over: Callable[[str], bool]) -> None:
        """Remove what failed attempts left; `record` is the newest epoch."""
        self._remove_other_marks(record)
        for output, sink in enumerate(self.sinks_of(record)):
            sink.tidy(record.results_of(output).parts, is_left_over)

    def _remove_other_marks(self, record: EpochRecord) -> None:
        self.storage.delete_all(self.storage.files_in(DELIVERED) - {_mark(record)})


def list_results(
    sinks: Sequence[Sink], before: EpochRecord, record: EpochRecord
) -> tuple[tuple[Listing, Listing], ...]:
    """How each output's files are listed before and after an epoch that is about to be committed."""
    listings_now = []
    for output, sink in enumerate(sinks):
        listing, new = before.results_of(output).listing, record.results_of(output)
        listings_now.append((listing, sink.listing_with(listing, new.parts, new.committed_at)))
    return tuple(listings_now)


def _mark(record: EpochRecord) -> str:
    return f"{DELIVERED}/{Attempt.prefix(record.number)}shown"
