"""Which units a site freezes when its memory is full, and how much of it (lazy-disk paper, sections 2 and 3).

A unit's productivity is what it has yielded by byte of its state: results since its present generation began. Whoever
yields least goes first, so that what stays in memory is what finds most. A spill takes `push` of the state, the paper's
k %, so that the next one is not due at once. With a half-life, results of long ago count less (the paper's amortised
productivity): where rows expire, or what comes in changes, what a unit found in its first hours says little.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Annotated

import numpy as np

from sluice.model.epoch.stats import results_by_byte
from sluice.model.view import ClusterView
from sluice.policies.settings import Choice, Number, check_settings
from sluice.verbs.freeze import Freeze

ORDERS = ("less-productive", "more-productive", "largest", "random")
Push = Annotated[float, Number("the part of the state that is frozen at a time", above=0, most=1)]
Order = Annotated[str, Choice("the order in which units are frozen", ORDERS)]
HalfLife = Annotated[float, Number("the epochs after which a result counts half", above=0)]


@dataclass(frozen=True)
class Freezing:
    """Freeze `push` of the state in memory, units in this order; the others than the first are there to compare with.

    >>> sizes, results_produced = np.array([10, 30, 20, 40]), np.array([50, 30, 0, 80])
    >>> Freezing(push=0.3).choose(sizes, results_produced, limit=90)
    array([2, 1])
    >>> Freezing(push=0.3, order="largest").choose(sizes, results_produced, limit=90)
    array([3])
    """

    push: Push = 0.3
    order: Order = "less-productive"
    half_life: HalfLife = inf

    def __post_init__(self) -> None:
        check_settings(self)

    @property
    def fading(self) -> float:
        """What a result counts an epoch later."""
        return float(0.5 ** (1 / self.half_life))

    def choose(self, sizes: np.ndarray, results_produced: np.ndarray, limit: float, seed: int = 0) -> np.ndarray:
        """The places of the units to freeze, given the bytes and results of each: as many as `push` says, and as it
        takes for the others to fit into the limit."""
        order, total = self.rank(sizes, results_produced, seed), sizes.sum()
        enough = np.searchsorted(np.cumsum(sizes[order]), max(self.push * total, total - limit))
        return order[: enough + 1]

    def is_due(self, sizes: np.ndarray, total: float, limit: float) -> bool:
        """Whether a site with so many bytes of state freezes: it has more than it may, and units of these sizes, those
        that can be frozen, free what is worth it."""
        return bool(total > limit and sizes.sum() >= self.push * limit)

    def choose_of(
        self, sizes: np.ndarray, results_produced: np.ndarray, total: float, limit: float, seed: int = 0
    ) -> np.ndarray:
        """The places of the units to freeze where other state, which cannot be frozen, has the rest of the total."""
        return self.choose(sizes, results_produced, max(0.0, limit - (total - float(sizes.sum()))), seed)

    def advise(self, view: ClusterView) -> tuple[Freeze, ...]:
        """What sites would freeze now, where they freeze nothing because the policy only advises.

        >>> view = ClusterView.at_rest(unit_site=[0, 0, 0, 1], site_memory=[50, 50])
        >>> view = view.with_units(bytes=np.array([10, 30, 20, 40]), results_produced=np.array([50, 30, 0, 80]))
        >>> for action in Freezing().advise(view): print(action)
        Freeze(unit=2, reason='60 bytes of state, 50 allowed; less-productive first')
        """
        able, sizes = view.units.freezable & ~view.is_shared, view.units.bytes - view.units.frozen
        totals = view.bytes_by_site - view.by_site(view.units.frozen)
        advice: list[Freeze] = []
        for site in np.flatnonzero(totals > view.sites.memory).tolist():
            units = np.flatnonzero(able & (view.units.site == site))
            total, limit = float(totals[site]), int(view.sites.memory[site])
            if len(units) and self.is_due(sizes[units], total, limit):
                results_produced = view.units.results_produced[units]
                places = self.choose_of(sizes[units], results_produced, total, limit, view.period.epoch)
                reason = self.explain(total, limit)
                advice += [Freeze(unit, reason) for unit in view.units.id[np.sort(units[places])].tolist()]
        return tuple(advice)

    def explain(self, total: float, limit: int) -> str:
        """Why units are frozen at a site that has so many bytes of state."""
        return f"{round(total):,} bytes of state, {limit:,} allowed; {self.order} first"

    def rank(self, sizes: np.ndarray, results_produced: np.ndarray, seed: int = 0) -> np.ndarray:
        """The places of the units that have state, those to freeze first before the others."""
        productivity = results_by_byte(results_produced, sizes)
        keys = {
            "less-productive": productivity,
            "more-productive": -productivity,
            "largest": -sizes,
            "random": np.random.default_rng(seed).random(len(sizes)),
        }
        order = np.argsort(keys[self.order], kind="stable")
        ranked: np.ndarray = order[sizes[order] > 0]
        return ranked
