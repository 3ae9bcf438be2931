"""Draining sites that are to leave: where each of their units goes (parallel window joins, section V-A).

The paper takes a node out of the active ones and leaves open who gets its partition-groups. Here the units go, those
with most load first, each to the site that has least by then: as even as one pass can make it. What stays stays.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from sluice.model.ids import Site, UnitIndex


def drain(
    unit_site: np.ndarray,
    unit_load: np.ndarray,
    unit_bytes: np.ndarray,
    leaving: Collection[Site],
    staying: Sequence[Site],
) -> list[tuple[UnitIndex, Site]]:
    """Each unit of a leaving site, by its place, to the staying one with least load so far, largest first. Among units
    of equal load (of none, say) those with most bytes come first, and among sites of equal load the one with fewest
    bytes gets it.

    >>> drain(np.array([0, 1, 2, 2, 2]), np.array([50, 10, 30, 20, 10]), np.ones(5), [2], [0, 1])
    [(2, 1), (3, 1), (4, 0)]
    """
    if not staying:
        return []
    load, size = (
        np.bincount(unit_site, weights=column, minlength=max(*staying, *unit_site.tolist(), 0) + 1)
        for column in (unit_load, unit_bytes)
    )
    units = np.flatnonzero(np.isin(unit_site, list(leaving)))
    placed = []
    for unit in units[np.lexsort((units, -unit_bytes[units], -unit_load[units]))].tolist():
        site = min(staying, key=lambda one: (load[one], size[one], one))
        load[site] += unit_load[unit]
        size[site] += unit_bytes[unit]
        placed.append((UnitIndex(unit), site))
    return placed
