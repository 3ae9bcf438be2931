"""The second half of an epoch's job: a site takes in new rows, brings its operators' state up to date, and reports.

Runs in the Spark task of the site, one a level of operators, in whichever Python worker of its executor it lands.
"""

from __future__ import annotations

import pickle
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from math import inf

import numpy as np
import pyarrow as pa

from sluice.engine.blobs import (
    BLOBS,
    LEVEL_WATERMARK,
    SITE_REPORT,
    SPLIT_REPORT,
    Blob,
    blob_schema,
    in_batches,
    message,
    senders,
)
from sluice.engine.part_writer import PartWriter, Staging
from sluice.engine.stopwatch import Stopwatch
from sluice.engine.unit_stats import UnitStats
from sluice.kernels.probe import Run
from sluice.model.clock import Clock, SystemClock
from sluice.model.codec import decode
from sluice.model.directory import Directory
from sluice.model.epoch import Attempt, EpochRecord, Lagging, SiteShare, Times, name_attempts, slowest, watermarks
from sluice.model.errors import StorageError
from sluice.model.ids import InputNumber, Level, Site, SiteKey, Unit
from sluice.model.plan import Plan
from sluice.model.reports import LevelWatermark, SiteReport, SplitReport, newest_of
from sluice.model.routing import Routing
from sluice.model.state import Manifest, unit_rows
from sluice.model.stats import OperatorRows, SiteStats, TaskSeconds, UnitColumns
from sluice.model.stream import applied
from sluice.model.unit_ranges import Ranges, intersect, numbers, ranges, subtract
from sluice.operators import operator
from sluice.state.durable import DurableSegments
from sluice.state.inputs import Holdings, InputLayouts, Retention
from sluice.state.local_files import LocalFiles
from sluice.state.scheduling import Cohort, Limits, UnitSchedule
from sluice.state.segment import Layout, counts, merged_run, sorted_run
from sluice.state.segment import parts as parts_of
from sluice.state.storage import Storage
from sluice.state.tiers import Tiers
from sluice.state.transaction import SiteStore, StateBefore, Transaction
from sluice.state.workspace import Places, Workspace, executor


@dataclass(frozen=True)
class SiteDirectives:
    """How far a site goes in an epoch, and what it prepares, as the controller and the query's options want it."""

    limits: tuple[int, ...]
    """Bytes in memory, of each site."""
    spill: str = "unit"
    seconds: float | None = None
    backlog: float = float("inf")
    patient: bool = False
    """Whether units on disk are waited for: there is no new input."""
    costs: tuple[float | None, ...] = ()
    """Seconds that a row took at each site in the epoch before."""
    leaving: tuple[Unit, ...] = ()
    allowance: float = float("inf")
    row_delay: tuple[float, ...] = ()
    """Seconds that a row takes longer at each site, for experiments with slow machines; none everywhere if empty."""


@dataclass(frozen=True)
class SiteTask:
    """What the sites need to know for one epoch: `before` is the record of the last one, under this one's routing.

    What one site alone needs of it is in `shares`, and there only. Spark hands the whole task to each site: so they are
    bytes, of which a site decodes its own.
    """

    plan: Plan
    number: int
    before: EpochRecord
    shares: tuple[bytes, ...]
    site_keys: tuple[SiteKey, ...]
    checkpoint: str
    query: str
    run: str
    places: Places
    staging: tuple[Staging, ...]
    adapting: SiteDirectives

    @property
    def routing(self) -> Routing:
        return self.before.routing

    def __call__(self, level: Level, site_key: SiteKey, blobs: pa.Table, clock: Clock | None = None) -> pa.Table:
        """One level's work of the site: blobs in, blobs for the levels above and a report out."""
        pa.set_cpu_count(1)
        site = _SiteEpoch(self, Site(self.site_keys.index(site_key)), level, clock or SystemClock())
        return pa.Table.from_batches(in_batches(site.run(blobs)), BLOBS)


