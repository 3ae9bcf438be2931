"""What is simulated of a plan: probabilistic selects and joins of two, 1:1 or n:m, under streams that in the end are
too much."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from sluice.model.columns import IntColumn
from sluice.model.errors import ScenarioError
from sluice.model.ids import Unit
from sluice.model.routing.routing import Routing
from sluice.policies import Policy
from sluice.sim.event_queue import EventQueue
from sluice.sim.hardware import MB
from sluice.sim.notation import (
    ByteRate,
    Bytes,
    Count,
    Delay,
    Factor,
    Natural,
    RunSeconds,
    Seconds,
    in_bytes,
)
from sluice.sim.scenario import Scenario
from sluice.sim.world import World


@dataclass(frozen=True)
class BinaryJoin:
    """A join of what came before it with one more stream; each of its two states has the tuples of a window.

    1:1: a tuple's partner comes `partner_after` seconds later on the other input, and `fan_out` of them match. n:m:
    `partner_after` is None, and any two tuples match by chance, so often that a tuple has `fan_out` results at the
    streams' first rates. In front of each input a select lets `select` of the tuples through.
    """

    window: Seconds = 120.0
    partner_after: Seconds | None = 10.0
    fan_out: Factor = 0.95
    select: Factor = 0.95


@dataclass(frozen=True)
class ReplicationScenario(Scenario):
    """Machines, a chain of joins, and streams: the first goes into the first join, each other one into a join more.

    Streams begin with `rate` tuples a second each and have `growth` times that at the end; on top of this they swing by
    up to `swing` of it, with a new level every `swing_every` seconds. The streams of 1:1 joins swing together, each
    behind the one before it, as their tuples belong together; those of n:m joins each for itself.

    An operator is `units` units, by the hash of its key. They begin at one machine, operators in turn, or `spread` over
    all of them.
    """

    name: str = "plan"
    joins: tuple[BinaryJoin, ...] = (BinaryJoin(),)
    seconds: RunSeconds = 1200.0
    step: Seconds = 0.5
    """Tuples come in portions, one a step; they are numbers of tuples to be expected, not drawn."""
    sites: Count = 4
    memory: Bytes = 36 * MB
    tuple_bytes: Bytes = 1000
    rate: Factor = 50.0
    growth: Factor = 4.0
    swing: float = 0.5
    swing_every: Seconds = 60.0
    units: Count = 1
    spread: bool = False
    latency: Delay = 0.5
    link_rate: ByteRate = 12.5e6
    minimum_collection: Seconds = 2.0
    seed: Natural = 1

    effort = 1e-5
    sections: ClassVar = {
        "cluster": ("sites", "memory", "units", "spread", "latency", "link_rate"),
        "workload": ("rate", "growth", "swing", "swing_every", "tuple_bytes", "step"),
        "run": ("seconds", "seed", "minimum_collection"),
    }
    tables: ClassVar = {"join": "joins"}
    policies = ("static", "tokens")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.swing < 1:
            raise ScenarioError(f"swing: a part of the rate, from 0 to below 1, not {self.swing}")
        if not self.joins:
            raise ScenarioError("joins: there must be at least one")
        if len({join.partner_after is None for join in self.joins}) > 1:
            raise ScenarioError("joins: all are 1:1, or all are n:m, as the streams of 1:1 joins belong together")
        for number, join in enumerate(self.joins):
            _check_join(f"joins[{number}].", join)

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
        return Routing(self.sites, IntColumn(holders), directories=even.directories)

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

    @property
    def summary(self) -> str:
        return f"{len(self.joins)} joins of {self.units} units, {self.sites} machines of {in_bytes(self.memory)}"

    def world(self, events: EventQueue, policy: Policy) -> World:
        from sluice.sim.worlds.replication.world import ReplicationWorld

        return ReplicationWorld(self, events)


def _check_join(path: str, join: BinaryJoin) -> None:
    if join.select > 1:
        raise ScenarioError(f"{path}select: a part of the tuples, above 0 to 1, not {join.select}")
    if join.partner_after is None:
        return
    if not 0 < join.partner_after < join.window:
        window = f"the window of {join.window} s"
        raise ScenarioError(f"{path}partner_after: partners come within {window}, not {join.partner_after} s")
    if join.fan_out > 1:
        raise ScenarioError(f"{path}fan_out: a tuple of a 1:1 join has one result at most, not {join.fan_out}")
