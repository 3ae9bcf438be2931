"""The driver's side of every epoch: hand the tasks out, make the outcome the journal's next record, show the results.

Nothing here needs Spark: the exchange that runs the tasks is handed in.
"""

from __future__ import annotations

import math
import pickle
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from sluice.control.controller import NextEpoch
from sluice.engine.agreement import Exchange, run_until_agreed
from sluice.engine.checkpoint import PARTS_DIFFER, OpenCheckpoint
from sluice.engine.clean_up_progress import CleanUpFollower
from sluice.engine.compiled_plan import compiled
from sluice.engine.delivery import list_results
from sluice.engine.directing import directives, mean_cost, what_all_sites_need
from sluice.engine.divided_tables import DividedTables, EpochLoads, UnreadableTables
from sluice.engine.epoch_log import log_clean_up, log_clean_up_begun, log_excess
from sluice.engine.epoch_tables import EpochTables
from sluice.engine.file_log import FileLog, NewFiles
from sluice.engine.flow_plan import FlowPlan
from sluice.engine.recording import record_epoch, results_produced_before
from sluice.engine.settings import QuerySettings
from sluice.engine.site_task import SiteTask
from sluice.engine.split import Reading, SplitTask
from sluice.engine.standing import FlowStanding
from sluice.engine.static_tables import ATTEMPTS_TO_READ, StaticTables
from sluice.model.clock import Clock
from sluice.model.epoch.attempt import Attempt
from sluice.model.epoch.decision import DecisionOutcome, outcomes
from sluice.model.epoch.stats import EpochStats
from sluice.model.epoch.taken_files import TakenFile
from sluice.model.epoch.times import ENDED, Times, watermarks
from sluice.model.errors import CheckpointError, QueryError
from sluice.model.ids import SiteKey
from sluice.model.plan.plan import Plan
from sluice.record.epoch import EpochRecord, Turn, site_work
from sluice.record.reassignment import reassign
from sluice.record.reports import SiteReport
from sluice.record.totals import totals_after
from sluice.verbs.freeze import CleanUpUnits

LookAhead = Callable[[SplitTask], None]
"""Is told, before an epoch runs, how the rows of the next one are split as far as is known by then: which of them are
late follows from this one's."""
TIDY_EVERY = 100
"""Epochs after which the leavings of failed attempts are looked for again."""


@dataclass(frozen=True)
class _NewInput:
    """What comes in with an epoch: a batch of Spark's, files, the end of all streams, or nothing."""

    batch: int
    batch_input: str
    ingested_at: float | None = None
    """When it was seen; None if that was just now."""
    files: NewFiles | None = None
    is_end: bool = False


@dataclass(frozen=True)
class _Sites:
    """The sites that take part in an epoch, how its tasks reach them, and what became of them since the one before."""

    keys: tuple[SiteKey, ...]
    exchange: Exchange
    change_reason: str


