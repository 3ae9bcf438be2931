"""Another number of sites: which site holds each unit then, with as few moves as that takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from heapq import heapify, heapreplace
from itertools import islice

from sluice.model.columns import IntColumn
from sluice.model.ids import Site
from sluice.model.routing.routing import Routing, spread_homes


def rebalance(routing: Routing, sites: int, since: int) -> Routing:
    """The same units at so many sites, fragment by fragment.

    New sites get units from those that have most; the units of sites that are gone go to those that have least. A
    holder of a shared unit that is gone leaves what it stored to the unit's first one.

    >>> rebalance(Routing.even(6, 2), 3, since=9).holders, rebalance(Routing.even(6, 3), 2, since=9).holders
    ((0, 0, 2, 1, 1, 2), (0, 0, 1, 1, 0, 1))
    """
    if sites == routing.sites:
        return routing
    holders: list[Site] = []
    for low, high in (directory.range for directory in routing.directories):
        holders += _spread_units(routing.holders[low:high], routing.sites, sites)
    shared = []
    for sharing in routing.shared:
        staying = tuple(holder for holder in sharing.holders if holder < sites)
        if staying:
            holders[routing.index_of(sharing.unit)] = staying[0]
        if len(staying) > 1:
            shared.append(sharing.with_holders(staying))
    version = routing.version + 1
    first, homes = IntColumn(holders), spread_homes(len(routing.homes), sites)
    return replace(routing, sites=sites, holders=first, version=version, since=since, shared=tuple(shared), homes=homes)


def _spread_units(holders: Sequence[Site], before: int, sites: int) -> list[Site]:
    """A fragment's units at another number of sites."""
    units_by_site: list[list[int]] = [[] for _ in range(max(sites, before))]
    for place, holder in enumerate(holders):
        units_by_site[holder].append(place)
    if sites > before:
        free, takers = _take_from_fullest(units_by_site[:before], sites - before), range(before, sites)
    else:
        free, takers = [place for places in units_by_site[sites:] for place in places], range(sites)
    resized, remaining = list(holders), iter(sorted(free))
    for site, count in zip(
        map(Site, takers), _count_received([len(units_by_site[site]) for site in takers], len(free)), strict=True
    ):
        for place in islice(remaining, count):
            resized[place] = site
    return resized


def _take_from_fullest(units_by_site: list[list[int]], takers: int) -> list[int]:
    """The units that sites give away until the takers have as many: each the last one of whoever has most."""
    most = [(-len(units), site) for site, units in enumerate(units_by_site)]
    heapify(most)
    taken: list[int] = []
    while -most[0][0] - len(taken) // takers > 1:
        load, site = most[0]
        taken.append(units_by_site[site].pop())
        heapreplace(most, (load + 1, site))
    return taken


def _count_received(loads: list[int], units: int) -> list[int]:
    """How many of the units each site gets on top of its load, if each goes to the one that has least."""
    least = [(load, site) for site, load in enumerate(loads)]
    heapify(least)
    for _ in range(units):
        load, site = least[0]
        heapreplace(least, (load + 1, site))
    return [load - loads[site] for load, site in sorted(least, key=lambda entry: entry[1])]
