"""A checkpoint as its driver has it open: taken over, at its newest epoch, without what failed attempts left in it."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from sluice.control.journal import Journal
from sluice.control.ownership import take_ownership
from sluice.engine.delivery import Delivery, Sink
from sluice.model.clock import Clock
from sluice.model.epoch.attempt import is_left_over
from sluice.model.errors import CheckpointError
from sluice.model.identity import CheckpointIdentity, FlowIdentity
from sluice.record.epoch import EpochRecord
from sluice.state.durable import STATE
from sluice.state.files.storage import Storage

PARTS_DIFFER = (
    "part of it was deleted or restored. Restore it as a whole, or start anew with a new checkpointLocation and path"
)
"""Why the journal and Spark's part of a checkpoint do not fit together, and what to do."""


@dataclass(frozen=True)
class OpenCheckpoint:
    """A checkpoint that a run of a query owns, until another driver takes it over."""

    storage: Storage
    journal: Journal
    delivery: Delivery
    query: str
    run: str

    @property
    def newest(self) -> EpochRecord:
        """The newest epoch of this owner's, at first the one that it goes on from."""
        assert self.journal.head is not None, "a checkpoint that is open has an owner"
        return self.journal.head.record

    @contextmanager
    def translate_fencing_errors(self) -> Iterator[None]:
        """Where another driver has taken the checkpoint over, that is what went wrong, whatever it looked like."""
        try:
            yield
        except CheckpointError:
            raise
        except Exception as problem:
            self.journal.refuse_if_taken_over(problem)
            raise

    def tidy(self, newest: EpochRecord) -> None:
        """Remove what failed attempts left, but nothing that another driver on this checkpoint may be writing."""

        def over(name: str) -> bool:
            return is_left_over(name, newest.number, self.run)

        self.storage.delete_all(name for name in self.storage.files_in(STATE) - newest.files() if over(name))
        self.delivery.tidy(newest, over)

    def close(self, newest: EpochRecord) -> None:
        """Remove what failed attempts left, now that there is none any more, if the checkpoint is still this run's."""
        # a commit can come through although it failed here: then what looks left over is the newest epoch's
        if self.journal.is_at(newest) and self.journal.is_owned():
            self.tidy(newest)


def open_checkpoint(
    storage: Storage, new_id: str, identity: FlowIdentity, first: EpochRecord, sinks: Sequence[Sink], clock: Clock
) -> OpenCheckpoint:
    """Take a checkpoint over, go to its newest epoch, and remove what did not become part of it. What is refused is not
    touched. Where the checkpoint is new it becomes the flow's of this identity, under a new id, and goes on from
    `first`."""
    journal, delivery, run = Journal(storage), Delivery(sinks, storage), uuid.uuid4().hex[:8]
    claim = CheckpointIdentity(id=new_id, shown=tuple(sink.shown for sink in sinks), **vars(identity))
    owned = take_ownership(journal, claim, run, clock, first, delivery.check)
    checkpoint = OpenCheckpoint(storage, journal, delivery, owned.query, run)
    with checkpoint.translate_fencing_errors():
        storage.make_dir(STATE)
        delivery.open(owned.query, owned.record)
        journal.remove_drafts()
        checkpoint.tidy(owned.record)
    return checkpoint