@dataclass(frozen=True)
class _DoneJob:
    """An epoch whose tasks are done, and which is not committed: `before` is the record that it began with."""

    number: int
    step: NextEpoch
    before: EpochRecord
    newest: Times
    loads: EpochLoads
    reports: list[SiteReport]
    cleaning: CleanUpFollower


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
        self._tables = StaticTables(flow.tables, checkpoint.storage, checkpoint.run, clock)
        self._divided_tables = DividedTables(flow.tables, checkpoint.storage, checkpoint.run, clock)
        self.standing = FlowStanding(flow, settings, checkpoint, self._tables, self._divided_tables)
        self.busy = threading.Lock()
        self.closed = False
        self._cleaning_up = False
        """Whether all that was missing was asked for, and has not been found yet."""
        self._cost: float | None = None
        """Seconds that a row took on average in the newest epoch that had any."""
        self._tidy_due = True

    @property
    def record(self) -> EpochRecord:
        """The newest epoch's, laid out for what runs."""
        return self.standing.record

    @property
    def measured(self) -> EpochStats:
        """Its statistics, with the times that were not known yet when it was committed."""
        return self.standing.measured

    @property
    def plan(self) -> Plan:
        """What runs."""
        return self.standing.plan

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
                    new = _NewInput(batch, batch_input, ingested_at)
                    self._run(new, _Sites(site_keys, exchange, site_change_reason))
                self.journal.refuse_if_taken_over()  # so that Spark's log is left to the new owner, too

    def run_with_files(
        self,
        files: NewFiles,
        site_keys: tuple[SiteKey, ...],
        exchange: Exchange,
        site_change_reason: str = "",
        ingested_at: float | None = None,
        look_ahead: LookAhead | None = None,
    ) -> None:
        """Process files that were never taken in. If this fails, none of them was; else the journal names them."""
        with self.busy:
            if self.closed:
                raise QueryError("the query has ended")
            with self.checkpoint.translate_fencing_errors():
                if self.record.number >= 0:
                    self.delivery.finish(self.checkpoint.newest)
                new = _NewInput(self.record.batch + 1, "", ingested_at, files)
                self._run(new, _Sites(site_keys, exchange, site_change_reason), look_ahead=look_ahead)

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
        left = not self.standing.recent and bool(self.record.under_way)
        return (
            left
            or self.standing.is_changing
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
            self._run(self._nothing_new, _Sites(site_keys, exchange, site_change_reason), until, asking=behind)
            return True

    def run_idle_epoch(self, site_keys: tuple[SiteKey, ...], exchange: Exchange, site_change_reason: str = "") -> None:
        """An epoch over nothing, as no input has come for a while: so the policy sees that, and can have sites
        leave."""
        with self.busy, self.checkpoint.translate_fencing_errors():
            if not self.closed:
                self.delivery.finish(self.checkpoint.newest)
                self._run(self._nothing_new, _Sites(site_keys, exchange, site_change_reason))
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
            self._run(replace(self._nothing_new, is_end=True), _Sites(site_keys, exchange, site_change_reason))
            return True

    def _run(
        self,
        new: _NewInput,
        sites: _Sites,
        until: float = math.inf,
        asking: bool = True,
        look_ahead: LookAhead | None = None,
    ) -> None:
        """Run, commit and show an epoch. It plans to end by `until`; the policy is asked if it may be (`asking`)."""
        begun = self.clock.monotonic()
        job = self._run_job(new, sites, until, asking, look_ahead)
        exchanged = self.clock.monotonic()
        record = self._make_record(job, new, exchanged - begun)
        previous = self.checkpoint.newest
        files_before = previous.files() | self.record.files()  # others if it was committed and taken for failed
        self._commit(record, previous, job.loads)
        committed = self.clock.monotonic()
        self._show(record, previous, files_before)
        shown = self.clock.monotonic()
        seconds = record.stats.seconds
        seconds = replace(seconds, commit=committed - exchanged, deliver=shown - committed, total=shown - begun)
        self.standing.note_end(replace(record.stats, seconds=seconds))

    def _run_job(
        self, new: _NewInput, sites: _Sites, until: float, asking: bool, look_ahead: LookAhead | None
    ) -> _DoneJob:
        """Plan the next epoch, and have its tasks run; without the queries that were to be added, if their tables
        cannot be read."""
        now = self.clock.time() if new.ingested_at is None else new.ingested_at
        while True:
            self.standing.take_changes()
            number = self.record.number + 1
            step, before = self._plan_next_epoch(len(sites.keys), sites.change_reason, now, asking)
            to_clean_up = [unit for one in step.instructions if isinstance(one, CleanUpUnits) for unit in one.units]
            cleaning = CleanUpFollower(self.plan, to_clean_up, before)
            if to_clean_up and cleaning.is_new:
                log_clean_up_begun(number, len(to_clean_up), cleaning.before.rows_left)
            newest = (ENDED,) * len(before.newest) if new.is_end else before.newest
            tables = self._tables.choose(self.plan.tables, self.checkpoint.newest.tables, number)
            before = replace(before, tables=tables)
            catching_up = new.batch == self.record.batch
            split, site = self._tasks(number, sites.keys, newest, before, step, catching_up, until)
            if look_ahead is not None and self._can_look_ahead:
                look_ahead(replace(split, number=number + 1))
            try:
                loads, reports = self._run_tasks(sites.exchange, split, site)
            except UnreadableTables:
                if not self.standing.can_take_changes_back:
                    raise
                self.standing.take_changes_back()
                self._tidy_due = True  # what was written for them goes
                continue
            before = replace(before, tables=(*before.tables, *loads.versions))
            return _DoneJob(number, step, before, newest, loads, reports, cleaning)

    def _make_record(self, job: _DoneJob, new: _NewInput, took: float) -> EpochRecord:
        """What the journal will have of an epoch whose job took so many seconds."""
        controller, before = self.settings.controller, job.before
        events = [event for report in job.reports for event in report.events]
        settled = controller.settle(job.number, before.routing, site_work(before, events), job.step.ended)
        taken = before.taken
        if new.files is not None:
            taken = self._file_log.add(taken, new.files, job.number, self.checkpoint.run)
        record = record_epoch(
            self.plan,
            job.number,
            new.batch,
            new.batch_input,
            taken,
            job.newest,
            before,
            job.step,
            settled,
            job.reports,
            took,
            self._results_produced(before),
        )
        stats = replace(
            record.stats,
            committed_at=self.clock.time(),
            catch_up=new.batch == self.record.batch,
            moves=before.routing.moves_since(self.record.routing) if job.number else 0,
            clean_up=job.cleaning.after(record, job.reports),
            scale_target=controller.scale_target,
        )
        record = replace(record, stats=stats)
        measured_before = replace(self.record, stats=self.measured)
        record = replace(record, totals=totals_after(measured_before, before.routing, record))
        return replace(record, listings=list_results(self.standing.flow.sinks, self.record, record))

    def _commit(self, record: EpochRecord, previous: EpochRecord, loads: EpochLoads) -> None:
        """Put the record into the journal, and go on from it."""
        if record.plan != previous.plan:
            self.journal.write_plan(self.standing.recorded_plan, record.number, self.checkpoint.run)
        self.journal.commit(record)
        self.standing.note_commit(record)
        self.delivery.done = False
        controller = self.settings.controller
        controller.commit(record)
        self._tables.note_commit(record.tables)
        self._divided_tables.note_commit(loads)
        log_clean_up(record)
        log_excess(previous, record)
        self._cleaning_up = self._cleaning_up and controller.is_cleaning_up(record)

    def _show(self, record: EpochRecord, previous: EpochRecord, files_before: set[str]) -> None:
        """Show the results of an epoch that is committed, and remove what nobody needs any more."""
        self.delivery.keep_plan_of(record)
        try:
            self.delivery.deliver(record)
        finally:
            self.storage.delete_all(files_before - record.files())
            self.storage.delete_all(previous.file_lists() - record.file_lists())
            self.storage.delete_all(previous.table_files() - record.table_files())
        self.storage.delete_all(previous.plans - record.plans)
        # the commit has shut out whoever was at this epoch before us
        if self._tidy_due or record.number % TIDY_EVERY == 0:
            self.checkpoint.tidy()
            self._tidy_due = False

    @property
    def _nothing_new(self) -> _NewInput:
        return _NewInput(self.record.batch, self.record.batch_input)

    @property
    def _can_look_ahead(self) -> bool:
        """Whether the next epoch is likely to take in new rows by the same routing and plan, and its map tasks write no
        results: what they write has to be of an epoch that comes."""
        changing = self.standing.is_changing or self.settings.controller.is_changing_routing
        return not (changing or self.is_behind or compiled(self.plan).has_results_of_splits)

    def _run_tasks(self, exchange: Exchange, split: SplitTask, site: SiteTask) -> tuple[EpochLoads, list[SiteReport]]:
        """Run the tasks of an epoch, and read the tables that become state with it. If their files change meanwhile,
        all is done again. Tables that cannot be read again stay as they are, and all is done again without them;
        `UnreadableTables` if some cannot be read at first."""
        tables, times_changed = self._divided_tables, 0
        while True:
            is_required = not self.standing.can_take_changes_back
            loads = tables.plan(self.plan, self.record, site.number, is_required)
            reports = run_until_agreed(exchange, replace(split, loads=loads.loads), site.with_tables(loads.versions))
            problems, changed = loads.problems(reports), tables.find_changed(loads.loads)
            if not problems and not changed:
                return loads.with_rows(reports), reports
            times_changed += bool(changed)
            if changed and times_changed < ATTEMPTS_TO_READ:
                continue
            for load in changed:
                problems[load.table] = "its files change each time while they are read"
            tables.leave_out(loads.loads, problems, site.number)

    def read_tables(self) -> None:
        """Read the tables that rows are joined with, so that what is wrong with one is known before any epoch."""
        with self.busy:
            self.standing.read_tables(self.standing.flow)

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
            record = step.before
            self.standing.go_on_from(record)
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
        run, staging = self.checkpoint.run, tuple(sink.staging for sink in self.standing.flow.sinks)
        tables = EpochTables(self.storage.uri, before.tables)
        split = SplitTask(self.plan, self.reading, before.routing, site_keys, late_below, number, run, staging, tables)
        site = SiteTask(
            plan=self.plan,
            number=number,
            newest=newest,
            before=what_all_sites_need(before),
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
