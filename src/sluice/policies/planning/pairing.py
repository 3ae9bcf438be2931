"""Sites paired from the ends inwards, and each donor's first unit that fits: what the policies of Flux share.

Section 5.3 of "Flux: An Adaptive Partitioning Operator for Continuous Query Systems" pairs the site that most needs
relief with the one that can best give it, the second with the last but one, and so on; 6.2 keeps that and changes only
what is balanced. A site is in one pair, a pair moves one unit: no site gives or gets more than one in a round.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Pairs:
    """The donor and the receiver of each pair, the most unequal pair first.

    >>> pairs = Pairs.from_ends(np.array([4, 0, 3, 1, 2]))
    >>> pairs.donor, pairs.receiver  # the site in the middle has no partner
    (array([4, 0]), array([2, 1]))
    """

    donor: np.ndarray
    receiver: np.ndarray

    @classmethod
    def from_ends(cls, order: np.ndarray) -> Pairs:
        """Pair sites that are sorted by how much they need relief, the neediest first."""
        half = len(order) // 2
        return cls(order[:half], order[::-1][:half])

    def until_failure(self, passes: np.ndarray) -> Pairs:
        """The pairs before the first that does not pass its test.

        Pairs grow more alike inwards: where a test asks for a difference, none after the first failure would pass it.

        >>> Pairs.from_ends(np.arange(6)).until_failure(np.array([True, False, True])).donor
        array([0])
        """
        count = len(passes) if passes.all() else int(np.argmin(passes))
        return Pairs(self.donor[:count], self.receiver[:count])

    def units(self, unit_site: np.ndarray, sites: int) -> tuple[np.ndarray, np.ndarray]:
        """The units that donors hold, ascending, and the pair of each.

        >>> Pairs(np.array([2]), np.array([0])).units(np.array([0, 2, 1, 2]), sites=3)
        (array([1, 3]), array([0, 0]))
        """
        pair_of = np.full(sites, -1)
        pair_of[self.donor] = np.arange(len(self.donor))
        pair = pair_of[unit_site]
        unit = np.flatnonzero(pair >= 0)
        return unit, pair[unit]


def first_of_each(pair: np.ndarray, pairs: int, *ranks: np.ndarray) -> np.ndarray:
    """Where each pair has its first unit: greatest by the first rank, among equals by the next, then the earliest.

    Pairs without any unit are left out. Two passes a rank over unsorted columns: ordering the units of a large cluster
    would take several times as long, and all but the first of each donor would be thrown away.

    >>> first_of_each(np.array([1, 0, 0, 1, 0]), 3, np.array([5, 7, 9, 5, 9]))
    array([2, 0])
    """
    left = np.arange(len(pair))
    for rank in ranks:
        number, of = rank[left].astype(np.float64), pair[left]
        greatest = np.full(pairs, -np.inf)
        np.maximum.at(greatest, of, number)
        left = left[number == greatest[of]]
    first = np.full(pairs, len(pair))
    np.minimum.at(first, pair[left], left)
    places: np.ndarray = first[first < len(pair)]
    return places
