"""What is simulated of a join: a cluster, streams whose join values recur, drawn before the run, and how units begin.

Section 3.1 of the paper defines the streams. The join multiplicative factor is how many tuples of a stream have the
same join value; after every k tuples of the stream, its tuple range, it has grown by r, the join rate. So there are k /
r join values, and each tuple has one of them by chance.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from sluice.model.errors import ScenarioError
from sluice.policies import Policy
from sluice.sim.event_queue import EventQueue
from sluice.sim.hardware import MB, Hardware
from sluice.sim.notation import Count, Delay, Factor, Natural, RunSeconds, Seconds, in_bytes
from sluice.sim.scenario import Scenario
from sluice.sim.world import World

TUPLE_BYTES = 1400
"""Fitted: the paper's site with 60 % of three streams of a tuple every 30 ms has 200 MB full after 40 minutes."""
GIGABIT = 1e9 / 8

CLUSTER = Hardware(tuple_bytes=TUPLE_BYTES, memory=200 * MB, link_rate=GIGABIT, cross_rate=GIGABIT)
"""The paper's: gigabit Ethernet, 200 MB for state. What it does not give, disk and processor, is as in `Hardware`."""


@dataclass(frozen=True)
class Population:
    """A share of the units whose join values recur alike: join rate r, tuple range k."""

    share: float = 1.0
    join_rate: Factor = 3.0
    tuple_range: Count = 30_000


@dataclass(frozen=True)
class Surge:
    """From `start` on, until the next surge, units that began at a site get `factor` times the tuples of others."""

    start: Delay
    site: Natural
    factor: Factor = 10.0


@dataclass(frozen=True)
class LazyDiskScenario(Scenario):
    """An m-way symmetric hash join over streams that bring a tuple each every `arrival` seconds.

    Units are numbered through; populations take theirs from the first on, and so do the sites, by `placement`: the
    share of the units that each begins with. So the first site has units of the first populations.
    """

    name: str = "join"
    seconds: RunSeconds = 3600.0
    inputs: Count = 3
    arrival: Seconds = 0.03
    units: Count = 500
    placement: tuple[float, ...] = (1.0,)
    populations: tuple[Population, ...] = (Population(),)
    surges: tuple[Surge, ...] = ()
    minimum_collection: Seconds = 45.0
    """The paper's τ_m: statistics are collected for as long before units are relocated again."""
    result_cost: Delay = 10e-6
    """Processor time to make a result; not in the paper."""
    cleanup_result_cost: Delay = 27e-6
    """Time to find a missing result during cleanup. Fitted: that of the paper's Fig. 7, with units that yield less
    pushed first, then takes its 26,879 ms."""
    interval: Seconds = 60.0
    """Seconds over which output is reported, and at whose ends memory is."""
    seed: Natural = 1
    hardware: Hardware = field(default_factory=lambda: CLUSTER)

    effort = 1e-5
    smallest: ClassVar = {"seconds": 1.0, "units": 2, "interval": 1.0}
    sections: ClassVar = {
        "cluster": ("units", "placement", "result_cost", "cleanup_result_cost"),
        "workload": ("inputs", "arrival"),
        "run": ("seconds", "seed", "interval", "minimum_collection"),
    }
    tables: ClassVar = {"population": "populations", "surge": "surges"}
    policies = ("no-relocation", "lazy-disk")
    freezes = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.inputs < 2:
            raise ScenarioError(f"inputs: a join has at least two, not {self.inputs}")
        _check_shares("placement", self.placement)
        _check_shares("populations", [population.share for population in self.populations])
        for number, surge in enumerate(self.surges):
            if surge.site >= self.sites:
                problem = f"there is no site {surge.site}; there are {self.sites}, numbered from 0"
                raise ScenarioError(f"surges[{number}].site: {problem}")
        if any(later.start <= earlier.start for earlier, later in zip(self.surges, self.surges[1:], strict=False)):
            raise ScenarioError("surges: each begins after the one before it")

    @property
    def sites(self) -> int:
        return len(self.placement)

    @property
    def unit_sites(self) -> np.ndarray:
        """Where each unit begins."""
        return _dealt(self.units, self.placement)

    @property
    def tuples(self) -> int:
        """How many each input brings."""
        return int(self.seconds / self.arrival + 1e-9)

    @property
    def values(self) -> np.ndarray:
        """How many join values each unit has: its part of k / r, at least one.

        >>> LazyDiskScenario(units=4, populations=(Population(1, 4, 30),)).values
        array([2, 2, 2, 2])
        """
        populations = _dealt(self.units, [population.share for population in self.populations])
        rate = np.array([p.tuple_range / p.join_rate for p in self.populations])[populations] / self.units
        whole = np.diff(np.round(np.append(0.0, np.cumsum(rate)))).astype(np.int64)
        return np.maximum(whole, 1)

    @property
    def summary(self) -> str:
        return f"{self.inputs} inputs, {self.units} units at {self.sites} sites of {in_bytes(self.hardware.memory)}"

    @property
    def incidents(self) -> Mapping[str, Iterable[float]]:
        return {"surge": (surge.start for surge in self.surges)}

    def world(self, events: EventQueue, policy: Policy) -> World:
        from sluice.sim.worlds.lazy_disk.world import LazyDiskWorld

        return LazyDiskWorld(self, events, policy)


