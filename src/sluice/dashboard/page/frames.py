"""All sites and all units of an epoch as columns: what the map and the tables of the page are drawn from."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from sluice.model.epoch.stats import SiteStats
from sluice.record.epoch import EpochRecord

STRIP_LINES = 256
"""Lines of the map over time: where there are more sites, a line stands for several."""


@dataclass(frozen=True)
class UnitFrame:
    """A row a unit, in the order of their places: its id, its first holder, how many it has, the seconds and rows of
    the epoch, its results, and what it has in memory, on disk and waiting."""

    id: np.ndarray
    site: np.ndarray
    holders: np.ndarray
    seconds: np.ndarray
    rows: np.ndarray
    results: np.ndarray
    memory: np.ndarray
    disk: np.ndarray
    pending: np.ndarray

    @classmethod
    def of(cls, record: EpochRecord) -> UnitFrame:
        routing, units = record.routing, record.stats.units
        holders = np.ones(routing.units, dtype=np.uint16)
        for sharing in routing.shared:
            holders[routing.index_of(sharing.unit)] = len(sharing.holders)
        counted = len(units.rows) == routing.units  # else nothing was: the epoch was the first one
        columns = (units.seconds, units.rows, units.results, units.memory, units.disk, units.pending)
        zeros = np.zeros(routing.units, dtype=np.float32)
        return cls(
            routing.ids.array.astype(np.uint32),
            routing.holders.array.astype(np.uint32),
            holders,
            *(column.astype(np.float32) if counted else zeros for column in columns),
        )

    def __len__(self) -> int:
        return len(self.id)

    def holder_of(self, unit: int) -> int | None:
        """The first holder of a unit, None if there is no such unit."""
        places = np.flatnonzero(self.id == unit)
        return int(self.site[places[0]]) if len(places) else None

    def pack(self) -> bytes:
        """The columns of the map, one after the other, little-endian, each entry in four bytes: id, site and holders
        as whole numbers, seconds, memory and backlog as floats."""
        whole = np.stack([self.id, self.site, self.holders]).astype("<u4")
        return whole.tobytes() + np.stack([self.seconds, self.memory, self.pending]).astype("<f4").tobytes()


@dataclass(frozen=True)
class SiteFrame:
    """A row a site: its units, what it did in the epoch, and what it holds after it."""

    executor: tuple[str, ...]
    units: np.ndarray
    busy_seconds: np.ndarray
    rows_in: np.ndarray
    rows_out: np.ndarray
    rows: np.ndarray
    memory_bytes: np.ndarray
    memory_limit: np.ndarray
    disk_bytes: np.ndarray
    durable_bytes: np.ndarray
    frozen_bytes: np.ndarray
    spilled_units: np.ndarray
    pending_rows: np.ndarray

    @classmethod
    def of(cls, record: EpochRecord) -> SiteFrame:
        sites = record.stats.sites
        names = [column.name for column in fields(cls)][1:]
        return cls(tuple(site.executor for site in sites), *(_column(sites, name) for name in names))

    def __len__(self) -> int:
        return len(self.executor)

    def table(self) -> dict[str, list[float] | tuple[str, ...]]:
        """As columns by name."""
        numbers = {one.name: getattr(self, one.name).tolist() for one in fields(self) if one.name != "executor"}
        return {"executor": self.executor, **numbers}


@dataclass(frozen=True)
class Strip:
    """A column of the map over time: `group` sites a line, the highest of them."""

    epoch: int
    sites: int
    group: int
    load: tuple[float, ...]
    memory: tuple[float, ...]
    backlog: tuple[float, ...]

    @classmethod
    def of(cls, epoch: int, frame: SiteFrame) -> Strip:
        """
        >>> zeros = np.zeros(3)
        >>> frame = SiteFrame(("a",) * 3, zeros, np.array([1, 3, 2]), *[zeros] * 10)
        >>> Strip.of(7, frame).load
        (1.0, 3.0, 2.0)
        """
        group = 1
        while len(frame) > STRIP_LINES * group:
            group *= 2
        filled = frame.memory_bytes / np.maximum(frame.memory_limit, 1)
        columns = (frame.busy_seconds, filled, frame.pending_rows)
        return cls(epoch, len(frame), group, *(_highest(column, group) for column in columns))


def _highest(column: np.ndarray, group: int) -> tuple[float, ...]:
    if not len(column):
        return ()
    most = np.maximum.reduceat(column.astype(float), np.arange(0, len(column), group))
    return tuple(float(f"{value:.4g}") for value in most.tolist())


def _column(sites: tuple[SiteStats, ...], name: str) -> np.ndarray:
    return np.array([getattr(site, name) for site in sites])
