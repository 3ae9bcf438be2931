"""Which streams reach which fragments, and which fragments take in each other's results: what placement goes by."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from sluice.model.columns import IntColumn
from sluice.model.ids import Fragment, Site, UnitIndex
from sluice.model.routing.routing import Routing

NOWHERE = Site(-1)
"""In place of a home, where there is none."""


@dataclass(frozen=True)
class DataFlow:
    """The `streams` of each fragment: those of its own inputs, or those below them. Of each pair of `links` the second
    fragment takes in results of the first."""

    streams: tuple[tuple[int, ...], ...] = ()
    links: tuple[tuple[Fragment, Fragment], ...] = ()

    def homes(self, routing: Routing, stream_rows: np.ndarray) -> np.ndarray:
        """The home of each unit that is a piece: that of its fragment's stream with most rows. The units of a fragment
        that has several are ranges of hashes, whose rows belong to no site, and have none.

        >>> from dataclasses import replace
        >>> routing = replace(Routing.of_fragments((1, 2, 1), 3), homes=(2, 1))
        >>> DataFlow(streams=((0, 1), (0,), (1,))).homes(routing, np.array([5, 4])).tolist()
        [2, -1, -1, 1]
        """
        homes = np.full(routing.units, NOWHERE, dtype=np.int64)
        for fragment, place in _pieces(routing) if routing.homes else ():
            fastest = max(self.streams[fragment], key=lambda stream: stream_rows[stream])
            homes[place] = routing.homes[fastest]
        return homes

    def placed_at_home(self, routing: Routing) -> Routing:
        """A first routing in which fragments of a single unit are at the home of the first of their streams.

        >>> from dataclasses import replace
        >>> routing = replace(Routing.of_fragments((2, 1), 3), homes=(0, 2))
        >>> DataFlow(streams=((0,), (1, 0))).placed_at_home(routing).holders
        (0, 1, 2)
        """
        holders = routing.holders.array.copy()
        for fragment, place in _pieces(routing):
            holders[place] = self.first_home(fragment, routing)
        return replace(routing, holders=IntColumn(holders))

    def first_home(self, fragment: Fragment, routing: Routing) -> Site:
        """Where a piece of which nothing is known yet begins: at the home of the first of its streams."""
        return routing.homes[self.streams[fragment][0]]

    def neighbours(self, routing: Routing) -> tuple[np.ndarray, np.ndarray]:
        """An entry for each unit that is a piece, and each site that has units of a fragment which its own is linked
        with: the unit's place and the site.

        >>> units, sites = DataFlow(links=((0, 1),)).neighbours(Routing.of_fragments((2, 1), 2))
        >>> units.tolist(), sites.tolist()
        ([2, 2], [0, 1])
        """
        holders, pieces = routing.holders.array, dict(_pieces(routing))
        units, sites = [], []
        for own, other in (pair for link in self.links for pair in (link, link[::-1])):
            if own in pieces:
                beside = np.unique(holders[slice(*routing.directories[other].range)])
                units.append(np.full(len(beside), pieces[own]))
                sites.append(beside)
        none = np.zeros(0, dtype=np.int64)
        return np.concatenate([none, *units]), np.concatenate([none, *sites])


def _pieces(routing: Routing) -> Iterator[tuple[Fragment, UnitIndex]]:
    """The fragments of a single unit, and where that is."""
    for fragment, directory in enumerate(routing.directories):
        first, end = directory.range
        if end - first == 1:
            yield Fragment(fragment), first