class _SiteEpoch:
    def __init__(self, task: SiteTask, site: Site, level: Level, clock: Clock) -> None:
        self.task, self.site, self.level, self.plan = task, site, level, task.plan
        self.site_key = task.site_keys[site]
        self.share: SiteShare = pickle.loads(task.shares[site])
        self.last = level == task.plan.levels - 1
        self.delays = tuple(s.delay for s in self.plan.sources)
        self.clock, self.stopwatch = clock, Stopwatch(clock)
        self.nodes = [n for n, node in enumerate(self.plan.nodes) if node.level == level]
        self.operators = {n: operator(self.plan.nodes[n].spec) for n in self.nodes}
        self.local = {g: (n, i) for n in self.nodes for i, g in enumerate(self.plan.inputs_of(n))}
        self.holdings = self._holdings()
        self.held, self.layouts = self.holdings.units, self.holdings.layouts
        self.attempt = Attempt(task.number, site, task.run, f"{level}{uuid.uuid4().hex[:8]}")
        self.probed = self.nulls = 0
        self.rows = {n: [0, 0] for n in self.nodes}
        self.by_unit = UnitStats(self.holdings.unit_numbers)

    def run(self, blobs: pa.Table) -> Iterator[Blob]:
        begun = self.clock.monotonic()
        with self.stopwatch.measure("sort"):
            new, splits, watermarks_below, passing = self._unpack(blobs)
        self.now = slowest([newest_of(self.task.before.newest, splits), *(below.newest for below in watermarks_below)])
        cohorts = self._cohorts()
        since = slowest([newest for _, newest in cohorts] or [self.now])
        with self.stopwatch.measure("open"):
            transaction = self._begin(since)
        writers = {
            i: PartWriter(staging, f"part-{self.attempt}-{i}.parquet", output.schema)
            for i, (output, staging) in enumerate(zip(self.plan.outputs, self.task.staging, strict=True))
            if output.feed.origin - len(self.plan.sources) in self.nodes
        }
        for input_, run in new.items():
            places, rows = self._count(input_, run, self.held)
            self.by_unit.rows[places] += rows
        schedule = self._schedule(cohorts, new, transaction)
        for units, newest in schedule:
            yield from self._turn(units, newest, new, transaction, writers)
        lagging = schedule.left()
        self._postpone(lagging, new, transaction)
        with self.stopwatch.measure("sink"):
            parts = tuple(replace(part, output=i) for i, writer in writers.items() for part in writer.close())
        with self.stopwatch.measure("durable"):
            retention = self._retention(since, since if lagging else self.now)
            manifest = transaction.commit(retention, self.task.adapting.leaving, self.task.adapting.allowance)
        yield from passing
        if not self.last:
            reached = slowest([self.now, *(newest for _, newest in lagging)])
            watermark = LevelWatermark(reached, self.attempt.suffix)
            yield from (message(site_key, LEVEL_WATERMARK, watermark) for site_key in self.task.site_keys)
            yield from (message(self.site_key, SPLIT_REPORT, split) for split in splits)
        report = SiteReport(
            site=self.site,
            level=self.level,
            attempt=self.attempt.suffix,
            took_in=name_attempts(below.attempt for below in (watermarks_below if self.level else splits)),
            manifest=manifest,
            parts=parts,
            lagging=tuple(Lagging(self.level, units, newest) for units, newest in lagging),
            reached=self.now,
            queues=transaction.pages.queues(self.site, self.level),
            page_events=transaction.pages.events,
            splits=tuple(splits) if self.site == 0 and self.level == 0 else (),
            units=self._unit_columns(transaction, manifest),
            stats=self._stats(transaction, manifest, writers, begun),
        )
        yield message(self.site_key, SITE_REPORT, report)

    def _cohorts(self) -> list[Cohort]:
        """The units held here by how far they have come, those that are behind first."""
        found: list[Cohort] = []
        rest = self.held
        for lagging in self.share.lagging:
            units = intersect(lagging.units, rest) if lagging.level == self.level else ()
            if units:
                found.append((units, lagging.newest))
                rest = subtract(rest, units)
        found.sort(key=lambda cohort: [-inf if t is None else t for t in cohort[1]])
        return [*found, (rest, self.task.before.reached_at(self.level))] if rest else found

    def _schedule(self, cohorts: list[Cohort], new: dict[InputNumber, Run], transaction: Transaction) -> UnitSchedule:
        adapting = self.task.adapting
        costs = adapting.costs[self.site] if adapting.costs else None
        share = None if adapting.seconds is None else adapting.seconds / self.plan.levels
        sizes = transaction.pending_bytes()
        for input_, run in new.items():
            places, count = self._count(input_, run, self.held)
            sizes[places] += count * (run.rows.nbytes / max(1, len(run)))
        rows = self.by_unit.rows + transaction.pending_rows()
        limits = Limits(share, adapting.backlog / self.plan.levels, costs, adapting.patient)
        by_time = any(mine.by_time for mine in self.operators.values())
        return UnitSchedule(cohorts, self.now, rows, sizes, transaction.pages, limits, self.clock, by_time)

    def _turn(
        self,
        units: Ranges,
        newest: Times,
        new: dict[InputNumber, Run],
        transaction: Transaction,
        writers: dict[int, PartWriter],
    ) -> Iterator[Blob]:
        """These units take in their input, what waited and what is new, and come to where the streams are now."""
        started, before = self.clock.process_time(), self.by_unit.work
        transaction.begin_turn(units)
        with self.stopwatch.measure("sort"):
            mine = {g: run for g in self.local if (run := self._input(g, units, new.get(g), transaction)) is not None}
        taken = sum(len(run) for run in mine.values())
        for input_, run in mine.items():
            places, rows = self._count(input_, run, units)
            self.by_unit.done[places] += rows
        for node in self.nodes:
            if intersect(units, (self._directory(node).range,)):
                yield from self._operate(node, mine, newest, transaction, writers)
        transaction.end_turn()
        if self.task.adapting.row_delay:
            self.clock.sleep(taken * self.task.adapting.row_delay[self.site])
        self.by_unit.spend(self.clock.process_time() - started, before, numbers(units))

    def _input(self, input_: InputNumber, units: Ranges, fresh: Run | None, transaction: Transaction) -> Run | None:
        """An input's rows for some units in the order of their arrival; all that is new, if that is all there is."""
        pieces, directory = transaction.take_pending(input_), self.holdings.directories[input_]
        units = intersect(units, (directory.range,))
        if fresh is not None and units == self.holdings.units_of(input_) and not pieces:
            return fresh
        pieces += [] if fresh is None else parts_of(fresh, units, directory)
        return None if not pieces else pieces[0] if len(pieces) == 1 else merged_run(pieces, None)

    def _postpone(self, behind: list[Cohort], new: dict[InputNumber, Run], transaction: Transaction) -> None:
        """New rows of units that did not get their turn wait with their state."""
        waiting = ranges(sorted(u for units, _ in behind for u in numbers(units).tolist()))
        if not waiting:
            return
        for input_, run in new.items():
            directory = self.holdings.directories[input_]
            pieces = parts_of(run, intersect(waiting, (directory.range,)), directory)
            if pieces:
                transaction.postpone(waiting, input_, pieces[0] if len(pieces) == 1 else merged_run(pieces, None))

    def _operate(
        self,
        node: int,
        new: dict[InputNumber, Run],
        newest: Times,
        transaction: Transaction,
        writers: dict[int, PartWriter],
    ) -> Iterator[Blob]:
        """One operator's turn: its results go to sinks and to the operators above."""
        origin = self.plan.origin_of(node)
        sinks = [(o.feed.steps, o.schema.names, i) for i, o in enumerate(self.plan.outputs) if o.feed.origin == origin]
        onward = senders(self.plan, origin, self.task.routing, self.task.site_keys)
        inputs, directory = self.plan.inputs_of(node), self._directory(node)
        mine = [new.get(i) for i in inputs]
        before, after = self._marks(node, newest), self._marks(node, self.now)
        state = _NodeState(self, transaction, inputs)
        results = self.operators[node].epoch(self.task.number, mine, state, before, after)
        count = self.rows[node]
        count[0] += sum(len(run) for run in mine if run is not None)
        while True:
            with self.stopwatch.measure("kernel"):
                found = next(results, None)
            if found is None:
                self.nulls += sum(sender.dropped for sender in onward)
                return
            hashes, batch = found
            count[1] += batch.num_rows
            self.by_unit.add_results(directory.unit_of(hashes))
            with self.stopwatch.measure("sink"):
                for steps, names, i in sinks:
                    writers[i].add(applied(steps, batch).select(names))
            with self.stopwatch.measure("split"):
                blobs = [blob for sender in onward for blob in sender.blobs(batch)]
            yield from blobs

    def _marks(self, node: int, newest: Times) -> Times:
        """The watermarks of an operator's streams where the sources have come so far."""
        return self.plan.watermarks_at(node, watermarks(newest, self.delays))

    def _stats(
        self, transaction: Transaction, manifest: Manifest, writers: dict[int, PartWriter], begun: float
    ) -> SiteStats:
        state = transaction.stats()
        waiting = [run for run in manifest if run.segment.pending]
        return SiteStats(
            site=self.site,
            executor=executor(),
            units=self.task.routing.holders.count(self.site),
            rows_in=int(self.by_unit.rows.sum()),
            rows_done=int(self.by_unit.done.sum()),
            rows_out=sum(w.rows for w in writers.values()),
            rows=sum(run.rows for run in manifest if not run.segment.pending),
            segments=len(manifest),
            probed=self.probed,
            null_rows=self.nulls,
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
            busy_seconds=round(self.clock.monotonic() - begun, 6),
            operators=tuple(OperatorRows(node, *counts) for node, counts in self.rows.items()),
            seconds=TaskSeconds(**{phase: round(seconds, 6) for phase, seconds in self.stopwatch.seconds.items()}),
        )

    def _unit_columns(self, transaction: Transaction, manifest: Manifest) -> UnitColumns:
        """Columns with an entry for each unit held here."""
        held = numbers(self.held)
        memory, disk = transaction.unit_usage([r for r in manifest if not r.segment.pending])
        pending = unit_rows((r for r in manifest if r.segment.pending), self.holdings.unit_numbers)
        return UnitColumns(
            rows=self.by_unit.rows[held],
            results=self.by_unit.results[held],
            pending=pending[held],
            memory=memory[held].astype(np.int64),
            disk=disk[held].astype(np.int64),
            seconds=self.by_unit.seconds[held].astype(np.float32),
        )

    def _begin(self, since: Times) -> Transaction:
        task, adapting = self.task, self.task.adapting
        roots = Workspace(task.places, task.query, task.run).open()
        memory, disk = (LocalFiles(f"{root}/site-{self.site:04d}-{self.level}") for root in roots)
        limit = adapting.limits[self.site] // self.plan.levels
        store = SiteStore(
            self.holdings,
            Tiers(memory, disk, limit),
            DurableSegments(Storage(task.checkpoint), self.clock),
            self.clock,
            paging=adapting.spill == "unit",
        )
        before = StateBefore(
            tuple(run for run in self.share.manifest if run.segment.input in self.layouts),
            self._retention(since, since),
            tuple(ref for ref in self.share.arriving if ref.input in self.layouts),
            next((q for q in self.share.queues if q.level == self.level), None),
        )
        return store.begin(self.attempt, before)

    def _retention(self, since: Times, until: Times) -> dict[InputNumber, Retention]:
        """How long rows of each input are needed, and how merged runs get smaller, as its operator says, where all
        units have come as far as `until` and the slowest began at `since`."""
        out = {}
        for input_, (node, i) in self.local.items():
            mine, before, after = self.operators[node], self._marks(node, since), self._marks(node, until)
            compacted = partial(mine.compacted, i, after=after)
            out[input_] = Retention(mine.keep_from(i, before, after), mine.retention, compacted, mine.shrinks)
        return out

    def _holdings(self) -> Holdings:
        """What the site has of the fragments on this level."""
        directories = {input_: self._directory(node) for input_, (node, _) in self.local.items()}
        here = tuple(self.task.routing.directories[f].range for f in self.plan.fragments_at(self.level))
        layouts = {input_: self._layouts(node, i) for input_, (node, i) in self.local.items()}
        return Holdings(layouts, intersect(self.task.routing.ranges_of(self.site), here), directories)

    def _directory(self, node: int) -> Directory:
        return self.task.routing.directories[self.plan.nodes[node].fragment]

    def _count(self, input_: InputNumber, run: Run, units: Ranges) -> tuple[np.ndarray, np.ndarray]:
        """Those of some units that are of an input's fragment, and the rows that each of them has in a run."""
        directory = self.holdings.directories[input_]
        places = intersect(units, (directory.range,))
        return numbers(places), counts(run, places, directory)

    def _layouts(self, node: int, input_: int) -> InputLayouts:
        state = self.operators[node].stored(input_)
        return InputLayouts(state, Layout(self.operators[node].crossing(input_), state.event_time))

    def _unpack(
        self, blobs: pa.Table
    ) -> tuple[dict[InputNumber, Run], list[SplitReport], list[LevelWatermark], list[Blob]]:
        """The new rows of this level's inputs, sorted; what the splits say; how far the sites of the level below have
        come; and what goes to levels above."""
        batches: dict[InputNumber, list[pa.RecordBatch]] = {}
        splits: list[SplitReport] = []
        watermarks_below: list[LevelWatermark] = []
        passing: list[Blob] = []
        schemas = {g: blob_schema(self.operators[n].crossing(i)) for g, (n, i) in self.local.items()}
        for chunk in blobs.to_batches():
            for number, payload in zip(chunk.column("input").to_pylist(), chunk.column("payload"), strict=True):
                if number == SPLIT_REPORT:
                    splits.append(decode(payload.as_py(), SplitReport))
                elif number == LEVEL_WATERMARK:
                    watermarks_below.append(decode(payload.as_py(), LevelWatermark))
                elif number in schemas:
                    batch = pa.ipc.read_record_batch(payload.as_buffer(), schemas[number])
                    batches.setdefault(number, []).append(batch)
                else:
                    passing.append((self.site_key, number, payload.as_buffer()))
        splits.sort(key=lambda split: split.stream)
        runs = {number: self._run(number, parts) for number, parts in batches.items()}
        return runs, splits, watermarks_below, passing

    def _run(self, number: InputNumber, parts: list[pa.RecordBatch]) -> Run:
        try:
            rows = parts[0] if len(parts) == 1 else pa.concat_batches(parts)
            return sorted_run(self.layouts[number].pending, rows.column(0).to_numpy(), rows.remove_column(0))
        except pa.ArrowInvalid as problem:
            raise StorageError(
                f"an epoch brings site {self.site} more than 2 GB of one column ({problem}): take in less at a "
                "time, with maxFilesPerTrigger or its like, or use more sites"
            ) from problem


@dataclass(frozen=True)
class _NodeState:
    """One operator's part of the site's state; opening segments counts as opening, not as the operator's work."""

    site: _SiteEpoch
    transaction: Transaction
    inputs: tuple[InputNumber, ...]

    def runs(self, input_: int, span: tuple[int, int] | None) -> list[Run]:
        with self.site.stopwatch.measure("open"):
            runs = self.transaction.runs(self.inputs[input_], span)
        self.site.probed += len(runs)
        return runs

    def stage(self, input_: int, run: Run) -> None:
        with self.site.stopwatch.measure("durable"):
            self.transaction.stage(self.inputs[input_], run)
