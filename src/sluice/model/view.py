"""What a policy sees: arrays, a row a unit or a site."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from sluice.model.productivity import results_by_byte, results_by_unit


@dataclass(frozen=True)
class ClusterView:
    """The cluster over the time its statistics were collected. Columns `unit_*` have one entry a unit, `site_*` a site.

    `unit_bytes` is a unit's state wherever it lies; `unit_spilled` says that it lies on disk, so that its input waits,
    `unit_pending` rows of it. `site_idle` is how many of the `seconds` a site waited for input, `site_memory` the bytes
    it may use for state, always a finite number. `unit_memory` is what lies in memory of a unit's state, `unit_yielded`
    the results that this has given so far: since the unit was frozen last, if it ever was.`unit_frozen` are the bytes
    that were frozen, `unit_freezable` says that there is a join among the unit's operators, `unit_results` are the
    results of the `seconds`.
    """

    epoch: int
    seconds: float
    unit_site: np.ndarray
    unit_rows: np.ndarray
    unit_bytes: np.ndarray
    unit_spilled: np.ndarray
    unit_pending: np.ndarray
    site_idle: np.ndarray
    site_memory: np.ndarray
    unit_memory: np.ndarray
    unit_yielded: np.ndarray
    unit_frozen: np.ndarray
    unit_freezable: np.ndarray
    unit_results: np.ndarray

    @classmethod
    def at_rest(cls, unit_site: ArrayLike, site_memory: ArrayLike) -> ClusterView:
        """Units at their sites for ten seconds in which nothing happened: what to try a policy on, with `replace`.

        >>> from dataclasses import replace
        >>> view = ClusterView.at_rest(unit_site=[0, 0, 1], site_memory=[1 << 20, 1 << 20])
        >>> replace(view, unit_rows=np.array([70, 20, 10])).by_site(np.array([70, 20, 10]))
        array([90., 10.])
        """
        sites, memory = np.asarray(unit_site, dtype=np.int64), np.asarray(site_memory)
        none = np.zeros(len(sites), dtype=np.int64)
        return cls(
            epoch=1,
            seconds=10.0,
            unit_site=sites,
            unit_rows=none,
            unit_bytes=none,
            unit_spilled=none > 0,
            unit_pending=none,
            site_idle=np.zeros(len(memory)),
            site_memory=memory,
            unit_memory=none,
            unit_yielded=none,
            unit_frozen=none,
            unit_freezable=none == 0,
            unit_results=none,
        )

    @property
    def productivity(self) -> np.ndarray:
        """What each unit has yielded by byte in memory."""
        return results_by_byte(self.unit_yielded, self.unit_memory)

    @property
    def sites(self) -> int:
        """How many sites there are."""
        return len(self.site_idle)

    def by_site(self, column: np.ndarray) -> np.ndarray:
        """The sum of a column over the units of each site."""
        return np.bincount(self.unit_site, weights=column, minlength=self.sites)

    @property
    def site_productivity(self) -> np.ndarray:
        """The average productivity rate of each site, the R of the lazy/active-disk paper: the results of its units in
        the time statistics were collected, by unit; of those that can be frozen, as no others compete for memory so."""
        ranked = np.flatnonzero(self.unit_freezable)
        return results_by_unit(self.unit_results[ranked], self.unit_site[ranked], self.sites)
