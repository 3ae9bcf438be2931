"""Active-disk: the coordinator has sites freeze that yield little, for others that yield much (lazy/active-disk paper,
section 5.3).

Lazy-disk leaves freezing to each site: what yields least at one site may still yield more than all that another has in
memory. Active-disk looks at the average productivity rate R of the sites. Where R of one is more than `ratio` times
that of another (the paper's λ), the other freezes `push` of its state, and has room for units of the first, which
relocation then brings. Only while the sites are balanced otherwise, and only if memory is needed: not while the site
that yields most has room of its own, and in all not more than the query will have beyond the memory of the cluster,
M_query - M_cluster.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Annotated

import numpy as np

from sluice.model.view import ClusterView
from sluice.policies.lazy_disk import LazyDisk
from sluice.policies.memory import in_bytes
from sluice.policies.settings import Number
from sluice.verbs import Action
from sluice.verbs.freeze import Freeze

NEARLY_FULL = 0.8
"""A site that has so much of its memory in use is about to need more."""


@dataclass(frozen=True)
class ActiveDisk(LazyDisk):
    """Lazy-disk, and where sites are balanced those freeze that yield less than others by more than `ratio`.

    `expected` is how many bytes of state the query will have in the end, if that is known.

    >>> view = ClusterView.at_rest(unit_site=[0, 0, 1, 1], site_memory=[6 << 20, 6 << 20]).with_units(
    ...     memory=np.array([3, 2, 3, 2]) << 20,
    ...     results_produced=np.array([90, 80, 9, 8]),
    ...     results=np.array([50, 50, 10, 10]),
    ... )
    >>> for action in ActiveDisk().decide(view): print(action.verb, action.unit, action.reason, sep="; ")
    freeze; 2; site 0 yields 50 results a unit, site 1 10; unit 2 has 3 MiB, and yields little
    >>> ActiveDisk(expected=12 << 20).decide(view)  # all of it will fit
    ()
    """

    name = "active-disk"

    ratio: Annotated[float, Number("how many times as much as another a site has to yield", least=1)] = 2.0
    expected: Annotated[float, Number("how many bytes of state there will be", least=0)] = inf

    def decide(self, view: ClusterView) -> tuple[Action, ...]:
        moves = super().decide(view)
        if moves or len(view.sites) < 2:
            return moves
        used, rates = view.memory_by_site, view.productivity_by_site
        sites = np.flatnonzero(used > 0)
        if not len(sites):
            return ()
        most, least = int(sites[rates[sites].argmax()]), int(sites[rates[sites].argmin()])
        if not rates[most] > self.ratio * rates[least] or used[most] < NEARLY_FULL * view.sites.memory[most]:
            return ()
        left = self.expected - view.sites.memory.sum() - view.units.frozen.sum()
        units = np.flatnonzero((view.units.site == least) & view.units.freezable & ~view.is_shared)
        sizes = view.units.memory[units]
        order = self.freezing.rank(sizes, view.units.results_produced[units], view.period.epoch)
        freed = np.cumsum(sizes[order])
        count = min(np.searchsorted(freed, self.push * used[least]) + 1, np.searchsorted(freed, left, side="right"))
        frozen = units[order[:count]]
        standing = f"site {most} yields {rates[most]:.3g} results a unit, site {least} {rates[least]:.3g}"
        return tuple(
            Freeze(unit, f"{standing}; unit {unit} has {in_bytes(size)}, and yields little")
            for unit, size in zip(view.units.id[frozen].tolist(), view.units.memory[frozen], strict=True)
        )
