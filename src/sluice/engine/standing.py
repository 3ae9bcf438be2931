"""Where a flow stands between two epochs: what it runs, and the newest record, laid out for that.

Queries come and go here (`plan_changes.py` says how): the plan changes, and with it the layout of the newest record. An
epoch goes on from it, and says what it has come to.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import replace
from typing import NamedTuple

from sluice.control.controller import Controller
from sluice.control.journal import name_plan
from sluice.engine.checkpoint import OpenCheckpoint
from sluice.engine.divided_tables import DividedTables
from sluice.engine.flow_plan import FlowPlan
from sluice.engine.plan_changes import ChangeRequest, ChangeRequests, refuse_change
from sluice.engine.settings import QuerySettings
from sluice.engine.static_tables import StaticTables
from sluice.model.epoch.results import Results
from sluice.model.epoch.stats import EpochStats, UnitColumns
from sluice.model.epoch.taken_files import TakenFiles
from sluice.model.errors import SluiceError
from sluice.model.plan.assignment import Assignment
from sluice.model.plan.plan import Plan
from sluice.model.plan.recorded_plan import FormerPlan, RecordedPlan
from sluice.record.attaching import assignment_after
from sluice.record.epoch import EpochRecord
from sluice.record.replan import PlanChange, replan

EPOCHS_REMEMBERED = 100
"""Epochs of which progress tells."""


class Snapshot(NamedTuple):
    """What a flow runs, the same as its checkpoint has it, and the newest record, laid out for it."""

    plan: Plan
    recorded: RecordedPlan
    record: EpochRecord


class WayBack(NamedTuple):
    """Where a flow stood before queries were added that need tables read: what it ran and its controller, as long as
    this epoch is the newest one; and the changes that the next one was to have already."""

    flow: FlowPlan
    controller: Controller
    newest: EpochRecord
    applied: tuple[ChangeRequest, ...]


class FlowStanding:
    """What a flow runs, and where it stands. Whoever runs an epoch changes it; others may look at any time."""

    def __init__(
        self,
        flow: FlowPlan,
        settings: QuerySettings,
        checkpoint: OpenCheckpoint,
        tables: StaticTables,
        divided_tables: DividedTables,
    ) -> None:
        """`flow` is what runs from the first epoch on, whatever plan the newest one of the checkpoint went by. `tables`
        and `divided_tables` are those that its streams are joined with."""
        self._settings, self._checkpoint, self._delivery = settings, checkpoint, checkpoint.delivery
        self._tables, self._divided_tables = tables, divided_tables
        self.flow, self.recorded_plan = flow, flow.recorded
        """What runs: the newest epoch went by it, or the next one will. And the same as a checkpoint has it."""
        self.record = checkpoint.newest
        """The newest epoch's, laid out for what runs."""
        self.measured = self._measured_before = self.record.stats
        """The newest record's statistics, with the times that were not known yet when it was committed. And the same,
        before anything is laid out otherwise."""
        self.recent: deque[EpochRecord] = deque(maxlen=EPOCHS_REMEMBERED)
        """What progress tells of the newest epochs of this run: records without state."""
        self._plans: dict[str, Plan] = {}
        """Those that these epochs went by, and the next one will, by their files."""
        self.changes = ChangeRequests()
        """Queries that are to be added and dropped."""
        self._applied: list[ChangeRequest] = []
        """Those that the next epoch is to commit."""
        self._way_back: WayBack | None = None
        """If one of these may have to be refused still."""
        self._committed_plan = checkpoint.recorded
        """That which the newest epoch went by."""
        self._lock = threading.Lock()
        self._go_by(flow)

    @property
    def plan(self) -> Plan:
        """What runs."""
        return self.flow.plan

    @property
    def no_results_yet(self) -> Results:
        """What an output has that is new."""
        return Results(self.record.number)

    @property
    def ran_on(self) -> tuple[str, ...]:
        """The executors on which the sites were in the newest epoch of this run, none before there was one."""
        return tuple(site.executor for site in self.recent[-1].stats.sites) if self.recent else ()

    def snapshot(self) -> Snapshot:
        """What runs, and where it stands, as they belong together."""
        with self._lock:
            return Snapshot(self.flow.plan, self.recorded_plan, self.record)

    def recent_records(self) -> list[EpochRecord]:
        """What progress tells of the newest epochs of this run."""
        with self._lock:
            return list(self.recent)

    def plan_of(self, record: EpochRecord) -> Plan:
        """The plan that one of the newest epochs of this run went by."""
        return self._plans[record.plan]

    @property
    def is_changing(self) -> bool:
        """Whether queries are to be added or dropped with the next epoch."""
        failed = self._delivery.failed_queries(self.flow.names, self.flow.sinks)
        return bool(failed) or self.changes.any or self.record.plan != self._checkpoint.newest.plan

    def refuse_change(self, request: ChangeRequest) -> None:
        """Refuse what does not fit the queries that there are, before it is asked for."""
        refuse_change(self.flow, request)

    def take_changes(self) -> None:
        """Add and drop the queries that were asked for, and drop those that were set aside. An epoch that is run again
        has what it had."""
        controller = self._settings.controller
        if controller.planned is not None:
            return
        newest, before, applied = self._checkpoint.newest, self.flow, tuple(self._applied)
        failed = self._delivery.failed_queries(self.flow.names, self.flow.sinks)
        for request in (*([ChangeRequest(dropped=failed)] if failed else []), *self.changes.take()):
            try:
                flow = request.apply(self.flow, self._assignment)
                self.read_tables(flow)
            except SluiceError as problem:
                request.refuse(problem)
                continue
            self._go_by(flow)
            self._applied.append(request)
        if len(self._applied) > len(applied) and self._divided_tables.needs_new(self.plan, newest.tables):
            self._way_back = self._way_back or WayBack(before, controller.copy(), newest, applied)
        change = self._layout_change(self.recorded_plan)
        if change is not None:  # one step, however many changes there were
            record = controller.change_plan(self._newest_measured, change)
            self._lay_out(self.flow, self.recorded_plan, record)

    @property
    def can_take_changes_back(self) -> bool:
        """Whether the next epoch can do without changes that it was to have."""
        return self._way_back is not None and self._way_back.newest is self._checkpoint.newest

    def take_changes_back(self) -> None:
        """Go back to what ran before: tables that were to be read with the next epoch cannot be. The changes are asked
        for again, and those that need these tables will be refused."""
        assert self._way_back is not None
        flow, controller, _, applied = self._way_back
        self._settings.controller.go_back_to(controller)
        self.changes.put_back([request for request in self._applied if request not in applied])
        self._applied, self._way_back = list(applied), None
        self._go_by(flow)

    def read_tables(self, flow: FlowPlan) -> None:
        """Read the tables of a flow that this run has not read yet."""
        newest = self._checkpoint.newest
        self._tables.read_new(flow.plan.tables, newest.tables, newest.number + 1)
        self._divided_tables.list_new(flow.plan, newest.tables, newest.number + 1)

    def go_on_from(self, record: EpochRecord) -> None:
        """The next epoch goes on from the newest record as it is laid out here."""
        self.record, self.measured = record, record.stats

    def note_commit(self, record: EpochRecord) -> None:
        """An epoch is committed; its results are still to be shown."""
        self.record = record
        self.measured = self._measured_before = record.stats
        self._committed_plan, self._way_back = self.recorded_plan, None

    def note_end(self, stats: EpochStats) -> None:
        """The newest epoch is over; now it is known how long it took."""
        self.measured = self._measured_before = stats
        with self._lock:
            self.recent.append(_without_state(replace(self.record, stats=stats)))
            used = {one.plan for one in self.recent}
            self._plans = {file: plan for file, plan in self._plans.items() if file in used}
        applied, self._applied = self._applied, []
        for request in applied:
            request.done.set()

    @property
    def _assignment(self) -> Assignment:
        """Where operators are, and which fragments others can join."""
        return assignment_after(self.recorded_plan, self.record, self._settings.controller.changing_units)

    def _go_by(self, flow: FlowPlan) -> None:
        """Run something else from the next epoch on. The newest record is laid out for it."""
        recorded, newest = flow.recorded, self._newest_measured
        change = self._layout_change(recorded)
        self._lay_out(flow, recorded, newest if change is None else replan(newest, change))

    @property
    def _newest_measured(self) -> EpochRecord:
        return replace(self._checkpoint.newest, stats=self._measured_before)

    def _layout_change(self, plan: RecordedPlan) -> PlanChange | None:
        """How the layout of the newest record changes if the next epoch goes by a plan; None if it does not."""
        before, now = self._committed_plan.layout, plan.layout
        return None if before == now else PlanChange(before, now, self._settings.partitions)

    def _lay_out(self, flow: FlowPlan, recorded: RecordedPlan, record: EpochRecord) -> None:
        """The next epoch goes on from this record, by this plan."""
        newest = self._checkpoint.newest
        if recorded != self._committed_plan:
            number = newest.number + 1
            former = (*newest.former_plans, FormerPlan(newest.plan, until=number))
            file = name_plan(recorded, number, self._checkpoint.run)
            record = replace(record, plan=file, former_plans=former)
            self._delivery.use(file, flow.names, flow.sinks)
        with self._lock:  # users' threads look at all of it together
            self.flow, self.recorded_plan, self.record = flow, recorded, record
            self._plans[record.plan] = flow.plan
        self.measured = record.stats


def _without_state(record: EpochRecord) -> EpochRecord:
    """A record without what there is a part of for each run, unit or file: there may be many, and progress tells none
    of it."""
    stats = replace(record.stats, units=UnitColumns.none(0))
    routing = replace(record.routing, holders=record.routing.holders.without_array())
    no_state = replace(record, routing=routing, manifests=(), lagging=(), queues=(), parts=(), listings=(), stats=stats)
    return replace(no_state, turns=(), instructions=(), events=(), taken=TakenFiles())
