"""Which units a site freezes when its memory is full, and how much of it (lazy-disk paper, sections 2 and 3).

A unit's productivity is what it has yielded by byte of its state: results since its present generation began. Whoever
yields least goes first, so that what stays in memory is what finds most. A spill takes `push` of the state, the paper's
k %, so that the next one is not due at once.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sluice.model.errors import FlowError

ORDERS = ("less-productive", "more-productive", "largest", "random")


@dataclass(frozen=True)
class Freezing:
    """Freeze `push` of the state in memory, units in this order; the others than the first are there to compare with.

    >>> sizes, yielded = np.array([10, 30, 20, 40]), np.array([50, 30, 0, 80])
    >>> Freezing(push=0.3).choose(sizes, yielded, limit=90)
    array([2, 1])
    >>> Freezing(push=0.3, order="largest").choose(sizes, yielded, limit=90)
    array([3])
    """

    push: float = 0.3
    order: str = "less-productive"

    def __post_init__(self) -> None:
        if not 0 < self.push <= 1:
            raise FlowError(f"push is the part of the state that is frozen at a time, at most 1, not {self.push}")
        if self.order not in ORDERS:
            raise FlowError(f"there is no order {self.order!r} in which to freeze; known: {', '.join(ORDERS)}")

    def choose(self, sizes: np.ndarray, yielded: np.ndarray, limit: float, seed: int = 0) -> np.ndarray:
        """The places of the units to freeze, given the bytes and results of each: as many as `push` says, and as it
        takes for the others to fit into the limit."""
        productivity = yielded / np.maximum(sizes, 1)
        keys = {
            "less-productive": productivity,
            "more-productive": -productivity,
            "largest": -sizes,
            "random": np.random.default_rng(seed).random(len(sizes)),
        }
        order = np.argsort(keys[self.order], kind="stable")
        order = order[sizes[order] > 0]
        total = sizes.sum()
        freed = np.cumsum(sizes[order])
        enough = np.searchsorted(freed, max(self.push * total, total - limit))
        return order[: enough + 1]
