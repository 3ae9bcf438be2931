"""How far cleaning up has come, epoch by epoch: what was asked for before it, and what the sites say after it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np

from sluice.model.epoch.segments import unit_rows
from sluice.model.epoch.stats import CleanUpProgress
from sluice.model.ids import Level, Unit, UnitIndex
from sluice.model.plan.plan import Plan, is_inner_join
from sluice.model.routing.routing import Routing
from sluice.model.routing.unit_ranges import numbers
from sluice.record.epoch import EpochRecord
from sluice.record.reports import SiteReport
from sluice.verbs.freeze import UnitCleanedUp


class CleanUpFollower:
    """Counts rows while the units that were `asked` for are cleaned up, in one epoch after another.

    A unit counts with all its rows at a level of operators, frozen or not, until nothing is missing there.
    """

    def __init__(self, plan: Plan, asked: Collection[Unit], before: EpochRecord) -> None:
        """`before` is the record of the last epoch, under this one's routing."""
        self._plan, self._asked = plan, sorted(before.routing.ids.indexes_of(set(asked)))
        none = np.zeros((plan.levels, before.routing.units), dtype=np.int64)
        self._rows = rows_with_missing_results(plan, before) if asked else none
        progress_before = before.stats.clean_up
        self.is_new = progress_before is None or not progress_before.rows_left
        """Whether the epoch before had no part in it."""
        so_far = CleanUpProgress() if progress_before is None or self.is_new else progress_before
        self.before = replace(so_far, rows_left=int(self._rows[:, self._asked].sum()))

    def after(self, record: EpochRecord, reports: Sequence[SiteReport]) -> CleanUpProgress | None:
        """How far it has come with another epoch; None if nobody had asked for it."""
        if not self._asked:
            return None
        cleaned = _find_cleaned(reports, set(self._asked), record.routing)
        left = rows_with_missing_results(self._plan, record)
        if record.stats.rows_in:  # else it is because of what was found below, and they will be cleaned up again
            for level, unit in cleaned:
                left[level, unit] = 0
        return CleanUpProgress(
            rows_done=self.before.rows_done + int(sum(self._rows[level, unit] for level, unit in cleaned)),
            rows_left=int(left[:, self._asked].sum()),
            results=self.before.results + sum(site.late_results for site in record.stats.sites),
            seconds=self.before.seconds + record.stats.seconds.elapsed,
        )


def rows_with_missing_results(plan: Plan, record: EpochRecord) -> np.ndarray:
    """By level and the place of the unit: the rows that a unit's joins have there, if results of them are missing."""
    missing = np.zeros((plan.levels, record.routing.units), dtype=bool)
    for cold in record.frozen:
        if cold.missing:
            missing[cold.level, numbers(cold.units)] = True
    joined = [is_inner_join(plan.nodes[state.readers[0].node].spec) for state in plan.inputs]
    level_of = [state.level if of_join else None for state, of_join in zip(plan.inputs, joined, strict=True)]
    runs = [run for manifest in record.manifests for run in manifest if not run.segment.pending]
    rows = np.zeros(missing.shape, dtype=np.int64)
    for level in np.flatnonzero(missing.any(axis=1)).tolist():
        rows[level] = unit_rows((run for run in runs if level_of[run.segment.input] == level), record.routing.units)
    return rows * missing


def _find_cleaned(
    reports: Sequence[SiteReport], asked: set[UnitIndex], routing: Routing
) -> set[tuple[Level, UnitIndex]]:
    """The places of units of which nothing was missing at a level any more."""
    cleaned = {
        (report.level, routing.index_of(event.unit))
        for report in reports
        for event in report.events
        if isinstance(event, UnitCleanedUp)
    }
    return {(level, index) for level, index in cleaned if index in asked}
