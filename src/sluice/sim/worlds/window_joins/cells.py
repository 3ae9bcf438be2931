"""The streams of a simulated window join: how many tuples come in each part of the hash space, slot by slot.

Tuples come as a Poisson process and their join values are drawn from the b-model. So the tuples of each cell, a small
range of hashes, are a Poisson process of their own, and need not be drawn one by one.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from sluice.sim.worlds.window_joins.scenario import WindowJoinScenario

FINEST = 5
"""How often a partition can be halved: a cell is the 32nd part of one."""
_LEVELS = 23
"""The b-model halves the values so often: 8.4 million of them, the power of two below the paper's ten million."""
_SPREADING = np.uint64(2654435769)  # Fibonacci hashing: neighbouring values, which are as frequent, come far apart


@dataclass(frozen=True)
class Cells:
    """The chance of a tuple to be in a cell, and of two tuples in it to match."""

    share: np.ndarray
    match: np.ndarray

    @property
    def count(self) -> int:
        return len(self.share)

    @property
    def middles(self) -> np.ndarray:
        """A hash in the middle of each cell."""
        middles: np.ndarray = ((2 * np.arange(self.count) + 1) << 31) // self.count
        return middles


@lru_cache(maxsize=4)
def cells_of(partitions: int, bias: float) -> Cells:
    """All values of the b-model, by their hashes in cells.

    >>> cells = cells_of(60, 0.7)
    >>> cells.count, round(float(cells.share.sum()), 9), round(float((cells.share**2 * cells.match).sum() * 1e6), 2)
    (1920, 1.0, 3.62)
    """
    ones = np.zeros(1, dtype=np.int64)
    for _ in range(_LEVELS):
        ones = np.concatenate([ones, ones + 1])
    chance = bias ** (_LEVELS - ones) * (1 - bias) ** ones
    hashes = (np.arange(len(ones), dtype=np.uint64) * _SPREADING) & np.uint64(0xFFFFFFFF)
    count = partitions << FINEST
    cell = ((hashes * np.uint64(count)) >> np.uint64(32)).astype(np.int64)
    share = np.bincount(cell, weights=chance, minlength=count)
    pairs = np.bincount(cell, weights=chance**2, minlength=count)
    return Cells(share, pairs / share**2)


def arrivals(scenario: WindowJoinScenario, cells: Cells) -> np.ndarray:
    """Tuples by slot, stream and cell."""
    rng = np.random.default_rng(scenario.seed)
    starts = np.arange(scenario.slots) * scenario.slot
    expected = np.array([scenario.rate_at(start) for start in starts.tolist()]) * scenario.slot
    drawn = rng.poisson(expected[:, None, None] * cells.share, (scenario.slots, 2, cells.count))
    return drawn.astype(np.int32)
