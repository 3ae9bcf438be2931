"""Runs a scenario under a policy: the compiled core for tuples, the agenda for everything else."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

import numpy as np

from sluice.control.rounds import Rounds
from sluice.policies import Policy
from sluice.sim import core
from sluice.sim.agenda import Agenda
from sluice.sim.controller import Controller, Decision
from sluice.sim.network import Network
from sluice.sim.scenario import EXCHANGES, Scenario
from sluice.sim.site import Site
from sluice.sim.workload import alias_table, unit_shares
from sluice.sim.world import NOBODY, Costs, world


@dataclass(frozen=True)
class Outcome:
    """What was seen. `rate` has a row an interval and a column a site, in tuples a second; `latency` is the mean of the
    tuples processed in an interval, in seconds (NaN without any)."""

    scenario: Scenario
    policy: str
    rate: np.ndarray
    latency: np.ndarray
    decisions: tuple[Decision, ...]
    owners: np.ndarray
    spilled: np.ndarray
    rounds: int

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

    def _between(self, start: float, end: float) -> np.ndarray:
        within: np.ndarray = (self.times > start + 1e-9) & (self.times <= end + 1e-9)
        return within


def simulate(scenario: Scenario, policy: Policy) -> Outcome:
    """Runs to the end. The same scenario, seed included, gives the same outcome."""
    agenda = Agenda()
    hardware = scenario.hardware
    kind = EXCHANGES[scenario.exchange]
    owners = np.repeat(np.arange(scenario.sites), scenario.units_per_site)
    bins = max(1, math.ceil(scenario.seconds / scenario.interval - 1e-9))
    cluster = world(scenario.sites, owners, hardware, kind, scenario.buffer, bins, scenario.seed)
    costs = _costs(scenario, kind)
    rng = np.random.default_rng(scenario.seed)
    sites = [Site(number, cluster, costs, hardware, agenda, rng) for number in range(scenario.sites)]
    for unit, site in enumerate(owners):
        sites[site].hold(unit, scenario.unit_bytes)

    def share(number: int) -> None:
        shares = unit_shares(scenario.groups, scenario.units, scenario.skew, scenario.seed + number)
        cluster.share["chance"], cluster.share["other"] = alias_table(shares)

    share(0)
    for number, drift in enumerate(scenario.drifts, 1):
        agenda.at(drift.start, partial(share, number))
    for load in scenario.loads:
        agenda.at(load.start, partial(core.set_load, cluster, costs, load.site, True))
        if load.end < scenario.seconds:
            agenda.at(load.end, partial(core.set_load, cluster, costs, load.site, False))
    for pressure in scenario.pressures:
        agenda.at(pressure.start, partial(_resize, sites[pressure.site], -pressure.size))
        if pressure.end < scenario.seconds:
            agenda.at(pressure.end, partial(_resize, sites[pressure.site], pressure.size))

    network = Network(agenda, hardware.link_rate, hardware.cross_rate)
    rounds = Rounds(scenario.minimum_collection)
    controller = Controller(
        cluster, costs, agenda, network, sites, policy, owners, scenario.unit_bytes, rounds
    )
    if policy.name != "static":
        controller.begin_round()

    core.start(cluster, costs)
    while True:
        until = min(agenda.next_time(), scenario.seconds)
        asking = core.advance(cluster, costs, until)
        agenda.now = float(cluster.now[0])
        if asking != NOBODY:
            sites[asking].attend()
        elif agenda.next_time() <= agenda.now and agenda.now < scenario.seconds:
            agenda.run_due()
        else:
            break

    counts = cluster.rate.sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        latency = cluster.delay / counts
    return Outcome(
        scenario, policy.name, cluster.rate / scenario.interval, latency, tuple(controller.decisions),
        controller.owners, ~cluster.unit["resident"], controller.round,
    )


def _resize(site: Site, change: int) -> None:
    site.post(lambda: site.resize(change))


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
        buffer=scenario.buffer,
        tuple_bytes=hardware.tuple_bytes,
        spool_buffer=hardware.spool_buffer,
        disk_rate=hardware.disk_rate,
        seek=hardware.seek,
        bin=scenario.interval,
    )
