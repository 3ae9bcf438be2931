"""The second half of an epoch's job: a site takes in new rows, brings its operators' state up to date, and reports.

Runs in the Spark task of the site, one a level of operators, in whichever Python worker of its executor it lands.
"""

from __future__ import annotations

import pickle
import uuid
from collections.abc import Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import inf

import numpy as np
import pyarrow as pa

from sluice.engine.blobs import LEVEL_WATERMARK, SITE_REPORT, SPLIT_REPORT, Blob, ReceivedBlob, message
from sluice.engine.freezing import CLEANING_FRACTION, SiteFreezing
from sluice.engine.level_shares import divide_by_need
from sluice.engine.operator_meters import OperatorMeters
from sluice.engine.site_input import unpack
from sluice.engine.site_level import SiteLevel
from sluice.engine.site_orders import SiteOrders
from sluice.engine.site_results import SiteResults
from sluice.engine.site_task import SiteTask, Spill
from sluice.engine.stopwatch import Stopwatch
from sluice.engine.unit_stats import UnitStats
from sluice.kernels.probe import Run
from sluice.model.clock import Clock
from sluice.model.epoch.attempt import Attempt
from sluice.model.epoch.packed_manifests import PackedManifests
from sluice.model.epoch.segments import Manifest, unit_rows
from sluice.model.epoch.stats import SiteStats, TaskSeconds, UnitColumns
from sluice.model.epoch.times import Lagging, Times, slowest, watermarks
from sluice.model.ids import InputNumber, Level, Site, SiteKey
from sluice.model.routing.unit_ranges import Ranges, holds, intersect, numbers, subtract, to_ranges, unite_all
from sluice.operators.protocol import ResultBatch, ShareableOperator, TableOperator
from sluice.record.epoch import SiteShare
from sluice.record.reports import LevelWatermark, SiteReport
from sluice.state.durable import DurableSegments
from sluice.state.files.disk_speed import DiskSpeed
from sluice.state.files.local_files import LocalFiles
from sluice.state.files.storage import Storage
from sluice.state.files.workspace import Workspace, executor
from sluice.state.inputs import Retention
from sluice.state.scheduling import Cohort, Limits, UnitSchedule
from sluice.state.segment import merge_sorted
from sluice.state.segment import parts as parts_of
from sluice.state.tiers import Tiers
from sluice.state.transaction import Preparations, SiteStore, StateBefore, Transaction
from sluice.verbs.spill import UnitFetched, UnitSpilled


def run_site(
    task: SiteTask, level: Level, site_key: SiteKey, blobs: Iterable[ReceivedBlob], clock: Clock
) -> Iterator[Blob]:
    """One level's work of a site in an epoch: blobs in, blobs for the levels above and a report out."""
    pa.set_cpu_count(1)
    task.tables.close_others()
    return _SiteEpoch(task, Site(task.site_keys.index(site_key)), level, clock).run(blobs)


