"""Random splits and merges of units, for tests."""

from __future__ import annotations

import numpy as np

from sluice.record.epoch import EpochRecord
from sluice.verbs import Action
from sluice.verbs.freeze import Freeze
from sluice.verbs.move import Move
from sluice.verbs.split import Merge, Split


def next_redivision(rng: np.random.Generator, record: EpochRecord) -> Action:
    """A split, a merge of two buddies at one site, or what brings two to one; few of these are refused."""
    routing = record.routing
    unit = routing.unit_at(int(rng.integers(routing.units)))
    buddies = [
        (routing.unit_at(one), routing.unit_at(other))
        for directory in routing.directories
        for one, other in zip(range(*directory.range), directory.buddies(), strict=True)
        if other > one
    ]
    together = [pair for pair in buddies if routing.holders_of(pair[0]) == routing.holders_of(pair[1])]
    if together and rng.random() < 0.5:
        return Merge(int(rng.choice(together[int(rng.integers(len(together)))])), "to see")
    if buddies and rng.random() < 0.3:
        one, other = buddies[int(rng.integers(len(buddies)))]
        if (one, other) not in together:
            return Move(one, routing.holder(other), "to its buddy")
    if rng.random() < 0.15:
        return Freeze(unit, "to see")
    return Split(unit, "to see", bits=int(rng.integers(1, 4)))
