"""Which of many times are the first ones, when each that is chosen pushes out those shortly after it."""

from __future__ import annotations

import numpy as np

from sluice.kernels.order import changes


def find_spaced(groups: np.ndarray, times: np.ndarray, apart: int) -> np.ndarray:
    """Whether each row is chosen: of each group the first one, then always the first that is more than `apart` later
    than the last that was chosen. Rows come in the order of groups and, in each, of times.

    Every row knows which one would be chosen after it. The chosen ones are those on the way from a group's first row;
    steps of twice the length find them in as many rounds as the number of steps has binary digits.

    >>> find_spaced(np.array([0, 0, 0, 0, 1]), np.array([1, 5, 8, 12, 2]), apart=5).tolist()
    [True, False, True, False, True]
    """
    count = len(times)
    chosen = np.zeros(count + 1, dtype=bool)
    chosen[:-1] = changes(groups)
    step = np.append(_find_next(groups, times, apart), count)
    while True:
        reached = chosen.copy()
        reached[step[chosen]] = True
        if np.array_equal(reached[:-1], chosen[:-1]):
            return chosen[:-1]
        chosen, step = reached, step[step]


def _find_next(groups: np.ndarray, times: np.ndarray, apart: int) -> np.ndarray:
    """The place of the first row behind each that is more than `apart` later, or of another group."""
    count = len(times)
    is_end = np.repeat([False, True], count)
    order = np.lexsort((is_end, np.concatenate([times, times + apart]), np.concatenate([groups, groups])))
    rows_before = np.cumsum(order < count)
    following = np.empty(count, dtype=np.int64)
    ends = np.flatnonzero(order >= count)
    following[order[ends] - count] = rows_before[ends]
    return following
