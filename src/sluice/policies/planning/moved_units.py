"""Whether a unit that has moved may move again: by what its move came to, where that is known.

What a move will do is an estimate. A policy that goes by the estimate alone does the same again whenever it was wrong:
a unit whose rows take longer than those of others goes to and fro between two sites, or from one to the next.
"""

from __future__ import annotations

import numpy as np

from sluice.model.view import ClusterView


def may_go(view: ClusterView, unit: np.ndarray, receiver: np.ndarray, th_imb: float) -> np.ndarray:
    """Which units, by their places, may go to these sites, one for each.

    A unit goes back to the site it came from only if its site works more than `th_imb` times as long as that one would
    with the unit. It goes on to a third one only if its move made as much of a difference: its site worked longer than
    its origin had, or less long, or works longer now than it did at first.

    >>> from dataclasses import replace
    >>> from sluice.model.view import MovedUnits
    >>> view = ClusterView.at_rest(unit_site=[1, 1], site_memory=[1 << 20] * 2).with_sites(idle=np.array([9.0, 0.0]))
    >>> moved = MovedUnits(np.array([0]), np.array([0]), np.array([9.0]), np.array([1.0]), np.array([1.0]))
    >>> may_go(replace(view, moved=moved), unit=np.array([0, 1]), receiver=np.array([0, 0]), th_imb=1.2)
    array([False,  True])
    """
    moved, busy = view.moved, view.period.working_seconds - view.sites.idle
    origin = np.full(len(view.units), -1)
    may_return, may_go_on = np.full((2, len(view.units)), True)
    origin[moved.unit] = moved.origin
    returned = busy[moved.origin] + moved.origin_seconds
    may_return[moved.unit] = busy[view.units.site[moved.unit]] > th_imb * returned
    made_a_difference = (moved.outcome > th_imb) | (moved.outcome * th_imb < 1) | (moved.growth > th_imb)
    may_go_on[moved.unit] = made_a_difference
    allowed: np.ndarray = np.where(origin[unit] == receiver, may_return[unit], may_go_on[unit])
    return allowed
