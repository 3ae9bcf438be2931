"""What a policy sees: a table of units, a table of sites, and over which time they were collected."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from sluice.model.epoch.stats import Slices, results_by_byte, results_by_unit
from sluice.model.errors import FlowError
from sluice.model.ids import Unit, UnitIndex
from sluice.model.routing.sharing import SharedUnit

ATable = TypeVar("ATable", bound="_Table")


@dataclass(frozen=True, kw_only=True)
class _Table:
    """Columns of one length. One of which nothing is known has zeros."""

    row: ClassVar[str]
    """What a row is about."""

    def __post_init__(self) -> None:
        for name, column in vars(self).items():
            if len(column) != len(self):
                raise FlowError(
                    f"{name} of {self.row}s has {len(column)} entries; it needs {len(self)}, one a {self.row}"
                )

    def __len__(self) -> int:
        return len(next(iter(vars(self).values())))

    def updated(self: ATable, newer: ATable, rows: np.ndarray) -> ATable:
        """The same with some rows, which are marked, as they are in newer columns."""
        columns = {field.name: getattr(self, field.name) for field in fields(self)}
        return replace(self, **{name: np.where(rows, getattr(newer, name), old) for name, old in columns.items()})


@dataclass(frozen=True, kw_only=True)
class UnitTable(_Table):
    """A row a unit. Where a unit stands is its place in one view alone; actions name units by `id`.

    A shared unit counts at its first holder, and its `rows` count as often as they were sent.
    """

    row: ClassVar[str] = "unit"

    site: np.ndarray
    """The site that holds it."""
    id: np.ndarray
    rows: np.ndarray
    """Rows that came in during the period."""
    first_rows: np.ndarray
    """Those of them that are of the first input of its operator."""
    results: np.ndarray
    """Results of the period."""
    bytes: np.ndarray
    """Its state, wherever that lies."""
    memory: np.ndarray
    """Bytes of its state in memory."""
    results_produced: np.ndarray
    """Results that the state in memory has given so far: since the unit was frozen last, if it ever was."""
    frozen: np.ndarray
    """Bytes of its state that were frozen."""
    freezable: np.ndarray
    """Whether there is a join among its operators."""
    spilled: np.ndarray
    """Whether it lies on disk, so that its input waits."""
    pending: np.ndarray
    """Rows of its input that wait."""
    inputs: np.ndarray
    """How many inputs its join has, if it can have several holders; else 0."""
    unready: np.ndarray
    """Whether who holds it cannot change just now."""
    buddy: np.ndarray
    """The place of the unit with which it can be merged, -1 if there is none."""
    divisible: np.ndarray
    """Whether it has a key by which it can be split."""
    single_key: np.ndarray
    """Whether all its rows have one hash, so that it cannot."""
    home: np.ndarray
    """The home of its stream, the one with most rows, if it is a piece; else -1."""

    @classmethod
    def at_rest(cls, site: ArrayLike) -> UnitTable:
        """Units at these sites of which nothing is known."""
        sites = np.asarray(site, dtype=np.int64)
        zeros, false = np.zeros(len(sites), dtype=np.int64), np.zeros(len(sites), dtype=bool)
        return cls(
            site=sites,
            id=np.arange(len(sites)),
            rows=zeros,
            first_rows=zeros,
            results=zeros,
            bytes=zeros,
            memory=zeros,
            results_produced=zeros,
            frozen=zeros,
            freezable=~false,
            spilled=false,
            pending=zeros,
            inputs=zeros,
            unready=false,
            buddy=zeros - 1,
            divisible=false,
            single_key=false,
            home=zeros - 1,
        )

    @property
    def productivity(self) -> np.ndarray:
        """What each unit has yielded by byte in memory."""
        return results_by_byte(self.results_produced, self.memory)

    def unit_at(self, index: int) -> Unit:
        """The unit at a place of the columns: what an action names."""
        return Unit(int(self.id[index]))

    def index_of(self, unit: Unit) -> UnitIndex:
        """The place of a unit in the columns.

        >>> UnitTable.at_rest(site=[0, 0, 1]).index_of(2)
        2
        """
        order = self._by_id
        at = int(np.searchsorted(self.id, unit, sorter=order))
        if at == len(order) or self.id[order[at]] != unit:
            raise FlowError(f"there is no unit {unit} in this view")
        return UnitIndex(int(order[at]))

    @cached_property
    def _by_id(self) -> np.ndarray:
        """The places in the order of ids."""
        return np.argsort(self.id, kind="stable")


@dataclass(frozen=True, kw_only=True)
class SiteTable(_Table):
    """A row a site."""

    row: ClassVar[str] = "site"

    memory: np.ndarray
    """Bytes that it may use for state, always a finite number."""
    idle: np.ndarray
    """How many of the period's `working_seconds` it waited for input."""
    occupancy: np.ndarray
    """How much of the input that may wait at it did, on average, from 0 to 1."""
    rows_done: np.ndarray
    """Rows that it got through."""

    @classmethod
    def at_rest(cls, memory: ArrayLike) -> SiteTable:
        """Sites with so much memory that did nothing."""
        sizes = np.asarray(memory)
        zeros = np.zeros(len(sizes))
        return cls(memory=sizes, idle=zeros, occupancy=zeros, rows_done=zeros.astype(np.int64))


