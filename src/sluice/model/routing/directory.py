"""The directory of a fragment: which unit a key's hash belongs to. Each unit is a range of hashes, in their order, and
is given by its place in the routing.

A new directory has equal ranges, its roots. A unit is a root, or a half of one, a quarter, ...: how often its root was
halved is its depth, and which of the parts it is its prefix (extendible hashing, one more bit of the hash a split).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from sluice.model.columns import IntColumn
from sluice.model.errors import ProtocolError
from sluice.model.ids import UnitIndex

HASH_SPACE = 1 << 32
HashRange = tuple[int, int]
"""Hashes from the first up to the second, which is not one of them."""
_FIRST = UnitIndex(0)
_NO_DEPTHS: IntColumn[int] = IntColumn()

MOST_UNITS = 65_536
"""How many units a fragment has at most."""
MOST_BITS = 5
"""By how many bits a unit is split at most at a time."""
_DEEPEST = 32
"""How often a root can be halved, if it has all hashes."""
_MOST_MORE = _DEEPEST + (1 << MOST_BITS)
"""How many units more there are after a split, at most: some are left behind until rows are parted, or a key alone."""


def halves(hashes: HashRange) -> tuple[HashRange, HashRange]:
    """A range of hashes as two.

    >>> halves((8, 16))
    ((8, 12), (12, 16))
    """
    middle = (hashes[0] + hashes[1]) // 2
    return (hashes[0], middle), (middle, hashes[1])


def _depths_below(hashes: HashRange, depth: int, halved: set[HashRange]) -> Iterator[int]:
    """The depths of the parts that a range of hashes has, if those of `halved` are."""
    if hashes not in halved:
        yield depth
    elif hashes[1] - hashes[0] < 2:
        raise ProtocolError(f"a unit that has hash {hashes[0]} has one hash only and cannot be split")
    else:
        for half in halves(hashes):
            yield from _depths_below(half, depth + 1, halved)


@dataclass(frozen=True)
class Directory:
    """`depths` has an entry a unit, in the order of their hashes; none at all where every unit is a root. `first` is
    the place of the first unit.

    >>> halved = Directory(2).split(1)
    >>> halved.depths, halved.units, [halved.hashes_of(unit) for unit in range(3)] == [
    ...     (0, 2**31), (2**31, 3 * 2**30), (3 * 2**30, 2**32)]
    ((0, 1, 1), 3, True)
    """

    roots: int
    depths: IntColumn[int] = _NO_DEPTHS
    first: UnitIndex = _FIRST

    def __reduce__(self) -> tuple[type[Directory], tuple[int, IntColumn[int], UnitIndex]]:
        """Travels without what is only kept here to be at hand."""
        return Directory, (self.roots, self.depths, self.first)

    @property
    def units(self) -> int:
        """How many there are."""
        return len(self.depths) or self.roots

    @property
    def range(self) -> tuple[UnitIndex, UnitIndex]:
        """The units, from the first up to the second, which is not one of them."""
        return self.first, UnitIndex(self.first + self.units)

    def has_room(self, splits: int = 1) -> bool:
        """Whether so many units can be split, whatever their rows are."""
        return self.units + splits * _MOST_MORE <= MOST_UNITS

    def depth(self, unit: UnitIndex) -> int:
        """How often its root was halved to make it."""
        return self.depths[unit - self.first] if self.depths else 0

    def hashes_of(self, unit: UnitIndex) -> tuple[int, int]:
        """The range of a unit's hashes; the second is not in it."""
        low, high = self.least_hashes(np.array([unit, unit + 1])).tolist()
        return low, high

    def least_hashes(self, units: np.ndarray) -> np.ndarray:
        """The least hash of each of these units; for the place after the last unit, the end of all hashes."""
        least: np.ndarray = self._least_hashes[units - self.first]
        return least

    @cached_property
    def _least_hashes(self) -> np.ndarray:
        """The least hash of every unit, and after the last one the end of all hashes."""
        roots = -(-np.arange(self.roots + 1) * HASH_SPACE // self.roots)
        if not self.depths:
            return roots
        depths, (root, prefix) = self.depths.array, self._prefixes
        low, high = roots[root], roots[root + 1]
        for further in range(1, int(depths.max()) + 1):
            middle, inside = (low + high) // 2, depths >= further
            upper = (prefix >> np.maximum(depths - further, 0)) % 2 == 1
            low, high = np.where(inside & upper, middle, low), np.where(inside & ~upper, middle, high)
        return np.append(low, HASH_SPACE)

    @cached_property
    def _by_hashes(self) -> dict[HashRange, UnitIndex]:
        """Every unit by its range of hashes."""
        edges = self._least_hashes.tolist()
        return {hashes: UnitIndex(self.first + place) for place, hashes in enumerate(pairwise(edges))}

    def unit_of(self, hashes: np.ndarray) -> np.ndarray:
        """The unit of each 32-bit key hash. It grows with the hash, so state sorted by hash is sorted by unit."""
        if not self.depths:
            places = ((hashes.astype(np.uint64) * np.uint64(self.roots)) >> np.uint64(32)).astype(np.int64)
        else:
            places = np.searchsorted(self._least_hashes, hashes, side="right") - 1
        return places + self.first if self.first else places

    def describe(self) -> str:
        """How many units there are, and of how many roots if some were split.

        >>> Directory(4).describe(), Directory(4).split(2).split(2).describe()
        ('4 units', '6 units: of 4 that there were, 1 split up to 2 times')
        """
        if not self.depths:
            return f"{self.roots} units"
        split, deepest = self.roots - np.count_nonzero(self.depths.array == 0), self.depths.array.max()
        return f"{self.units} units: of {self.roots} that there were, {split} split up to {deepest} times"

    def unit_with(self, low: int, high: int) -> UnitIndex | None:
        """The unit of exactly these hashes, None if there is none.

        >>> Directory(4).unit_with(2**30, 2**31), Directory(4).unit_with(0, 2**31)
        (1, None)
        """
        return self._by_hashes.get((low, high))

    def units_in(self, low: int, high: int) -> tuple[UnitIndex, UnitIndex]:
        """The units that hashes from the first up to the second, which is not one of them, belong to.

        >>> Directory(4).units_in(2**30, 2**31 + 1)
        (1, 3)
        """
        first, last = np.searchsorted(self._least_hashes, [low, high - 1], side="right").tolist()
        return UnitIndex(self.first + first - 1), UnitIndex(self.first + last)

    def split(self, unit: UnitIndex) -> Directory:
        """With two units, by one more bit of the hash, in place of one."""
        return self.repartitioned({unit: (self.hashes_of(unit),)})

    def repartitioned(
        self,
        halved: Mapping[UnitIndex, Sequence[HashRange]],
        merged: Collection[UnitIndex] = (),
        first: UnitIndex | None = None,
    ) -> Directory:
        """With other units in place of some, all at once. Of each that is split, `halved` has its own hashes and those
        of its parts that are halved in turn; one unit is in the place of each that is `merged` and its buddy. The
        first unit is at `first` then, if that changes.

        >>> Directory(1).repartitioned({0: ((0, 2**32), (2**31, 2**32))}).depths
        (1, 2, 2)
        """
        depths, changed = self._all_depths.tolist(), {}
        for unit, parts in halved.items():
            changed[unit - self.first] = 1, self._depths_of_parts(unit, parts)
        for unit in merged:
            other = self.buddy(unit)
            if other is None:
                raise ProtocolError(f"the unit with the hashes {self.hashes_of(unit)} has no buddy to be merged with")
            place = min(unit, other) - self.first
            changed[place] = 2, [depths[place] - 1]
        depths_after: list[int] = []
        done = 0
        for place, (count, instead) in sorted(changed.items()):
            depths_after += depths[done:place]
            depths_after += instead
            done = place + count
        depths_after += depths[done:]
        after = IntColumn(depths_after) if any(depths_after) else _NO_DEPTHS
        return Directory(self.roots, after, self.first if first is None else first)

    def _depths_of_parts(self, unit: UnitIndex, parts: Sequence[HashRange]) -> list[int]:
        """The depths of what a unit becomes if it and parts of it are halved."""
        whole = self.hashes_of(unit)
        halved = list(_depths_below(whole, self.depth(unit), set(parts)))
        if len(halved) != 1 + len(parts):
            raise ProtocolError(f"the unit with the hashes {whole} has no parts with the hashes {parts}")
        return halved

    def buddy(self, unit: UnitIndex) -> UnitIndex | None:
        """The unit with which one makes up what was split, None if that is split further, or the unit is a root.

        >>> Directory(1).split(0).split(0).buddy(2), Directory(1).split(0).buddy(0)
        (None, 1)
        """
        depth = self.depth(unit)
        if not depth:
            return None
        other = UnitIndex(unit - 1 if self._prefixes[1][unit - self.first] % 2 else unit + 1)
        return other if self.depth(other) == depth else None

    def buddies(self) -> np.ndarray:
        """The buddy of each unit, -1 where there is none.

        >>> Directory(2).split(1).buddies()
        array([-1,  2,  1])
        """
        if not self.depths:
            return np.full(self.roots, -1)
        depths, places = self.depths.array, np.arange(self.units)
        other = np.where(self._prefixes[1] % 2, places - 1, np.minimum(places + 1, self.units - 1))
        buddies: np.ndarray = np.where((depths > 0) & (depths[other] == depths), other + self.first, -1)
        return buddies

    def merge(self, unit: UnitIndex) -> Directory:
        """With one unit in place of two buddies."""
        return self.repartitioned({}, (unit,))

    @property
    def _all_depths(self) -> np.ndarray:
        return self.depths.array if self.depths else np.zeros(self.roots, dtype=np.int64)

    @cached_property
    def _prefixes(self) -> tuple[np.ndarray, np.ndarray]:
        """The root of each unit, and which of its parts it is."""
        shift = _DEEPEST - self._all_depths
        begins = np.cumsum(1 << shift) - (1 << shift)  # as many of the smallest parts there can be come before it
        return begins >> _DEEPEST, begins % (1 << _DEEPEST) >> shift
