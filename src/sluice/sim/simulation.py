"""Runs a scenario under a policy: the compiled core for tuples, the agenda for everything else."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

import numpy as np

from sluice.control.loop import ControlLoop
from sluice.model.errors import ScenarioError
from sluice.model.ids import Unit
from sluice.model.routing import Routing
from sluice.policies import Policy
from sluice.policies.static import Static
from sluice.sim import core
from sluice.sim.event_queue import Agenda
from sluice.sim.message_carrier import MessageCarrier
from sluice.sim.move_log import TimedMove
from sluice.sim.network import Network
from sluice.sim.scenario import EXCHANGES, Scenario, merged
from sluice.sim.site import Site
from sluice.sim.site_reports import SiteReports
from sluice.sim.workload import alias_table, unit_shares
from sluice.sim.world import NOBODY, Costs, world


@dataclass(frozen=True)
class Outcome:
    """What was seen. `rate` has a row an interval and a column a site, in tuples a second; `latency` is the mean of the
    tuples processed in an interval, in seconds (NaN without any). `fetches` has, for every site, when units were in
    memory again that had been on disk."""

    scenario: Scenario
    policy: str
    rate: np.ndarray
    latency: np.ndarray
    decisions: tuple[TimedMove, ...]
    holders: np.ndarray
    spilled: np.ndarray
    rounds: int
    fetches: tuple[tuple[float, ...], ...] = ()

    @property
    def times(self) -> np.ndarray:
        """The ends of the intervals."""
        return np.arange(1, len(self.latency) + 1) * self.scenario.interval

    @property
    def throughput(self) -> np.ndarray:
        """All sites together."""
        total: np.ndarray = self.rate.sum(axis=1)
        return total

    def mean_throughput(self, start: float = 0.0, end: float = math.inf) -> float:
        return float(self.throughput[self._between(start, end)].mean())

    def mean_latency(self, start: float = 0.0, end: float = math.inf) -> float:
        """Over the tuples, not over the intervals."""
        within = self._between(start, end)
        tuples = self.throughput[within]
        return float(np.nansum(self.latency[within] * tuples) / tuples.sum()) if tuples.sum() else math.nan

    def count_moves(self, start: float, end: float = math.inf) -> int:
        """Moves that were decided after `start`, up to `end`."""
        return sum(start < move.time <= end for move in self.decisions)

    def _between(self, start: float, end: float) -> np.ndarray:
        within: np.ndarray = (self.times > start + 1e-9) & (self.times <= end + 1e-9)
        return within


def simulate(scenario: Scenario, policy: Policy) -> Outcome:
    """Runs to the end. The same scenario, seed included, gives the same outcome."""
    return Simulation(scenario, policy).run()


class Simulation:
    """A cluster with its sites and its control loop, ready to run."""

    def __init__(self, scenario: Scenario, policy: Policy) -> None:
        if scenario.exchange == "river" and not isinstance(policy, Static):
            raise ScenarioError("a river has no units to move: it runs with the policy static alone")
        least = scenario.sites * scenario.hardware.packet_tuples
        if scenario.hardware.full_packets and (scenario.exchange != "flux" or scenario.buffer < least):
            raise ScenarioError(f"full packets need the exchange flux and a buffer of {least} tuples, a packet a site")
        self.scenario, self.policy, self.agenda = scenario, policy, Agenda()
        hardware, kind = scenario.hardware, EXCHANGES[scenario.exchange]
        holders: np.ndarray = np.repeat(np.arange(scenario.sites), scenario.units_per_site)
        bins = max(1, math.ceil(scenario.seconds / scenario.interval - 1e-9))
        self.cluster = world(scenario.sites, holders, hardware, kind, scenario.buffer, bins, scenario.seed)
        self.costs = _costs(scenario, kind)
        rng = np.random.default_rng(scenario.seed)
        self.sites = [
            Site(number, self.cluster, self.costs, hardware, self.agenda, rng, bool(scenario.pressures))
            for number in range(scenario.sites)
        ]
        for unit, site in enumerate(holders):
            self.sites[site].hold(Unit(unit), scenario.unit_bytes)
        network = Network(self.agenda, scenario.sites, hardware.link_rate, hardware.cross_rate)
        self.carrier = MessageCarrier(self.cluster, self.costs, self.agenda, network, self.sites, scenario.unit_bytes)
        self.reports = SiteReports(
            self.cluster,
            self.agenda,
            self.costs.latency,
            self.sites,
            scenario.units,
            scenario.unit_bytes,
            complete=self._take_turn,
        )
        routing = Routing(scenario.sites, tuple(holders.tolist()))
        self.loop = ControlLoop(policy, self.reports, self.carrier, routing, scenario.minimum_collection)
        self._plan()

    def _plan(self) -> None:
        """Puts what the scenario has happen on the agenda."""
        scenario, at = self.scenario, self.agenda.at
        self._share(0)
        for site in self.sites:
            at(0.0, partial(site.post, lambda: None))  # its state may be too large from the start
        for number, drift in enumerate(scenario.drifts, 1):
            at(drift.start, partial(self._share, number))
        for load in merged(scenario.loads):
            at(load.start, partial(core.set_load, self.cluster, self.costs, load.site, True))
            at(load.end, partial(core.set_load, self.cluster, self.costs, load.site, False))
        for pressure in scenario.pressures:
            at(pressure.start, partial(self._resize, pressure.site, -pressure.size))
            at(pressure.end, partial(self._resize, pressure.site, pressure.size))

    def _share(self, number: int) -> None:
        """Makes other groups popular."""
        scenario = self.scenario
        shares = unit_shares(scenario.groups, scenario.units, scenario.skew, scenario.seed + number)
        self.cluster.share["chance"], self.cluster.share["other"] = alias_table(shares)

    def _resize(self, site: int, change: int) -> None:
        self.sites[site].post(partial(self.sites[site].resize, change))

    def _take_turn(self) -> None:
        self.loop.epoch = self.reports.round
        self.loop.take_turn(self.agenda.now)

    def run(self) -> Outcome:
        """Lets time pass to the end of the scenario."""
        if not isinstance(self.policy, Static):
            self.reports.begin(self.loop.routing, self.agenda.now, self.loop.rounds.collect)
        core.start(self.cluster, self.costs)
        end = self.scenario.seconds
        while True:
            asking = core.advance(self.cluster, self.costs, min(self.agenda.next_time(), end))
            self.agenda.now = float(self.cluster.now[0])
            if asking != NOBODY:
                self.sites[asking].attend()
            elif self.agenda.now >= end:
                return self._outcome()
            else:
                self.agenda.run_due()

    def _outcome(self) -> Outcome:
        cluster, interval = self.cluster, self.scenario.interval
        with np.errstate(invalid="ignore", divide="ignore"):
            latency = cluster.delay / cluster.rate.sum(axis=1)
        return Outcome(
            scenario=self.scenario,
            policy=self.policy.name,
            rate=cluster.rate / interval,
            latency=latency,
            decisions=tuple(self.carrier.log.moves),
            holders=np.array(self.loop.routing.holders),
            spilled=~cluster.unit["resident"],
            rounds=self.reports.round,
            fetches=tuple(tuple(site.fetch_times) for site in self.sites),
        )


def _costs(scenario: Scenario, kind: int) -> Costs:
    hardware = scenario.hardware
    return Costs(
        kind=kind,
        produce=hardware.produce,
        process=hardware.process,
        process_spread=hardware.process_spread,
        spool=hardware.spool,
        switch=hardware.switch,
        latency=hardware.latency,
        load_on=scenario.load_on,
        load_off=scenario.load_off,
        packet=hardware.packet_tuples,
        least=hardware.packet_tuples if hardware.full_packets else 1,
        buffer=scenario.buffer,
        tuple_bytes=hardware.tuple_bytes,
        spool_buffer=hardware.spool_buffer,
        disk_rate=hardware.disk_rate,
        seek=hardware.seek,
        bin=scenario.interval,
    )
