"""How a driver becomes the owner of a checkpoint: it claims it for its flow, and fences off whoever had it before."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from sluice.control.journal import Entry, Journal
from sluice.model.clock import Clock
from sluice.model.errors import SluiceError
from sluice.model.identity import CheckpointIdentity
from sluice.model.plan.recorded_plan import RecordedPlan
from sluice.record.epoch import EpochRecord

Check = Callable[[str | None, EpochRecord], None]
"""Refuses a checkpoint, before anything is touched, by its query's id (None if it has none yet) and its newest
epoch."""


@dataclass(frozen=True)
class Ownership:
    """The query that a checkpoint is of, and the newest epoch, from which its owner goes on."""

    query: str
    record: EpochRecord


def take_ownership(
    journal: Journal,
    identity: CheckpointIdentity,
    run: str,
    clock: Clock,
    first: EpochRecord,
    plan: RecordedPlan,
    check: Check,
) -> Ownership:
    """Make a run the owner of a checkpoint, if it is the flow's and nothing speaks against it. Where the checkpoint is
    new it becomes the flow's, under the id in `identity`, and goes on from `first` by this plan."""
    while True:
        before = journal.identity()
        if before is not None:
            journal.claim(identity)
        newest = journal.newest()
        record = first if newest is None else newest.record
        try:
            check(None if before is None else before.id, record)
            journal.storage.make_dir()
            claimed = journal.claim(identity)
            if newest is None:
                record = replace(first, plan=journal.write_plan(plan, first.number + 1, run))
            if journal.take_over(run, clock.time(), newest, record):
                return Ownership(claimed.id, record)
        except SluiceError:
            if not _has_moved_on(journal, newest):  # else its owner was still at work, or there is another one
                raise


def _has_moved_on(journal: Journal, newest: Entry | None) -> bool:
    return journal.indexes()[-1:] != ([] if newest is None else [newest.index])
