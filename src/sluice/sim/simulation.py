"""Runs a scenario under a policy: the world for tuples, the events for everything else."""

from __future__ import annotations

from sluice.control.loop import ControlLoop
from sluice.policies import Policy
from sluice.policies.static import Static
from sluice.sim.event_queue import EventQueue
from sluice.sim.executor import MessageExecutor
from sluice.sim.outcome import ControlRecord, Outcome
from sluice.sim.reports import Reports
from sluice.sim.scenario import Scenario


def simulate(scenario: Scenario, policy: Policy) -> Outcome:
    """Runs to the end. The same scenario, seed included, gives the same outcome."""
    return Simulation(scenario, policy).run()


class Simulation:
    """A world with its control loop, ready to run."""

    def __init__(self, scenario: Scenario, policy: Policy) -> None:
        self.scenario, self.policy, self.events = scenario, policy, EventQueue()
        self.world = scenario.world(self.events, policy)
        self.executor = MessageExecutor(self.world, self.events)
        self.reports = Reports(self.world, self.events, self._take_turn)
        self.loop = ControlLoop(
            policy,
            self.reports,
            self.executor,
            self.world.routing,
            self.world.minimum_collection,
            capabilities=self.executor.capabilities,
        )

    def run(self) -> Outcome:
        """From the first tuple to the end."""
        self.start()
        while self.step():
            pass
        return self.outcome()

    def start(self) -> None:
        """Everybody begins. A static policy is never asked, so there is nothing to collect for it."""
        self.world.start(self.loop)
        if not isinstance(self.policy, Static):
            self.reports.begin(self.loop.routing, self.events.now, self.loop.rounds.collect)

    def step(self) -> bool:
        """On to the next events, or to what the world does before; False when the run is over."""
        if self.world.over:
            return False
        if self.world.advance(self.events.next_time()):
            self.events.run_due()
        return True

    def outcome(self) -> Outcome:
        """What was seen."""
        return self.world.outcome(
            ControlRecord(
                policy=self.policy.name,
                moves=tuple(self.executor.moves),
                decisions=tuple(self.world.decisions),
                rounds=self.reports.round,
                moved_bytes=self.executor.moved_bytes,
                unit_sites=tuple(self.loop.routing.holders),
            )
        )

    def _take_turn(self) -> None:
        if self.events.now < self.scenario.seconds:
            self.loop.epoch = self.reports.round
            self.world.keep(self.loop.take_turn(self.events.now))
