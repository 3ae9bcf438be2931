"""The collection phase: sites are asked to collect, and report when the time is over."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from sluice.model.ids import Site
from sluice.model.routing.routing import Routing
from sluice.model.view import ClusterView, Period
from sluice.sim.event_queue import EventQueue
from sluice.sim.world import World


@dataclass(frozen=True)
class _Round:
    number: int
    routing: Routing
    seconds: float


class Reports:
    """The collector of all simulations. Requests and answers are messages; `complete` is called when all have come."""

    def __init__(self, world: World, events: EventQueue, complete: Callable[[], object]) -> None:
        self.world, self.events, self.complete = world, events, complete
        self.round = 0
        self._view: ClusterView | None = None
        self._received = 0

    def begin(self, routing: Routing, now: float, seconds: float) -> None:
        self.round += 1
        self._view, self._received = None, 0
        collection = _Round(self.round, routing, seconds)
        for site in self.world.reporters:
            self.world.ask(site, partial(self._collect, site, collection))

    def is_complete(self, now: float, seconds: float) -> bool:
        return self._received == len(self.world.reporters)

    def view(self) -> ClusterView:
        assert self._view is not None, "asked for before it was complete"
        return self._view

    def _collect(self, site: Site | None, collection: _Round) -> None:
        before = tuple(column.copy() for column in self.world.counts())
        report = partial(self._report, site, collection, before)
        self.events.after(collection.seconds, partial(self.world.deliver, site, report))

    def _report(self, site: Site | None, collection: _Round, before: tuple[np.ndarray, ...]) -> None:
        if collection.number != self.round:  # begun anew since
            return
        seconds = collection.seconds
        grown = [now - then for now, then in zip(self.world.counts(), before, strict=True)]
        view = self.world.observe(collection.routing, grown, seconds)
        if self._view is not None and site is not None:
            units = self._view.units.updated(view.units, self._view.units.site == site)
            sites = self._view.sites.updated(view.sites, np.arange(len(view.sites)) == site)
            view = replace(view, units=units, sites=sites)
        self._view = replace(view, period=Period(self.round, seconds, seconds, seconds))
        self.world.send(partial(self._receive, collection))

    def _receive(self, collection: _Round) -> None:
        self._received += collection.number == self.round
        if self._received == len(self.world.reporters):
            self.complete()
