"""What is simulated of a plan: a chain of binary joins over machines with little memory, and streams that grow.

After the evaluation of "Balancing Memory Load in D-CAPE Using Replication-Style Distributed Partitioning of Operator
States": probabilistic selects and joins of two, 1:1 or n:m, under a load that in the end is too much.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from sluice.model.errors import ScenarioError
from sluice.model.ids import Site, Unit
from sluice.model.routing import Routing
from sluice.sim.hardware import MB


@dataclass(frozen=True)
class BinaryJoin:
    """A join of what came before it with one more stream; each of its two states has the tuples of a window.

    1:1: a tuple's partner comes `partner_after` seconds later on the other input, and `fan_out` of them match. n:m:
    `partner_after` is None, and any two tuples match by chance, so often that a tuple has `fan_out` results at the
    streams' first rates. In front of each input a select lets `select` of the tuples through.
    """

    window: float = 120.0
    partner_after: float | None = 10.0
    fan_out: float = 0.95
    select: float = 0.95


@dataclass(frozen=True)
class PlanScenario:
    """Machines, a chain of joins, and streams: the first goes into the first join, each other one into a join more.

    Streams begin with `rate` tuples a second each and have `growth` times that at the end; on top of this they swing by
    up to `swing` of it, with a new level every `swing_every` seconds. The streams of 1:1 joins swing together, each
    behind the one before it, as their tuples belong together; those of n:m joins each for itself.

    An operator is `units` units, by the hash of its key. They begin at one machine, operators in turn, or `spread` over
    all of them.
    """

    name: str = "plan"
    joins: tuple[BinaryJoin, ...] = (BinaryJoin(),)
    seconds: float = 1200.0
    step: float = 0.5
    """Tuples come in portions, one a step; they are numbers of tuples to be expected, not drawn."""
    sites: int = 4
    memory: int = 36 * MB
    tuple_bytes: int = 1000
    rate: float = 50.0
    growth: float = 4.0
    swing: float = 0.5
    swing_every: float = 60.0
    units: int = 1
    spread: bool = False
    latency: float = 0.5
    link_rate: float = 12.5e6
    minimum_collection: float = 2.0
    seed: int = 1

    def __post_init__(self) -> None:
        for name in ("seconds", "step", "rate", "growth", "swing_every", "minimum_collection", "link_rate", "memory"):
            value = getattr(self, name)
            if not (value > 0 and math.isfinite(value)):
                raise ScenarioError(f"{name}: a number greater than 0, not {value}")
        for name in ("sites", "units", "tuple_bytes"):
            if getattr(self, name) < 1:
                raise ScenarioError(f"{name}: there must be at least one, not {getattr(self, name)}")
        if not 0 <= self.swing < 1:
            raise ScenarioError(f"swing: a part of the rate, from 0 to below 1, not {self.swing}")
        if not self.latency >= 0:
            raise ScenarioError(f"latency: a time in seconds, not {self.latency}")
        if not self.joins:
            raise ScenarioError("joins: there must be at least one")
        if len({join.partner_after is None for join in self.joins}) > 1:
            raise ScenarioError("joins: all are 1:1, or all are n:m, as the streams of 1:1 joins belong together")
        for number, join in enumerate(self.joins):
            _check_join(f"joins[{number}]", join)

    @property
    def steps(self) -> int:
        return math.ceil(self.seconds / self.step - 1e-9)

    @property
    def latency_steps(self) -> int:
        return math.ceil(self.latency / self.step - 1e-9)

    def in_steps(self, seconds: float) -> int:
        """A duration in whole steps, at least one."""
        return max(1, round(seconds / self.step))

    def routing(self) -> Routing:
        """Where units begin; every operator is a fragment."""
        even = Routing.of_fragments((self.units,) * len(self.joins), self.sites)
        if self.spread or self.units == 1:
            return even
        holders = np.repeat(np.arange(len(self.joins)) % self.sites, self.units)
        return Routing(self.sites, tuple(map(Site, holders.tolist())), directories=even.directories)

    def split_site(self, unit: Unit) -> int:
        """The machine whose split sends a unit's tuples: that where its operator began."""
        return unit // self.units % self.sites

    def streams(self) -> np.ndarray:
        """How many tuples each stream brings in each step, a column a stream."""
        moments = np.arange(self.steps) * self.step
        grown = self.rate * self.step * (1 + (self.growth - 1) * moments / self.seconds)
        knots = np.arange(math.ceil(self.seconds / self.swing_every) + 1) * self.swing_every
        rng = np.random.default_rng(self.seed)
        levels = 1 + self.swing * rng.uniform(-1.0, 1.0, (len(self.joins) + 1, len(knots)))
        if self.joins[0].partner_after is None:
            return np.stack([grown * np.interp(moments, knots, level) for level in levels], axis=1)
        one = grown * np.interp(moments, knots, levels[0])
        behind = [0]
        for number, join in enumerate(self.joins):
            assert join.partner_after is not None
            on_its_way = self.latency_steps + 1 if number else 0
            behind.append(behind[-1] + self.in_steps(join.partner_after) + on_its_way)
        return np.stack([np.concatenate([np.zeros(b), one])[: self.steps] for b in behind], axis=1)


def _check_join(what: str, join: BinaryJoin) -> None:
    if not join.window > 0:
        raise ScenarioError(f"{what}: the window is a time in seconds, greater than 0, not {join.window}")
    if not 0 < join.select <= 1:
        raise ScenarioError(f"{what}: a select lets a part of the tuples through, above 0 to 1, not {join.select}")
    if not join.fan_out > 0:
        raise ScenarioError(f"{what}: the fan-out is greater than 0, not {join.fan_out}")
    if join.partner_after is None:
        return
    if not 0 < join.partner_after < join.window:
        raise ScenarioError(f"{what}: partners come within the window of {join.window} s, not {join.partner_after} s")
    if join.fan_out > 1:
        raise ScenarioError(f"{what}: a tuple of a 1:1 join has one result at most, not {join.fan_out}")
