"""From the reports of an epoch's tasks to its record: what the sites hold, how far they have come, and statistics."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import reduce
from itertools import chain

import numpy as np

from sluice.control.controller import NextEpoch, Settled
from sluice.control.journal import KEPT
from sluice.model.epoch.decision import FREEZING, ROTATION, Decision, Verb
from sluice.model.epoch.segments import reuse_values
from sluice.model.epoch.stats import (
    EpochSeconds,
    EpochStats,
    SiteStats,
    Slices,
    StreamStats,
    TaskSeconds,
    Traffic,
    UnitColumns,
    results_by_byte,
    results_by_unit,
)
from sluice.model.epoch.taken_files import TakenFiles
from sluice.model.epoch.times import Frozen, Times, slowest, unite_cohorts
from sluice.model.epoch.work_stats import OperatorColumns, OutputColumns
from sluice.model.ids import Level, UnitIndex
from sluice.model.plan.plan import Plan
from sluice.model.routing.routing import Routing
from sluice.model.routing.unit_ranges import numbers, single_unit, subtract, unite_all
from sluice.record.epoch import EpochRecord
from sluice.record.reports import SiteReport, SplitReport, newest_of
from sluice.verbs.freeze import CleanUpUnits, FreezeUnit, UnitCleanedUp, UnitFrozen
from sluice.verbs.spill import UnitFetched, UnitSpilled


def record_epoch(
    plan: Plan,
    number: int,
    batch: int,
    batch_input: str,
    taken: TakenFiles,
    newest: Times,
    before: EpochRecord,
    step: NextEpoch,
    settled: Settled,
    reports: Sequence[SiteReport],
    job_seconds: float,
    results_produced: np.ndarray,
) -> EpochRecord:
    """The record of an epoch; `before` is the record of the last one, under this one's routing. By then each unit had
    `results_produced` in its present generation. `newest` is how far the sources have come apart from its rows, `step`
    what was decided for it, `settled` what has become of decisions with it."""
    splits = [split for report in reports for split in report.splits]
    levels = range(plan.levels)
    by_site: list[list[SiteReport]] = [[] for _ in range(before.routing.sites)]
    for report in reports:
        by_site[report.site].append(report)
    reported = [tuple(run for report in at_site for run in report.manifest) for at_site in by_site]
    return EpochRecord(
        number=number,
        batch=batch,
        batch_input=batch_input,
        taken=taken,
        tables=before.tables,
        newest=newest_of(newest, splits),
        reached=tuple(slowest([r.reached for r in reports if r.level == level]) for level in levels[1:]),
        lagging=unite_cohorts(cohort for report in reports for cohort in report.lagging),
        frozen=unite_cohorts(cohort for report in reports for cohort in report.frozen),
        queues=tuple(report.queues for report in reports if report.queues is not None),
        routing=before.routing,
        manifests=reuse_values(reported, before.manifests),
        parts=(*(p for split in splits for p in split.parts), *(p for report in reports for p in report.parts)),
        turns=step.turns,
        instructions=step.instructions,
        events=tuple(e for r in reports for e in r.events if not isinstance(e, UnitSpilled | UnitFetched)),
        decisions=(*step.decisions, *_own_decisions(number, step, reports)),
        ended=settled.ended,
        under_way=settled.under_way,
        plan=before.plan,
        former_plans=tuple(former for former in before.former_plans if former.until > number - KEPT),
        stats=_epoch_stats(plan, before, reports, by_site, splits, step.turns[-1].now, job_seconds, results_produced),
    )


def _epoch_stats(
    plan: Plan,
    before: EpochRecord,
    reports: Sequence[SiteReport],
    by_site: Sequence[Sequence[SiteReport]],
    splits: Sequence[SplitReport],
    ingested_at: float,
    job_seconds: float,
    results_produced: np.ndarray,
) -> EpochStats:
    routing = before.routing
    units_by_level = [routing.units_by_site(plan.fragments_at(Level(level))) for level in range(plan.levels)]
    parts = [(r.site, units_by_level[r.level][r.site], r.units) for r in reports]
    units = UnitColumns.of_sites(routing.units, ((numbers, columns) for _, numbers, columns in parts))
    units = replace(
        units, results_produced=units.results_produced + _still_counting(results_produced, reports, routing)
    )
    events = [type(event) for report in reports for event in report.events]
    outputs = [*(out for split in splits for out in split.outputs), *(out for r in reports for out in r.outputs)]
    tasks = [*(split.seconds for split in splits), *(report.stats.seconds for report in reports)]
    return EpochStats(
        rows_in=sum(split.rows for split in splits),
        rows_out=sum(r.stats.rows_out for r in reports) + sum(out.rows for split in splits for out in split.outputs),
        late_rows=sum(split.late for split in splits),
        null_rows=sum(split.nulls for split in splits) + sum(report.stats.null_rows for report in reports),
        out_of_range_rows=sum(split.out_of_range for split in splits),
        missing_files=sum(split.missing for split in splits),
        corrupt_files=sum(split.corrupt for split in splits),
        spills=events.count(UnitSpilled),
        fetches=events.count(UnitFetched),
        streams=tuple(_stream_stats(s.name, [x for x in splits if x.stream == i]) for i, s in enumerate(plan.sources)),
        sites=_site_stats(plan, by_site, units, routing),
        units=units,
        operators=OperatorColumns.of((work for report in reports for work in report.operators), ingested_at),
        outputs=OutputColumns.of(outputs, ingested_at),
        slices=Slices.of(parts, _shared_places(routing)) if routing.shared else Slices.none(),
        copied_rows=sum(s.copied_rows for s in splits) + sum(r.stats.copied_rows for r in reports),
        copied_bytes=sum(s.copied_bytes for s in splits) + sum(r.stats.copied_bytes for r in reports),
        traffic=_traffic(routing, splits, reports),
        seconds=EpochSeconds(reduce(TaskSeconds.plus, tasks, TaskSeconds()), job_seconds),
    )


def _traffic(routing: Routing, splits: Sequence[SplitReport], reports: Sequence[SiteReport]) -> Traffic:
    by_streams = ((routing.homes[split.stream], split.sent.array) for split in splits if len(split.sent))
    by_sites = ((report.site, report.sent.array) for report in reports)
    return Traffic.of(chain(by_streams, by_sites), routing.sites)


def _site_stats(
    plan: Plan, by_site: Sequence[Sequence[SiteReport]], units: UnitColumns, routing: Routing
) -> tuple[SiteStats, ...]:
    """What each site said of its levels, together, and what its units of joins yield: no others are ranked by it."""
    holders = routing.holders.array
    freezable = tuple(routing.directories[fragment].range for fragment in sorted(plan.freezable))
    ranked = numbers(subtract(freezable, tuple(single_unit(index)[0] for index in _shared_places(routing))))
    results_produced, sizes = (
        np.bincount(holders[ranked], weights=column[ranked], minlength=routing.sites)
        for column in (units.results_produced, units.memory + units.disk)
    )
    rates = results_by_unit(units.results[ranked], holders[ranked], routing.sites).tolist()
    productivity = results_by_byte(results_produced, sizes).tolist()
    return tuple(
        replace(
            reduce(SiteStats.plus, (report.stats for report in at_site)),
            results_per_unit=rates[site],
            productivity=productivity[site],
            frozen_units=_count_units(cold for report in at_site for cold in report.frozen),
            missing_units=_count_units(cold for report in at_site for cold in report.frozen if cold.missing),
        )
        for site, at_site in enumerate(by_site)
    )


def _shared_places(routing: Routing) -> list[UnitIndex]:
    return routing.ids.indexes_of(sharing.unit for sharing in routing.shared)


def _count_units(frozen: Iterable[Frozen]) -> int:
    """How many units there are in these, each counted once whatever its levels."""
    return sum(end - first for first, end in unite_all(part for cold in frozen for part in cold.units))


def _stream_stats(name: str, splits: Sequence[SplitReport]) -> StreamStats:
    return StreamStats(
        name,
        rows=sum(split.rows for split in splits),
        late=sum(split.late for split in splits),
        nulls=sum(split.nulls for split in splits),
        out_of_range=sum(split.out_of_range for split in splits),
        missing=sum(split.missing for split in splits),
        corrupt=sum(split.corrupt for split in splits),
    )


def results_produced_before(before: EpochRecord, fading: float) -> np.ndarray:
    """The results of each unit in its present generation, as far as they count an epoch later."""
    results_produced = before.stats.units.results_produced
    has_epoch = len(results_produced) == before.routing.units  # else there was no epoch yet
    return results_produced * np.float32(fading) if has_epoch else np.zeros(before.routing.units, dtype=np.float32)


def _still_counting(results_produced: np.ndarray, reports: Sequence[SiteReport], routing: Routing) -> np.ndarray:
    """The same without units that have begun another generation."""
    frozen = [event.unit for report in reports for event in report.events if isinstance(event, UnitFrozen)]
    results_produced = results_produced.copy()
    results_produced[routing.ids.indexes_of(frozen)] = 0
    return results_produced


def _own_decisions(number: int, step: NextEpoch, reports: Sequence[SiteReport]) -> list[Decision]:
    """What sites did about units by themselves, as decisions."""
    freeze = {one.unit for one in step.instructions if isinstance(one, FreezeUnit)}
    clean_up = {unit for one in step.instructions if isinstance(one, CleanUpUnits) for unit in one.units}
    decisions = []
    for report in reports:
        for event in report.events:
            match event:
                case UnitSpilled():
                    who, verb = ROTATION, Verb.SPILL
                case UnitFetched():
                    who, verb = ROTATION, Verb.FETCH
                case UnitFrozen() if event.unit not in freeze:
                    who, verb = FREEZING, Verb.FREEZE
                case UnitCleanedUp() if event.unit not in clean_up:
                    who, verb = FREEZING, Verb.CLEAN_UP
                case _:
                    continue
            decisions.append(Decision(number, who, verb, event.unit, report.site, event.reason))
    return decisions
