"""Stretches of time that are near each other, group by group: found by one sort and one scan."""

from __future__ import annotations

import numpy as np

from sluice.kernels.grouping import Groups, SortedGroups
from sluice.kernels.order import changes, sorting


def group_sessions(ids: np.ndarray, starts: np.ndarray, lasts: np.ndarray, gap: int) -> Groups:
    """Stretches from `starts` to `lasts` as sessions: those of one group (`ids`, from 0 on) are together if no more
    than the gap is between them.

    >>> ids, starts, lasts = np.array([0, 1, 0, 0]), np.array([10, 10, 25, 14]), np.array([12, 12, 25, 15])
    >>> sessions = group_sessions(ids, starts, lasts, gap=5)
    >>> [sessions.order[a:b].tolist() for a, b in zip(sessions.cuts, sessions.cuts[1:])]
    [[0, 3], [2], [1]]
    """
    order = sorting(ids.astype(np.uint32), starts)
    ids, starts, lasts = ids[order], starts[order], lasts[order]
    begins = changes(ids)
    begins[1:] |= starts[1:] > _greatest_so_far(ids, lasts)[:-1] + gap
    return SortedGroups(order, np.append(np.flatnonzero(begins), len(ids)))


def _greatest_so_far(ids: np.ndarray, values: np.ndarray) -> np.ndarray:
    """The greatest value up to each place, in its group alone; groups lie side by side, their numbers ascend."""
    by_value = np.argsort(values, kind="stable")
    rank = np.empty(len(values), dtype=np.int64)
    rank[by_value] = np.arange(len(values))
    base = ids.astype(np.int64) * len(values)
    greatest: np.ndarray = values[by_value[np.maximum.accumulate(base + rank) - base]]
    return greatest
