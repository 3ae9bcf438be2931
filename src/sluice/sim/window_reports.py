"""The reorganization epochs of a simulated window join: what its sites report at the end of each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np

from sluice.model.ids import Unit
from sluice.model.routing import Routing
from sluice.model.view import ClusterView
from sluice.sim.event_queue import Agenda
from sluice.sim.window_sites import WindowSites
from sluice.sim.window_streams import FINEST
from sluice.sim.window_world import WindowWorld

_ENOUGH = 1 << 40
"""Bytes: the paper's nodes have memory for all windows."""


class WindowReports:
    """Statistics of so many seconds; `complete` is called when they are there."""

    def __init__(self, world: WindowWorld, sites: WindowSites, agenda: Agenda, complete: Callable[[], object]) -> None:
        self.world, self.sites, self.agenda, self.complete = world, sites, agenda, complete
        self.round = 0
        self._view: ClusterView | None = None

    def begin(self, routing: Routing, now: float, seconds: float) -> None:
        self.round += 1
        self._view = None
        seen = tuple(column.copy() for column in self._columns())
        self.agenda.after(seconds, partial(self._report, self.round, routing, self.agenda.now, seen))

    def is_complete(self, now: float, seconds: float) -> bool:
        return self._view is not None

    def view(self) -> ClusterView:
        assert self._view is not None, "asked for before it was complete"
        return self._view

    def _columns(self) -> tuple[np.ndarray, ...]:
        return (
            self.world.rows,
            self.world.results,
            self.sites.working + self.sites.communicating,
            self.sites.occupancy,
            self.sites.messages,
        )

    def _report(self, number: int, routing: Routing, since: float, before: tuple[np.ndarray, ...]) -> None:
        if number != self.round:  # begun anew since
            return
        world, scenario = self.world, self.world.scenario
        rows, results, busy, filled, messages = (n - b for n, b in zip(self._columns(), before, strict=True))
        seconds, sites = self.agenda.now - since, routing.sites
        self._view = replace(
            self.standing(routing),
            epoch=number,
            seconds=seconds,
            elapsed=seconds,
            arriving=seconds,
            unit_rows=_whole(world.by_unit(rows)),
            unit_results=_whole(world.by_unit(results)),
            site_idle=np.maximum(seconds - busy[:sites], 0.0),
            site_occupancy=filled[:sites] / np.maximum(messages[:sites], 1),
            least_sites=scenario.least,
            most_sites=scenario.most,
        )
        self.complete()

    def standing(self, routing: Routing) -> ClusterView:
        """How large units are by now, and which can be split and merged."""
        world, scenario, directory = self.world, self.world.scenario, routing.directories[0]
        size = world.by_unit(world.stored) * scenario.tuple_bytes
        return replace(
            ClusterView.at_rest(routing.holders, np.full(routing.sites, _ENOUGH)),
            unit_bytes=size,
            unit_memory=size,
            unit_buddy=np.array(directory.buddies()),
            unit_single=np.array([directory.depth(Unit(unit)) >= FINEST for unit in range(directory.units)]),
            unit_divisible=np.full(directory.units, True),
            unit_size=scenario.unit_size,
        )


def _whole(numbers: np.ndarray) -> np.ndarray:
    return np.round(numbers).astype(np.int64)