@dataclass(frozen=True)
class Period:
    """The time over which statistics were collected, until after an `epoch`."""

    epoch: int = 1
    elapsed_seconds: float = 10.0
    """By the clock."""
    working_seconds: float = 10.0
    """Those in which any site worked."""
    arrival_seconds: float = 10.0
    """Those in which the rows arrived: fewer as long as more and more come."""


@dataclass(frozen=True)
class SharedUnits:
    """The units that have several holders, and a slice for each unit and holder."""

    units: tuple[SharedUnit, ...] = ()
    slices: Slices = field(default_factory=Slices.none)


@dataclass(frozen=True)
class Neighbours:
    """An entry for each unit and each site that has units whose results it takes in, or that take in its own."""

    unit: np.ndarray
    """The unit's place in the table."""
    site: np.ndarray

    @classmethod
    def none(cls) -> Neighbours:
        return cls(*np.zeros((2, 0), dtype=np.int64))


@dataclass(frozen=True)
class MovedUnits:
    """An entry for each unit that has come to its site from another, as far as that is known, and what came of it."""

    unit: np.ndarray
    """The unit's place in the table."""
    origin: np.ndarray
    """The site that it came from."""
    origin_seconds: np.ndarray
    """How much longer that site would have worked in the period with the unit, by how much less it worked without."""
    outcome: np.ndarray
    """How long its site worked at first, as a multiple of how long its origin had, for as many rows and results."""
    growth: np.ndarray
    """How long its site works now, as a multiple of how long it did at first, for as many rows and results."""

    @classmethod
    def none(cls) -> MovedUnits:
        return cls(*np.zeros((2, 0), dtype=np.int64), *np.zeros((3, 0)))


@dataclass(frozen=True, kw_only=True)
class Scaling:
    """How many sites the query may use."""

    least_sites: int = 1
    most_sites: int = 1
    requested_sites: int = 0
    """How many there will be, if more are to join."""
    growth_factor: float = 1.0
    """The rate at which rows will arrive when sites have joined that are asked for now, as a multiple of today's."""


