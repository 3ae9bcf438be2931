"""What is simulated of a parallel window join; what is not said is as in the paper's Table I."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar

from sluice.model.errors import ScenarioError
from sluice.policies import Policy
from sluice.sim.event_queue import EventQueue
from sluice.sim.hardware import MB
from sluice.sim.notation import ByteRate, Bytes, Count, Delay, Factor, Natural, RunSeconds, Seconds
from sluice.sim.scenario import Scenario
from sluice.sim.world import World

FITTED_COMPARISON = 1.4e-8
"""Seconds to compare two tuples: the one constant of the model that was fitted, so that four sites without tuning have
the published delay at 4,000 tuples a second."""


@dataclass(frozen=True)
class RateChange:
    """From `start` on, until the next change, each stream has `rate` tuples a second."""

    start: Delay
    rate: Factor


@dataclass(frozen=True)
class WindowJoinScenario(Scenario):
    """Two streams of `rate` tuples a second each, which `changes` later on to others.

    The master keeps what comes until a distribution epoch ends, and then sends it to one site after the other; where
    there are `groups` of sites, each has its own part of the epoch. A site takes in no more than its `buffer` holds.
    Statistics are of a reorganization epoch. Figures are of the time from `measured_from` on, when windows are full.
    """

    name: str = "window join"
    rate: Factor = 1500.0
    changes: tuple[RateChange, ...] = ()
    seconds: RunSeconds = 1200.0
    measured_from: Delay = 600.0
    window: Seconds = 600.0
    sites: Count = 4
    least_sites: Count | None = None
    most_sites: Count | None = None
    """None: as many as `sites`."""
    partitions: Count = 60
    bias: float = 0.7
    """The b of the b-model by which join values are drawn: this much of them is in one half, and so on in each half."""
    tuple_bytes: Bytes = 64
    block_bytes: Bytes = 4096
    buffer: Bytes = MB
    distribution: Seconds = 2.0
    reorganization: Seconds = 20.0
    groups: Count = 1
    comparison: Seconds = FITTED_COMPARISON
    message: Delay = 0.001
    """Seconds that the master and a site need for a message of any size: chosen."""
    link_rate: ByteRate = 10e6
    """Bytes a second that the master sends, and with which state moves, objects made into bytes and back: chosen."""
    unit_size: Bytes = 1_500_000
    """The paper's θ: a unit with more than twice as many bytes is split, unless it is not tuned."""
    local_tuning: bool = False
    """Sites split their own units that are too large at every distribution epoch, any number of them, as in the paper.
    Else units are split by the policy alone, in its rounds."""
    seed: Natural = 1

    effort = 0.04
    sections: ClassVar = {
        "cluster": (
            *("sites", "least_sites", "most_sites", "buffer", "block_bytes", "distribution", "reorganization"),
            *("groups", "comparison", "message", "link_rate", "unit_size", "local_tuning"),
        ),
        "workload": ("rate", "window", "partitions", "bias", "tuple_bytes"),
        "run": ("seconds", "seed", "measured_from"),
    }
    tables: ClassVar = {"change": "changes"}
    policies = ("static", "elastic")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.least <= self.sites <= self.most <= self.partitions:
            raise ScenarioError(
                f"sites: from at least 1 to at most one a partition, with {self.sites} in between; "
                f"not from {self.least} to {self.most}"
            )
        if not 0.5 <= self.bias < 1:
            raise ScenarioError(f"bias: a part from 0.5 to below 1, not {self.bias}")
        if self.block_bytes < self.tuple_bytes:
            raise ScenarioError(f"block_bytes: a block has room for a tuple of {self.tuple_bytes} bytes at least")
        if self.reorganization < self.distribution:
            raise ScenarioError("reorganization: no shorter than a distribution epoch")

    @property
    def least(self) -> int:
        return self.sites if self.least_sites is None else self.least_sites

    @property
    def most(self) -> int:
        return self.sites if self.most_sites is None else self.most_sites

    @property
    def slot(self) -> float:
        """The part of a distribution epoch that a group of sites has, in seconds."""
        return self.distribution / self.groups

    @property
    def slots(self) -> int:
        return math.ceil(self.seconds / self.slot - 1e-9)

    @property
    def window_slots(self) -> int:
        return max(1, round(self.window / self.slot))

    def rate_at(self, time: float) -> float:
        """Tuples a second of each stream."""
        return next((change.rate for change in reversed(self.changes) if time >= change.start), self.rate)

    @property
    def summary(self) -> str:
        return f"{self.sites} sites, {self.partitions} partitions, windows of {self.window:g} seconds"

    @property
    def incidents(self) -> Mapping[str, Iterable[float]]:
        return {"another rate": (change.start for change in self.changes)}

    def world(self, events: EventQueue, policy: Policy) -> World:
        from sluice.sim.worlds.window_joins.world import WindowJoinWorld

        return WindowJoinWorld(self, events)
