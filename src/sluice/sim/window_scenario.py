"""What is simulated of a parallel window join: a master that hands tuples out, and sites that scan windows.

After the experiments of "Parallelizing Windowed Stream Joins in a Shared-Nothing Cluster", with its Table I.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from sluice.model.errors import ScenarioError
from sluice.sim.hardware import MB

FITTED_COMPARISON = 1.4e-8
"""Seconds to compare two tuples: the one constant of the model that was fitted, so that four sites without tuning have
the published delay at 4,000 tuples a second."""


@dataclass(frozen=True)
class WindowScenario:
    """Two streams of `rate` tuples a second each, which `changes` later on to others: pairs of a time and a rate.

    The master keeps what comes until a distribution epoch ends, and then sends it to one site after the other; where
    there are `groups` of sites, each has its own part of the epoch. A site takes in no more than its `buffer` holds.
    Statistics are of a reorganization epoch. Figures are of the time from `measured_from` on, when windows are full.
    """

    name: str = "window join"
    rate: float = 1500.0
    changes: tuple[tuple[float, float], ...] = ()
    seconds: float = 1200.0
    measured_from: float = 600.0
    window: float = 600.0
    sites: int = 4
    least_sites: int | None = None
    most_sites: int | None = None
    """None: as many as `sites`."""
    partitions: int = 60
    bias: float = 0.7
    """The b of the b-model by which join values are drawn: this much of them is in one half, and so on in each half."""
    tuple_bytes: int = 64
    block_bytes: int = 4096
    buffer: int = MB
    distribution: float = 2.0
    reorganization: float = 20.0
    groups: int = 1
    comparison: float = FITTED_COMPARISON
    message: float = 0.001
    """Seconds that the master and a site need for a message of any size: chosen."""
    link_rate: float = 10e6
    """Bytes a second that the master sends, and with which state moves, objects made into bytes and back: chosen."""
    unit_size: int = 1_500_000
    """The paper's θ: a unit with more than twice as many bytes is split, unless it is not tuned."""
    local_tuning: bool = False
    """Sites split their own units that are too large at every distribution epoch, any number of them, as in the paper.
    Else units are split by the policy alone, in its rounds."""
    seed: int = 1

    def __post_init__(self) -> None:
        times = ("seconds", "window", "distribution", "reorganization", "comparison")
        for name in ("rate", *times, "link_rate", "buffer", "unit_size"):
            value = getattr(self, name)
            if not (value > 0 and math.isfinite(value)):
                raise ScenarioError(f"{name}: a number greater than 0, not {value}")
        for name in ("sites", "partitions", "groups", "tuple_bytes"):
            if getattr(self, name) < 1:
                raise ScenarioError(f"{name}: there must be at least one, not {getattr(self, name)}")
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
        return next((rate for start, rate in reversed(self.changes) if time >= start), self.rate)
