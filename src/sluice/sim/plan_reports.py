"""The collection phase of a simulated plan: after so many seconds, the coordinator has what every machine reports."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from functools import partial

import numpy as np

from sluice.model.ids import Unit
from sluice.model.routing import Routing
from sluice.model.stats import Slices
from sluice.model.view import ClusterView
from sluice.sim.event_queue import Agenda
from sluice.sim.plan_world import PlanWorld


class PlanReports:
    """Statistics that come by messages, each of which takes the network's latency; `complete` is called when they are
    there. Units for which a token is `under_way` are told as not ready to be shared otherwise."""

    def __init__(
        self, world: PlanWorld, agenda: Agenda, under_way: Collection[Unit], complete: Callable[[], object]
    ) -> None:
        self.world, self.agenda, self.under_way, self.complete = world, agenda, under_way, complete
        self.round = 0
        self._view: ClusterView | None = None

    def begin(self, routing: Routing, now: float, seconds: float) -> None:
        self.round += 1
        self._view = None
        start = self.world.received.copy(), self.world.results.copy()
        self.agenda.after(seconds, partial(self._report, routing, seconds, *start))

    def is_complete(self, now: float, seconds: float) -> bool:
        return self._view is not None

    def view(self) -> ClusterView:
        assert self._view is not None, "asked for before it was complete"
        return self._view

    def _report(self, routing: Routing, seconds: float, received: np.ndarray, results: np.ndarray) -> None:
        world, scenario = self.world, self.world.scenario
        size = _whole(world.stored.sum(axis=1) * scenario.tuple_bytes)  # (U, S)
        by_input, found = _whole(world.received - received), _whole(world.results - results)
        rows = by_input.sum(axis=1)  # (U, S)
        unit_bytes = size.sum(axis=1)
        unready = np.zeros(len(unit_bytes), dtype=bool)
        unready[list(self.under_way)] = True
        self._view = replace(
            ClusterView.at_rest(routing.holders, np.full(scenario.sites, scenario.memory)),
            epoch=self.round,
            seconds=seconds,
            elapsed=seconds,
            arriving=seconds,
            least_sites=scenario.sites,
            unit_rows=rows.sum(axis=1),
            unit_bytes=unit_bytes,
            unit_memory=unit_bytes,
            unit_results=found.sum(axis=1),
            unit_first_rows=by_input[:, 0].sum(axis=1),
            unit_inputs=np.full(len(unit_bytes), 2),
            unit_unready=unready,
            shared=routing.shared,
            slices=_slices(routing, rows, found, size),
        )
        self.agenda.after(scenario.latency, self.complete)


def _slices(routing: Routing, rows: np.ndarray, results: np.ndarray, size: np.ndarray) -> Slices:
    at = [(sharing.unit, site) for sharing in routing.shared for site in sharing.holders]
    if not at:
        return Slices.none()
    unit, site = np.array(at).T
    return Slices(unit, site, rows[unit, site], results[unit, site], size[unit, site])


def _whole(numbers: np.ndarray) -> np.ndarray:
    return np.round(numbers).astype(np.int64)
