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
from sluice.engine.site_orders import SiteOrders
from sluice.engine.site_task import SiteTask
from sluice.engine.unit_stats import UnitStats
from sluice.model.clock import Clock
from sluice.model.epoch.segments import Manifest, count_generations, unit_rows
from sluice.model.epoch.times import Frozen, Times
from sluice.model.ids import InputNumber, UnitIndex
from sluice.model.routing.unit_ranges import Ranges, intersect, numbers, subtract, to_ranges, unite_all
from sluice.operators.protocol import FreezableOperator, ResultBatch
from sluice.state.inputs import Retention
from sluice.state.scheduling import Cohort
from sluice.state.transaction import Transaction
from sluice.verbs.freeze import UnitCleanedUp, UnitFrozen

CLEANING_FRACTION = 0.5
"""Part of an epoch's time, where that is limited, for results that are missing."""
CLEANING_SECONDS = 10.0
"""How long a site looks for them in an epoch where time is not limited: what one has found is committed and cannot be
lost any more, and everybody sees how far it has come."""
HALF_WINDOW = 0.5
"""Part of the time that a join keeps rows, after which a unit that was frozen is cleaned up: until then its site keeps
rows for it that nobody else needs any more. Where a join keeps rows of one side for good, it is that part of the other
rows that such rows may amount to."""


