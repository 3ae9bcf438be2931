"""Frozen units in a site's epoch: what is missing is found before anything new is taken in, and units are frozen at its
end.

The work itself is elsewhere: `cleaning.py` finds results, `state/generations.py` keeps what is frozen. Here it is
decided for which units it is time, and told what is frozen afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import inf

import numpy as np

from sluice.engine.cleaning import UnitCleaning
from sluice.engine.site_level import SiteLevel
from sluice.engine.site_task import SiteTask
from sluice.engine.unit_stats import UnitStats
from sluice.model.clock import Clock
from sluice.model.epoch import Frozen, Times, slowest
from sluice.model.ids import InputNumber, Unit
from sluice.model.reports import PageEvent
from sluice.model.state import Manifest, count_generations, unit_rows
from sluice.model.unit_ranges import Ranges, intersect, numbers, ranges, subtract
from sluice.operators.protocol import FreezableOperator, Results
from sluice.state.inputs import Retention
from sluice.state.scheduling import Cohort
from sluice.state.transaction import Transaction

CLEANING = 0.5
"""Part of an epoch's time, where that is limited, for results that are missing."""
CLEANING_SECONDS = 10.0
"""How long a site looks for them in an epoch where time is not limited: what one has found is committed and cannot be
lost any more, and everybody sees how far it has come."""
HALF_WINDOW = 0.5
"""Part of the time that a join keeps rows, after which a unit that was frozen is cleaned up: until then its site keeps
rows for it that nobody else needs any more."""


class SiteFreezing:
    """The frozen units of one site and level, and those that it freezes. `since` is where the streams were when the
    first of them was frozen, None if there is none; `events` is what was done, with the reason."""

    def __init__(
        self, task: SiteTask, level: SiteLevel, frozen: Sequence[Frozen], by_unit: UnitStats, clock: Clock
    ) -> None:
        self._task, self._adapting, self._level, self._by_unit, self._clock = task, task.adapting, level, by_unit, clock
        self._holdings = level.holdings
        self._before = [cold for cold in frozen if cold.level == level.number]
        self._cleaned: Ranges = ()
        self._frozen_now: Ranges = ()
        self.since = slowest([cold.newest for cold in self._before]) if self._before else None
        self.events: list[PageEvent] = []

    def clean_up(
        self, transaction: Transaction, retention: Mapping[InputNumber, Retention]
    ) -> Iterator[tuple[int, Results]]:
        """Results that are missing, with the place of their operator, of the units that it is time for."""
        if not self._before:
            return
        cleaning = UnitCleaning(self._level, transaction, retention, self._clock)
        due = [*self._due_units(), *cleaning.crowded_units()]
        if self._adapting.freezing is not None:
            due += cleaning.units_with_room()
        here = set(numbers(self._holdings.freezable_units).tolist())
        units = [unit for unit in dict.fromkeys((*due, *self._adapting.clean_up)) if unit in here]
        if not units:
            return
        limited = self._adapting.seconds
        seconds = (CLEANING_SECONDS if limited is None else CLEANING * limited) / self._level.plan.levels
        started, before = self._clock.process_time(), self._by_unit.work
        yield from cleaning.run(units, seconds)
        self._by_unit.spend(self._clock.process_time() - started, before, np.array(units, dtype=np.int64))
        self._cleaned = ranges(sorted(cleaning.cleaned))
        self.events += [PageEvent("clean up", unit, "its results were missing") for unit in cleaning.cleaned]

    def choose(self, transaction: Transaction) -> Ranges:
        """The units that are to begin anew: those that were named, and as many as it takes to stay within the limit."""
        adapting = self._adapting
        if not adapting.freeze and adapting.freezing is None:
            return ()
        leaving = ranges(sorted(adapting.leaving))  # they would arrive frozen where they were to stay active
        held = numbers(subtract(subtract(self._holdings.freezable_units, leaving), self._level.shared))
        chosen = dict.fromkeys(set(held.tolist()).intersection(adapting.freeze), "asked for")
        if adapting.freezing is not None and len(held):
            sizes = transaction.active_bytes()
            total, limit = sizes.sum(), transaction.limit
            if total > limit:
                assert adapting.yielded is not None, "sites that freeze are told what units have yielded"
                yielded = adapting.yielded[held] + self._by_unit.results[held]
                room = limit - (total - sizes[held].sum())
                places = adapting.freezing.choose(sizes[held], yielded, room, self._task.number)
                reason = f"{round(total):,} bytes of state, {limit:,} allowed; {adapting.freezing.order} first"
                chosen |= dict.fromkeys(held[places].tolist(), reason)
        self.events += [PageEvent("freeze", Unit(unit), why) for unit, why in sorted(chosen.items())]
        self._frozen_now = ranges(sorted(chosen))
        return self._frozen_now

    def frozen_after(
        self, manifest: Manifest, cohorts: Sequence[Cohort], lagging: Sequence[Cohort], now: Times
    ) -> tuple[Frozen, ...]:
        """The units that have state in generations before the present one, by when what is missing of them begins;
        `cohorts` is how far units had come before the epoch, `lagging` how far those that wait are now."""
        size = self._holdings.unit_numbers
        generations = count_generations(manifest, size)
        if not generations.any():
            return ()
        active = [r for r in manifest if r.is_active and r.segment.input in self._holdings.freezable]
        missing = (generations > 1) | ((generations > 0) & (unit_rows(active, size) > 0))
        known = [(subtract(cold.units, self._cleaned), cold.newest) for cold in self._before]
        # nothing was missing of these up to where they began
        begun = [(intersect(units, self._cleaned), newest) for units, newest in cohorts]
        reached: list[Cohort] = [*lagging, (self._holdings.units, now)]
        found: dict[tuple[Times, bool], list[Unit]] = {}
        for some, choices in ((True, [*known, *begun, *reached]), (False, reached)):
            first = np.zeros(size, dtype=np.int64)
            for number in reversed(range(len(choices))):  # the first cohort that has a unit counts
                first[numbers(choices[number][0])] = number
            for unit in np.flatnonzero((generations > 0) & (missing == some)).tolist():
                found.setdefault((choices[first[unit]][1], some), []).append(Unit(unit))
        return tuple(Frozen(self._level.number, ranges(sorted(units)), *key) for key, units in found.items())

    def yielded(self) -> np.ndarray:
        """The results by which units are ranked: of those that can be frozen, but were not now."""
        yielded = np.zeros(len(self._by_unit.results), dtype=np.float32)
        ranked = numbers(subtract(self._holdings.freezable_units, self._frozen_now))
        yielded[ranked] = self._by_unit.results[ranked]
        return yielded

    def _due_units(self) -> list[Unit]:
        """Units that have been frozen for so long that rows would expire if it were not for them, the longest first."""
        joins = [join for join in self._level.operators.values() if isinstance(join, FreezableOperator)]
        shortest = min((join.retention for join in joins if join.retention is not None), default=None)
        found: list[Unit] = []
        if shortest is None:
            return found
        now = self._task.before.reached_at(self._level.number)
        for cohort in sorted(self._before, key=lambda cold: [-inf if t is None else t for t in cold.newest]):
            passed = [b - a for a, b in zip(cohort.newest, now, strict=True) if a is not None and b is not None]
            if max(passed, default=0) >= HALF_WINDOW * shortest:
                found += numbers(cohort.units).tolist()
        return found
