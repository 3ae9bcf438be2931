"""A checkpoint as its driver has it open: taken over, at its newest epoch, without what failed attempts left in it."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from sluice.control.identity import QueryChanges
from sluice.control.journal import PLANS, Journal
from sluice.control.ownership import take_ownership
from sluice.engine.delivery import Delivery, Sink
from sluice.engine.file_log import FILE_LISTS
from sluice.engine.flow_plan import FlowPlan
from sluice.model.clock import Clock
from sluice.model.epoch.attempt import is_left_over
from sluice.model.epoch.results import Results
from sluice.model.errors import CheckpointError
from sluice.model.identity import CheckpointIdentity, FlowIdentity, StreamIdentity
from sluice.model.plan.assignment import Assignment
from sluice.model.plan.recorded_plan import RecordedPlan, RecordedQuery
from sluice.record.attaching import assignment_after
from sluice.record.epoch import EpochRecord
from sluice.sources.table_files import TABLES
from sluice.state.durable import STATE
from sluice.state.files.storage import Storage

PARTS_DIFFER = (
    "part of it was deleted or restored. Restore it as a whole, or start anew with a new checkpointLocation and path"
)
"""Why parts of a checkpoint do not fit together, and what to do."""

RestoreSink = Callable[[RecordedQuery], Sink]
"""Builds the sink of a query that a checkpoint has, as far as that can be."""


@dataclass(frozen=True)
class OpenCheckpoint:
    """A checkpoint that a run of a query owns, until another driver takes it over."""

    storage: Storage
    journal: Journal
    delivery: Delivery
    query: str
    run: str
    recorded: RecordedPlan
    """The plan that the epoch went by from which this owner went on."""

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
        self.storage.delete_all(name for name in self.storage.files_in(FILE_LISTS) - newest.file_lists() if over(name))
        self.storage.delete_all(name for name in self.storage.files_in(TABLES) - newest.table_files() if over(name))
        self.delivery.tidy(newest, over)

    def close(self) -> None:
        """Remove what failed attempts left, now that there is none any more, if the checkpoint is still this run's."""
        if self.journal.is_owned():
            self.tidy()


@dataclass(frozen=True)
class PlanOnRecord:
    """The plan that the newest epoch of a checkpoint went by: its `file`, the streams of the flow, and where operators
    are, and others can join them, in the next plan."""

    file: str
    plan: RecordedPlan
    streams: tuple[StreamIdentity, ...]
    assignment: Assignment

    @classmethod
    def read(cls, journal: Journal) -> PlanOnRecord | None:
        """Of a checkpoint that may have an owner who goes on meanwhile; None if there is none yet."""
        identity = journal.identity()
        newest = None if identity is None else journal.newest_with_plan()
        if identity is None or newest is None:
            return None
        entry, plan = newest
        return cls(entry.record.plan, plan, identity.streams, assignment_after(plan, entry.record))


def open_checkpoint(
    storage: Storage,
    new_id: str,
    identity: FlowIdentity,
    first: EpochRecord,
    flow: FlowPlan,
    clock: Clock,
    made_for: str = "",
    restore: RestoreSink | None = None,
    fails_fast: bool = False,
) -> OpenCheckpoint:
    """Take a checkpoint over, go to its newest epoch, and remove what did not become part of it. What is refused is not
    touched.

    Where the checkpoint is new it becomes the flow's of this identity, under a new id, and goes on from `first`. Else
    the flow's plan was made for the one in the file `made_for`, by which the newest epoch went. Queries are exchanged
    only if that is confirmed: by a way to `restore` the sinks of those that are dropped, for results that were not
    shown yet. A sink that raises ends the whole query if that `fails_fast`."""
    journal, run = Journal(storage), uuid.uuid4().hex[:8]
    delivery = Delivery(storage, fails_fast, journal.refuse_if_taken_over)
    opening = _Opening(journal, delivery, flow, made_for, restore)
    claim = CheckpointIdentity(id=new_id, **vars(identity))
    owned = take_ownership(journal, claim, run, clock, first, flow.recorded, opening.check)
    if not delivery.has_plan(owned.record):  # the first one
        delivery.use(owned.record.plan, flow.names, flow.sinks)
    checkpoint = OpenCheckpoint(storage, journal, delivery, owned.query, run, opening.recorded)
    with checkpoint.translate_fencing_errors():
        storage.make_dir(STATE)
        delivery.open(owned.query, owned.record)
        for sink in opening.new_sinks:
            sink.open(owned.query, Results(owned.record.number))
        journal.remove_drafts()
        checkpoint.tidy()
    return checkpoint


class PlanMovedOn(CheckpointError):
    """The flow went by another plan meanwhile than that for which its next one was made: that has to be made anew."""


class _Opening:
    """Whether a flow can go on with a checkpoint. `recorded` is the plan that its newest epoch went by, `new_sinks` are
    those of queries that it does not have yet."""

    def __init__(
        self, journal: Journal, delivery: Delivery, flow: FlowPlan, made_for: str, restore: RestoreSink | None
    ) -> None:
        self._journal, self._delivery, self._flow = journal, delivery, flow
        self._made_for, self._restore = made_for, restore
        self._ours = self.recorded = flow.recorded
        self.new_sinks: tuple[Sink, ...] = ()

    def check(self, query: str | None, newest: EpochRecord) -> None:
        """See that all fits, before anything is touched."""
        if not newest.plan:
            if query is not None and self._journal.storage.files(STATE):
                raise CheckpointError(
                    f"checkpoint {self._journal.storage.uri} has state, but no journal: {PARTS_DIFFER}"
                )
            self.recorded, self.new_sinks = self._ours, ()
            for sink in self._flow.sinks:
                sink.check(query, Results(newest.number))
            return
        if newest.plan != self._made_for:
            raise PlanMovedOn(f"checkpoint {self._journal.storage.uri} was changed meanwhile")
        self.recorded = self._journal.read_plan(newest.plan)
        self._refuse_other_time_zone()
        self._refuse_other_queries()
        sinks = dict(zip(self._ours.layout.outputs, self._flow.sinks, strict=True))
        known = dict(zip(self.recorded.layout.outputs, self.recorded.queries, strict=True))
        restored = [sinks[key] if key in sinks else self._restored(was) for key, was in known.items()]
        self.new_sinks = tuple(sink for key, sink in sinks.items() if key not in known)
        self._delivery.use(newest.plan, [query.name for query in self.recorded.queries], restored)
        self._delivery.check(query, newest)
        for sink in self.new_sinks:
            sink.check_new(query)

    def _refuse_other_time_zone(self) -> None:
        zone, recorded_zone = self._ours.timeZone, self.recorded.timeZone
        if zone and recorded_zone and zone != recorded_zone:
            raise CheckpointError(
                f"checkpoint {self._journal.storage.uri} was written in the time zone {recorded_zone}, this session's "
                f"is {zone}. Nothing was touched. Set spark.sql.session.timeZone as it was, or use a new "
                "checkpointLocation and a new path"
            )

    def _restored(self, query: RecordedQuery) -> Sink:
        assert self._restore is not None, "no query is dropped unless that is confirmed"
        return self._restore(query)

    def _refuse_other_queries(self) -> None:
        changes = QueryChanges.between(self.recorded, self._ours)
        if changes and self._restore is None:
            raise CheckpointError(
                f"checkpoint {self._journal.storage.uri} has other queries than these writers: {changes}. Nothing was "
                "touched. Confirm it with option('changeQueries', 'true'), use the writers that it has, or a new "
                "checkpointLocation and a new path"
            )
