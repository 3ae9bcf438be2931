"""What is simulated of many queries: sites at which streams are native, random queries, and rates that change.

Values are those of section 4 of the paper. What it leaves open is listed in docs/research/reproduction/placement.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar

from sluice.model.errors import ScenarioError
from sluice.policies import Policy
from sluice.sim.event_queue import EventQueue
from sluice.sim.hardware import MICRO
from sluice.sim.notation import ByteRate, Bytes, Count, Delay, Exponent, Factor, Natural, RunSeconds, Seconds
from sluice.sim.scenario import Scenario
from sluice.sim.world import World


@dataclass(frozen=True)
class Surge:
    """From `start` to `end` the streams of `count` sites, drawn by the seed, have `factor` times their rate."""

    start: Delay
    end: Seconds
    count: Count = 1
    factor: Factor = 3.0


@dataclass(frozen=True)
class PlacementScenario(Scenario):
    """Continuous queries of filters and window joins over streams, each of which is native at one site."""

    name: str = "placement"
    seconds: RunSeconds = 60.0
    sites: Count = 32
    streams_per_site: Count = 3
    arrival: Seconds = 4e-3
    """Seconds between two tuples of a stream, on average."""
    queries: Count = 500
    fewest_streams: Count = 1
    most_streams: Count = 2
    fewest_operators: Count = 8
    most_operators: Count = 15
    """Of a query, drawn evenly: 11.5 on average."""
    operators_per_stream: Natural = 0
    """If not 0, a query has so many operators for each of its streams instead."""
    zipf: Exponent = 0.0
    """θ of the distribution by which queries choose streams. 0: all streams have equally many queries, and are native
    at sites so that these begin with nearly equal workloads."""
    least_selectivity: Factor = 0.5
    most_selectivity: Factor = 0.8
    least_window: Seconds = 5.0
    most_window: Seconds = 20.0
    """For which a join keeps the tuples of its inputs."""
    filter_cost: Seconds = 20 * MICRO
    join_cost: Seconds = 80 * MICRO
    tuple_bytes: Bytes = 100
    bandwidth: ByteRate = 100e6 / 8
    """Of the one network that all sites share."""
    latency: Delay = 100 * MICRO
    by_operator: bool = False
    """Whether every operator is a piece of its own."""
    workload_window: Seconds = 0.1
    """τ: over which sites measure their workload."""
    round: Seconds = 1.0
    """Δ: how often sites ask for load."""
    renewal: Seconds = 10.0
    """How often sites choose their partners anew."""
    surges: tuple[Surge, ...] = ()
    interval: Seconds = 1.0
    """Over which performance ratios, workloads and bytes are reported."""
    seed: Natural = 1

    effort: ClassVar[float] = 0.3
    smallest: ClassVar = {"seconds": 0.01, "interval": 0.01, "sites": 2, "queries": 2}
    sections: ClassVar = {
        "cluster": ("sites", "streams_per_site", "bandwidth", "latency", "tuple_bytes"),
        "workload": (
            "arrival",
            "queries",
            "fewest_streams",
            "most_streams",
            "fewest_operators",
            "most_operators",
            "operators_per_stream",
            "zipf",
            "least_selectivity",
            "most_selectivity",
            "least_window",
            "most_window",
            "filter_cost",
            "join_cost",
            "by_operator",
        ),
        "run": ("seconds", "seed", "interval", "workload_window", "round", "renewal"),
    }
    tables: ClassVar = {"surge": "surges"}
    policies = ("static", "placement")

    def __post_init__(self) -> None:
        super().__post_init__()
        ranges = (
            ("streams", self.fewest_streams, self.most_streams),
            ("operators", self.fewest_operators, self.most_operators),
            ("selectivity", self.least_selectivity, self.most_selectivity),
            ("window", self.least_window, self.most_window),
        )
        for what, least, most in ranges:
            if least > most:
                raise ScenarioError(f"{what}: the least is {least:g}, which is more than the most, {most:g}")
        if self.interval > self.seconds:
            raise ScenarioError(f"interval: {self.interval:g} s is longer than the run, {self.seconds:g} s")
        if self.most_selectivity > 1:
            raise ScenarioError(f"selectivity: at most 1, not {self.most_selectivity:g}")
        if self.most_streams > self.streams:
            raise ScenarioError(f"streams: a query has up to {self.most_streams}, and there are {self.streams}")
        if not self.operators_per_stream and self.fewest_operators < self.most_streams:
            raise ScenarioError(
                f"operators: a query of {self.most_streams} streams needs {self.most_streams - 1} joins and a filter"
            )
        for number, surge in enumerate(self.surges):
            if surge.count > self.sites:
                raise ScenarioError(f"surges[{number}].count: there are {self.sites} sites, not {surge.count}")
            if surge.end <= surge.start:
                raise ScenarioError(f"surges[{number}].end: {surge.end:g} s is not after its start, {surge.start:g} s")

    @property
    def streams(self) -> int:
        return self.sites * self.streams_per_site

    @property
    def summary(self) -> str:
        return f"{self.queries} queries over {self.streams} streams at {self.sites} sites"

    @property
    def incidents(self) -> Mapping[str, Iterable[float]]:
        return {"surge": (moment for surge in self.surges for moment in (surge.start, surge.end))}

    def world(self, events: EventQueue, policy: Policy) -> World:
        from sluice.sim.worlds.placement.world import PlacementWorld

        return PlacementWorld(self, events, policy)
