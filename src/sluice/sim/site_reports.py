"""The collection phase of a simulated cluster: every site is asked to collect, and reports when the time is over."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from sluice.model.routing import Routing
from sluice.model.view import ClusterView
from sluice.sim.event_queue import Agenda
from sluice.sim.site import Site
from sluice.sim.world import World


@dataclass(frozen=True)
class _Start:
    """Where a site's statistics stood when the collection began."""

    idle: float
    rows: np.ndarray


class SiteReports:
    """Statistics that sites report by messages, each of which takes the network's latency. `complete` is called when
    all are there."""

    def __init__(
        self,
        world: World,
        agenda: Agenda,
        latency: float,
        sites: Sequence[Site],
        units: int,
        unit_bytes: int,
        complete: Callable[[], object],
    ) -> None:
        self.world, self.agenda, self.latency, self.sites = world, agenda, latency, sites
        self.unit_bytes, self.complete = unit_bytes, complete
        self.round = 0
        self._seconds = 0.0
        self._reports = 0
        self._unit_site = np.zeros(units, dtype=np.int64)
        self._unit_rows, self._unit_pending = (np.zeros(units, dtype=np.int64) for _ in range(2))
        self._unit_spilled = np.zeros(units, dtype=bool)
        self._site_idle, self._site_memory = (np.zeros(len(sites)) for _ in range(2))

    def begin(self, routing: Routing, now: float, seconds: float) -> None:
        self.round += 1
        self._reports, self._seconds, self._unit_site = 0, seconds, np.array(routing.holders)
        for site in self.sites:
            self.agenda.after(self.latency, partial(site.post, partial(self._collect, site)))

    def is_complete(self, now: float, seconds: float) -> bool:
        return self._reports == len(self.sites)

    def view(self) -> ClusterView:
        return replace(
            ClusterView.at_rest(self._unit_site.copy(), self._site_memory.copy()),
            epoch=self.round,
            seconds=self._seconds,
            elapsed=self._seconds,
            arriving=self._seconds,
            least_sites=len(self._site_memory),
            unit_rows=self._unit_rows.copy(),
            unit_bytes=np.full(len(self._unit_site), self.unit_bytes),
            unit_spilled=self._unit_spilled.copy(),
            unit_pending=self._unit_pending.copy(),
            site_idle=np.minimum(self._site_idle, self._seconds),
            unit_memory=np.where(self._unit_spilled, 0, self.unit_bytes),
            unit_freezable=np.zeros(len(self._unit_site), dtype=bool),
        )

    def _collect(self, site: Site) -> None:
        start = _Start(float(self.world.node["idle"][site.number]), self.world.unit["processed"].copy())
        self.agenda.after(self._seconds, partial(site.post, partial(self._report, site, start)))

    def _report(self, site: Site, start: _Start) -> None:
        here = self._unit_site == site.number
        self._unit_rows[here] = (self.world.unit["processed"] - start.rows)[here]
        self._unit_spilled[here] = ~self.world.unit["resident"][here]
        self._unit_pending[here] = self.world.unit["pending"][here]
        self._site_idle[site.number] = self.world.node["idle"][site.number] - start.idle
        self._site_memory[site.number] = site.residence.limit
        self.agenda.after(self.latency, self._receive)

    def _receive(self) -> None:
        self._reports += 1
        if self._reports == len(self.sites):
            self.complete()
