"""Lazy-disk: state goes to other sites first, and to disk when no site has room (lazy/active-disk paper, section 5.1).

Relocation (section 4) is pair-wise. The site with most state in memory gives half of what they differ by to the site
with least, once that has less than `theta` of it: the units that yield most by byte, so that they stay in memory. How
much time has to pass between two relocations, the paper's τ_m, is for how long statistics are collected. Freezing is a
site's own decision (`policies/planning/freezing.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Annotated

import numpy as np

from sluice.model.ids import Site
from sluice.model.view import ClusterView
from sluice.policies.base import Policy
from sluice.policies.memory import in_bytes
from sluice.policies.planning.freezing import Freezing, HalfLife, Order, Push
from sluice.policies.settings import Number, check_settings
from sluice.verbs import Action
from sluice.verbs.move import Move


@dataclass(frozen=True)
class LazyDisk(Policy):
    """Relocate while the sites differ; a site whose memory is full freezes `push` of its state, in this `order`.

    >>> view = ClusterView.at_rest(unit_site=[0, 0, 0, 1], site_memory=[8 << 20, 8 << 20])
    >>> view = view.with_units(memory=np.array([2, 3, 1, 2]) << 20, results_produced=np.array([100, 900, 200, 0]))
    >>> LazyDisk().decide(view)
    (Move(unit=2, site=1, reason='site 0 has 6 MiB in memory, site 1 2 MiB; unit 2 has 1 MiB, and yields much'),)
    """

    name = "lazy-disk"

    push: Push = 0.3
    order: Order = "less-productive"
    half_life: HalfLife = inf
    theta: Annotated[
        float, Number("the part of another's state below which a site gets some of it", least=0, most=1)
    ] = 0.8

    def __post_init__(self) -> None:
        check_settings(self)

    @property
    def freezing(self) -> Freezing:
        """How a site frees memory."""
        return Freezing(self.push, self.order, self.half_life)

    def decide(self, view: ClusterView) -> tuple[Action, ...]:
        if len(view.sites) < 2:
            return ()
        used = view.memory_by_site
        most, least = int(used.argmax()), int(used.argmin())
        if not used[least] < self.theta * used[most]:
            return ()
        units = np.flatnonzero((view.units.site == most) & (view.units.memory > 0) & ~view.is_shared)
        units = units[np.argsort(-view.units.productivity[units], kind="stable")]
        amount, actions = (used[most] - used[least]) / 2, []
        standing = f"site {most} has {in_bytes(used[most])} in memory, site {least} {in_bytes(used[least])}"
        for unit, size in zip(view.units.id[units].tolist(), view.units.memory[units], strict=True):
            if size <= amount:
                amount -= size
                reason = f"{standing}; unit {unit} has {in_bytes(size)}, and yields much"
                actions.append(Move(unit, Site(least), reason))
        return tuple(actions)


@dataclass(frozen=True)
class NoRelocation(LazyDisk):
    """The same without relocation, to compare with.

    >>> view = ClusterView.at_rest(unit_site=[0, 0, 0, 1], site_memory=[8 << 20, 8 << 20])
    >>> NoRelocation().decide(view.with_units(memory=np.array([2, 3, 1, 2]) << 20))
    ()
    """

    name = "no-relocation"

    def decide(self, view: ClusterView) -> tuple[Action, ...]:
        return ()
