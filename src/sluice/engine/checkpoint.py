"""A checkpoint as its driver has it open: taken over, at its newest epoch, without what failed attempts left in it."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from sluice.control.identity import QueryChanges
from sluice.control.journal import PLANS, Journal
from sluice.control.ownership import take_ownership
from sluice.engine.delivery import Delivery
from sluice.engine.flow_plan import FlowPlan
from sluice.model.clock import Clock
from sluice.model.epoch.attempt import is_left_over
from sluice.model.errors import CheckpointError
from sluice.model.identity import CheckpointIdentity, FlowIdentity
from sluice.model.plan.recorded_plan import RecordedPlan
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

    def tidy(self) -> None:
        """Remove what failed attempts left, but nothing that another driver on this checkpoint may be writing."""
        newest = self.newest

        def over(name: str) -> bool:
            return is_left_over(name, newest.number, self.run)

        self.storage.delete_all(name for name in self.storage.files_in(STATE) - newest.files() if over(name))
        self.storage.delete_all(name for name in self.storage.files_in(PLANS) - newest.plans if over(name))
        self.delivery.tidy(newest, over)

    def close(self) -> None:
        """Remove what failed attempts left, now that there is none any more, if the checkpoint is still this run's."""
        if self.journal.is_owned():
            self.tidy()


def open_checkpoint(
    storage: Storage, new_id: str, identity: FlowIdentity, first: EpochRecord, flow: FlowPlan, clock: Clock
) -> OpenCheckpoint:
    """Take a checkpoint over, go to its newest epoch, and remove what did not become part of it. What is refused is not
    touched. Where the checkpoint is new it becomes the flow's of this identity, under a new id, and goes on from
    `first`."""
    journal, delivery, run = Journal(storage), Delivery(flow.sinks, storage), uuid.uuid4().hex[:8]
    recorded = flow.recorded

    def check(query: str | None, newest: EpochRecord) -> None:
        if newest.plan:
            _refuse_other_queries(storage.uri, recorded, journal.read_plan(newest.plan))
        delivery.check(query, newest)

    claim = CheckpointIdentity(id=new_id, **vars(identity))
    owned = take_ownership(journal, claim, run, clock, first, recorded, check)
    checkpoint = OpenCheckpoint(storage, journal, delivery, owned.query, run)
    with checkpoint.translate_fencing_errors():
        storage.make_dir(STATE)
        delivery.open(owned.query, owned.record)
        journal.remove_drafts()
        checkpoint.tidy()
    return checkpoint


def _refuse_other_queries(uri: str, ours: RecordedPlan, recorded: RecordedPlan) -> None:
    zone, recorded_zone = ours.timeZone, recorded.timeZone
    if zone and recorded_zone and zone != recorded_zone:
        raise CheckpointError(
            f"checkpoint {uri} was written in the time zone {recorded_zone}, this session's is {zone}. Nothing was "
            "touched. Set spark.sql.session.timeZone as it was, or use a new checkpointLocation and a new path"
        )
    changes = QueryChanges.between(recorded, ours)
    if changes:
        raise CheckpointError(
            f"checkpoint {uri} has other queries than these writers: {changes}. Nothing was touched. Use the writers "
            "that it has, or a new checkpointLocation and a new path"
        )
