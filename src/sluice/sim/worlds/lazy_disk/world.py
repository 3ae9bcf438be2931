"""An m-way join until its streams end: the compiled core for tuples, sites that freeze and relocate, then cleanup.

There is a split for each input, which holds back the tuples of units that move (section 4.1;
`docs/research/relocation.md` has the steps); sites send one unit after the other.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from sluice.model import ids
from sluice.model.columns import IntColumn
from sluice.model.errors import ScenarioError
from sluice.model.routing.routing import Routing
from sluice.model.view import ClusterView
from sluice.policies import Policy
from sluice.policies.planning.freezing import Freezing
from sluice.sim.event_queue import EventQueue
from sluice.sim.network import Network
from sluice.sim.outcome import ControlRecord, Curve, Measure, Outcome
from sluice.sim.producer_routing import ProducerRouting
from sluice.sim.world import Done, Handlers, World
from sluice.sim.worlds.lazy_disk.core import NOBODY, Costs, advance, new_cluster, release
from sluice.sim.worlds.lazy_disk.frozen_generations import FrozenGenerations, Missing
from sluice.sim.worlds.lazy_disk.scenario import LazyDiskScenario, Streams
from sluice.sim.worlds.lazy_disk.site import LazyDiskSite, TimedSpill
from sluice.sim.worlds.lazy_disk.site_mode import Mode
from sluice.verbs.freeze import FreezeUnit
from sluice.verbs.move import MoveProtocol


@dataclass(frozen=True)
class SiteCleanup:
    """What a site has to clean up after the run, and how long that takes."""

    generations: int
    tuples: int
    results: int
    seconds: float


@dataclass(frozen=True, kw_only=True)
class LazyDiskOutcome(Outcome):
    """What was seen. `output` has a row an interval and a column a site, in results; its last row are the results of
    tuples that still waited at the end. `memory` is in bytes, at the ends of the intervals; `peak` the most before."""

    scenario: LazyDiskScenario
    output: np.ndarray
    memory: np.ndarray
    peak: np.ndarray
    spills: tuple[TimedSpill, ...]
    cleanup: tuple[SiteCleanup, ...]

    @property
    def times(self) -> np.ndarray:
        """The ends of the intervals, in seconds."""
        return np.arange(1, len(self.memory) + 1) * self.scenario.interval

    @property
    def measures(self) -> Sequence[Measure]:
        return (
            Measure("results", "results", self.run_results, "rows"),
            Measure("rate", "meanRate", self.mean_rate(), "rows a second"),
            Measure("missing", "missingResults", self.missing_results, "rows"),
            Measure("cleanup", "cleanupSeconds", self.cleanup_seconds, "seconds"),
            Measure("spills", "spills", len(self.spills), "count"),
            Measure("moves", "moves", len(self.moves), "count"),
        )

    @property
    def curves(self) -> Sequence[Curve]:
        return (
            Curve("output", "results", "rows a second", self.rate),
            Curve("memory", "state in memory at all sites", "bytes", self.memory.sum(axis=1)),
        )

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
        return float(self.rate[self.within(start, end)].mean())

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


class LazyDiskWorld(World):
    """Splits, and the sites that have an instance of the join each."""

    name = "m-way join"

    def __init__(self, scenario: LazyDiskScenario, events: EventQueue, policy: Policy) -> None:
        hardware, holders = scenario.hardware, scenario.unit_sites
        routing = Routing(scenario.sites, IntColumn(holders))
        network = Network(events, scenario.sites, hardware.link_rate, hardware.cross_rate)
        super().__init__(network, routing, hardware.latency, scenario.minimum_collection)
        freezing, streams = _freezing(policy), Streams.draw(scenario)
        bins = max(1, math.ceil(scenario.seconds / scenario.interval - 1e-9))
        limit = hardware.memory // hardware.tuple_bytes
        self.scenario, self.hardware, self.producers = scenario, hardware, range(scenario.inputs)
        self.cluster = new_cluster(streams, holders, scenario.sites, limit, bins)
        self.costs = Costs(scenario.arrival, hardware.process, scenario.result_cost, scenario.interval)
        self.frozen = FrozenGenerations(self.cluster.counts, streams.first)
        self.sites = [
            LazyDiskSite(ids.Site(number), self.cluster, events, hardware, freezing, self.frozen, scenario.seed)
            for number in range(scenario.sites)
        ]
        for unit, site in enumerate(holders.tolist()):
            self.sites[site].units.add(unit)
        rows = zip(self.cluster.holder, self.cluster.stalled, strict=True)
        self._splits = [ProducerRouting(holder, stalled) for holder, stalled in rows]
        self._freezes: dict[ids.Site, list[ids.Unit]] = {}
        """What the coordinator is about to tell each site."""
        self._outgoing: dict[ids.Site, deque[Callable[[], None]]] = {}
        """Units that wait for a site's link."""
        self._memory = np.zeros((bins, scenario.sites), dtype=np.int64)
        for number in range(bins):
            events.at((number + 1) * scenario.interval, partial(self._measure, number))

    # --- time ---

    @property
    def over(self) -> bool:
        """The streams have come to their end, and what was under way, too."""
        return self.cluster.now[0] >= self.scenario.seconds and self.events.next_time() == math.inf

    def advance(self, until: float) -> bool:
        """On to the next event, or until a site's memory is full."""
        full = advance(self.cluster, self.costs, until if until < math.inf else self.scenario.seconds)
        self.events.now = float(self.cluster.now[0])
        if full != NOBODY:
            self.sites[full].measure_memory()
        return bool(full == NOBODY)

    def _measure(self, number: int) -> None:
        self._memory[number] = self.cluster.site["stored"] * self.hardware.tuple_bytes

    # --- what it can do ---

    @property
    def handlers(self) -> Handlers:
        return {**super().handlers, FreezeUnit: self.freeze}

    def freeze(self, unit: ids.Unit) -> None:
        site = ids.Site(int(self.cluster.holder[0, unit]))
        if site not in self._freezes:
            self.send(lambda: self.sites[site].freeze(self._freezes.pop(site)))
        self._freezes.setdefault(site, []).append(unit)

    def pause(self, move: MoveProtocol, acknowledge: Callable[[int], None]) -> None:
        """The source hears first that a unit is to leave; should it be spilling, everything waits for that. Then each
        split holds the unit's tuples back, and acknowledges behind what it has sent."""

        def pause_split(split: int) -> None:
            self._splits[split].pause(move.unit)
            self.send(partial(acknowledge, split))

        def pause_splits() -> None:
            for split in self.producers:
                self.send(partial(pause_split, split))

        self.sites[move.source].relocate(move.unit, pause_splits)

    def extract(self, move: MoveProtocol, done: Done) -> None:
        self.sites[move.source].extract(move.unit, done)

    def state_bytes(self, unit: ids.Unit) -> float:
        return int(self.cluster.unit["stored"][unit]) * self.hardware.tuple_bytes

    def transfer(self, move: MoveProtocol, size: float, done: Done) -> None:
        """A link carries one unit at a time."""
        waiting = self._outgoing.setdefault(move.source, deque())

        def arrive() -> None:
            waiting.popleft()
            if waiting:
                waiting[0]()
            done()

        waiting.append(partial(self.network.transfer, move.source, move.target, int(size), arrive))
        if len(waiting) == 1:
            waiting[0]()

    def install(self, move: MoveProtocol, done: Done) -> None:
        target = self.sites[move.target]
        target.relocate(move.unit, partial(target.install, move.unit, done))

    def restart(self, unit: ids.Unit, site: ids.Site) -> None:
        for split in self._splits:
            split.restart(unit, site)
        release(self.cluster, self.costs, unit, site)

    def let_go(self, move: MoveProtocol, done: Done) -> None:
        for site in (move.source, move.target):
            self.sites[site].relocated(move.unit)
        done()

    # --- what it counts ---

    def counts(self) -> tuple[np.ndarray, ...]:
        return self.cluster.unit["received"], self.cluster.unit["results"], self.cluster.site["worked"]

    def observe(self, routing: Routing, grown: Sequence[np.ndarray], seconds: float) -> ClusterView:
        received, results, worked = grown
        sites, size = self.scenario.sites, self.hardware.tuple_bytes
        memory, frozen = self.cluster.unit["stored"] * size, self.frozen.tuples * size
        return (
            ClusterView.at_rest(routing.holders, np.full(sites, self.hardware.memory))
            .with_units(
                rows=received,
                results=results,
                bytes=memory + frozen,
                memory=memory,
                frozen=frozen,
                results_produced=self.cluster.unit["yielded"].copy(),
            )
            .with_sites(idle=np.maximum(seconds - worked, 0.0))
            .with_scaling(least_sites=sites)
        )

    def outcome(self, control: ControlRecord) -> LazyDiskOutcome:
        assert not self.loop.moves and all(site.mode is Mode.NORMAL for site in self.sites), "something is under way"
        return LazyDiskOutcome(
            **vars(control),
            scenario=self.scenario,
            output=self.cluster.output,
            memory=self._memory,
            peak=self.cluster.peak * self.hardware.tuple_bytes,
            spills=tuple(sorted((s for site in self.sites for s in site.spills), key=lambda one: one.time)),
            cleanup=tuple(self._cleaned([self.frozen.missing(unit) for unit in site.units]) for site in self.sites),
        )

    def _cleaned(self, units: Sequence[Missing]) -> SiteCleanup:
        """Every generation is read, its tuples are joined again, and what is missing is found."""
        hardware = self.hardware
        generations, tuples, results = (
            sum(getattr(unit, name) for unit in units) for name in ("generations", "tuples", "results")
        )
        reading = generations * hardware.seek + tuples * hardware.tuple_bytes / hardware.disk_rate
        joining = tuples * hardware.process + results * self.scenario.cleanup_result_cost
        return SiteCleanup(generations, tuples, results, reading + joining)


def _freezing(policy: Policy) -> Freezing | None:
    freezing = policy.freezing
    if freezing is not None and freezing.half_life < math.inf:
        raise ScenarioError(
            f"{policy.name}: half_life counts epochs, and a simulated join has none; leave it out of its settings"
        )
    return freezing
