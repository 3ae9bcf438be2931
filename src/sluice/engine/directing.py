"""What the sites are told for an epoch, beside what is to be computed: how long they work, what they prepare."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from sluice.engine.level_shares import divide_by_need
from sluice.engine.settings import QuerySettings
from sluice.engine.site_task import SiteDirectives
from sluice.model.epoch.stats import EpochStats, SiteStats
from sluice.model.epoch.taken_files import TakenFiles
from sluice.model.ids import Site
from sluice.model.plan.plan import Plan
from sluice.record.epoch import EpochRecord

LEAST_BUDGET = 0.25
"""Part of an epoch's budget that one for input that waits has at least."""


def directives(
    plan: Plan,
    settings: QuerySettings,
    before: EpochRecord,
    left: float,
    cost: float | None,
    results_produced: np.ndarray,
    patient: bool,
) -> SiteDirectives:
    """For an epoch that is to be over in the seconds that are `left`, as far as can be told, if epochs have a budget. A
    row costs as many seconds at sites of which that is not known."""
    sites, emulation = before.routing.sites, settings.emulation
    return SiteDirectives(
        limits=settings.controller.memory.limits(sites),
        spill=settings.spill,
        seconds=None if settings.seconds is None else _budget(settings.seconds, before.stats, left),
        backlog=settings.backlog,
        level_shares=divide_by_need(_work_by_level(plan, before.stats)),
        patient=patient,
        costs=_costs(before.stats.sites, sites, cost),
        freezing=settings.freezing_at_sites,
        results_produced=results_produced if settings.freezing_at_sites else None,
        row_delay=_by_site(emulation.row_delay, sites),
        result_delay=_by_site(emulation.result_delay, sites),
        disk_delay=emulation.disk_delay,
    )


def what_all_sites_need(before: EpochRecord) -> EpochRecord:
    """The record that an epoch goes on from, without what each site is told for itself, or none needs."""
    shared = replace(before, manifests=(), lagging=(), frozen=(), queues=(), parts=(), taken=TakenFiles())
    shared = replace(shared, turns=(), instructions=(), events=(), decisions=(), ended=(), under_way=())
    return replace(shared, stats=EpochStats())


def _work_by_level(plan: Plan, stats: EpochStats) -> list[float]:
    """The processor seconds that the operators of each level took in the epoch before."""
    seconds = [0.0] * plan.levels
    for operator, spent in zip(stats.operators.operator.tolist(), stats.operators.seconds.tolist(), strict=True):
        if operator < len(plan.nodes):
            seconds[plan.nodes[operator].level] += spent
    return seconds


def _budget(most: float, stats: EpochStats, left: float) -> float:
    """The seconds that sites may work, if the epoch takes as much beside as the one before."""
    return min(most, max(LEAST_BUDGET * most, left - _overhead(stats)))


def _overhead(stats: EpochStats) -> float:
    """How much longer than its busiest site an epoch took."""
    return max(0.0, stats.seconds.elapsed - max((site.busy_seconds for site in stats.sites), default=0.0))


def mean_cost(sites: Sequence[SiteStats]) -> float | None:
    """The seconds that a row took on average; None if there was none."""
    done = sum(site.rows_done for site in sites)
    return sum(site.busy_seconds for site in sites) / done if done else None


def _costs(seen: Sequence[SiteStats], sites: int, otherwise: float | None) -> tuple[float | None, ...]:
    """The seconds that a row took each of so many sites; those that had none, or have just joined, are like others."""
    costs = [site.busy_seconds / site.rows_done if site.rows_done else otherwise for site in seen[:sites]]
    return (*costs, *[otherwise] * (sites - len(costs)))


def _by_site(delays: dict[Site, float], sites: int) -> tuple[float, ...]:
    """The delay at each site, none if nothing is slowed down."""
    return tuple(delays.get(Site(site), 0.0) for site in range(sites)) if any(delays.values()) else ()