@dataclass(frozen=True, kw_only=True)
class ClusterView:
    """The cluster over the time its statistics were collected: what a policy decides by.

    Args:
        units: a row a unit.
        sites: a row a site.
        period: over which time.
        shared: units with several holders.
        neighbours: sites whose units take in a unit's results, or give it theirs.
        moved: units that have moved, and what came of it.
        scaling: how many sites there may be.
        unit_size: units are to have between one and two times so many bytes.

    >>> view = ClusterView.at_rest(unit_site=[0, 0, 1], site_memory=[1 << 20, 1 << 20])
    >>> view.with_units(rows=np.array([70, 20, 10])).rows_by_site
    array([90., 10.])
    """

    units: UnitTable
    sites: SiteTable
    period: Period = field(default_factory=Period)
    shared: SharedUnits = field(default_factory=SharedUnits)
    neighbours: Neighbours = field(default_factory=Neighbours.none)
    moved: MovedUnits = field(default_factory=MovedUnits.none)
    scaling: Scaling = field(default_factory=Scaling)
    unit_size: int = 64 << 20
    """Units are to have between one and two times so many bytes."""

    @classmethod
    def at_rest(cls, unit_site: ArrayLike, site_memory: ArrayLike) -> ClusterView:
        """Units at their sites for ten seconds in which nothing happened: what to try a policy on.

        >>> view = ClusterView.at_rest(unit_site=[0, 0, 1], site_memory=[1 << 20, 1 << 20])
        >>> view.with_units(rows=np.array([70, 20, 10])).rows_by_site
        array([90., 10.])
        """
        units, sites = UnitTable.at_rest(unit_site), SiteTable.at_rest(site_memory)
        return cls(units=units, sites=sites, scaling=Scaling(most_sites=len(sites)))

    def with_units(self, **columns: np.ndarray) -> ClusterView:
        """The same with other columns of units."""
        return replace(self, units=replace(self.units, **columns))

    def with_sites(self, **columns: np.ndarray) -> ClusterView:
        """The same with other columns of sites."""
        return replace(self, sites=replace(self.sites, **columns))

    def with_scaling(self, **limits: Any) -> ClusterView:
        """The same with other limits for the number of sites."""
        return replace(self, scaling=replace(self.scaling, **limits))

    @property
    def shows_load(self) -> bool:
        """Whether it shows what load each unit has: not where all that was done was for input that had waited, as only
        some of them had a turn then."""
        catching_up = self.sites.rows_done.any() or self.units.pending.any()
        return self.period.arrival_seconds > 0 and bool(self.units.rows.any() or not catching_up)

    def by_site(self, column: np.ndarray) -> np.ndarray:
        """The sum of a column over the units of each site, those aside that are shared."""
        return np.bincount(self.units.site, weights=np.where(self.is_shared, 0, column), minlength=len(self.sites))

    @property
    def is_shared(self) -> np.ndarray:
        """Which units have several holders."""
        marks = np.zeros(len(self.units), dtype=bool)
        marks[[self.units.index_of(sharing.unit) for sharing in self.shared.units]] = True
        return marks

    @property
    def rows_by_site(self) -> np.ndarray:
        """The rows that each site took in."""
        return self._sum(self.units.rows, self.shared.slices.rows)

    @property
    def results_by_site(self) -> np.ndarray:
        """The results that each site found."""
        return self._sum(self.units.results, self.shared.slices.results)

    @property
    def bytes_by_site(self) -> np.ndarray:
        """The state that each site has, wherever it lies."""
        return self._sum(self.units.bytes, self.shared.slices.bytes)

    @property
    def memory_by_site(self) -> np.ndarray:
        """The state that each site has in memory; of shared units, all."""
        return self._sum(self.units.memory, self.shared.slices.bytes)

    def _sum(self, column: np.ndarray, slices: np.ndarray) -> np.ndarray:
        """The sum by site of a column of units, and of one of the slices where units are shared."""
        total: np.ndarray = self.by_site(column) + np.bincount(
            self.shared.slices.site, weights=slices, minlength=len(self.sites)
        )
        return total

    @property
    def saturation(self) -> np.ndarray:
        """How much of its memory for state each site has filled, from 0 to 1."""
        filled: np.ndarray = np.clip(self.bytes_by_site / np.maximum(self.sites.memory, 1), 0.0, 1.0)
        return filled

    @property
    def productivity_by_site(self) -> np.ndarray:
        """The average productivity rate of each site, the R of the lazy/active-disk paper: the results of its units in
        the period, by unit; of those that can be frozen, as no others compete for memory so."""
        ranked = np.flatnonzero(self.units.freezable & ~self.is_shared)
        return results_by_unit(self.units.results[ranked], self.units.site[ranked], len(self.sites))
