"""An epoch counts when its sites have all taken in what the same attempts sent."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from sluice.engine.site_task import SiteTask
from sluice.engine.split import SplitTask
from sluice.model.epoch.attempt import name_attempts
from sluice.model.errors import QueryError
from sluice.model.ids import Level
from sluice.record.reports import SiteReport

log = logging.getLogger(__name__)
MAX_JOB_RUNS = 4
"""How often an epoch's job is run if its sites have not taken in the same."""
Exchange = Callable[[SplitTask, SiteTask], list[SiteReport]]
"""Runs one epoch's job: every source row through the split, every blob to its site; one report a site and level."""


def run_until_agreed(exchange: Exchange, split: SplitTask, site: SiteTask) -> list[SiteReport]:
    """The reports of an epoch whose sites have all taken in the same; the job is run again until they have.

    Spark makes blobs that were lost with an executor again. Two runs of a task may differ, and then sites that were
    through before and sites that come after it have parts of two different epochs.
    """
    for attempt in range(MAX_JOB_RUNS):
        if attempt:
            log.info("epoch %d is run again: its sites got what different attempts had sent", site.number)
        reports = sorted(exchange(split, site), key=lambda report: (report.site, report.level))
        if all(_agree(reports, Level(level)) for level in range(site.plan.levels)):
            return reports
    raise QueryError(
        f"epoch {site.number} was run {MAX_JOB_RUNS} times, and each time sites got what different attempts of the "
        "same tasks had sent: executors are lost while it runs. Nothing of it was committed; see Spark's log for why "
        "they are lost, then start the query again"
    )


def _agree(reports: Sequence[SiteReport], level: Level) -> bool:
    """Whether the sites of a level have all taken in what the same attempts sent: of the splits, or of the level below
    those that reported."""
    took = {report.took_in for report in reports if report.level == level}
    sent = {name_attempts(report.attempt for report in reports if report.level == level - 1)} if level else took
    return len(took) == 1 and took == sent
