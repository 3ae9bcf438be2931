"""Which streams reach which fragments, and which fragments take in each other's results: what placement goes by."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from sluice.model.columns import IntColumn
from sluice.model.ids import Fragment, Site
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
        """The home of each unit: that of its fragment's stream with most rows.

        >>> from dataclasses import replace
        >>> routing = replace(Routing.even(2, 3, fragments=2), homes=(2, 1))
        >>> DataFlow(streams=((0, 1), (1,))).homes(routing, np.array([5, 4])).tolist()
        [2, 2, 1, 1]
        """
        homes = np.full(routing.units, NOWHERE, dtype=np.int64)
        if not routing.homes:
            return homes
        for streams, directory in zip(self.streams, routing.directories, strict=True):
            fastest = max(streams, key=lambda stream: stream_rows[stream])
            homes[slice(*directory.range)] = routing.homes[fastest]
        return homes

    def placed_at_home(self, routing: Routing) -> Routing:
        """A first routing in which fragments of a single unit are at the home of the first of their streams.

        >>> from dataclasses import replace
        >>> routing = replace(Routing.of_fragments((2, 1), 3), homes=(0, 2))
        >>> DataFlow(streams=((0,), (1, 0))).placed_at_home(routing).holders
        (0, 1, 2)
        """
        holders = routing.holders.array.copy()
        for streams, directory in zip(self.streams, routing.directories, strict=True):
            first, end = directory.range
            if end - first == 1:
                holders[first] = routing.homes[streams[0]]
        return replace(routing, holders=IntColumn(holders))

    def neighbours(self, routing: Routing) -> tuple[np.ndarray, np.ndarray]:
        """An entry for each unit and each site that has units of a fragment which its own is linked with: the unit's
        place and the site.

        >>> units, sites = DataFlow(links=((0, 1),)).neighbours(Routing.of_fragments((2, 1), 2))
        >>> units.tolist(), sites.tolist()
        ([0, 1, 2, 2], [0, 0, 0, 1])
        """
        holders = routing.holders.array
        sites_of = [np.unique(holders[slice(*directory.range)]) for directory in routing.directories]
        units, sites = [], []
        for own, other in (pair for link in self.links for pair in (link, link[::-1])):
            places, beside = np.arange(*routing.directories[own].range), sites_of[other]
            units.append(np.repeat(places, len(beside)))
            sites.append(np.tile(beside, len(places)))
        none = np.zeros(0, dtype=np.int64)
        return np.concatenate([none, *units]), np.concatenate([none, *sites])
