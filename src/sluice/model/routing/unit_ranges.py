"""Sets of units of one routing, by their places in it, as ranges: few numbers, however many units there are."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from functools import lru_cache
from itertools import chain
from typing import cast

import numpy as np

from sluice.model.columns import IntColumn, unpack
from sluice.model.ids import Site, UnitIndex

Ranges = tuple[tuple[UnitIndex, UnitIndex], ...]
"""Half-open ranges of units' places, ascending and disjoint."""
FEW_RANGES = 16
"""Fewer ranges than these are quicker to go through one by one."""


def to_ranges(units: Iterable[UnitIndex]) -> Ranges:
    """Ascending units as ranges.

    >>> to_ranges([1, 2, 3, 7])
    ((1, 4), (7, 8))
    """
    out: list[tuple[int, int]] = []
    for unit in units:
        if out and out[-1][1] == unit:
            out[-1] = (out[-1][0], unit + 1)
        else:
            out.append((unit, unit + 1))
    return cast(Ranges, tuple(out))


def single_unit(unit: UnitIndex) -> Ranges:
    """One unit.

    >>> single_unit(UnitIndex(3))
    ((3, 4),)
    """
    return ((unit, UnitIndex(unit + 1)),)


def holds(units: Ranges, unit: UnitIndex) -> bool:
    """Whether a unit is one of them, by a binary search.

    >>> [unit for unit in range(10) if holds(((0, 4), (6, 9)), unit)]
    [0, 1, 2, 3, 6, 7, 8]
    """
    place = bisect_right(units, unit, key=lambda part: part[0]) - 1
    return place >= 0 and unit < units[place][1]


def intersect(a: Ranges, b: Ranges) -> Ranges:
    """The units in both.

    >>> intersect(((0, 4), (6, 9)), ((2, 7),))
    ((2, 4), (6, 7))
    """
    if len(a) == 1:
        a, b = b, a
    out: list[tuple[UnitIndex, UnitIndex]] = []
    i = j = 0
    if len(b) == 1 and len(a) > FEW_RANGES:
        i = bisect_right(a, b[0][0], key=lambda part: part[1])
    while i < len(a) and j < len(b):
        low, high = max(a[i][0], b[j][0]), min(a[i][1], b[j][1])
        if low < high:
            out.append((low, high))
        if a[i][1] < b[j][1]:
            i += 1
        else:
            j += 1
    return tuple(out)


def unite(a: Ranges, b: Ranges) -> Ranges:
    """The units in either.

    >>> unite(((0, 2),), ((2, 3), (5, 6)))
    ((0, 3), (5, 6))
    """
    out: list[tuple[UnitIndex, UnitIndex]] = []
    for low, high in sorted(a + b):
        if out and low <= out[-1][1]:
            out[-1] = (out[-1][0], max(high, out[-1][1]))
        else:
            out.append((low, high))
    return tuple(out)


def unite_all(parts: Iterable[tuple[UnitIndex, UnitIndex]]) -> Ranges:
    """The units in any of some ranges, which may come in any order.

    >>> unite_all([(5, 6), (0, 2), (1, 3)])
    ((0, 3), (5, 6))
    """
    return unite(tuple(parts), ())


def subtract(a: Ranges, b: Ranges) -> Ranges:
    """The units in `a` and not in `b`.

    >>> subtract(((0, 4), (6, 7)), ((2, 3), (6, 9)))
    ((0, 2), (3, 4))
    """
    out: list[tuple[UnitIndex, UnitIndex]] = []
    at = 0
    for low, high in a:
        while at < len(b) and b[at][0] < high:
            if b[at][1] > low:
                if low < b[at][0]:
                    out.append((low, b[at][0]))
                low = b[at][1]
            if b[at][1] > high:
                break  # the next range may need it, too
            at += 1
        if low < high:
            out.append((low, high))
    return tuple(out)


def numbers(units: Ranges) -> np.ndarray:
    """The units of some ranges, one by one; there may be thousands of ranges.

    >>> numbers(((1, 4), (7, 8)))
    array([1, 2, 3, 7])
    """
    if len(units) < FEW_RANGES:
        return np.concatenate([np.arange(low, high) for low, high in units]) if units else np.arange(0)
    low, high = np.fromiter(chain.from_iterable(units), np.int64, 2 * len(units)).reshape(-1, 2).T
    counts = high - low
    before = np.cumsum(counts) - counts
    places: np.ndarray = np.repeat(low - before, counts) + np.arange(counts.sum())
    return places


def pack_ranges(units: Ranges) -> IntColumn[int]:
    """The distances from each edge to the next: small, and often alike.

    >>> pack_ranges(((1, 4), (7, 8))), unpack_ranges(pack_ranges(((1, 4), (7, 8))))
    ((1, 3, 3, 1), ((1, 4), (7, 8)))
    """
    edges = np.fromiter(chain.from_iterable(units), np.int64, 2 * len(units))
    return IntColumn(np.diff(edges, prepend=0))


def unpack_ranges(column: IntColumn[int]) -> Ranges:
    """Ranges from the distances between their edges. They are the same value in every epoch, as long as that can be:
    there may be thousands, and most runs of a site are of the same units."""
    return _ranges_between(column.text)


@lru_cache(maxsize=64)
def _ranges_between(distances: str) -> Ranges:
    return cast(Ranges, tuple(map(tuple, np.cumsum(unpack(distances)).reshape(-1, 2).tolist())))


def divide(units: Ranges, holders: np.ndarray) -> dict[Site, Ranges]:
    """The units by the site that owns each, where there is any.

    >>> divide(((0, 2), (4, 7)), np.array([0, 0, 0, 0, 1, 1, 0]))
    {0: ((0, 2), (6, 7)), 1: ((4, 6),)}
    """
    if not units:
        return {}
    each = numbers(units)
    sites = holders[each]
    starts = np.flatnonzero((np.diff(each, prepend=-2) != 1) | (np.diff(sites, prepend=-2) != 0))
    ends = np.append(starts[1:], len(each)) - 1
    by_site: dict[Site, list[tuple[UnitIndex, UnitIndex]]] = {}
    for site, low, last in zip(sites[starts].tolist(), each[starts].tolist(), each[ends].tolist(), strict=True):
        by_site.setdefault(site, []).append((low, last + 1))
    return {site: tuple(parts) for site, parts in by_site.items()}
