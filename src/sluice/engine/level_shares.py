"""What each level of operators gets of something that a site has once, as its memory or an epoch's time."""

from __future__ import annotations

from collections.abc import Sequence

LEAST_SHARE = 0.25
"""Part of an equal share that a level gets however little it needs: nobody knows what the next rows bring."""


def divide_by_need(needs: Sequence[float]) -> tuple[float, ...]:
    """The share of each, in proportion to what it needs; equal ones where nobody needs any.

    >>> divide_by_need([0, 0]), divide_by_need([3, 1]), divide_by_need([5, 0, 0, 0])
    ((0.5, 0.5), (0.6875, 0.3125), (0.8125, 0.0625, 0.0625, 0.0625))
    """
    total, equal = sum(needs), 1 / len(needs)
    if not total:
        return (equal,) * len(needs)
    return tuple(LEAST_SHARE * equal + (1 - LEAST_SHARE) * need / total for need in needs)
