"""How much of the load each unit gets: groups with their shares, hashed to units."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

UNIFORM, SELF_SIMILAR, TWO_LEVEL, ZIPF, B_MODEL = "uniform", "80/20", "two-level", "zipf", "b-model"
SKEWS = (UNIFORM, SELF_SIMILAR, TWO_LEVEL, ZIPF, B_MODEL)


@dataclass(frozen=True)
class Skew:
    """How tuples are spread over groups.

    - `uniform`: every group gets as much as any other.
    - `80/20`: self-similar; `amount` of the tuples go to the first 1 - `amount` of the groups, and so on among these.
    - `two-level`: `amount` of the tuples go evenly to 1 - `amount` of the groups, the rest evenly to the others.
    - `zipf`: the n-th group gets 1 / n^`amount`.
    - `b-model`: one half of the groups gets `amount` of the tuples, and so on in each half, sides drawn at random.
    """

    kind: str = UNIFORM
    amount: float = 0.8


def group_shares(groups: int, skew: Skew, seed: int) -> np.ndarray:
    """The share of each group, in no particular order of size but for the seed."""
    rng = np.random.default_rng(seed)
    rank = np.arange(1, groups + 1, dtype=np.float64)
    if skew.kind == UNIFORM:
        return np.full(groups, 1.0 / groups)
    if skew.kind == SELF_SIMILAR:
        power = np.log(skew.amount) / np.log(1.0 - skew.amount)
        shares = np.diff((np.append(0.0, rank) / groups) ** power)
    elif skew.kind == TWO_LEVEL:
        hot = max(1, round(groups * (1.0 - skew.amount)))
        shares = np.where(rank <= hot, skew.amount / hot, (1.0 - skew.amount) / max(1, groups - hot))
    elif skew.kind == ZIPF:
        shares = rank**-skew.amount
    else:
        shares = np.ones(1)
        while len(shares) < groups:
            left = np.where(rng.random(len(shares)) < 0.5, skew.amount, 1.0 - skew.amount)
            shares = np.column_stack([shares * left, shares * (1.0 - left)]).ravel()
        shares = shares[:groups]
    return rng.permutation(shares / shares.sum())


def unit_shares(groups: int, units: int, skew: Skew, seed: int) -> np.ndarray:
    """The share of each unit. Groups are dealt out evenly, as a good hash does with many."""
    shares = group_shares(groups, skew, seed)
    return np.bincount(np.arange(groups) % units, weights=shares, minlength=units)


def alias_table(shares: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Vose's table: place i is taken with chance[i], else other[i] is.

    >>> chance, other = alias_table(np.array([0.75, 0.25]))
    >>> chance.tolist(), other.tolist()
    ([1.0, 0.5], [0, 0])
    """
    count = len(shares)
    chance = shares / shares.sum() * count
    other = np.arange(count)
    small = [i for i in range(count) if chance[i] < 1.0]
    large = [i for i in range(count) if chance[i] >= 1.0]
    while small and large:
        low, high = small.pop(), large[-1]
        other[low] = high
        chance[high] -= 1.0 - chance[low]
        if chance[high] < 1.0:
            small.append(large.pop())
    for rest in (*small, *large):  # what rounding left
        chance[rest] = 1.0
    return chance, other
