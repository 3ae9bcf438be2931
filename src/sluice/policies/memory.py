"""Memory balancing: sites short of memory give units to sites with room, as in section 6.2 of the Flux paper.

What is balanced is a site's excess capacity: the memory it may use less the state of all its units, wherever that lies.
It is negative while units have to lie on disk. (The paper prints the difference the other way round and then sorts and
explains it this way.)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sluice.model.ids import Site, Unit
from sluice.model.view import ClusterView
from sluice.policies.base import Policy
from sluice.policies.planning.pairing import Pairs, first_of_each
from sluice.verbs import Action
from sluice.verbs.move import Move


def excess_capacity(view: ClusterView) -> np.ndarray:
    """The bytes each site has left for state, below zero where it holds more than fits."""
    left: np.ndarray = view.sites.memory - view.bytes_by_site
    return left


@dataclass(frozen=True)
class MemoryBalancing(Policy):
    """Pair the site with the least excess capacity with the one with the most and move one unit to even them out.

    A pair is left alone, and all after it, when its donor has no less than the average. Nothing is asked of the
    receiver: when memory is exhausted everywhere, moving still spreads what lies on disk. Nor is there a ratio to
    exceed, as there is for load: excess capacity may be zero or negative, where a ratio means nothing; and a ratio of
    how full the sites are would stop too early. With 15 of 32 sites short of memory, as in the paper's Fig. 13, the
    last units on disk are at sites about 1.04 times as full as their partners: a test for 1.2 would leave them there,
    where the paper has all of them in memory.

    Units in memory go before units on disk, which would first have to be read and to catch up with their input.

    >>> view = ClusterView.at_rest(unit_site=[0, 0, 0, 1], site_memory=[8 << 20, 8 << 20])
    >>> view = view.with_units(
    ...     bytes=np.array([6, 3, 4, 1]) << 20, spilled=np.array([True, False, False, False])
    ... )
    >>> MemoryBalancing().decide(view)
    (Move(unit=2, site=1, reason='site 0 is 5 MiB short, site 1 has 7 MiB free; unit 2 has 4 MiB'),)
    """

    name = "memory"

    def decide(self, view: ClusterView) -> tuple[Action, ...]:
        if len(view.sites) < 2:
            return ()
        excess = excess_capacity(view)
        pairs = Pairs.from_ends(np.argsort(excess, kind="stable"))
        pairs = pairs.until_failure(excess[pairs.donor] < excess.mean())

        unit, pair = pairs.units(view.units.site, len(view.sites))
        gap = excess[pairs.receiver] - excess[pairs.donor]
        size = view.units.bytes[unit]
        fits = (size > 0) & (size < gap[pair]) & ~view.is_shared[unit]  # |gap - 2 size| < gap
        unit, pair, size = unit[fits], pair[fits], size[fits]
        first = first_of_each(pair, len(pairs.donor), ~view.units.spilled[unit].astype(bool), size)
        unit, pair, size = unit[first], pair[first], size[first]

        donor, receiver = pairs.donor[pair], pairs.receiver[pair]
        ids, spilled = view.units.id[unit], view.units.spilled[unit]
        columns = (ids, donor, receiver, excess[donor], excess[receiver], size, spilled)
        return tuple(
            Move(u, r, explained(u, d, r, *numbers))
            for u, d, r, *numbers in zip(*(column.tolist() for column in columns), strict=True)
        )


def explained(unit: Unit, donor: Site, receiver: Site, gives: float, gets: float, size: float, spilled: bool) -> str:
    lies = " on disk" if spilled else ""
    return f"{standing(donor, gives)}, {standing(receiver, gets)}; unit {unit} has {in_bytes(size)}{lies}"


def standing(site: Site, excess: float) -> str:
    return f"site {site} is {in_bytes(-excess)} short" if excess < 0 else f"site {site} has {in_bytes(excess)} free"


def in_bytes(count: float) -> str:
    """Bytes for people, in the largest unit that they fill.

    >>> in_bytes(6 << 20), in_bytes(1000), in_bytes(1.5 * (1 << 40))
    ('6 MiB', '1000 B', '1536 GiB')
    """
    for name in ("B", "KiB", "MiB"):
        if round(count) < 1024:
            return f"{count:.0f} {name}" if count >= 100 else f"{count:.3g} {name}"
        count /= 1024
    return f"{count:.0f} GiB" if count >= 100 else f"{count:.3g} GiB"
