"""Hybrid balancing: memory first, then load where there is room, as in section 6.4 of the Flux paper; and units
that are too hot for any site are shared by several.

While any unit lies on disk its input waits, and no balance of load makes up for that. Once all are in memory the load
is balanced, and only with units that fit into the memory their destination has left, so that none goes to disk again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

import numpy as np
from msgspec import structs

from sluice.model.view import ClusterView
from sluice.policies.base import Policy
from sluice.policies.load import LoadBalancing
from sluice.policies.memory import MemoryBalancing, excess_capacity, in_bytes
from sluice.policies.planning.hot_units import HotUnits
from sluice.policies.planning.unit_sizes import UnitSizes
from sluice.policies.settings import Flag, check_settings
from sluice.verbs import Action


@dataclass(frozen=True)
class Hybrid(Policy):
    """Balance memory while any unit of any site is on disk, and load while none is.

    Args:
        load: how load is balanced.
        memory: how memory is balanced.
        hot: which units are shared: those that are more than a site's part of the work.
        share: whether they are, before others are moved.
        sizes: which units are too large or too hot.
        divide: whether these are split first, as far as their keys allow, and merged when they are neither any more.

    >>> view = (
    ...     ClusterView.at_rest(unit_site=[0, 0, 0, 1], site_memory=[8 << 20, 8 << 20])
    ...     .with_units(rows=np.array([300, 500, 200, 400]), bytes=np.array([6, 2, 2, 4]) << 20)
    ...     .with_sites(idle=np.array([0.0, 6.0]))
    ... )
    >>> print(Hybrid().decide(view)[0].reason)
    site 0 is 100 % busy, site 1 40 %; unit 1 takes 50 % of site 0's rows; its 2 MiB fit into the 4 MiB free there
    >>> print(Hybrid().decide(view.with_units(spilled=np.array([True, False, False, False])))[0].reason)
    units on disk: 1; site 0 is 2 MiB short, site 1 has 4 MiB free; unit 1 has 2 MiB
    """

    load: LoadBalancing = field(default_factory=LoadBalancing)
    memory: MemoryBalancing = field(default_factory=MemoryBalancing)
    hot: HotUnits = field(default_factory=HotUnits)
    share: Annotated[bool, Flag("whether hot units are shared")] = True
    sizes: UnitSizes = field(default_factory=UnitSizes)
    divide: Annotated[bool, Flag("whether units are split and merged")] = True

    name = "hybrid"

    def __post_init__(self) -> None:
        check_settings(self)

    def decide(self, view: ClusterView) -> tuple[Action, ...]:
        on_disk = int(np.count_nonzero(view.units.spilled))
        if on_disk:
            large = self.sizes.splits_by_size(view) if self.divide else ()
            return large or tuple(
                structs.replace(move, reason=f"units on disk: {on_disk}; {move.reason}")
                for move in self.memory.decide(view)
            )
        redivisions = self.sizes.decide(view) if self.divide else ()
        if redivisions:
            return redivisions
        sharing = self.hot.decide(view) if self.share else ()
        if sharing:
            return sharing
        room, units = excess_capacity(view), view.units
        moves = tuple(
            structs.replace(
                move,
                reason=f"{move.reason}; its {in_bytes(float(units.bytes[units.index_of(move.unit)]))} fit into "
                f"the {in_bytes(float(room[move.site]))} free there",
            )
            for move in self.load.moves(view, room)
        )
        return moves or (self.sizes.reunions(view, room) if self.divide else ())
