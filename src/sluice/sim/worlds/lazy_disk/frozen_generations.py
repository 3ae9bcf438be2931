"""What simulated units have frozen, and the results that are missing because of it: exact counts, by join value.

Tuples of one generation have met each other while the query ran. What is missing are results with tuples of more than
one generation. As on Spark (`engine/cleaning.py`), generations are merged in the order in which they were frozen, those
in memory last: with `older` and `newer` counts of a join value by input, (older + newer) multiplied over the inputs are
all results, of which those of older tuples alone and of newer ones alone are known. That is counted when a generation
is frozen, so that one merged generation a unit is all that has to be kept.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sluice.model.ids import Unit


@dataclass(frozen=True)
class Missing:
    """What cleaning up a unit takes: tuples to read in so many generations, and the results it gives."""

    generations: int
    tuples: int
    results: int


class FrozenGenerations:
    """The frozen tuples of all units, beside the counts of those in memory.

    >>> counts = np.array([[2, 1], [0, 3]])  # two join values of one unit, two inputs
    >>> frozen = FrozenGenerations(counts, first=np.array([0, 2]))
    >>> frozen.freeze(Unit(0)), counts.tolist()
    (6, [[0, 0], [0, 0]])
    >>> counts[0] = [1, 1]
    >>> frozen.missing(Unit(0))  # two old ones of the left input meet a new one of the right, and so on
    Missing(generations=1, tuples=6, results=3)
    """

    def __init__(self, counts: np.ndarray, first: np.ndarray) -> None:
        self.counts, self.first = counts, first
        self.merged = np.zeros_like(counts)
        units = len(first) - 1
        self.generations, self.tuples, self._results = (np.zeros(units, dtype=np.int64) for _ in range(3))

    def freeze(self, unit: Unit) -> int:
        """Ends the unit's generation in memory; how many tuples it had."""
        here = slice(self.first[unit], self.first[unit + 1])
        self._results[unit] += between(self.merged[here], self.counts[here])
        tuples = int(self.counts[here].sum())
        self.merged[here] += self.counts[here]
        self.counts[here] = 0
        self.generations[unit] += 1
        self.tuples[unit] += tuples
        return tuples

    def missing(self, unit: Unit) -> Missing:
        """What cleaning the unit up takes, with what it has in memory by now."""
        here = slice(self.first[unit], self.first[unit + 1])
        results = int(self._results[unit]) + between(self.merged[here], self.counts[here])
        return Missing(int(self.generations[unit]), int(self.tuples[unit]), results)


def between(older: np.ndarray, newer: np.ndarray) -> int:
    """How many results have tuples of both generations; counts by join value and input."""
    both = (older + newer).prod(axis=1) - older.prod(axis=1) - newer.prod(axis=1)
    return int(both.sum())
