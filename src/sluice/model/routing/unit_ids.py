"""The ids of a routing's units: each is given once, and stays with its unit until that is split or merged."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from sluice.model.errors import ProtocolError
from sluice.model.ids import Unit, UnitIndex


@dataclass(frozen=True)
class UnitIds:
    """The ids of units in the order of their places, as `runs` of ids that follow each other: few, as long as few units
    were ever split. `next_id` is the one that is given next.

    >>> ends = np.array([False, True, False, False, False])
    >>> ids = UnitIds.new(5).with_replacements(counts=np.array([1, 2, 1, 1, 1]), ends=ends)
    >>> ids
    UnitIds(runs=((0, 1), (5, 7), (2, 5)), next_id=7)
    >>> ids.array, ids.index_of(6), ids.unit_at(3), ids.has(1)
    (array([0, 5, 6, 2, 3, 4]), 2, 2, False)
    """

    runs: tuple[tuple[Unit, Unit], ...]
    next_id: int

    def __post_init__(self) -> None:
        lows, ends, _ = self._by_id
        if any(low < end for low, end in zip([*lows[1:], self.next_id], ends, strict=False)):
            raise ProtocolError(f"an id is given twice: {self.runs}, and {self.next_id} next")

    @classmethod
    def new(cls, units: int) -> UnitIds:
        """Of so many units that are the first of all."""
        return cls(((Unit(0), Unit(units)),) if units else (), units)

    @classmethod
    def of(cls, ids: np.ndarray, next_id: int) -> UnitIds:
        """Of units with these ids, in the order of their places."""
        return cls(_runs(ids), next_id)

    def __reduce__(self) -> tuple[type[UnitIds], tuple[tuple[tuple[Unit, Unit], ...], int]]:
        """Travels without what is only kept here to be at hand."""
        return UnitIds, (self.runs, self.next_id)

    def __len__(self) -> int:
        return self._ends[-1] if self.runs else 0

    @cached_property
    def array(self) -> np.ndarray:
        """The id of the unit at each place."""
        if not self.runs:
            return np.arange(0)
        lows, highs = np.array(self.runs).T
        counts = highs - lows
        before = np.cumsum(counts) - counts
        ids: np.ndarray = np.repeat(lows - before, counts) + np.arange(counts.sum())
        return ids

    def has(self, unit: Unit) -> bool:
        """Whether there is such a unit."""
        run = self._run_of(unit)
        return run >= 0 and unit < self._by_id[1][run]

    def index_of(self, unit: Unit) -> UnitIndex:
        """The place of a unit."""
        if not self.has(unit):
            raise ProtocolError(self.why_missing(unit))
        run = self._run_of(unit)
        return UnitIndex(self._by_id[2][run] + unit - self._by_id[0][run])

    def unit_at(self, index: UnitIndex) -> Unit:
        """The unit at a place."""
        run = bisect_right(self._ends, index)
        return Unit(self.runs[run][1] - (self._ends[run] - index))

    def indexes_of(self, units: Iterable[Unit]) -> list[UnitIndex]:
        """The places of some units, in the order in which they come."""
        return [self.index_of(unit) for unit in units]

    def why_missing(self, unit: Unit) -> str:
        """Why there is no such unit.

        >>> UnitIds(((3, 5),), 7).why_missing(5)
        'there is no unit 5 any more: it was split or merged, or its query was dropped'
        >>> UnitIds(((3, 5),), 7).why_missing(7)
        'there is no unit 7; ids go from 0 to 6'
        """
        if 0 <= unit < self.next_id:
            return f"there is no unit {unit} any more: it was split or merged, or its query was dropped"
        return f"there is no unit {unit}; ids go from 0 to {self.next_id - 1}"

    def with_replacements(self, counts: np.ndarray, ends: np.ndarray) -> UnitIds:
        """With so many units in place of each. Those of which one `ends` have new ids, all others keep theirs."""
        ids, is_new = np.repeat(self.array, counts), np.repeat(ends, counts)
        begun = int(np.count_nonzero(is_new))
        ids[is_new] = np.arange(self.next_id, self.next_id + begun)
        return UnitIds.of(ids, self.next_id + begun)

    def _run_of(self, unit: Unit) -> int:
        """The run that an id is in, by the order of ids, if it is in any."""
        return bisect_right(self._by_id[0], unit) - 1

    @cached_property
    def _ends(self) -> list[int]:
        """The places where the runs end."""
        ends: list[int] = np.cumsum([high - low for low, high in self.runs]).tolist()
        return ends

    @cached_property
    def _by_id(self) -> tuple[list[int], list[int], list[int]]:
        """The first id of each run, the one after its last, and the place of its first, in the order of ids."""
        if not self.runs:
            return [], [], []
        lows, highs = np.array(self.runs).T
        order = np.argsort(lows, kind="stable")
        begins = np.cumsum(highs - lows) - (highs - lows)
        return lows[order].tolist(), highs[order].tolist(), begins[order].tolist()


def list_units(units: Iterable[int], most: int) -> str:
    """Units by their ids, or sites by their numbers, as at most so many runs.

    >>> list_units([9, 7, 2, 8], most=3), list_units([9, 7, 2, 8], most=1)
    ('2, 7-9', '2, …')
    """
    runs = _runs(np.unique(np.fromiter(units, np.int64)))
    listed = (f"{low}" if high == low + 1 else f"{low}-{high - 1}" for low, high in runs[:most])
    return ", ".join([*listed, *(["…"] if len(runs) > most else [])])


def _runs(ids: np.ndarray) -> tuple[tuple[Unit, Unit], ...]:
    """Ids as runs of such as follow each other."""
    firsts = np.flatnonzero(np.diff(ids, prepend=-2) != 1)
    lasts = (np.append(firsts[1:], len(ids)) - 1)[: len(firsts)]
    return tuple(zip(ids[firsts].tolist(), (ids[lasts] + 1).tolist(), strict=True))
