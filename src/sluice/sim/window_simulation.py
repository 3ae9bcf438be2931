"""Runs a parallel window join under a policy, slot by slot."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sluice.control.loop import SITES, ControlLoop
from sluice.model.abilities import Abilities
from sluice.model.decision import Decision
from sluice.model.ids import Fragment
from sluice.model.routing import Routing
from sluice.policies import Policy
from sluice.policies.unit_sizes import UnitSizes
from sluice.sim.event_queue import Agenda
from sluice.sim.window_carrier import WindowCarrier
from sluice.sim.window_reports import WindowReports
from sluice.sim.window_scenario import WindowScenario
from sluice.sim.window_sites import WindowSites
from sluice.sim.window_streams import cells_of
from sluice.sim.window_world import WindowWorld


@dataclass(frozen=True)
class WindowOutcome:
    """What was seen. Columns `site_*` are seconds of each site that ever could take part, from `measured_from` on;
    `sites`, `units` and `waiting` (tuples of one stream at the master, the mean of both) have an entry a slot."""

    scenario: WindowScenario
    policy: str
    results: float
    delay: float
    """Seconds between the arrival of the newer tuple of a result and the result, on average."""
    site_working: np.ndarray
    site_communicating: np.ndarray
    site_taking_part: np.ndarray
    sites: np.ndarray
    units: np.ndarray
    waiting: np.ndarray
    moves: int
    moved_bytes: int
    redivisions: int
    decisions: tuple[Decision, ...]

    @property
    def active(self) -> np.ndarray:
        """Which sites took part at all in what was measured."""
        took_part: np.ndarray = self.site_taking_part > 0
        return took_part

    @property
    def site_idle(self) -> np.ndarray:
        """Seconds, but for what adding up many small numbers leaves."""
        idle = self.site_taking_part - self.site_working - self.site_communicating
        rounded: np.ndarray = np.maximum(idle, 0.0).round(6)
        return rounded

    def mean(self, column: np.ndarray) -> float:
        """The mean of a column over the sites that took part."""
        return float(column[self.active].mean())

    @property
    def site_seconds(self) -> float:
        """Of all sites together."""
        return float(self.site_taking_part.sum())

    @property
    def largest_waiting(self) -> float:
        """Tuples of one stream that the master keeps when it has most, in a distribution epoch on average."""
        scenario = self.scenario
        first = round(scenario.measured_from / scenario.slot)
        epochs = (len(self.waiting) - first) // scenario.groups
        return float(self.waiting[first : first + epochs * scenario.groups].reshape(epochs, -1).max(axis=1).mean())


def simulate_window_join(scenario: WindowScenario, policy: Policy) -> WindowOutcome:
    """Runs to the end. The same scenario, seed included, gives the same outcome."""
    return WindowSimulation(scenario, policy).run()


class WindowSimulation:
    """A master, its sites and its control loop, ready to run."""

    def __init__(self, scenario: WindowScenario, policy: Policy) -> None:
        self.scenario, self.policy, self.agenda = scenario, policy, Agenda()
        routing = Routing.even(scenario.partitions, scenario.sites)
        cells = cells_of(scenario.partitions, scenario.bias)
        self.world = WindowWorld(scenario, cells, routing.directories[0], np.array(routing.holders))
        self.sites = WindowSites(self.world)
        self.carrier = WindowCarrier(self.world, self.sites, self.agenda)
        self.reports = WindowReports(self.world, self.sites, self.agenda, self._take_turn)
        self.loop = ControlLoop(
            policy,
            self.reports,
            self.carrier,
            routing,
            scenario.reorganization,
            abilities=Abilities(divisible=frozenset([Fragment(0)]), scalable=True),
        )
        self.decisions: list[Decision] = []
        self.slots_done = 0
        self._seen = np.zeros((scenario.slots, 3))

    def run(self) -> WindowOutcome:
        self.reports.begin(self.loop.routing, 0.0, self.loop.rounds.collect)
        first = min(round(self.scenario.measured_from / self.scenario.slot), self.scenario.slots - 1)
        before = self._measures()
        while self.slots_done < self.scenario.slots:
            if self.slots_done == first:
                before = self._measures()
            self.step()
        return self._outcome([now - then for now, then in zip(self._measures(), before, strict=True)])

    def step(self) -> None:
        """What was due within the slot before, then the master's messages, and what sites join."""
        slot = self.slots_done
        start = slot * self.scenario.slot
        while self.agenda.next_time() <= start:
            self.agenda.now = self.agenda.next_time()
            self.agenda.run_due()
        self.agenda.now = start
        if self.scenario.local_tuning:
            self._tune()
        routing = self.loop.routing
        self._seen[slot] = routing.sites, routing.units, self.world.waiting_at_master(slot).mean()
        self.sites.run_slot(slot, routing.sites)
        self.slots_done += 1

    def _tune(self) -> None:
        """Sites split units that are too large. While one is on its way to another site all keep their numbers."""
        if not self.loop.moves and not self.loop.redivisions:
            splits = UnitSizes().splits_by_size(self.reports.standing(self.loop.routing))
            self.decisions += self.loop.decide(SITES, splits, self.agenda.now)

    def _measures(self) -> tuple[np.ndarray, ...]:
        sites = self.sites
        sums = np.array([sites.results, sites.delays])
        return sums, sites.working.copy(), sites.communicating.copy(), sites.taking_part.copy()

    def _take_turn(self) -> None:
        self.loop.epoch = self.reports.round
        self.decisions += self.loop.take_turn(self.agenda.now)

    def _outcome(self, measured: list[np.ndarray]) -> WindowOutcome:
        (results, delays), working, communicating, taking_part = measured
        sites, units, waiting = self._seen.T
        return WindowOutcome(
            scenario=self.scenario,
            policy=self.policy.name,
            results=float(results),
            delay=float(delays / results) if results else float("nan"),
            site_working=working,
            site_communicating=communicating,
            site_taking_part=taking_part,
            sites=sites.astype(np.int64),
            units=units.astype(np.int64),
            waiting=waiting,
            moves=len(self.carrier.log.moves),
            moved_bytes=self.carrier.moved_bytes,
            redivisions=self.carrier.redivisions,
            decisions=(*self.decisions, *self.carrier.decisions),
        )