def _dealt(units: int, shares: Sequence[float]) -> np.ndarray:
    """Units in their order to so many parts, by the share of each.

    >>> _dealt(5, [0.6, 0.2, 0.2])
    array([0, 0, 0, 1, 2])
    """
    ends = np.round(np.cumsum(shares) * units).astype(np.int64)
    return np.searchsorted(ends, np.arange(units), side="right")


def _check_shares(what: str, shares: Sequence[float]) -> None:
    if not shares or not all(share >= 0 for share in shares) or not math.isclose(sum(shares), 1.0, abs_tol=1e-6):
        raise ScenarioError(f"{what}: shares of all units, which make 1 together, not {list(shares)}")


@dataclass(frozen=True)
class Streams:
    """`values` has a row for each moment at which tuples come, and a column an input; join values are numbered through,
    those of a unit together: unit u has `first[u]` to `first[u + 1]`."""

    values: np.ndarray
    first: np.ndarray
    unit_of: np.ndarray

    @classmethod
    def draw(cls, scenario: LazyDiskScenario) -> Streams:
        """Each tuple falls on a unit by its share of the load, and has one of the unit's join values."""
        counts = scenario.values
        first = np.append(0, np.cumsum(counts))
        rng = np.random.default_rng(scenario.seed)
        moments = np.arange(1, scenario.tuples + 1) * scenario.arrival
        phases = np.searchsorted([surge.start for surge in scenario.surges], moments, side="right")
        values = np.empty((scenario.tuples, scenario.inputs), dtype=np.int32)
        for phase in range(len(scenario.surges) + 1):
            rows = np.flatnonzero(phases == phase)
            ends = np.cumsum(_weights(scenario, phase))
            drawn = rng.random((len(rows), scenario.inputs)) * ends[-1]
            units = np.minimum(np.searchsorted(ends, drawn, side="right"), scenario.units - 1)
            within = (rng.random(units.shape) * counts[units]).astype(np.int64)
            values[rows] = first[units] + within
        return cls(values, first, np.repeat(np.arange(scenario.units), counts).astype(np.int32))


def _weights(scenario: LazyDiskScenario, phase: int) -> np.ndarray:
    """What each unit gets of the tuples in the time after so many surges have begun."""
    weights = np.ones(scenario.units)
    if phase:
        surge = scenario.surges[phase - 1]
        weights[scenario.unit_sites == surge.site] = surge.factor
    return weights
