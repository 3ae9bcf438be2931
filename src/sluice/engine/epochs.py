"""The driver's side of every epoch: hand the tasks out, make the outcome the journal's next record, show the results.

Nothing here needs Spark: the exchange that runs the tasks is handed in.
"""

from __future__ import annotations

import logging
import math
import pickle
import threading
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from sluice.control.controller import NextEpoch
from sluice.control.journal import name_plan
from sluice.engine.agreement import Exchange, run_until_agreed
from sluice.engine.checkpoint import PARTS_DIFFER, OpenCheckpoint
from sluice.engine.clean_up_progress import CleanUpFollower
from sluice.engine.delivery import list_results
from sluice.engine.directing import directives, mean_cost
from sluice.engine.file_log import FileLog, NewFiles
from sluice.engine.flow_plan import FlowPlan
from sluice.engine.plan_changes import ChangeRequest, ChangeRequests, refuse_change
from sluice.engine.recording import record_epoch, results_produced_before
from sluice.engine.settings import QuerySettings
from sluice.engine.site_task import SiteTask
from sluice.engine.split import Reading, SplitTask
from sluice.model.clock import Clock
from sluice.model.epoch.attempt import Attempt
from sluice.model.epoch.decision import DecisionOutcome, outcomes
from sluice.model.epoch.results import Results
from sluice.model.epoch.stats import EpochStats, UnitColumns
from sluice.model.epoch.taken_files import TakenFile, TakenFiles
from sluice.model.epoch.times import ENDED, Times, watermarks
from sluice.model.errors import CheckpointError, QueryError, SluiceError
from sluice.model.ids import SiteKey
from sluice.model.plan.assignment import Assignment
from sluice.model.plan.plan import Plan
from sluice.model.plan.recorded_plan import FormerPlan, RecordedPlan
from sluice.record.attaching import assignment_after
from sluice.record.epoch import EpochRecord, Turn, site_work
from sluice.record.reassignment import reassign
from sluice.record.replan import PlanChange, replan
from sluice.record.totals import totals_after
from sluice.verbs.freeze import CleanUpUnits

_log = logging.getLogger(__name__)

TIDY_EVERY = 100
"""Epochs after which the leavings of failed attempts are looked for again."""


class Standing(NamedTuple):
    """What a flow runs, the same as its checkpoint has it, and the newest record, laid out for it."""

    plan: Plan
    recorded: RecordedPlan
    record: EpochRecord


