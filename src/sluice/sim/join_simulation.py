"""Runs a join under a policy: the compiled core for tuples, the agenda for everything else, and cleanup at the end."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from sluice.control.loop import ControlLoop
from sluice.control.site_mode import Mode
from sluice.model.abilities import Abilities
from sluice.model.errors import ScenarioError
from sluice.model.ids import Fragment, Site
from sluice.model.routing import Routing
from sluice.policies import Policy
from sluice.policies.freezing import Freezing
from sluice.sim.event_queue import Agenda
from sluice.sim.frozen_generations import FrozenGenerations, Missing
from sluice.sim.join_carrier import JoinCarrier
from sluice.sim.join_core import NOBODY, JoinCosts, advance, join_world
from sluice.sim.join_reports import JoinReports
from sluice.sim.join_scenario import JoinScenario
from sluice.sim.join_site import JoinSite, TimedSpill
from sluice.sim.join_streams import JoinStreams
from sluice.sim.move_log import TimedMove

ABLE = Abilities(freezable=frozenset([Fragment(0)]), cleanable=False)


@dataclass(frozen=True)
class SiteCleanup:
    """What a site has to clean up after the run, and how long that takes."""

    generations: int
    tuples: int
    results: int
    seconds: float


@dataclass(frozen=True)
class JoinOutcome:
    """What was seen. `output` has a row an interval and a column a site, in results; its last row are the results of
    tuples that still waited at the end. `memory` is in bytes, at the ends of the intervals; `peak` the most before."""

    scenario: JoinScenario
    policy: str
    output: np.ndarray
    memory: np.ndarray
    peak: np.ndarray
    spills: tuple[TimedSpill, ...]
    moves: tuple[TimedMove, ...]
    cleanup: tuple[SiteCleanup, ...]
    rounds: int

    @property
    def times(self) -> np.ndarray:
        """The ends of the intervals, in seconds."""
        return np.arange(1, len(self.memory) + 1) * self.scenario.interval

    @property
    def rate(self) -> np.ndarray:
        """Results a second of all sites together."""
        rate: np.ndarray = self.output[:-1].sum(axis=1) / self.scenario.interval
        return rate

    @property
    def total(self) -> np.ndarray:
        """Results of all sites together since the beginning, at the ends of the intervals."""
        total: np.ndarray = np.cumsum(self.output[:-1].sum(axis=1))
        return total

    def mean_rate(self, start: float = 0.0, end: float = math.inf) -> float:
        """Results a second in a part of the run."""
        within = (self.times > start + 1e-9) & (self.times <= end + 1e-9)
        return float(self.rate[within].mean())

    @property
    def run_results(self) -> int:
        """All results but those of cleanup."""
        return int(self.output.sum())

    @property
    def missing_results(self) -> int:
        """What cleanup finds."""
        return sum(site.results for site in self.cleanup)

    @property
    def cleanup_seconds(self) -> float:
        """Sites clean up side by side; it is over with the last."""
        return max(site.seconds for site in self.cleanup)

    @property
    def relocations(self) -> tuple[float, ...]:
        """When units were relocated: those of one decision are one relocation."""
        return tuple(sorted({move.time for move in self.moves}))


def simulate_join(scenario: JoinScenario, policy: Policy) -> JoinOutcome:
    """Runs to the end. The same scenario, seed included, gives the same outcome."""
    return JoinSimulation(scenario, policy).run()


class JoinSimulation:
    """A cluster with its sites and its control loop, ready to run."""

    def __init__(self, scenario: JoinScenario, policy: Policy) -> None:
        self.scenario, self.policy, self.agenda = scenario, policy, Agenda()
        hardware, holders = scenario.hardware, scenario.unit_sites
        freezing = _freezing(policy)
        streams = JoinStreams.draw(scenario)
        self.bins = max(1, math.ceil(scenario.seconds / scenario.interval - 1e-9))
        limit = hardware.memory // hardware.tuple_bytes
        self.world = join_world(streams, holders, scenario.sites, limit, self.bins)
        self.costs = JoinCosts(scenario.arrival, hardware.process, scenario.result_cost, scenario.interval)
        self.frozen = FrozenGenerations(self.world.counts, streams.first)
        self.sites = [
            JoinSite(Site(number), self.world, self.agenda, hardware, freezing, self.frozen, scenario.seed)
            for number in range(scenario.sites)
        ]
        for unit, site in enumerate(holders.tolist()):
            self.sites[site].units.add(unit)
        self.carrier = JoinCarrier(self.world, self.costs, self.agenda, hardware, self.sites)
        self.reports = JoinReports(self.world, self.frozen, self.agenda, hardware, self._take_turn)
        routing = Routing(scenario.sites, tuple(holders.tolist()))
        self.loop = ControlLoop(
            policy, self.reports, self.carrier, routing, scenario.minimum_collection, abilities=ABLE
        )
        self._memory = np.zeros((self.bins, scenario.sites), dtype=np.int64)
        for number in range(self.bins):
            self.agenda.at((number + 1) * scenario.interval, partial(self._measure, number))

    def run(self) -> JoinOutcome:
        """Lets the streams come to their end, what is under way too, and cleans up."""
        self.reports.begin(self.loop.routing, 0.0, self.loop.rounds.collect)
        while self.step():
            pass
        return self._outcome()

    def step(self) -> bool:
        """On to the next event, or until a site's memory is full; False when nothing is left to happen."""
        end = self.scenario.seconds
        until = self.agenda.next_time()
        if self.world.now[0] >= end and until == math.inf:
            return False
        full = advance(self.world, self.costs, until if until < math.inf else end)
        self.agenda.now = float(self.world.now[0])
        if full == NOBODY:
            self.agenda.run_due()
        else:
            self.sites[full].measure_memory()
        return True

    def _take_turn(self) -> None:
        if self.agenda.now < self.scenario.seconds:
            self.loop.epoch = self.reports.round
            self.loop.take_turn(self.agenda.now)

    def _measure(self, number: int) -> None:
        self._memory[number] = self.world.site["stored"] * self.scenario.hardware.tuple_bytes

    def _outcome(self) -> JoinOutcome:
        assert not self.loop.moves and all(site.mode is Mode.NORMAL for site in self.sites), "something is under way"
        return JoinOutcome(
            scenario=self.scenario,
            policy=self.policy.name,
            output=self.world.output,
            memory=self._memory,
            peak=self.world.peak * self.scenario.hardware.tuple_bytes,
            spills=tuple(sorted((s for site in self.sites for s in site.spills), key=lambda one: one.time)),
            moves=tuple(self.carrier.log.moves),
            cleanup=tuple(self._cleaned([self.frozen.missing(unit) for unit in site.units]) for site in self.sites),
            rounds=self.reports.round,
        )

    def _cleaned(self, units: Sequence[Missing]) -> SiteCleanup:
        """Every generation is read, its tuples are joined again, and what is missing is found."""
        scenario, hardware = self.scenario, self.scenario.hardware
        generations, tuples, results = (
            sum(getattr(unit, name) for unit in units) for name in ("generations", "tuples", "results")
        )
        reading = generations * hardware.seek + tuples * hardware.tuple_bytes / hardware.disk_rate
        joining = tuples * hardware.process + results * scenario.cleanup_result_cost
        return SiteCleanup(generations, tuples, results, reading + joining)


def _freezing(policy: Policy) -> Freezing | None:
    freezing = policy.freezing
    if freezing is not None and freezing.half_life < math.inf:
        raise ScenarioError(
            f"{policy.name}: half_life counts epochs, and a simulated join has none; leave it out of its settings"
        )
    return freezing
