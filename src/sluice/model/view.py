"""What a policy sees: arrays, a row a unit or a site."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from sluice.model.epoch.stats import Slices, results_by_byte, results_by_unit
from sluice.model.errors import FlowError
from sluice.model.ids import Unit, UnitIndex
from sluice.model.routing.sharing import SharedUnit


@dataclass(frozen=True, kw_only=True)
class ClusterView:
    """The cluster over the time its statistics were collected. Columns `unit_*` have one entry a unit, `site_*` a site;
    what a world does not have is a column of zeros. Where a unit stands in its columns is its place in this view alone;
    `unit_id` has the ids, by which actions and `shared` name units.

    `unit_bytes` is a unit's state wherever it lies; `unit_spilled` says that it lies on disk, so that its input waits,
    `unit_pending` rows of it. `site_idle` is how many of the `seconds` a site waited for input, `site_memory` the bytes
    it may use for state, always a finite number. `unit_memory` is what lies in memory of a unit's state, `unit_yielded`
    the results that this has given so far: since the unit was frozen last, if it ever was.`unit_frozen` are the bytes
    that were frozen, `unit_freezable` says that there is a join among the unit's operators, `unit_results` are the
    results of the `seconds`.

    `unit_first_rows` are the rows of the first input of a unit's operator; `unit_inputs` is how many inputs a
    join has whose units can have several holders, 0 for other units; `unit_unready` says that it cannot be
    shared otherwise just now. Those that are `shared` are at each of
    their holders, `slices` has an entry for each; in `unit_site` they are at the first, and `unit_rows` counts a row
    as often as it was sent.

    `unit_buddy` is the place of the unit with which one can be merged, -1 if there is none. `unit_divisible` says that
    a unit has a key by which it can be split, `unit_single` that all its rows have one hash, so that it cannot.
    `site_occupancy` is how much of the input that may wait at a site did, on average over the time, from 0 to 1;
    `site_done` are the rows that it got through. The query may use any number of sites from `least_sites` to
    `most_sites`; if more are to join, there will be `wanted_sites`. All this took `elapsed` seconds by the clock;
    `seconds` leaves out those in which no site worked. The rows arrived in `arriving` seconds, which are fewer as long
    as more and more come: `outlook` times as many will, if it goes on like this, when sites have joined that are asked
    for now. Units are to have between one and two times `unit_size` bytes.
    """

    epoch: int
    seconds: float
    unit_id: np.ndarray
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
    unit_first_rows: np.ndarray
    unit_inputs: np.ndarray
    unit_unready: np.ndarray
    shared: tuple[SharedUnit, ...] = ()
    slices: Slices = field(default_factory=Slices.none)
    unit_buddy: np.ndarray
    unit_single: np.ndarray
    unit_divisible: np.ndarray
    site_occupancy: np.ndarray
    site_done: np.ndarray
    elapsed: float = 0.0
    arriving: float = 0.0
    outlook: float = 1.0
    unit_size: int = 1 << 62
    least_sites: int = 1
    most_sites: int = 1
    wanted_sites: int = 0

    def __post_init__(self) -> None:
        """See that every column is complete: where a world has nothing to say of units or sites, it is zeros."""
        for name, column in vars(self).items():
            if isinstance(column, np.ndarray):
                whose, count = ("unit", len(self.unit_site)) if name.startswith("unit_") else ("site", self.sites)
                if len(column) != count:
                    raise FlowError(
                        f"{name} of a ClusterView has {len(column)} entries; it needs {count}, one a {whose}"
                    )

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
            unit_id=np.arange(len(sites)),
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
            unit_first_rows=none,
            unit_inputs=none,
            unit_unready=none > 0,
            unit_buddy=none - 1,
            unit_single=none > 0,
            unit_divisible=none > 0,
            site_occupancy=np.zeros(len(memory)),
            site_done=np.zeros(len(memory), dtype=np.int64),
            elapsed=10.0,
            arriving=10.0,
            unit_size=64 << 20,
            least_sites=1,
            most_sites=len(memory),
        )

    @property
    def shows_load(self) -> bool:
        """Whether it shows what load each unit has: not where all that was done was for input that had waited, as only
        some of them had a turn then."""
        catching_up = self.site_done.any() or self.unit_pending.any()
        return self.arriving > 0 and bool(self.unit_rows.any() or not catching_up)

    @property
    def productivity(self) -> np.ndarray:
        """What each unit has yielded by byte in memory."""
        return results_by_byte(self.unit_yielded, self.unit_memory)

    @property
    def sites(self) -> int:
        """How many sites there are."""
        return len(self.site_idle)

    def by_site(self, column: np.ndarray) -> np.ndarray:
        """The sum of a column over the units of each site, those aside that are shared."""
        return np.bincount(self.unit_site, weights=np.where(self.is_shared, 0, column), minlength=self.sites)

    @property
    def is_shared(self) -> np.ndarray:
        """Which units have several holders."""
        found = np.zeros(len(self.unit_site), dtype=bool)
        found[[self.index_of(sharing.unit) for sharing in self.shared]] = True
        return found

    def unit_at(self, index: int) -> Unit:
        """The unit at a place of the columns: what an action names."""
        return Unit(int(self.unit_id[index]))

    def index_of(self, unit: Unit) -> UnitIndex:
        """The place of a unit in the columns.

        >>> view = ClusterView.at_rest(unit_site=[0, 0, 1], site_memory=[1 << 20, 1 << 20])
        >>> view.index_of(2)
        2
        """
        order = self._by_id
        at = int(np.searchsorted(self.unit_id, unit, sorter=order))
        if at == len(order) or self.unit_id[order[at]] != unit:
            raise FlowError(f"there is no unit {unit} in this view")
        return UnitIndex(int(order[at]))

    @cached_property
    def _by_id(self) -> np.ndarray:
        """The places in the order of ids."""
        return np.argsort(self.unit_id, kind="stable")

    @property
    def site_rows(self) -> np.ndarray:
        """The rows that each site took in."""
        found: np.ndarray = self.by_site(self.unit_rows) + self._by_holder(self.slices.rows)
        return found

    @property
    def site_results(self) -> np.ndarray:
        """The results that each site found."""
        found: np.ndarray = self.by_site(self.unit_results) + self._by_holder(self.slices.results)
        return found

    @property
    def site_bytes(self) -> np.ndarray:
        """The state that each site has, wherever it lies."""
        found: np.ndarray = self.by_site(self.unit_bytes) + self.slice_bytes
        return found

    @property
    def slice_bytes(self) -> np.ndarray:
        """The state that each site has of units that are shared."""
        return self._by_holder(self.slices.bytes)

    def _by_holder(self, column: np.ndarray) -> np.ndarray:
        """The sum of a column of the slices over those of each site."""
        return np.bincount(self.slices.site, weights=column, minlength=self.sites)

    @property
    def saturation(self) -> np.ndarray:
        """How much of its memory for state each site has filled, from 0 to 1."""
        filled: np.ndarray = np.clip(self.site_bytes / np.maximum(self.site_memory, 1), 0.0, 1.0)
        return filled

    @property
    def site_productivity(self) -> np.ndarray:
        """The average productivity rate of each site, the R of the lazy/active-disk paper: the results of its units in
        the time statistics were collected, by unit; of those that can be frozen, as no others compete for memory so."""
        ranked = np.flatnonzero(self.unit_freezable & ~self.is_shared)
        return results_by_unit(self.unit_results[ranked], self.unit_site[ranked], self.sites)