class Epochs:
    """A running flow between its checkpoint and its exchange."""

    def __init__(
        self,
        flow: FlowPlan,
        reading: tuple[Reading, ...],
        settings: QuerySettings,
        checkpoint: OpenCheckpoint,
        clock: Clock,
    ) -> None:
        """`flow` is what runs from the first epoch on, whatever plan the newest one of the checkpoint went by."""
        self.reading, self.settings, self.clock = reading, settings, clock
        self.checkpoint = checkpoint
        self.storage, self.journal, self.delivery = checkpoint.storage, checkpoint.journal, checkpoint.delivery
        self._file_log = FileLog(checkpoint.storage)
        self.flow, self.recorded_plan = flow, flow.recorded
        """What runs: the newest epoch went by it, or the next one will. And the same as a checkpoint has it."""
        self.record = checkpoint.newest
        """The newest epoch's, laid out for what runs."""
        self.measured = self._measured_before = self.record.stats
        """The newest record's statistics, with the times that were not known yet when it was committed. And the same,
        before anything is laid out otherwise."""
        self.recent: deque[EpochRecord] = deque(maxlen=100)
        """What progress tells of the newest epochs of this run: records without state."""
        self._plans: dict[str, Plan] = {}
        """Those that these epochs went by, and the next one will, by their files."""
        self.changes = ChangeRequests()
        """Queries that are to be added and dropped."""
        self._applied: list[ChangeRequest] = []
        """Those that the next epoch is to commit."""
        self.lock = threading.Lock()
        self.busy = threading.Lock()
        self.closed = False
        self._cleaning_up = False
        """Whether all that was missing was asked for, and has not been found yet."""
        self._cost: float | None = None
        """Seconds that a row took on average in the newest epoch that had any."""
        self._tidy_due = True
        self._committed_plan = checkpoint.recorded
        """That which the newest epoch went by."""
        self._go_by(flow)

    @property
    def no_results_yet(self) -> Results:
        """What an output has that is new."""
        return Results(self.record.number)

    @property
    def plan(self) -> Plan:
        """What runs."""
        return self.flow.plan

    @property
    def ran_on(self) -> tuple[str, ...]:
        """The executors on which the sites were in the newest epoch of this run, none before there was one."""
        return tuple(site.executor for site in self.recent[-1].stats.sites) if self.recent else ()

    def end(self) -> None:
        """Let no epoch run any more."""
        with self.busy:
            self.closed = True

    def close(self) -> None:
        """Let no epoch run any more, and remove what failed attempts at the epochs left."""
        self.end()
        with self.busy:
            self.checkpoint.close()

    def run(
        self,
        batch: int,
        site_keys: tuple[SiteKey, ...],
        exchange: Exchange,
        site_change_reason: str = "",
        ingested_at: float | None = None,
        batch_input: str = "",
    ) -> None:
        """Process one of Spark's batches exactly once, however often it is asked for. There is a key for each site;
        `site_change_reason` says what became of the sites since the epoch before, `ingested_at` when Spark saw what
        there is; else it was just now. `batch_input` says what the batch has in it, as a short hash: it has to be the
        same each time."""
        with self.busy:
            if self.closed:  # its checkpoint may be gone
                raise QueryError("the query has ended")
            with self.checkpoint.translate_fencing_errors():
                if batch < self.record.batch or batch > self.record.batch + 1:
                    raise CheckpointError(
                        f"Spark's part of checkpoint {self.storage.uri} is at batch {batch}, the journal is at "
                        f"{self.record.batch}: {PARTS_DIFFER}"
                    )
                if batch == self.record.batch:
                    if batch_input != self.record.batch_input:
                        raise CheckpointError(
                            f"Spark's part of checkpoint {self.storage.uri} has other input in batch {batch} than "
                            f"the journal, and to go on would lose rows: {PARTS_DIFFER}"
                        )
                    self.delivery.deliver(self.checkpoint.newest)
                else:
                    if self.record.stats.catch_up:
                        self.delivery.finish(self.checkpoint.newest)
                    self._run(batch, batch_input, site_keys, exchange, site_change_reason, ingested_at)
                self.journal.refuse_if_taken_over()  # so that Spark's log is left to the new owner, too

    def run_with_files(
        self,
        files: NewFiles,
        site_keys: tuple[SiteKey, ...],
        exchange: Exchange,
        site_change_reason: str = "",
        ingested_at: float | None = None,
    ) -> None:
        """Process files that were never taken in. If this fails, none of them was; else the journal names them."""
        with self.busy:
            if self.closed:
                raise QueryError("the query has ended")
            with self.checkpoint.translate_fencing_errors():
                if self.record.number >= 0:
                    self.delivery.finish(self.checkpoint.newest)
                batch = self.record.batch + 1
                self._run(batch, "", site_keys, exchange, site_change_reason, ingested_at, new_files=files)

    def files_taken(self) -> Iterator[TakenFile]:
        """The files that were taken in, as far as they matter still."""
        return self._file_log.read(self.checkpoint.newest.taken)

    def finish_delivery(self) -> None:
        """Show the results of the newest epoch, if its driver did not get that far."""
        with self.busy, self.checkpoint.translate_fencing_errors():
            if not self.closed and self.record.number >= 0:
                self.delivery.finish(self.checkpoint.newest)

    def note_shown(self) -> None:
        """Have a restart know that the results of the newest epoch were shown, if they were. The next epoch's record
        tells it, too: this is for a rest."""
        with self.busy, self.checkpoint.translate_fencing_errors():
            if not self.closed and self.record.number >= 0:
                self.journal.refuse_if_taken_over()  # the marks are the new owner's
                self.delivery.note_shown(self.checkpoint.newest)

    @property
    def is_behind(self) -> bool:
        """Whether input waits, or units are to be cleaned up."""
        return bool(self.record.lagging or self._cleaning_up)

    @property
    def has_leaving_sites(self) -> bool:
        """Whether there are sites that are to leave: they do so from epoch to epoch, with new input or without."""
        return self.record.number >= 0 and self.settings.controller.has_leaving_sites(self.record)

    @property
    def is_under_way(self) -> bool:
        """Whether a decision or a request needs further epochs, with or without new input, or queries are to be added
        or dropped. What an earlier driver had under way ends with the first epoch of this one."""
        left = not self.recent and bool(self.record.under_way)
        return (
            left
            or self.is_changing
            or (self.record.number >= 0 and self.settings.controller.is_under_way(self.record, self.clock.time()))
        )

    @property
    def may_need_fewer_sites(self) -> bool:
        """Whether the policy might have some leave, if it saw that nothing comes."""
        return self.record.number >= 0 and self.settings.controller.may_need_fewer(self.record)

    @property
    def sites_next(self) -> int | None:
        """How many sites the next epoch is to have, if their number is on its way to another."""
        return self.settings.controller.sites_next(self.record)

    def clean_up(self) -> int:
        """Have the results found, in the epochs to come, that are missing now. Those may meet frozen state of operators
        above, as may input that waits: whoever wants all has to ask again. Returns the newest epoch."""
        with self.busy:
            if self.record.missing_units:
                self._cleaning_up = True
                self.settings.controller.clean_up(self.record)
            return self.record.number

    def is_cleaning_up(self, asked_after: int) -> bool:
        """Whether results are still to be found that were missing when that was asked for, after this epoch, or input
        waits that waited then. What has come since does not count."""
        if self._cleaning_up:
            return True
        record, later = self.record, Attempt.prefix(asked_after + 1)
        waiting = (run.segment for manifest in record.manifests for run in manifest if run.segment.pending)
        return bool(record.lagging) and any(segment.id < later for segment in waiting)

    def catch_up(
        self, site_keys: tuple[SiteKey, ...], exchange: Exchange, site_change_reason: str = "", until: float = math.inf
    ) -> bool:
        """Run an epoch without new input: for input that waits, results that frozen units miss, and decisions that are
        under way. Returns whether there was any of these. An epoch with a budget plans to end by `until`."""
        with self.busy, self.checkpoint.translate_fencing_errors():
            behind, resized = self.is_behind, self.record.number >= 0 and len(site_keys) != self.record.routing.sites
            if self.closed or not (behind or resized or self.is_under_way):
                return False
            self.delivery.finish(self.checkpoint.newest)
            self._run(
                self.record.batch,
                self.record.batch_input,
                site_keys,
                exchange,
                site_change_reason,
                until=until,
                asking=behind,
            )
            return True

    def run_idle_epoch(self, site_keys: tuple[SiteKey, ...], exchange: Exchange, site_change_reason: str = "") -> None:
        """An epoch over nothing, as no input has come for a while: so the policy sees that, and can have sites
        leave."""
        with self.busy, self.checkpoint.translate_fencing_errors():
            if not self.closed:
                self.delivery.finish(self.checkpoint.newest)
                self._run(self.record.batch, self.record.batch_input, site_keys, exchange, site_change_reason)
                self.settings.controller.note_idle_epoch(self.record.number)

    @property
    def input_has_ended(self) -> bool:
        """Whether all streams have ended."""
        return all(time == ENDED for time in self.record.newest)

    def end_input(self, site_keys: tuple[SiteKey, ...], exchange: Exchange, site_change_reason: str = "") -> bool:
        """Run an epoch without new input, with which all streams come to their end: windows close, and rows without a
        partner appear. Returns whether there was anything to end: streams that have ended stay so, and where nothing
        was ever taken in nothing has begun."""
        with self.busy, self.checkpoint.translate_fencing_errors():
            if self.closed or self.record.number < 0 or self.input_has_ended:
                return False
            self.delivery.finish(self.checkpoint.newest)
            batch, batch_input = self.record.batch, self.record.batch_input
            self._run(batch, batch_input, site_keys, exchange, site_change_reason, ending=True)
            return True

    def _run(
        self,
        batch: int,
        batch_input: str,
        site_keys: tuple[SiteKey, ...],
        exchange: Exchange,
        site_change_reason: str,
        ingested_at: float | None = None,
        until: float = math.inf,
        asking: bool = True,
        new_files: NewFiles | None = None,
        ending: bool = False,
    ) -> None:
        begun = self.clock.monotonic()
        self._take_changes()
        number = self.record.number + 1
        now = self.clock.time() if ingested_at is None else ingested_at
        step, before = self._plan_next_epoch(len(site_keys), site_change_reason, now, asking)
        to_clean_up = [unit for one in step.instructions if isinstance(one, CleanUpUnits) for unit in one.units]
        cleaning = CleanUpFollower(self.plan, to_clean_up, before)
        if to_clean_up and cleaning.is_new:
            units, rows = len(to_clean_up), cleaning.before.rows_left
            _log.info("epoch %d: cleaning up %s units begins, of %s rows", number, f"{units:,}", f"{rows:,}")
        newest = (ENDED,) * len(before.newest) if ending else before.newest
        split, site = self._tasks(number, site_keys, newest, before, step, batch == self.record.batch, until)
        reports = run_until_agreed(exchange, split, site)
        exchanged = self.clock.monotonic()
        took = exchanged - begun
        controller, events = self.settings.controller, [event for report in reports for event in report.events]
        settled = controller.settle(number, before.routing, site_work(before, events), step.ended)
        run, taken = self.checkpoint.run, before.taken
        if new_files is not None:
            taken = self._file_log.add(taken, new_files, number, run)
        produced = self._results_produced(before)
        record = record_epoch(
            self.plan, number, batch, batch_input, taken, newest, before, step, settled, reports, took, produced
        )
        stats = replace(
            record.stats,
            committed_at=self.clock.time(),
            catch_up=batch == self.record.batch,
            moves=before.routing.moves_since(self.record.routing) if number else 0,
            clean_up=cleaning.after(record, reports),
            scale_target=controller.scale_target,
        )
        record = replace(record, stats=stats)
        measured_before = replace(self.record, stats=self.measured)
        record = replace(record, totals=totals_after(measured_before, before.routing, record))
        record = replace(record, listings=list_results(self.flow.sinks, self.record, record))
        previous = self.checkpoint.newest
        files_before = previous.files() | self.record.files()  # others if it was committed and taken for failed
        if record.plan != previous.plan:
            self.journal.write_plan(self.recorded_plan, number, run)
        self.journal.commit(record)
        committed = self.clock.monotonic()
        self.record, self.measured, self.delivery.done = record, stats, False
        self._measured_before, self._committed_plan = stats, self.recorded_plan
        controller.commit(record)
        _log_clean_up(record)
        _log_excess(previous, record)
        self._cleaning_up = self._cleaning_up and controller.is_cleaning_up(record)
        self.storage.delete_all(files_before - record.files())
        self.storage.delete_all(previous.file_lists() - record.file_lists())
        self.delivery.keep_plan_of(record)
        self.delivery.deliver(record)
        self.storage.delete_all(previous.plans - record.plans)
        if self._tidy_due or number % TIDY_EVERY == 0:  # the commit has shut out whoever was at this epoch before us
            self.checkpoint.tidy()
            self._tidy_due = False
        shown = self.clock.monotonic()
        seconds = replace(stats.seconds, commit=committed - exchanged, deliver=shown - committed, total=shown - begun)
        self.measured = self._measured_before = replace(stats, seconds=seconds)
        with self.lock:
            self.recent.append(_without_state(replace(record, stats=self.measured)))
            used = {one.plan for one in self.recent}
            self._plans = {file: plan for file, plan in self._plans.items() if file in used}
        applied, self._applied = self._applied, []
        for request in applied:
            request.done.set()

    def plan_of(self, record: EpochRecord) -> Plan:
        """The plan that one of the newest epochs of this run went by."""
        return self._plans[record.plan]

    def refuse_change(self, request: ChangeRequest) -> None:
        """Refuse what does not fit the queries that there are, before it is asked for."""
        refuse_change(self.flow, request)

    def _take_changes(self) -> None:
        """Add and drop the queries that were asked for, and drop those that were set aside. An epoch that is run again
        has what it had."""
        if self.settings.controller.planned is not None:
            return
        failed = self.delivery.failed_queries(self.flow.names, self.flow.sinks)
        for request in (*([ChangeRequest(dropped=failed)] if failed else []), *self.changes.take()):
            try:
                flow = request.apply(self.flow, self.assignment)
            except SluiceError as problem:
                request.refuse(problem)
                continue
            self._go_by(flow)
            self._applied.append(request)
        change = self._layout_change(self.recorded_plan)
        if change is not None:  # one step, however many changes there were
            record = self.settings.controller.change_plan(self._newest_measured, change)
            self._lay_out(self.flow, self.recorded_plan, record)

    @property
    def assignment(self) -> Assignment:
        """Where operators are, and which fragments others can join."""
        return assignment_after(self.recorded_plan, self.record, self.settings.controller.changing_units)

    def _go_by(self, flow: FlowPlan) -> None:
        """Run something else from the next epoch on. The newest record is laid out for it."""
        recorded, newest = flow.recorded, self._newest_measured
        change = self._layout_change(recorded)
        self._lay_out(flow, recorded, newest if change is None else replan(newest, change))

    @property
    def _newest_measured(self) -> EpochRecord:
        return replace(self.checkpoint.newest, stats=self._measured_before)

    def _layout_change(self, plan: RecordedPlan) -> PlanChange | None:
        """How the layout of the newest record changes if the next epoch goes by a plan; None if it does not."""
        before, now = self._committed_plan.layout, plan.layout
        return None if before == now else PlanChange(before, now, self.settings.partitions)

    def _lay_out(self, flow: FlowPlan, recorded: RecordedPlan, record: EpochRecord) -> None:
        """The next epoch goes on from this record, by this plan."""
        newest = self.checkpoint.newest
        if recorded != self._committed_plan:
            number = newest.number + 1
            former = (*newest.former_plans, FormerPlan(newest.plan, until=number))
            file = name_plan(recorded, number, self.checkpoint.run)
            record = replace(record, plan=file, former_plans=former)
            self.delivery.use(file, flow.names, flow.sinks)
        with self.lock:  # users' threads look at all of it together
            self.flow, self.recorded_plan, self.record = flow, recorded, record
            self._plans[record.plan] = flow.plan
        self.measured = record.stats

    @property
    def standing(self) -> Standing:
        """What runs, and where it stands, as they belong together."""
        with self.lock:
            return Standing(self.flow.plan, self.recorded_plan, self.record)

    @property
    def is_changing(self) -> bool:
        """Whether queries are to be added or dropped with the next epoch."""
        failed = self.delivery.failed_queries(self.flow.names, self.flow.sinks)
        return bool(failed) or self.changes.any or self.record.plan != self.checkpoint.newest.plan

    def outcomes(self) -> list[DecisionOutcome]:
        """What has become of the decisions of the epochs on record, oldest first, then those that no epoch has
        committed yet."""
        controller = self.settings.controller
        steps = [controller.planned]
        history = self.history()
        newest = history[-1].number if history else -1
        steps.append(controller.planned)  # epochs may have been committed meanwhile
        decided = dict.fromkeys(d for step in steps if step for d in step.decisions if d.epoch > newest)
        waiting = [*decided, *controller.unanswered(newest + 1)]
        return [*outcomes(history), *(DecisionOutcome.of(decision, None) for decision in waiting)]

    def history(self) -> list[EpochRecord]:
        """The epochs on record, oldest first: those of earlier runs too, as far back as the journal keeps them."""
        return self.journal.epochs()

    def _plan_next_epoch(
        self, sites: int, site_change_reason: str, now: float, asking: bool
    ) -> tuple[NextEpoch, EpochRecord]:
        """What the next epoch does, and the newest record under its routing: the controller's, which may be `asking`
        the policy, or one for another number of sites."""
        record, controller = replace(self.record, stats=self.measured), self.settings.controller
        turn = Turn(
            now,
            sites,
            controller.slots,
            controller.memory.limits(sites),
            self.measured.seconds,
            site_change_reason,
            asking,
            controller.collection.idle_epoch == record.number,
        )
        step = controller.plan(record, turn)
        if step.before is not None:
            self.record = record = step.before
            self.measured = record.stats
        routing = step.routing
        same = routing == record.routing
        manifests = record.manifests if same else reassign(record.manifests, record.routing, routing)
        return step, replace(record, routing=routing, manifests=manifests)

    def _tasks(
        self,
        number: int,
        site_keys: tuple[SiteKey, ...],
        newest: Times,
        before: EpochRecord,
        step: NextEpoch,
        catching_up: bool,
        until: float,
    ) -> tuple[SplitTask, SiteTask]:
        late_below = watermarks(before.newest, tuple(s.delay for s in self.plan.sources))
        cost = mean_cost(before.stats.sites)
        self._cost = self._cost if cost is None else cost
        run, staging = self.checkpoint.run, tuple(sink.staging for sink in self.flow.sinks)
        split = SplitTask(self.plan, self.reading, before.routing, site_keys, late_below, number, run, staging)
        shared = replace(before, manifests=(), lagging=(), frozen=(), queues=(), parts=(), taken=TakenFiles())
        shared = replace(shared, turns=(), instructions=(), events=(), decisions=(), ended=(), under_way=())
        site = SiteTask(
            plan=self.plan,
            number=number,
            newest=newest,
            before=replace(shared, stats=EpochStats()),
            shares=tuple(pickle.dumps(share) for share in before.shares(step.instructions)),
            site_keys=site_keys,
            checkpoint=self.storage.uri,
            query=self.checkpoint.query,
            run=run,
            places=self.settings.places,
            staging=staging,
            directives=directives(
                self.plan,
                self.settings,
                before,
                until - self.clock.time(),
                self._cost,
                self._results_produced(before),
                catching_up,
            ),
            instructions=step.instructions,
        )
        return split, site

    def _results_produced(self, before: EpochRecord) -> np.ndarray:
        """The results of each unit in its present generation, as far as they count."""
        return results_produced_before(before, self.settings.freezing.fading if self.settings.freezing else 1.0)


