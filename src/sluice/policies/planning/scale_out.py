"""Filling sites that join: which units they get at once (parallel window joins, section V-A).

The paper has a node that was added wait for suppliers to give it a partition-group each, one in a reorganization epoch.
Here it is known beforehand that the site comes and will be idle, so what makes it even is planned when it is asked for:
by the time that units take, or by their bytes where there is nothing to do.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from sluice.model.view import ClusterView
from sluice.policies.memory import excess_capacity
from sluice.policies.planning.rebalancing import RESTING, level, load_by_site, load_by_unit
from sluice.verbs.move import Move


def fill(view: ClusterView, sites: int, reason: str) -> tuple[Move, ...]:
    """The moves by which so many sites, of which the last ones are not there yet, have equally much to do.

    >>> view = replace(
    ...     ClusterView.at_rest(unit_site=[0] * 4, site_memory=[1 << 30]),
    ...     unit_rows=np.array([40, 30, 20, 10]), site_idle=np.zeros(1),
    ... )
    >>> [(move.unit, move.site) for move in fill(view, 2, "1 site, soon 2")]
    [(0, 1), (3, 1)]
    """
    joining = sites - view.sites
    wide = replace(
        view,
        site_idle=np.append(view.site_idle, np.full(joining, view.seconds)),
        site_memory=np.append(view.site_memory, np.full(joining, view.site_memory.max())),
        site_occupancy=np.append(view.site_occupancy, np.zeros(joining)),
        site_done=np.append(view.site_done, np.zeros(joining, dtype=np.int64)),
    )
    site_load, unit_load = load_by_site(wide), load_by_unit(wide)
    if site_load.max() <= RESTING * view.elapsed or not unit_load.any():
        unit_load = wide.unit_bytes if wide.unit_bytes.any() else np.ones(len(wide.unit_site))
        site_load = wide.by_site(unit_load)
    steps = level(wide, site_load, unit_load, len(wide.unit_site), excess_capacity(wide))
    return tuple(Move(step.unit, step.receiver, reason) for step in steps)