class SiteFreezing:
    """The frozen units of one site and level, and those that it freezes. `events` is what was done, with the reason."""

    def __init__(
        self,
        task: SiteTask,
        orders: SiteOrders,
        level: SiteLevel,
        frozen: Sequence[Frozen],
        by_unit: UnitStats,
        clock: Clock,
    ) -> None:
        self._task, self._directives, self._orders = task, task.directives, orders
        self._level, self._holdings, self._by_unit, self._clock = level, level.holdings, by_unit, clock
        self._before = [cold for cold in frozen if cold.level == level.number]
        self._cleaned: Ranges = ()
        self._frozen_now: Ranges = ()
        self.events: list[UnitFrozen | UnitCleanedUp] = []
        self.excess = 0
        """How many bytes of state that cannot be frozen there are beyond the memory, at a site that freezes."""

    def cohorts(self, begun: Sequence[Cohort]) -> list[Cohort]:
        """The frozen units by where the streams were when what is missing of them begins. Units that were cleaned up
        miss nothing up to where they had `begun` the epoch."""
        still = [(subtract(cold.units, self._cleaned), cold.newest) for cold in self._before]
        return [*still, *((intersect(units, self._cleaned), newest) for units, newest in begun)]

    def clean_up(
        self, transaction: Transaction, retention: Mapping[InputNumber, Retention]
    ) -> Iterator[tuple[int, ResultBatch]]:
        """Results that are missing, with the place of their operator, of the units that it is time for; `retention` is
        what units need that miss nothing."""
        if not self._before:
            return
        cleaning = UnitCleaning(self._level, transaction, retention, self._clock)
        due = [*self._due_units(), *self._overdue_units(transaction, retention), *cleaning.crowded_units()]
        if self._directives.freezing is not None:
            due += cleaning.units_with_room()
        here = set(numbers(self._holdings.freezable_units).tolist())
        units = [unit for unit in dict.fromkeys((*due, *self._orders.clean_up)) if unit in here]
        if not units:
            return
        limited = self._directives.seconds
        part = self._directives.level_shares[self._level.number]
        seconds = part * (CLEANING_SECONDS if limited is None else CLEANING_FRACTION * limited)
        started, before = self._clock.process_time(), self._by_unit.work
        yield from cleaning.run(units, seconds)
        self._by_unit.spend(self._clock.process_time() - started, before, np.array(units, dtype=np.int64))
        self._cleaned = to_ranges(sorted(cleaning.cleaned))
        self._report(UnitCleanedUp, dict.fromkeys(cleaning.cleaned, "its results were missing"))

    def choose(self, transaction: Transaction) -> Ranges:
        """The units that are to begin anew: those that were named, and as many as it takes to stay within the limit.

        A site freezes if that frees the part of its memory that a freeze is to free. Where state that cannot be frozen
        takes up the memory, units would else be frozen in every epoch for the few rows that it brought; what does not
        fit is used from disk meanwhile.
        """
        directives = self._directives
        if not self._orders.freeze and directives.freezing is None:
            return ()
        leaving = to_ranges(sorted(self._orders.set_apart))  # they would arrive frozen where they were to stay active
        places_held = numbers(subtract(subtract(self._holdings.freezable_units, leaving), self._level.shared))
        chosen = dict.fromkeys(set(places_held.tolist()).intersection(self._orders.freeze), "asked for")
        if directives.freezing is not None and len(places_held):
            freezable = transaction.active_bytes(self._holdings.freezable)
            sizes, total, limit = freezable[places_held], transaction.active_bytes().sum(), transaction.limit
            self.excess = max(0, round(total - freezable.sum()) - limit)
            if directives.freezing.is_due(sizes, total, limit):
                assert directives.results_produced is not None, "sites that freeze are told what units have yielded"
                results_produced = directives.results_produced[places_held] + self._by_unit.results[places_held]
                places = directives.freezing.choose_of(sizes, results_produced, total, limit, self._task.number)
                reason = directives.freezing.explain(total, limit)
                chosen |= dict.fromkeys(places_held[places].tolist(), reason)
        self._report(UnitFrozen, dict(sorted(chosen.items())))
        self._frozen_now = to_ranges(sorted(chosen))
        return self._frozen_now

    def frozen_after(
        self, manifest: Manifest, cohorts: Sequence[Cohort], lagging: Sequence[Cohort], now: Times
    ) -> tuple[Frozen, ...]:
        """The units with frozen generations, by the times from which their results are missing. `cohorts` tells how far
        units had come before the epoch, `lagging` how far those that wait have come."""
        size = self._holdings.unit_numbers
        generations = count_generations(manifest, size)
        if not generations.any():
            return ()
        active = [r for r in manifest if r.is_active and r.segment.input in self._holdings.freezable]
        missing = (generations > 1) | ((generations > 0) & (unit_rows(active, size) > 0))
        cohorts_now = self.cohorts(cohorts)
        reached: list[Cohort] = [*lagging, (self._holdings.units, now)]
        by_progress: dict[tuple[Times, bool], list[UnitIndex]] = {}
        for is_missing, choices in ((True, [*cohorts_now, *reached]), (False, reached)):
            first = np.zeros(size, dtype=np.int64)
            for number in reversed(range(len(choices))):  # the first cohort that has a unit counts
                first[numbers(choices[number][0])] = number
            for unit in np.flatnonzero((generations > 0) & (missing == is_missing)).tolist():
                by_progress.setdefault((choices[first[unit]][1], is_missing), []).append(UnitIndex(unit))
        return tuple(Frozen(self._level.number, to_ranges(sorted(units)), *key) for key, units in by_progress.items())

    def results_produced(self) -> np.ndarray:
        """The results by which units are ranked: of those that can be frozen, but were not now."""
        results_produced = np.zeros(len(self._by_unit.results), dtype=np.float32)
        ranked = numbers(subtract(self._holdings.freezable_units, self._frozen_now))
        results_produced[ranked] = self._by_unit.results[ranked]
        return results_produced

    def _report(self, kind: type[UnitFrozen | UnitCleanedUp], reasons: Mapping[UnitIndex, str]) -> None:
        """Tells what was done about units, each with the reason."""
        unit_at, level = self._task.routing.unit_at, self._level.number
        self.events += [kind(unit_at(index), level, reason) for index, reason in reasons.items()]

    def _due_units(self) -> list[UnitIndex]:
        """Units that have been frozen for so long that rows would expire if it were not for them, the longest first."""
        due: list[UnitIndex] = []
        now = self._task.before.reached_at(self._level.number)
        for cohort in sorted(self._before, key=lambda cold: [-inf if t is None else t for t in cold.newest]):
            for input_ in self._holdings.freezable:
                units = intersect(cohort.units, (self._holdings.directories[input_].range,))
                kept = self._level.compiled.time_kept(input_)
                if units and kept is not None:
                    nodes = [reader.node for reader in self._level.readers[input_]]
                    if any(self._time_passed(node, cohort.newest, now) >= HALF_WINDOW * kept for node in nodes):
                        due += numbers(units).tolist()
        return due

    def _overdue_units(self, transaction: Transaction, retention: Mapping[InputNumber, Retention]) -> list[UnitIndex]:
        """Units of joins that keep rows of one side for good, with many rows of another that would have expired if it
        were not for them: as many as the other rows of that side, if the unit fits into memory again; if it does not,
        and would have to be written anew, as the other rows of all sides."""
        lasting = [node for node, join in self._joins() if join.retention is None]
        missing = unite_all(part for cold in self._before if cold.missing for part in cold.units)
        units = numbers(intersect(missing, unite_all(self._level.directory(node).range for node in lasting)))
        read = dict.fromkeys(input_ for node in lasting for input_ in self._level.plan.inputs_of(node))
        inputs = [(input_, self._level.expires(input_)) for input_ in read]
        if not len(units) or not any(expires for _, expires in inputs):
            return []
        overdue, needed = transaction.expired_bytes(retention, [i for i, expires in inputs if expires])
        _, kept = transaction.expired_bytes(retention, [i for i, expires in inputs if not expires])
        room = transaction.limit - transaction.active_bytes().sum()
        fits = transaction.generations.sizes() <= room
        allowed = HALF_WINDOW * (needed + np.where(fits, 0.0, kept))
        return [UnitIndex(unit) for unit in units[(overdue > 0)[units] & (overdue >= allowed)[units]].tolist()]

    def _time_passed(self, node: int, since: Times, until: Times) -> float:
        """How far the streams of an operator have come from where they were."""
        return _time_passed(self._level.watermarks(node, since), self._level.watermarks(node, until))

    def _joins(self) -> list[tuple[int, FreezableOperator]]:
        """The operators of the level whose units can be frozen, with their places."""
        return [(n, join) for n, join in self._level.operators.items() if isinstance(join, FreezableOperator)]


def _time_passed(since: Times, until: Times) -> float:
    """How far the stream that has come furthest has come; one that had not begun then, any way."""
    passed = [inf if a is None else b - a for a, b in zip(since, until, strict=True) if b is not None]
    return max(passed, default=0)