class _SiteEpoch:
    def __init__(self, task: SiteTask, site: Site, level: Level, clock: Clock) -> None:
        self.task, self.site, self.plan = task, site, task.plan
        self.site_key = task.site_keys[site]
        self.share: SiteShare = pickle.loads(task.shares[site])
        self.clock, self.stopwatch = clock, Stopwatch(clock)
        self.level = SiteLevel(task.plan, task.routing, site, level, task.before.tables)
        self.holdings, self.held = self.level.holdings, self.level.holdings.units
        self.attempt = Attempt(task.number, site, task.run, f"{level}{uuid.uuid4().hex[:8]}")
        self.results = SiteResults(task, self.level, self.attempt, self.stopwatch)
        self.probed = 0
        self.emulated_seconds = 0.0
        self.meters = OperatorMeters(clock)
        self.by_unit = UnitStats(self.holdings.unit_numbers)
        self._counted: dict[InputNumber, tuple[Run, Ranges, tuple[np.ndarray, np.ndarray]]] = {}
        """How many rows units have in a run, as it was counted last for each input."""
        self.orders = SiteOrders.of(task.instructions, task.routing)
        self.freezing = SiteFreezing(task, self.orders, self.level, self.share.frozen, self.by_unit, clock)

    def run(self, blobs: Iterable[ReceivedBlob]) -> Iterator[Blob]:
        begun = self.clock.monotonic()
        with self.stopwatch.measure("sort"):
            site_input = unpack(self.level, self.site_key, blobs)
        site_input.refuse_late_rows(watermarks(self.task.newest, tuple(s.delay for s in self.plan.sources)))
        new, self.probe_only = site_input.rows, site_input.probe_only
        self.now = site_input.newest(self.task.newest)
        cohorts = self._cohorts()
        with self.stopwatch.measure("open"):
            transaction = self._begin(self.level.retention(cohorts, self.freezing.cohorts(cohorts)))
        cleaning = self.clock.monotonic()
        yield from self._clean_up(transaction, self.level.retention(cohorts))
        cleaning = self.clock.monotonic() - cleaning
        sizes = transaction.pending_bytes()
        for input_, run in (*new.items(), *self.probe_only.items()):
            places, rows = self._count(input_, run, self.held)
            self.by_unit.rows[places] += rows
            if self.level.readers[input_][0].input == 0:
                self.by_unit.first_rows[places] += rows
            if run is new.get(input_):
                sizes[places] += rows * (run.rows.nbytes / max(1, len(run)))
        schedule = self._schedule(cohorts, sizes, transaction, cleaning)
        for units, newest in schedule:
            yield from self._turn(units, newest, new, transaction)
        for node in self.level.tables:
            yield from self._show_table(node, transaction)
        lagging = schedule.units_left()
        self._postpone(lagging, new, transaction)
        parts = self.results.close()
        with self.stopwatch.measure("durable"):
            in_time = subtract(self.held, unite_all(part for units, _ in lagging for part in units))
            after = [*lagging, *([(in_time, self.now)] if in_time else [])]
            retention = self.level.retention(after, self.freezing.cohorts(cohorts))
            transaction.pass_over(retention)  # nothing is frozen for rows that leave anyway
            manifest = transaction.commit(retention, self._preparations(self.freezing.choose(transaction)))
        frozen = self.freezing.frozen_after(manifest, cohorts, lagging, self.now)
        yield from site_input.forwarded
        if not self.level.is_last:
            behind = [*(newest for _, newest in lagging), *(cold.newest for cold in frozen if cold.missing)]
            reached = slowest([self.now, *behind])
            watermark = LevelWatermark(reached, self.attempt.suffix)
            yield from (message(site_key, LEVEL_WATERMARK, watermark) for site_key in self.task.site_keys)
            yield from (message(self.site_key, SPLIT_REPORT, s.for_level_above()) for s in site_input.splits)
        report = SiteReport(
            site=self.site,
            level=self.level.number,
            attempt=self.attempt.suffix,
            took_in=site_input.senders,
            state=PackedManifests.of([manifest]),
            parts=parts,
            lagging=tuple(Lagging(self.level.number, units, newest) for units, newest in lagging),
            frozen=frozen,
            reached=self.now,
            queues=transaction.pages.queues(self.site, self.level.number),
            events=(*self._page_events(transaction), *self.freezing.events, *transaction.findings),
            splits=site_input.splits if self.site == 0 and self.level.number == 0 else (),
            units=self._unit_columns(transaction, manifest),
            stats=self._stats(transaction, manifest, begun),
            operators=self.meters.works(),
            outputs=self.results.works,
            sent=self.results.sent.by_site,
        )
        yield message(self.site_key, SITE_REPORT, report)

    def _preparations(self, freezing: Ranges) -> Preparations:
        """What is done to units of this level with the commit."""
        orders = self.orders
        return Preparations(
            freeze=freezing,
            set_apart=orders.set_apart,
            bytes_apart=orders.bytes_apart,
            profile={index: unit for index, unit in orders.profile.items() if holds(self.held, index)},
            count_below={index: order for index, order in orders.count_below.items() if holds(self.held, index)},
        )

    def _page_events(self, transaction: Transaction) -> list[UnitSpilled | UnitFetched]:
        """What was spilled and fetched."""
        unit_at = self.task.routing.unit_at
        return [
            (UnitSpilled if step.action == "spill" else UnitFetched)(unit_at(step.unit), step.reason)
            for step in transaction.pages.steps
        ]

    def _cohorts(self) -> list[Cohort]:
        """The units held here by how far they have come, those that are behind first."""
        cohorts: list[Cohort] = []
        rest = self.held
        for lagging in self.share.lagging:
            units = intersect(lagging.units, rest) if lagging.level == self.level.number else ()
            if units:
                cohorts.append((units, lagging.newest))
                rest = subtract(rest, units)
        cohorts.sort(key=lambda cohort: [-inf if t is None else t for t in cohort[1]])
        return [*cohorts, (rest, self.task.before.reached_at(self.level.number))] if rest else cohorts

    def _count(self, input_: InputNumber, run: Run, units: Ranges) -> tuple[np.ndarray, np.ndarray]:
        """Those of some units that are of an input's fragment, and their rows in a run. Mostly one turn takes in what
        has come, and it has been counted."""
        known = self._counted.get(input_)
        if known is None or known[0] is not run or known[1] != units:
            known = self._counted[input_] = run, units, self.level.count(input_, run, units)
        return known[2]

    def _schedule(
        self, cohorts: list[Cohort], sizes: np.ndarray, transaction: Transaction, spent: float
    ) -> UnitSchedule:
        """Whose turn it is, in the time that is left, if input of these `sizes` is here for each unit; some was `spent`
        on cleaning up."""
        directives = self.task.directives
        costs = directives.costs[self.site] if directives.costs else None
        part = directives.level_shares[self.level.number]
        share = None if directives.seconds is None else directives.seconds * part
        if share is not None:
            share -= min(spent, CLEANING_FRACTION * share)
        rows = self.by_unit.rows + transaction.pending_rows()
        limits = Limits(share, directives.backlog * part, costs, directives.patient)
        by_time = bool(self.level.by_time)
        schedule = UnitSchedule(cohorts, self.now, rows, sizes, transaction.pages, limits, self.clock, by_time)
        schedule.put_first(self.level.shared)
        return schedule

    def _turn(
        self,
        units: Ranges,
        newest: Times,
        new: dict[InputNumber, Run],
        transaction: Transaction,
    ) -> Iterator[Blob]:
        """These units take in their input, what waited and what is new, and come to where the streams are now."""
        started, before, emulated = self.clock.process_time(), self.by_unit.work, self.emulated_seconds
        transaction.begin_turn(units)
        with self.stopwatch.measure("sort"):
            coming = sorted(new.keys() | transaction.waiting_inputs)
            inputs = {g: self._input(g, units, new.get(g), transaction) for g in coming}
            rows_by_input = {g: run for g, run in inputs.items() if run is not None}
            probing = self._probe_only_rows(units)
        for input_, run in (*rows_by_input.items(), *probing.items()):
            places, rows = self._count(input_, run, units)
            self.by_unit.done[places] += rows
        staged: set[InputNumber] = set()
        for node in self._nodes_with_work(units, newest, rows_by_input.keys() | probing.keys(), transaction):
            yield from self._operate(node, rows_by_input, probing, newest, transaction, staged)
        transaction.end_turn()
        seconds = self.clock.process_time() - started + self.emulated_seconds - emulated
        self.by_unit.spend(seconds, before, numbers(units))

    def _nodes_with_work(
        self, units: Ranges, newest: Times, coming: Iterable[InputNumber], transaction: Transaction
    ) -> list[int]:
        """The operators of some units that get rows, or may have results as the watermarks move on."""
        nodes = {reader.node for input_ in coming for reader in self.level.readers[input_]}
        for node in self.level.by_time:
            before, after = self.level.watermarks(node, newest), self.level.watermarks(node, self.now)
            due = None if node in nodes else self.level.operators[node].due_span(before, after)
            if due is not None and any(transaction.has_rows(input_, due) for input_ in self.plan.inputs_of(node)):
                nodes |= {node} if intersect(units, (self.level.directory(node).range,)) else set()
        return sorted(nodes)

    def _emulate(self, rows: int, results: int) -> float:
        """Takes as much longer as experiments want it to; how many seconds that is."""
        directives, longer = self.task.directives, 0.0
        if directives.row_delay:
            longer += rows * directives.row_delay[self.site]
        if directives.result_delay:
            longer += results * directives.result_delay[self.site]
        if longer:
            self.clock.sleep(longer)
        self.emulated_seconds += longer
        return longer

    def _input(self, input_: InputNumber, units: Ranges, fresh: Run | None, transaction: Transaction) -> Run | None:
        """An input's rows for some units in the order of their arrival; all that is new, if that is all there is."""
        pieces, directory = transaction.take_pending(input_), self.holdings.directories[input_]
        units = intersect(units, (directory.range,))
        if fresh is not None and units == self.holdings.units_of(input_) and not pieces:
            return fresh
        pieces += [] if fresh is None else parts_of(fresh, units, directory)
        return None if not pieces else merge_sorted(pieces, None)

    def _probe_only_rows(self, units: Ranges) -> dict[InputNumber, Run]:
        """Rows of units that others share: they only meet what is here."""
        rows_by_input = {}
        for input_, run in self.probe_only.items():
            directory = self.holdings.directories[input_]
            pieces = parts_of(run, intersect(units, (directory.range,)), directory)
            if pieces:
                rows_by_input[input_] = merge_sorted(pieces, None)
        return rows_by_input

    def _postpone(self, behind: list[Cohort], new: dict[InputNumber, Run], transaction: Transaction) -> None:
        """New rows of units that did not get their turn wait with their state."""
        waiting = to_ranges(sorted(u for units, _ in behind for u in numbers(units).tolist()))
        if not waiting:
            return
        for input_, run in new.items():
            directory = self.holdings.directories[input_]
            pieces = parts_of(run, intersect(waiting, (directory.range,)), directory)
            if pieces:
                transaction.postpone(waiting, input_, merge_sorted(pieces, None))

    def _operate(
        self,
        node: int,
        new: dict[InputNumber, Run],
        probe_only: dict[InputNumber, Run],
        newest: Times,
        transaction: Transaction,
        staged: set[InputNumber],
    ) -> Iterator[Blob]:
        """One operator's turn: its results go to sinks and to the operators above. What others have `staged` in the
        turn is not staged again."""
        inputs = self.plan.inputs_of(node)
        stored_here, probing = [new.get(i) for i in inputs], [probe_only.get(i) for i in inputs]
        before, after = self.level.watermarks(node, newest), self.level.watermarks(node, self.now)
        state = _NodeState(self, transaction, inputs, staged)
        operator = self.level.operators[node]
        if any(run is not None for run in probing):
            assert isinstance(operator, ShareableOperator), "units of others are not shared"
            results = operator.shared_epoch(stored_here, probing, state)
        else:
            results = operator.epoch(self.task.number, stored_here, state, before, after)
        row_count = sum(len(run) for run in (*stored_here, *probing) if run is not None)
        meter = self.meters[node]
        meter.rows_in += row_count
        result_count = yield from self._send_results(node, results)
        meter.seconds += self._emulate(row_count, result_count)
        meter.end_turn()

    def _show_table(self, node: int, transaction: Transaction) -> Iterator[Blob]:
        """All that an operator keeps here, also of units whose turn did not come: of these, what they had before."""
        operator = self.level.operators[node]
        assert isinstance(operator, TableOperator), "only tables are shown as a whole"
        (input_,) = self.plan.inputs_of(node)
        for runs in transaction.all_runs(input_):
            self.probed += len(runs)
            yield from self._send_results(node, operator.show_all(runs))
        self.meters[node].end_turn()

    def _send_results(self, node: int, results: Iterator[ResultBatch]) -> Generator[Blob, None, int]:
        """Results of an operator go to sinks and to the operators above; how many they were."""
        meter, result_count = self.meters[node], 0
        meter.begin()
        while True:
            with self.stopwatch.measure("kernel"):
                batch = next(results, None)
            if batch is None:
                break
            result_count += batch[1].num_rows
            self.by_unit.add_results(self.level.directory(node).unit_of(batch[0]))
            blobs = self.results.send(node, batch)
            if blobs:  # whoever takes them takes the time that this takes
                meter.pause()
                yield from blobs
                meter.begin()
        meter.pause()
        meter.rows_out += result_count
        return result_count

    def _clean_up(self, transaction: Transaction, retention: Mapping[InputNumber, Retention]) -> Iterator[Blob]:
        """Finds results that are missing, of the units that it is time for."""
        results = self.freezing.clean_up(transaction, retention)
        while True:
            with self.stopwatch.measure("kernel"):
                late_results = next(results, None)
            if late_results is None:
                return
            node, batch = late_results
            self.by_unit.add_late_results(self.level.directory(node).unit_of(batch[0]))
            self.meters[node].rows_out += batch[1].num_rows
            yield from self.results.send(node, batch)
            self.meters[node].end_turn()

    def _stats(self, transaction: Transaction, manifest: Manifest, begun: float) -> SiteStats:
        state = transaction.stats()
        frozen = [run for run in manifest if run.generation]
        waiting = [run for run in manifest if run.segment.pending]
        return SiteStats(
            site=self.site,
            executor=executor(),
            units=sum(high - low for low, high in self.task.routing.ranges_of(self.site)),
            rows_in=int(self.by_unit.rows.sum()),
            rows_done=int(self.by_unit.done.sum()),
            rows_out=self.results.shown,
            rows=sum(run.rows for run in manifest if run.is_active),
            segments=len(manifest),
            probed=self.probed,
            null_rows=self.results.dropped,
            copied_rows=self.results.copied_rows,
            copied_bytes=self.results.copied_bytes,
            memory_limit=state.memory_limit,
            memory_bytes=state.memory_bytes,
            disk_bytes=state.disk_bytes,
            durable_bytes=round(sum(run.bytes for run in manifest)),
            spilled_bytes=state.spilled_bytes,
            spilled_units=state.spilled_units,
            fetched_bytes=state.fetched_bytes,
            fetch_seconds=round(state.fetch_seconds, 6),
            damaged_files=state.damaged_files,
            pending_rows=sum(run.rows for run in waiting),
            pending_bytes=round(sum(run.bytes for run in waiting)),
            merged_rows=state.merged_rows,
            frozen_rows=sum(run.rows for run in frozen),
            frozen_bytes=round(sum(run.bytes for run in frozen)),
            unfreezable_excess=self.freezing.excess,
            late_results=int(self.by_unit.late_results.sum()),
            busy_seconds=round(self.clock.monotonic() - begun, 6),
            seconds=TaskSeconds(**{phase: round(seconds, 6) for phase, seconds in self.stopwatch.seconds.items()}),
        )

    def _unit_columns(self, transaction: Transaction, manifest: Manifest) -> UnitColumns:
        """Columns with an entry for each unit held here."""
        places = numbers(self.held)
        memory, disk = transaction.unit_usage([r for r in manifest if r.is_active])
        pending = unit_rows((r for r in manifest if r.segment.pending), self.holdings.unit_numbers)
        return UnitColumns(
            rows=self.by_unit.rows[places],
            first_rows=self.by_unit.first_rows[places],
            results=(self.by_unit.results + self.by_unit.late_results)[places],
            results_produced=self.freezing.results_produced()[places],
            pending=pending[places],
            memory=memory[places].astype(np.int64),
            disk=disk[places].astype(np.int64),
            seconds=self.by_unit.seconds[places].astype(np.float32),
        )

    def _begin(self, retention: Mapping[InputNumber, Retention]) -> Transaction:
        task, directives = self.task, self.task.directives
        workspace = Workspace(task.places, task.query, task.run)
        directories = workspace.open_level(self.site, self.level.number, self.plan.levels)
        speed = DiskSpeed(self.clock, directives.disk_delay)
        memory, disk = (
            LocalFiles(directory, speed=of) for directory, of in zip(directories, (None, speed), strict=True)
        )
        limit = int(directives.limits[self.site] * divide_by_need(self._state_by_level())[self.level.number])
        store = SiteStore(
            self.holdings,
            Tiers(memory, disk, limit),
            DurableSegments(Storage(task.checkpoint), self.clock, speed),
            self.clock,
            paging=directives.spill is Spill.UNIT and directives.freezing is None,
        )
        before = StateBefore(
            tuple(run for run in self.share.manifest if run.segment.input in self.level.readers),
            retention,
            tuple(ref for ref in self.share.arriving if ref.input in self.level.readers),
            next((q for q in self.share.queues if q.level == self.level.number), None),
        )
        return store.begin(self.attempt, before)

    def _state_by_level(self) -> list[float]:
        """The bytes of the site's state at each level that new rows meet: what memory is for."""
        sizes = [0.0] * self.plan.levels
        for run in self.share.manifest:
            if run.is_active:
                sizes[self.plan.inputs[run.segment.input].level] += run.bytes
        return sizes


@dataclass(frozen=True)
class _NodeState:
    """One operator's part of the site's state; opening segments counts as opening, not as the operator's work."""

    site: _SiteEpoch
    transaction: Transaction
    inputs: tuple[InputNumber, ...]
    staged: set[InputNumber]
    """The states to which this turn's rows have been added, by whichever of their readers came first."""

    def runs(self, input_: int, span: tuple[int, int] | None) -> list[Run]:
        with self.site.stopwatch.measure("open"):
            runs = self.transaction.runs(self.inputs[input_], span)
        self.site.probed += len(runs)
        return runs

    def stage(self, input_: int, run: Run) -> None:
        number = self.inputs[input_]
        if number in self.staged:
            return
        self.staged.add(number)
        with self.site.stopwatch.measure("durable"):
            self.transaction.stage(number, run)
