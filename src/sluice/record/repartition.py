"""Units that were split or merged: the same state, statistics and queues, laid out for the units that there are since.

A unit is a range of hashes, so which units took the place of which is a matter of two directories. No row moves; how
many rows of a segment each part of a unit has is what the sites that hold it have looked up.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace

import numpy as np

from sluice.model.columns import IntColumn
from sluice.model.epoch.segments import Manifest, RunRef, SegmentRef, unit_rows
from sluice.model.epoch.stats import EpochStats, Slices, UnitColumns
from sluice.model.epoch.times import Queues
from sluice.model.errors import ProtocolError
from sluice.model.ids import Unit, UnitIndex
from sluice.model.routing.routing import Routing
from sluice.model.routing.unit_ranges import Ranges, holds, numbers, unite_all
from sluice.record.epoch import EpochRecord
from sluice.verbs.base import current_units
from sluice.verbs.split import RowsBelow


def successors(before: Routing, now: Routing) -> dict[Unit, tuple[Unit, ...]]:
    """The units that are in the place of each one that was split or merged between two routings.

    >>> successors(Routing.even(3, 1), Routing.even(3, 1).split(1, since=0))
    {1: (3, 4)}
    """
    ended = before.units_at(np.flatnonzero(~np.isin(before.ids.array, now.ids.array)))
    return {unit: now.units_in(before.fragment_of(unit), before.hashes_of(unit)) for unit in ended}


def spread_column(column: np.ndarray, before: Routing, now: Routing, weights: np.ndarray) -> np.ndarray:
    """A column with an entry for each unit of one routing under another: parts of a unit have its entry by weight, one
    in the place of two has their sum.

    >>> spread_column(np.array([8, 5]), Routing.even(2, 1), Routing.even(2, 1).split(0, since=0), np.array([3, 1, 1]))
    array([6, 2, 5])
    """
    return IndexMap.between(before, now).spread(column, weights)


@dataclass(frozen=True)
class IndexMap:
    """From the places of units in one routing to those in another: what was at each place is at those from `first` up
    to `end` now; there are so many `units`, with these `least` hashes."""

    first: np.ndarray
    end: np.ndarray
    units: int
    least: np.ndarray

    @classmethod
    def between(cls, before: Routing, now: Routing) -> IndexMap:
        """
        >>> IndexMap.between(Routing.even(3, 1), Routing.even(3, 1).split(1, since=0)).map_ranges(((1, 3),))
        ((1, 4),)
        """
        first, end, least = [], [], []
        for old, new in zip(before.directories, now.directories, strict=True):
            starts = new.least_hashes(np.arange(new.range[0], new.range[1]))
            lows = old.least_hashes(np.arange(old.range[0], old.range[1] + 1))
            first.append(new.first + np.searchsorted(starts, lows[:-1], side="right") - 1)
            end.append(new.first + np.searchsorted(starts, lows[1:] - 1, side="right"))
            least.append(starts)
        return cls(np.concatenate(first), np.concatenate(end), now.units, np.concatenate(least))

    def of(self, indexes: Iterable[UnitIndex]) -> list[UnitIndex]:
        """What is at some places now, in their order, each once."""
        places = (place for index in indexes for place in range(int(self.first[index]), int(self.end[index])))
        return list(dict.fromkeys(map(UnitIndex, places)))

    def map_ranges(self, units: Ranges) -> Ranges:
        """The same for ranges."""
        return unite_all((UnitIndex(int(self.first[low])), UnitIndex(int(self.end[high - 1]))) for low, high in units)

    def spread(self, column: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """A column with an entry for each unit, as `spread_column` has it."""
        old, new = self._pairs
        whole = np.bincount(old, weights=weights[new], minlength=len(self.first))
        parts = (self.end - self.first)[old]
        share = np.where(whole[old] > 0, weights[new] / np.where(whole[old] > 0, whole[old], 1.0), 1.0 / parts)
        share = np.where(parts == 1, 1.0, share)
        sums = np.bincount(new, weights=column[old] * share, minlength=self.units)
        return (np.rint(sums) if np.issubdtype(column.dtype, np.integer) else sums).astype(column.dtype)

    @property
    def _pairs(self) -> tuple[np.ndarray, np.ndarray]:
        """The places of before and now of what is in both."""
        parts = self.end - self.first
        old = np.repeat(np.arange(len(parts)), parts)
        within = np.arange(len(old)) - np.repeat(np.cumsum(parts) - parts, parts)
        return old, self.first[old] + within


def repartition_record(record: EpochRecord, routing: Routing, cuts: Iterable[RowsBelow]) -> EpochRecord:
    """A record under a routing whose units were split or merged, and are where they were."""
    index_map, replaced = IndexMap.between(record.routing, routing), successors(record.routing, routing)
    layout = _ManifestLayout(record.routing, index_map, cuts)
    manifests = tuple(layout.of(manifest) for manifest in record.manifests)
    return replace(
        record,
        routing=routing,
        manifests=manifests,
        lagging=tuple(replace(late, units=index_map.map_ranges(late.units)) for late in record.lagging),
        frozen=tuple(replace(cold, units=index_map.map_ranges(cold.units)) for cold in record.frozen),
        queues=tuple(_queues(queues, index_map) for queues in record.queues),
        under_way=tuple(replace(one, units=current_units(one.units, replaced)) for one in record.under_way),
        stats=_stats(record.stats, index_map, rows_of_units(manifests, routing.units)),
    )


def why_unmergeable(record: EpochRecord, unit: Unit, buddy: Unit) -> str | None:
    """Why two units cannot be one without a row being written anew, None if they can."""
    one, other = record.routing.index_of(unit), record.routing.index_of(buddy)
    for run in (run for manifest in record.manifests for run in manifest):
        has_units = [holds(run.units, each) for each in (one, other)]
        if has_units[0] != has_units[1] and _rows_in(run.segment, other if has_units[0] else one):
            return f"units {unit} and {buddy} have rows in one segment, and those of one are not used any more"
    return None


def _rows_in(segment: SegmentRef, index: UnitIndex) -> int:
    """The rows with which a segment was written of a unit."""
    written, rows = segment.unit_rows
    return int(rows[written == index].sum())


class _ManifestLayout:
    """Manifests laid out for the units of another routing: a segment that several sites have is laid out once."""

    def __init__(self, before: Routing, index_map: IndexMap, cuts: Iterable[RowsBelow]) -> None:
        self._before, self._index_map = before, index_map
        self._below: dict[tuple[str, UnitIndex], dict[int, int]] = {}
        for cut in cuts:
            self._below.setdefault((cut.segment, before.index_of(cut.unit)), {})[cut.hash] = cut.below
        self._segments: dict[str, SegmentRef] = {}
        self._ranges: dict[Ranges, Ranges] = {}

    def of(self, manifest: Manifest) -> Manifest:
        return tuple(self._run(run) for run in manifest)

    def _run(self, run: RunRef) -> RunRef:
        places, rows = run.unit_rows
        parts = self._index_map.end[places] - self._index_map.first[places]
        for index in places[(parts > 1) & (rows > 0)].tolist():
            if (run.segment.id, index) not in self._below:
                unit = self._before.unit_at(index)
                raise ProtocolError(f"nobody has counted where unit {unit} is to be cut in segment {run.segment.id}")
        return replace(run, segment=self._segment(run.segment), units=self._units(run.units))

    def _units(self, units: Ranges) -> Ranges:
        if units not in self._ranges:
            self._ranges[units] = self._index_map.map_ranges(units)
        return self._ranges[units]

    def _segment(self, segment: SegmentRef) -> SegmentRef:
        if segment.id not in self._segments:
            self._segments[segment.id] = self._count_rows(segment)
        return self._segments[segment.id]

    def _count_rows(self, segment: SegmentRef) -> SegmentRef:
        units, rows = segment.unit_rows
        first, end = self._index_map.first[units], self._index_map.end[units]
        base = int(first.min()) if len(first) else 0
        counts_now = np.zeros(int(end.max(initial=base)) - base, dtype=np.int64)
        whole = end - first == 1
        np.add.at(counts_now, first[whole] - base, rows[whole])
        for at in np.flatnonzero(~whole).tolist():
            places = np.arange(first[at], end[at])
            counts_now[places - base] = self._parts(segment.id, UnitIndex(int(units[at])), int(rows[at]), places)
        there = self._units(segment.units)
        return replace(segment, units=there, counts=IntColumn(counts_now[numbers(there) - base]))

    def _parts(self, segment: str, index: UnitIndex, rows: int, places: np.ndarray) -> np.ndarray:
        """The rows of the parts of a unit. What no site holds any more has not been looked up, and counts for the
        first."""
        below = self._below.get((segment, index), {})
        edges = [below.get(int(edge), rows) for edge in self._index_map.least[places[1:]]]
        return np.diff([0, *edges, rows])


def rows_of_units(manifests: Iterable[Manifest], units: int) -> np.ndarray:
    """The rows of each of so many units, wherever they are and however old."""
    return unit_rows((run for manifest in manifests for run in manifest), units)


def _queues(queues: Queues, index_map: IndexMap) -> Queues:
    """One that was in memory and one that was on disk, merged, are on disk."""
    disk = dict.fromkeys(index_map.of(queues.disk))
    memory = [index for index in index_map.of(queues.memory) if index not in disk]
    return replace(queues, memory=tuple(memory), disk=tuple(disk))


def _stats(stats: EpochStats, index_map: IndexMap, sizes: np.ndarray) -> EpochStats:
    if len(stats.units.rows) != len(index_map.first):  # there was no epoch yet
        return stats
    columns = {
        column.name: index_map.spread(getattr(stats.units, column.name), sizes) for column in fields(UnitColumns)
    }
    return replace(stats, units=UnitColumns(**columns), slices=Slices.none())
