"""The collection phase of a simulated join: after so many seconds, the coordinator has what every site reports."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from sluice.model.routing import Routing
from sluice.model.view import ClusterView
from sluice.sim.event_queue import Agenda
from sluice.sim.frozen_generations import FrozenGenerations
from sluice.sim.hardware import Hardware
from sluice.sim.join_core import JoinWorld


@dataclass(frozen=True)
class _Start:
    """Where the counts stood when the collection began."""

    received: np.ndarray
    results: np.ndarray
    worked: np.ndarray


class JoinReports:
    """Statistics that sites report by messages, each of which takes the network's latency; `complete` is called when
    they are there."""

    def __init__(
        self,
        world: JoinWorld,
        frozen: FrozenGenerations,
        agenda: Agenda,
        hardware: Hardware,
        complete: Callable[[], object],
    ) -> None:
        self.world, self.frozen, self.agenda, self.hardware = world, frozen, agenda, hardware
        self.complete = complete
        self.round = 0
        self._view: ClusterView | None = None

    def begin(self, routing: Routing, now: float, seconds: float) -> None:
        self.round += 1
        self._view = None
        self.agenda.after(self.hardware.latency, partial(self._collect, routing, seconds))

    def is_complete(self, now: float, seconds: float) -> bool:
        return self._view is not None

    def view(self) -> ClusterView:
        assert self._view is not None, "asked for before it was complete"
        return self._view

    def _collect(self, routing: Routing, seconds: float) -> None:
        unit, site = self.world.unit, self.world.site
        start = _Start(unit["received"].copy(), unit["results"].copy(), site["worked"].copy())
        self.agenda.after(seconds, partial(self._report, routing, seconds, start))

    def _report(self, routing: Routing, seconds: float, start: _Start) -> None:
        unit, site, size = self.world.unit, self.world.site, self.hardware.tuple_bytes
        memory, frozen = unit["stored"] * size, self.frozen.tuples * size
        self._view = replace(
            ClusterView.at_rest(routing.holders, np.full(len(site), self.hardware.memory)),
            epoch=self.round,
            seconds=seconds,
            elapsed=seconds,
            arriving=seconds,
            least_sites=len(site),
            unit_rows=unit["received"] - start.received,
            unit_bytes=memory + frozen,
            site_idle=np.maximum(seconds - (site["worked"] - start.worked), 0.0),
            unit_memory=memory,
            unit_yielded=unit["yielded"].copy(),
            unit_frozen=frozen,
            unit_results=unit["results"] - start.results,
        )
        self.agenda.after(self.hardware.latency, self.complete)
