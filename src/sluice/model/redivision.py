"""Units that were split or merged: the same state, statistics and queues under the numbers that units have since.

A unit is a range of hashes, so which units took the place of which is a matter of two directories. No row moves; how
many rows of a segment each part of a unit has is what the sites that hold it have looked up.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import NamedTuple, TypeVar

import numpy as np

from sluice.model.actions import Action, Move, Scale
from sluice.model.epoch import EpochRecord, Queues
from sluice.model.errors import ProtocolError
from sluice.model.ids import Unit
from sluice.model.routing import Routing
from sluice.model.state import Manifest, RunRef, SegmentRef
from sluice.model.stats import EpochStats, Slices, UnitColumns
from sluice.model.unit_ranges import Ranges, holds, numbers, unite_all

AnAction = TypeVar("AnAction", bound=Action)


class UnitWeight(NamedTuple):
    """What a site has of a unit at one level of operators: how many rows, their least and greatest hash, the most
    frequent one, about, and its rows."""

    unit: Unit
    rows: int
    least: int
    greatest: int
    frequent: int
    frequent_rows: int

    @classmethod
    def totals(cls, weights: Iterable[UnitWeight]) -> dict[Unit, UnitWeight]:
        """What all holders and levels have of each unit, of what they said; a unit without a row is not there."""
        by_unit: dict[Unit, list[UnitWeight]] = {}
        for weight in weights:
            by_unit.setdefault(weight.unit, []).append(weight)
        return {unit: cls._total(unit, own) for unit, own in by_unit.items()}

    @classmethod
    def _total(cls, unit: Unit, own: Sequence[UnitWeight]) -> UnitWeight:
        most = max(own, key=lambda weight: weight.frequent_rows)
        return cls(
            unit,
            rows=sum(weight.rows for weight in own),
            least=min(weight.least for weight in own),
            greatest=max(weight.greatest for weight in own),
            frequent=most.frequent,
            frequent_rows=sum(weight.frequent_rows for weight in own if weight.frequent == most.frequent),
        )


class CutPlan(NamedTuple):
    """A unit that is to be cut at some hashes."""

    unit: Unit
    edges: tuple[int, ...]


class Cut(NamedTuple):
    """Of the rows that a unit has in a segment, so many have hashes below one."""

    segment: str
    unit: Unit
    hash: int
    below: int


class UnitFindings(NamedTuple):
    """What the sites have found out about units that are to be split."""

    weights: tuple[UnitWeight, ...] = ()
    cuts: tuple[Cut, ...] = ()

    def below(self) -> dict[Unit, dict[int, int]]:
        """How many rows of each unit have hashes below those that were asked for."""
        found: dict[Unit, dict[int, int]] = {}
        for cut in self.cuts:
            counted = found.setdefault(cut.unit, {})
            counted[cut.hash] = counted.get(cut.hash, 0) + cut.below
        return found


@dataclass(frozen=True)
class Renumbering:
    """Each unit of before is the units from `first` up to `end` now; there are so many `units`, with these `least`
    hashes."""

    first: np.ndarray
    end: np.ndarray
    units: int
    least: np.ndarray

    @classmethod
    def between(cls, before: Routing, now: Routing) -> Renumbering:
        """
        >>> Renumbering.between(Routing.even(3, 1), Routing.even(3, 1).split(1, since=0)).ranges(((1, 3),))
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

    def of(self, units: Iterable[Unit]) -> list[Unit]:
        """The units that are in the place of some, in their order, each once."""
        found = (new for unit in units for new in range(int(self.first[unit]), int(self.end[unit])))
        return list(dict.fromkeys(map(Unit, found)))

    def ranges(self, units: Ranges) -> Ranges:
        """The same for ranges of units."""
        return unite_all((Unit(int(self.first[low])), Unit(int(self.end[high - 1]))) for low, high in units)

    def remembered(self, units: Mapping[Unit, int]) -> dict[Unit, int]:
        """What is known of units, by their numbers now. Of those that were split or merged it is known no longer."""
        came_from = np.bincount(self._pairs[1], minlength=self.units)
        new = {unit: Unit(int(self.first[unit])) for unit in units if self.end[unit] - self.first[unit] == 1}
        return {now: units[unit] for unit, now in new.items() if came_from[now] == 1}

    def spread(self, column: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """A column with an entry for each unit: parts of a unit have theirs by weight, one in the place of two the sum.

        >>> halves = Renumbering.between(Routing.even(2, 1), Routing.even(2, 1).split(0, since=0))
        >>> halves.spread(np.array([8, 5]), np.array([3.0, 1.0, 1.0]))
        array([6, 2, 5])
        """
        old, new = self._pairs
        whole = np.bincount(old, weights=weights[new], minlength=len(self.first))
        parts = (self.end - self.first)[old]
        share = np.where(whole[old] > 0, weights[new] / np.where(whole[old] > 0, whole[old], 1.0), 1.0 / parts)
        share = np.where(parts == 1, 1.0, share)
        found = np.bincount(new, weights=column[old] * share, minlength=self.units)
        return (np.rint(found) if np.issubdtype(column.dtype, np.integer) else found).astype(column.dtype)

    @property
    def _pairs(self) -> tuple[np.ndarray, np.ndarray]:
        """The numbers of before and now of what is in both."""
        parts = self.end - self.first
        old = np.repeat(np.arange(len(parts)), parts)
        within = np.arange(len(old)) - np.repeat(np.cumsum(parts) - parts, parts)
        return old, self.first[old] + within


def redivided(record: EpochRecord, routing: Routing, cuts: Iterable[Cut]) -> EpochRecord:
    """A record under a routing whose units were split or merged, and are where they were."""
    renumbering = Renumbering.between(record.routing, routing)
    manifests = _Manifests(renumbering, cuts)
    there = tuple(manifests.renumbered(manifest) for manifest in record.manifests)
    return replace(
        record,
        routing=routing,
        manifests=there,
        lagging=tuple(replace(late, units=renumbering.ranges(late.units)) for late in record.lagging),
        frozen=tuple(replace(cold, units=renumbering.ranges(cold.units)) for cold in record.frozen),
        queues=tuple(_queues(queues, renumbering) for queues in record.queues),
        under_way=tuple(replace(one, units=tuple(renumbering.of(one.units))) for one in record.under_way),
        stats=_stats(record.stats, renumbering, rows_of_units(there, routing.units)),
    )


def renumber_action(action: AnAction, before: Routing, now: Routing) -> AnAction:
    """An action by the numbers that units have now. If its unit was split meanwhile it is about the first part."""
    if isinstance(action, Scale) or not 0 <= action.unit < before.units:
        return action
    fragment = before.fragment_of(action.unit)
    hashes = before.directories[fragment].hashes_of(action.unit)
    return replace(action, unit=now.directories[fragment].units_in(*hashes)[0])


def renumber_moves(moves: Iterable[Move], before: Routing, now: Routing) -> tuple[Move, ...]:
    """Moves by the numbers that units have now, of all parts of those that were split."""
    renumbering = Renumbering.between(before, now)
    found = {unit: replace(move, unit=unit) for move in moves for unit in renumbering.of([move.unit])}
    return tuple(found.values())


def why_unmergeable(manifests: Iterable[Manifest], unit: Unit, buddy: Unit) -> str | None:
    """Why two units cannot be one without a row being written anew, None if they can."""
    for run in (run for manifest in manifests for run in manifest):
        held = [holds(run.units, each) for each in (unit, buddy)]
        if held[0] != held[1] and _rows_in(run.segment, buddy if held[0] else unit):
            return f"units {unit} and {buddy} have rows in one segment, and those of one are not used any more"
    return None


def _rows_in(segment: SegmentRef, unit: Unit) -> int:
    """The rows with which a segment was written of a unit."""
    written, rows = segment.unit_rows
    return int(rows[written == unit].sum())


class _Manifests:
    """Manifests under other numbers: a segment that several sites have is renumbered once."""

    def __init__(self, renumbering: Renumbering, cuts: Iterable[Cut]) -> None:
        self._renumbering = renumbering
        self._below: dict[tuple[str, Unit], dict[int, int]] = {}
        for cut in cuts:
            self._below.setdefault((cut.segment, cut.unit), {})[cut.hash] = cut.below
        self._segments: dict[str, SegmentRef] = {}
        self._ranges: dict[Ranges, Ranges] = {}

    def renumbered(self, manifest: Manifest) -> Manifest:
        return tuple(self._run(run) for run in manifest)

    def _run(self, run: RunRef) -> RunRef:
        held, rows = run.unit_rows
        parts = self._renumbering.end[held] - self._renumbering.first[held]
        for unit in held[(parts > 1) & (rows > 0)].tolist():
            if (run.segment.id, unit) not in self._below:
                raise ProtocolError(f"nobody has counted where unit {unit} is to be cut in segment {run.segment.id}")
        return replace(run, segment=self._segment(run.segment), units=self._units(run.units))

    def _units(self, units: Ranges) -> Ranges:
        if units not in self._ranges:
            self._ranges[units] = self._renumbering.ranges(units)
        return self._ranges[units]

    def _segment(self, segment: SegmentRef) -> SegmentRef:
        if segment.id not in self._segments:
            self._segments[segment.id] = self._counted(segment)
        return self._segments[segment.id]

    def _counted(self, segment: SegmentRef) -> SegmentRef:
        units, rows = segment.unit_rows
        first, end = self._renumbering.first[units], self._renumbering.end[units]
        base = int(first.min()) if len(first) else 0
        found = np.zeros(int(end.max(initial=base)) - base, dtype=np.int64)
        whole = end - first == 1
        np.add.at(found, first[whole] - base, rows[whole])
        for at in np.flatnonzero(~whole).tolist():
            places = np.arange(first[at], end[at])
            found[places - base] = self._parts(segment.id, Unit(int(units[at])), int(rows[at]), places)
        there = self._units(segment.units)
        return replace(segment, units=there, counts=tuple(found[numbers(there) - base].tolist()))

    def _parts(self, segment: str, unit: Unit, rows: int, places: np.ndarray) -> np.ndarray:
        """The rows of the parts of a unit. What no site holds any more has not been looked up, and counts for the
        first."""
        below = self._below.get((segment, unit), {})
        edges = [below.get(int(edge), rows) for edge in self._renumbering.least[places[1:]]]
        return np.diff([0, *edges, rows])


def rows_of_units(manifests: Iterable[Manifest], units: int) -> np.ndarray:
    """The rows of each of so many units, wherever they are and however old."""
    found = np.zeros(units)
    for manifest in manifests:
        for run in manifest:
            held, rows = run.unit_rows
            found[held] += rows
    return found


def _queues(queues: Queues, renumbering: Renumbering) -> Queues:
    """One that was in memory and one that was on disk, merged, are on disk."""
    disk = dict.fromkeys(renumbering.of(queues.disk))
    memory = [unit for unit in renumbering.of(queues.memory) if unit not in disk]
    return replace(queues, memory=tuple(memory), disk=tuple(disk))


def _stats(stats: EpochStats, renumbering: Renumbering, sizes: np.ndarray) -> EpochStats:
    if len(stats.units.rows) != len(renumbering.first):  # there was no epoch yet
        return stats
    columns = {
        column.name: renumbering.spread(getattr(stats.units, column.name), sizes) for column in fields(UnitColumns)
    }
    return replace(stats, units=UnitColumns(**columns), slices=Slices.none())
