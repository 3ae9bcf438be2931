"""Filling sites that join: which units they get at once (parallel window joins, section V-A).

The paper has a node that was added wait for suppliers to give it a partition-group each, one in a reorganization epoch.
Here it is known beforehand that the site comes and will be idle, so what makes it even is planned when it is asked for:
by the time that units take, or by their bytes where there is nothing to do.
"""

from __future__ import annotations

import numpy as np

from sluice.model.view import ClusterView
from sluice.policies.memory import excess_capacity
from sluice.policies.planning.rebalancing import MAX_IDLE_SHARE, level, load_by_site, load_by_unit
from sluice.verbs.move import Move


def fill(view: ClusterView, sites: int, reason: str) -> tuple[Move, ...]:
    """The moves by which so many sites, of which the last ones are not there yet, have equally much to do.

    >>> view = ClusterView.at_rest(unit_site=[0] * 4, site_memory=[1 << 30])
    >>> view = view.with_units(rows=np.array([40, 30, 20, 10]))
    >>> [(move.unit, move.site) for move in fill(view, 2, "1 site, soon 2")]
    [(0, 1), (3, 1)]
    """
    joining = sites - len(view.sites)
    wide = view.with_sites(
        idle=np.append(view.sites.idle, np.full(joining, view.period.working_seconds)),
        memory=np.append(view.sites.memory, np.full(joining, view.sites.memory.max())),
        occupancy=np.append(view.sites.occupancy, np.zeros(joining)),
        rows_done=np.append(view.sites.rows_done, np.zeros(joining, dtype=np.int64)),
    )
    site_load, unit_load = load_by_site(wide), load_by_unit(wide)
    if site_load.max() <= MAX_IDLE_SHARE * view.period.elapsed_seconds or not unit_load.any():
        unit_load = wide.units.bytes if wide.units.bytes.any() else np.ones(len(wide.units))
        site_load = wide.by_site(unit_load)
    steps = level(wide, site_load, unit_load, len(wide.units), excess_capacity(wide))
    return tuple(Move(step.unit, step.receiver, reason) for step in steps)