def _without_state(record: EpochRecord) -> EpochRecord:
    """A record without what there is a part of for each run, unit or file: there may be many, and progress tells none
    of it."""
    stats = replace(record.stats, units=UnitColumns.none(0))
    routing = replace(record.routing, holders=record.routing.holders.without_array())
    no_state = replace(record, routing=routing, manifests=(), lagging=(), queues=(), parts=(), listings=(), stats=stats)
    return replace(no_state, turns=(), instructions=(), events=(), taken=TakenFiles())


def _log_clean_up(record: EpochRecord) -> None:
    """How far cleaning up has come, if there was any: it may take many epochs."""
    done = record.stats.clean_up
    if done is not None:
        rows, left, results, rate = (
            f"{value:,.0f}" for value in (done.rows_done, done.rows_left, done.results, done.rows_per_second)
        )
        _log.info(
            "epoch %d: cleaning up: %s rows done, %s left; %s results found; %s rows a second",
            record.number,
            rows,
            left,
            results,
            rate,
        )


def _log_excess(previous: EpochRecord, record: EpochRecord) -> None:
    """Which sites have come to have more state that cannot be frozen than memory: to freeze the rest does not help."""
    before = {site.site for site in previous.stats.sites if site.unfreezable_excess}
    for site in record.stats.sites:
        if site.unfreezable_excess and site.site not in before:
            _log.warning(
                "epoch %d: site %d has %s bytes of state beyond its memory that cannot be frozen, of group-bys or of "
                "outer, semi and anti joins; they are used from disk, and other joins are frozen less often. More "
                "siteMemory, or more sites, would help",
                record.number,
                site.site,
                f"{site.unfreezable_excess:,}",
            )
