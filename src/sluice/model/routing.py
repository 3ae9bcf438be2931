"""Units and the routing that says which site holds each of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from heapq import heapify, heapreplace
from itertools import islice

import numpy as np

from sluice.model.directory import Directory
from sluice.model.errors import ProtocolError

Ranges = tuple[tuple[int, int], ...]
"""Half-open ranges of units, ascending and disjoint."""


_A_ROOT_EACH = Directory(0)


@dataclass(frozen=True)
class Routing:
    """Unit → site, with the epoch from which it holds. Without a directory every unit is a root of one."""

    sites: int
    owners: tuple[int, ...]
    version: int = 0
    since: int = 0
    directory: Directory = _A_ROOT_EACH

    def __post_init__(self) -> None:
        if self.directory == _A_ROOT_EACH:
            object.__setattr__(self, "directory", Directory(len(self.owners)))
        if self.directory.units != len(self.owners):
            raise ProtocolError(f"{len(self.owners)} units have a site, the directory has {self.directory.units}")

    @classmethod
    def even(cls, units: int, sites: int, version: int = 0, since: int = 0) -> Routing:
        """Neighbouring units together, as many for each site as for any other.

        >>> Routing.even(5, 2).owners
        (0, 0, 0, 1, 1)
        """
        return cls(sites, tuple(u * sites // units for u in range(units)), version, since)

    @property
    def units(self) -> int:
        return len(self.owners)

    def moved(self, unit: int, site: int, since: int) -> Routing:
        """The same routing with one unit at another site from epoch `since` on."""
        owners = (*self.owners[:unit], site, *self.owners[unit + 1 :])
        return replace(self, owners=owners, version=self.version + 1, since=since)

    def split(self, unit: int, since: int) -> Routing:
        """The same routing with two units, at the same site, in place of one.

        >>> Routing(2, (0, 1)).split(1, since=5).owners
        (0, 1, 1)
        """
        owners = (*self.owners[: unit + 1], *self.owners[unit:])
        return replace(self, owners=owners, directory=self.directory.split(unit), version=self.version + 1, since=since)

    def merge(self, unit: int, since: int) -> Routing:
        """The same routing with one unit in place of two buddies, which have to be at one site."""
        directory = self.directory.merge(unit)
        buddy = self.directory.buddy(unit)
        assert buddy is not None
        if self.owners[unit] != self.owners[buddy]:
            raise ProtocolError(f"units {unit} and {buddy} are at different sites and cannot be merged")
        first = min(unit, buddy)
        owners = (*self.owners[:first], *self.owners[first + 1 :])
        return replace(self, owners=owners, directory=directory, version=self.version + 1, since=since)

    def resized(self, sites: int, version: int, since: int) -> Routing:
        """The same units at another number of sites, with as few moves as that takes.

        New sites get units from those that have most; the units of sites that are gone go to those that have least.

        >>> Routing.even(6, 2).resized(3, version=1, since=9).owners
        (0, 0, 2, 1, 1, 2)
        >>> Routing.even(6, 3).resized(2, version=1, since=9).owners
        (0, 0, 1, 1, 0, 1)
        """
        if sites == self.sites:
            return self
        held: list[list[int]] = [[] for _ in range(max(sites, self.sites))]
        for unit, owner in enumerate(self.owners):
            held[owner].append(unit)
        if sites > self.sites:
            free, takers = _given(held[: self.sites], sites - self.sites), range(self.sites, sites)
        else:
            free, takers = [unit for units in held[sites:] for unit in units], range(sites)
        owners, remaining = list(self.owners), iter(sorted(free))
        for site, count in zip(takers, _shares([len(held[site]) for site in takers], len(free)), strict=True):
            for unit in islice(remaining, count):
                owners[unit] = site
        return Routing(sites, tuple(owners), version, since, self.directory)

    def ranges_of(self, site: int) -> Ranges:
        """The units of one site.

        >>> Routing(2, (0, 1, 1, 0)).ranges_of(0)
        ((0, 1), (3, 4))
        """
        return ranges(u for u, owner in enumerate(self.owners) if owner == site)

    def held(self) -> list[np.ndarray]:
        """The units of every site, in one pass over all of them.

        >>> Routing(3, (0, 2, 2, 0)).held()
        [array([0, 3]), array([], dtype=int64), array([1, 2])]
        """
        owners = np.array(self.owners)
        order = np.argsort(owners, kind="stable")
        return np.split(order, np.searchsorted(owners[order], np.arange(1, self.sites)))


def _given(held: list[list[int]], takers: int) -> list[int]:
    """The units that sites give away until the takers have as many: each the last one of whoever has most."""
    most = [(-len(units), site) for site, units in enumerate(held)]
    heapify(most)
    given: list[int] = []
    while -most[0][0] - len(given) // takers > 1:
        load, site = most[0]
        given.append(held[site].pop())
        heapreplace(most, (load + 1, site))
    return given


def _shares(loads: list[int], units: int) -> list[int]:
    """How many of the units each site gets on top of its load, if each goes to the one that has least."""
    least = [(load, site) for site, load in enumerate(loads)]
    heapify(least)
    for _ in range(units):
        load, site = least[0]
        heapreplace(least, (load + 1, site))
    return [load - loads[site] for load, site in sorted(least, key=lambda entry: entry[1])]


def ranges(units: object) -> Ranges:
    """Ascending units as ranges.

    >>> ranges([1, 2, 3, 7])
    ((1, 4), (7, 8))
    """
    out: list[tuple[int, int]] = []
    for unit in units:  # type: ignore[attr-defined]
        if out and out[-1][1] == unit:
            out[-1] = (out[-1][0], unit + 1)
        else:
            out.append((unit, unit + 1))
    return tuple(out)


def intersect(a: Ranges, b: Ranges) -> Ranges:
    """The units in both.

    >>> intersect(((0, 4), (6, 9)), ((2, 7),))
    ((2, 4), (6, 7))
    """
    out: list[tuple[int, int]] = []
    i = j = 0
    while i < len(a) and j < len(b):
        low, high = max(a[i][0], b[j][0]), min(a[i][1], b[j][1])
        if low < high:
            out.append((low, high))
        if a[i][1] < b[j][1]:
            i += 1
        else:
            j += 1
    return tuple(out)


def unite(a: Ranges, b: Ranges) -> Ranges:
    """The units in either.

    >>> unite(((0, 2),), ((2, 3), (5, 6)))
    ((0, 3), (5, 6))
    """
    out: list[tuple[int, int]] = []
    for low, high in sorted(a + b):
        if out and low <= out[-1][1]:
            out[-1] = (out[-1][0], max(high, out[-1][1]))
        else:
            out.append((low, high))
    return tuple(out)


def subtract(a: Ranges, b: Ranges) -> Ranges:
    """The units in `a` and not in `b`.

    >>> subtract(((0, 4), (6, 7)), ((2, 3), (6, 9)))
    ((0, 2), (3, 4))
    """
    out: list[tuple[int, int]] = []
    at = 0
    for low, high in a:
        while at < len(b) and b[at][0] < high:
            if b[at][1] > low:
                if low < b[at][0]:
                    out.append((low, b[at][0]))
                low = b[at][1]
            if b[at][1] > high:
                break  # the next range may need it, too
            at += 1
        if low < high:
            out.append((low, high))
    return tuple(out)
