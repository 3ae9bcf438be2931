"""An exchange: the compiled core for tuples, sites that keep within their memory and hand units over (section 5.2)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from sluice.control.loop import ControlLoop
from sluice.model import ids
from sluice.model.columns import IntColumn
from sluice.model.errors import ScenarioError
from sluice.model.routing.routing import Routing
from sluice.model.view import ClusterView
from sluice.policies import Policy
from sluice.policies.static import Static
from sluice.sim.event_queue import EventQueue
from sluice.sim.network import Network
from sluice.sim.outcome import ControlRecord, Curve, Measure, Outcome
from sluice.sim.producer_routing import ProducerRouting
from sluice.sim.world import Call, Done, World
from sluice.sim.worlds.flux import core
from sluice.sim.worlds.flux.cluster import NOBODY, Costs, new_cluster
from sluice.sim.worlds.flux.scenario import EXCHANGES, FluxScenario, merged
from sluice.sim.worlds.flux.site import FluxSite
from sluice.sim.worlds.flux.workload import alias_table, unit_shares
from sluice.verbs.move import MoveProtocol


@dataclass(frozen=True, kw_only=True)
class FluxOutcome(Outcome):
    """What was seen. `rate` has a row an interval and a column a site, in tuples a second; `latency` is the mean of the
    tuples processed in an interval, in seconds (NaN without any). `fetches` has, for every site, when units were in
    memory again that had been on disk."""

    scenario: FluxScenario
    rate: np.ndarray
    latency: np.ndarray
    spilled: np.ndarray
    fetches: tuple[tuple[float, ...], ...] = ()

    @property
    def times(self) -> np.ndarray:
        """The ends of the intervals."""
        return np.arange(1, len(self.latency) + 1) * self.scenario.interval

    @property
    def measures(self) -> Sequence[Measure]:
        measured = self.latency[~np.isnan(self.latency)]
        last_quarter = self.mean_throughput(start=0.75 * self.scenario.seconds)
        worst = float(measured.max()) if len(measured) else math.nan
        return (
            Measure("tuples", "meanThroughput", self.mean_throughput(), "rows a second"),
            Measure("last quarter", "lastQuarterThroughput", last_quarter, "rows a second"),
            Measure("latency", "meanLatency", self.mean_latency(), "latency"),
            Measure("worst interval", "worstLatency", worst, "latency"),
            Measure("moves", "moves", sum(move.done is not None for move in self.moves), "count"),
            Measure("on disk", "unitsOnDisk", int(np.count_nonzero(self.spilled)), "count"),
        )

    @property
    def curves(self) -> Sequence[Curve]:
        return (
            Curve("throughput", "tuples processed", "rows a second", self.throughput),
            Curve("latency", "mean latency", "latency", self.latency, log=True),
        )

    @property
    def throughput(self) -> np.ndarray:
        """All sites together."""
        total: np.ndarray = self.rate.sum(axis=1)
        return total

    def mean_throughput(self, start: float = 0.0, end: float = math.inf) -> float:
        return float(self.throughput[self.within(start, end)].mean())

    def mean_latency(self, start: float = 0.0, end: float = math.inf) -> float:
        """Over the tuples, not over the intervals."""
        within = self.within(start, end)
        tuples = self.throughput[within]
        return float(np.nansum(self.latency[within] * tuples) / tuples.sum()) if tuples.sum() else math.nan

    def count_moves(self, start: float, end: float = math.inf) -> int:
        """Moves that were decided after `start`, up to `end`."""
        return sum(start < move.time <= end for move in self.moves)


class FluxWorld(World):
    """Sites with a producer and a consumer each."""

    name = "exchange"

    def __init__(self, scenario: FluxScenario, events: EventQueue, policy: Policy) -> None:
        if scenario.exchange == "river" and not isinstance(policy, Static):
            raise ScenarioError("a river has no units to move: it runs with the policy static alone")
        hardware, kind = scenario.hardware, EXCHANGES[scenario.exchange]
        least = scenario.sites * hardware.packet_tuples
        if hardware.full_packets and (scenario.exchange != "flux" or scenario.buffer < least):
            raise ScenarioError(f"full packets need the exchange flux and a buffer of {least} tuples, a packet a site")
        holders: np.ndarray = np.repeat(np.arange(scenario.sites), scenario.units_per_site)
        routing = Routing(scenario.sites, IntColumn(holders))
        network = Network(events, scenario.sites, hardware.link_rate, hardware.cross_rate)
        super().__init__(network, routing, hardware.latency, scenario.minimum_collection)
        bins = max(1, math.ceil(scenario.seconds / scenario.interval - 1e-9))
        self.scenario, self.producers = scenario, range(scenario.sites)
        self.reporters = [ids.Site(number) for number in range(scenario.sites)]
        self.cluster = new_cluster(scenario.sites, holders, hardware, kind, scenario.buffer, bins, scenario.seed)
        self.costs = _costs(scenario, kind)
        rng = np.random.default_rng(scenario.seed)
        self.sites = [
            FluxSite(number, self.cluster, self.costs, hardware, events, rng, bool(scenario.pressures))
            for number in range(scenario.sites)
        ]
        for unit, site in enumerate(holders):
            self.sites[site].hold(ids.Unit(unit), scenario.unit_size)
        self._routings = [ProducerRouting(row["owner"], row["stalled"]) for row in self.cluster.route]
        self._plan()

    def _plan(self) -> None:
        """Plans what the scenario has happen."""
        scenario, at = self.scenario, self.events.at
        self._share(0)
        for site in self.sites:
            at(0.0, partial(site.post, lambda: None))  # its state may be too large from the start
        for number, start in enumerate(scenario.drifts, 1):
            at(start, partial(self._share, number))
        for load in merged(scenario.loads):
            at(load.start, partial(core.set_load, self.cluster, self.costs, load.site, True))
            at(load.end, partial(core.set_load, self.cluster, self.costs, load.site, False))
        for pressure in scenario.pressures:
            resize = self.sites[pressure.site].resize
            at(pressure.start, partial(self.deliver, ids.Site(pressure.site), partial(resize, -pressure.size)))
            at(pressure.end, partial(self.deliver, ids.Site(pressure.site), partial(resize, pressure.size)))

    def _share(self, number: int) -> None:
        """Makes other groups popular."""
        scenario = self.scenario
        shares = unit_shares(scenario.groups, scenario.units, scenario.skew, scenario.seed + number)
        self.cluster.share["chance"], self.cluster.share["other"] = alias_table(shares)

    # --- time ---

    def start(self, loop: ControlLoop) -> None:
        super().start(loop)
        core.start(self.cluster, self.costs)

    @property
    def over(self) -> bool:
        return self.events.now >= self.scenario.seconds

    def advance(self, until: float) -> bool:
        asking = core.advance(self.cluster, self.costs, min(until, self.scenario.seconds))
        self.events.now = float(self.cluster.now[0])
        if asking != NOBODY:
            self.sites[asking].attend()
        return bool(asking == NOBODY) and not self.over

    def deliver(self, site: ids.Site | None, call: Call) -> None:
        """A consumer reads messages between two tuples, or after the task at hand."""
        assert site is not None, "every site reports by itself"
        self.sites[site].post(call)

    # --- what it can do ---

    def pause(self, move: MoveProtocol, acknowledge: Callable[[int], None]) -> None:
        """The source hears first that a unit is to leave. Then every producer stops the unit's input and acknowledges
        behind what it has sent."""
        source = self.sites[move.source]

        def announce() -> None:
            source.expect_to_leave(move.unit)
            self.send(pause_producers)

        def pause_producers() -> None:
            for producer, routing in enumerate(self._routings):
                routing.pause(move.unit)
                core.stall(self.cluster, producer, move.unit, move.source)
                behind = int(self.cluster.pair["sent"][producer, move.source])
                self.send(partial(source.when_dry, producer, behind, partial(acknowledge, producer)))

        source.post(announce)

    def extract(self, move: MoveProtocol, done: Done) -> None:
        source = self.sites[move.source]
        source.post(partial(source.extract, move.unit, done))

    def state_bytes(self, unit: ids.Unit) -> float:
        return self.scenario.unit_size

    def install(self, move: MoveProtocol, done: Done) -> None:
        target = self.sites[move.target]
        target.post(partial(target.install, move.unit, self.scenario.unit_size, done))

    def restart(self, unit: ids.Unit, site: ids.Site) -> None:
        for producer, routing in enumerate(self._routings):
            routing.restart(unit, site)
            core.unstall(self.cluster, self.costs, producer, unit, site)

    # --- what it counts ---

    def counts(self) -> tuple[np.ndarray, ...]:
        return self.cluster.unit["processed"], self.cluster.node["idle"]

    def observe(self, routing: Routing, grown: Sequence[np.ndarray], seconds: float) -> ClusterView:
        processed, idle = grown
        resident, size = self.cluster.unit["resident"], self.scenario.unit_size
        return (
            ClusterView.at_rest(routing.holders, [float(site.paging.limit) for site in self.sites])
            .with_units(
                rows=processed,
                bytes=np.full(len(resident), size),
                memory=np.where(resident, size, 0),
                spilled=~resident,
                pending=self.cluster.unit["pending"].copy(),
                freezable=np.zeros(len(resident), dtype=bool),
            )
            .with_sites(idle=np.minimum(idle, seconds))
            .with_scaling(least_sites=self.scenario.sites)
        )

    def outcome(self, control: ControlRecord) -> FluxOutcome:
        cluster, interval = self.cluster, self.scenario.interval
        with np.errstate(invalid="ignore", divide="ignore"):
            latency = cluster.delay / cluster.rate.sum(axis=1)
        return FluxOutcome(
            **vars(control),
            scenario=self.scenario,
            rate=cluster.rate / interval,
            latency=latency,
            spilled=~cluster.unit["resident"],
            fetches=tuple(tuple(site.fetch_times) for site in self.sites),
        )


def _costs(scenario: FluxScenario, kind: int) -> Costs:
    hardware = scenario.hardware
    return Costs(
        kind=kind,
        load_on=scenario.load_on,
        load_off=scenario.load_off,
        packet=hardware.packet_tuples,
        least=hardware.packet_tuples if hardware.full_packets else 1,
        buffer=scenario.buffer,
        bin=scenario.interval,
        **{name: getattr(hardware, name) for name in Costs._fields if hasattr(hardware, name)},
    )
