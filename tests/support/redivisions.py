"""Random splits and merges of units, for tests."""

from __future__ import annotations

import numpy as np

from sluice.model.actions import Action, Freeze, Merge, Move, Split
from sluice.model.epoch import EpochRecord


def next_redivision(rng: np.random.Generator, record: EpochRecord) -> Action:
    """A split or a merge, or what brings two buddies to one site; few of these are refused."""
    routing = record.routing
    unit = int(rng.integers(routing.units))
    buddies = [
        (int(one), int(other))
        for directory in routing.directories
        for one, other in zip(range(*directory.range), directory.buddies(), strict=True)
        if other > one
    ]
    if buddies and rng.random() < 0.5:
        one, other = buddies[int(rng.integers(len(buddies)))]
        if routing.holders_of(one) == routing.holders_of(other):
            return Merge(one if rng.random() < 0.5 else other, "to see")
        return Move(one, routing.holders[other], "to its buddy")
    if rng.random() < 0.15:
        return Freeze(unit, "to see")
    return Split(unit, "to see", bits=int(rng.integers(1, 4)))
