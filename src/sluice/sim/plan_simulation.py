"""Runs a plan under a policy, step by step, until a machine is remiss: full, with one more tuple to store."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sluice.control.loop import ControlLoop
from sluice.model.abilities import Abilities
from sluice.model.decision import Decision
from sluice.model.ids import Fragment, InputNumber, Site, Unit
from sluice.policies import Policy
from sluice.sim.event_queue import Agenda
from sluice.sim.plan_carrier import PlanCarrier
from sluice.sim.plan_reports import PlanReports
from sluice.sim.plan_scenario import PlanScenario
from sluice.sim.plan_world import PlanWorld


@dataclass(frozen=True)
class Remiss:
    """The first remiss state: when, and which machine."""

    time: float
    site: Site


@dataclass(frozen=True)
class PlanOutcome:
    """What was seen until the first remiss state, or the end. `output` has the results of the plan's last join by step,
    `filled` what each machine had stored of its memory after each step, from 0 to 1.

    `input_bytes` are those of all tuples that the splits had to send, each once; `sent_bytes` went to holders, every
    copy counted; `moved_bytes` is state that moved.
    """

    scenario: PlanScenario
    policy: str
    output: np.ndarray
    filled: np.ndarray
    remiss: Remiss | None
    input_bytes: float
    sent_bytes: float
    moved_bytes: float
    moves: int
    passes: int
    holders: int
    """Of all units together, at the end."""
    decisions: tuple[Decision, ...] = ()

    @property
    def times(self) -> np.ndarray:
        """The ends of the steps, in seconds."""
        return np.arange(1, len(self.output) + 1) * self.scenario.step

    @property
    def total(self) -> float:
        """Results before the first remiss state."""
        return float(self.output.sum())

    def total_until(self, time: float) -> float:
        """Results up to a time."""
        return float(self.output[self.times <= time + 1e-9].sum())

    @property
    def peak(self) -> float:
        """How much of the memory of all machines together was ever filled."""
        return float(self.filled.mean(axis=1).max())

    @property
    def network_bytes(self) -> float:
        return self.sent_bytes + self.moved_bytes


def simulate_plan(scenario: PlanScenario, policy: Policy) -> PlanOutcome:
    """Runs until the first remiss state, or to the end. The same scenario, seed included, gives the same outcome."""
    return PlanSimulation(scenario, policy).run()


class PlanSimulation:
    """A cluster with its control loop, ready to run."""

    def __init__(self, scenario: PlanScenario, policy: Policy) -> None:
        self.scenario, self.policy, self.agenda = scenario, policy, Agenda()
        self.world = PlanWorld(scenario)
        self.carrier = PlanCarrier(self.world, self.agenda)
        self.reports = PlanReports(self.world, self.agenda, self.carrier.under_way, self._take_turn)
        inputs = {
            Fragment(join): (InputNumber(2 * join), InputNumber(2 * join + 1)) for join in range(len(scenario.joins))
        }
        self.loop = ControlLoop(
            policy,
            self.reports,
            self.carrier,
            scenario.routing(),
            scenario.minimum_collection,
            abilities=Abilities(shareable=inputs, grids=False),
            why_not=self.carrier.why_not,
        )
        self.decisions: list[Decision] = []
        self.steps_done = 0
        self._filled = np.zeros((scenario.steps, scenario.sites))

    def run(self) -> PlanOutcome:
        self.reports.begin(self.loop.routing, 0.0, self.loop.rounds.collect)
        remiss = None
        while remiss is None and self.steps_done < self.scenario.steps:
            remiss = self.step()
        return self._outcome(remiss)

    def step(self) -> Remiss | None:
        """Messages that are due, then a step's tuples; the remiss state that they lead to, if they do."""
        step, world = self.steps_done, self.world
        self.agenda.now = step * self.scenario.step
        self.agenda.run_due()
        world.bring(step)
        self.carrier.meet_commands()
        world.take_in(step)
        filled = world.site_tuples * (self.scenario.tuple_bytes / self.scenario.memory)
        self._filled[step] = np.minimum(filled, 1.0)
        self.steps_done += 1
        fullest = int(filled.argmax())
        return Remiss(self.steps_done * self.scenario.step, Site(fullest)) if filled[fullest] > 1 else None

    def _take_turn(self) -> None:
        self.loop.epoch = self.reports.round
        self.decisions += self.loop.take_turn(self.agenda.now)

    def _outcome(self, remiss: Remiss | None) -> PlanOutcome:
        world, done = self.world, self.steps_done
        return PlanOutcome(
            scenario=self.scenario,
            policy=self.policy.name,
            output=world.handed_on[:done, -1].copy(),
            filled=self._filled[:done].copy(),
            remiss=remiss,
            input_bytes=float(world.rows[:done].sum()) * self.scenario.tuple_bytes,
            sent_bytes=float(world.received.sum()) * self.scenario.tuple_bytes,
            moved_bytes=self.carrier.moved_bytes,
            moves=len(self.carrier.log.moves),
            passes=self.carrier.passes,
            holders=sum(len(self.loop.routing.holders_of(Unit(unit))) for unit in range(self.loop.routing.units)),
            decisions=tuple(self.decisions),
        )
