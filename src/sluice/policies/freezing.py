"""Which units a site freezes when its memory is full, and how much of it (lazy-disk paper, sections 2 and 3).

A unit's productivity is what it has yielded by byte of its state: results since its present generation began. Whoever
yields least goes first, so that what stays in memory is what finds most. A spill takes `push` of the state, the paper's
k %, so that the next one is not due at once. With a half-life, results of long ago count less (the paper's amortised
productivity): where rows expire, or what comes in changes, what a unit found in its first hours says little.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Annotated

import numpy as np

from sluice.model.productivity import results_by_byte
from sluice.policies.settings import Choice, Number, check_settings

ORDERS = ("less-productive", "more-productive", "largest", "random")
Push = Annotated[float, Number("the part of the state that is frozen at a time", above=0, most=1)]
Order = Annotated[str, Choice("the order in which units are frozen", ORDERS)]
HalfLife = Annotated[float, Number("the epochs after which a result counts half", above=0)]


@dataclass(frozen=True)
class Freezing:
    """Freeze `push` of the state in memory, units in this order; the others than the first are there to compare with.

    >>> sizes, yielded = np.array([10, 30, 20, 40]), np.array([50, 30, 0, 80])
    >>> Freezing(push=0.3).choose(sizes, yielded, limit=90)
    array([2, 1])
    >>> Freezing(push=0.3, order="largest").choose(sizes, yielded, limit=90)
    array([3])
    """

    push: Push = 0.3
    order: Order = "less-productive"
    half_life: HalfLife = inf

    def __post_init__(self) -> None:
        check_settings(self)

    @property
    def fading(self) -> float:
        """What a result counts an epoch later."""
        return float(0.5 ** (1 / self.half_life))

    def choose(self, sizes: np.ndarray, yielded: np.ndarray, limit: float, seed: int = 0) -> np.ndarray:
        """The places of the units to freeze, given the bytes and results of each: as many as `push` says, and as it
        takes for the others to fit into the limit."""
        order, total = self.rank(sizes, yielded, seed), sizes.sum()
        enough = np.searchsorted(np.cumsum(sizes[order]), max(self.push * total, total - limit))
        return order[: enough + 1]

    def rank(self, sizes: np.ndarray, yielded: np.ndarray, seed: int = 0) -> np.ndarray:
        """The places of the units that have state, those to freeze first before the others."""
        productivity = results_by_byte(yielded, sizes)
        keys = {
            "less-productive": productivity,
            "more-productive": -productivity,
            "largest": -sizes,
            "random": np.random.default_rng(seed).random(len(sizes)),
        }
        order = np.argsort(keys[self.order], kind="stable")
        ranked: np.ndarray = order[sizes[order] > 0]
        return ranked
