"""A flow that goes by another plan from an epoch on: the newest record, laid out for it.

What both plans have keeps its state, its units with their ids and holders, its results so far. Fragments that are new
get units of their own; those that are gone end, and their state with them. No row is read or written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property

import numpy as np

from sluice.model.columns import IntColumn
from sluice.model.epoch.results import Listing
from sluice.model.epoch.segments import Manifest, RunRef, SegmentRef
from sluice.model.epoch.stats import EpochStats, Slices, UnitColumns
from sluice.model.epoch.times import Queues, Times, UnitCohort, slowest
from sluice.model.ids import Fragment, InputNumber, Level, Unit, UnitIndex
from sluice.model.plan.layout import PlanLayout
from sluice.model.routing.directory import Directory
from sluice.model.routing.routing import Routing
from sluice.model.routing.sharing import SharedUnit
from sluice.model.routing.unit_ids import UnitIds
from sluice.model.routing.unit_ranges import Ranges, holds, intersect, unite_all
from sluice.record.epoch import EpochRecord


@dataclass(frozen=True)
class PlanChange:
    """From one plan of a flow to another, in which all fragments are to have so many `partitions` to begin with. A new
    one of a single unit is `at_home`, at the home of the first of its streams, or like others at a site with few."""

    before: PlanLayout
    now: PlanLayout
    partitions: int
    at_home: bool = False

    @property
    def fragments(self) -> dict[Fragment, Fragment]:
        """The number that each fragment has now, of those that stay."""
        now = {fragment.label: Fragment(number) for number, fragment in enumerate(self.now.fragments)}
        labels = [fragment.label for fragment in self.before.fragments]
        return {Fragment(number): now[label] for number, label in enumerate(labels) if label in now}

    @property
    def states(self) -> dict[InputNumber, InputNumber]:
        """The number that each state has now, of those that stay."""
        now = {key: InputNumber(number) for number, key in enumerate(self.now.states)}
        return {InputNumber(number): now[key] for number, key in enumerate(self.before.states) if key in now}


@dataclass(frozen=True)
class UnitPlaces:
    """Where units are that stay: `kept` has the place of before for each place of now, -1 where a unit is new; `shifts`
    the range of places of each fragment of before that stays, and how much further on they are."""

    kept: np.ndarray
    shifts: tuple[tuple[UnitIndex, UnitIndex, int], ...]

    @classmethod
    def between(cls, before: Routing, now: Routing, fragments: dict[Fragment, Fragment]) -> UnitPlaces:
        kept = np.full(now.units, -1, dtype=np.int64)
        shifts = []
        for old, new in sorted(fragments.items()):
            (first, end), (first_now, end_now) = before.directories[old].range, now.directories[new].range
            kept[first_now:end_now] = np.arange(first, end)
            shifts.append((first, end, first_now - first))
        return cls(kept, tuple(shifts))

    def take(self, column: np.ndarray) -> np.ndarray:
        """A column with an entry for each unit of before as one for those of now; those that are new have nothing."""
        taken, stays = np.zeros(len(self.kept), dtype=column.dtype), self.kept >= 0
        taken[stays] = column[self.kept[stays]]
        return taken

    def map_ranges(self, units: Ranges) -> Ranges:
        """Units that stay, among some, by their places of now."""
        parts = ((intersect(units, ((first, end),)), shift) for first, end, shift in self.shifts)
        return unite_all(
            (UnitIndex(low + shift), UnitIndex(high + shift)) for part, shift in parts for low, high in part
        )

    def of(self, indexes: Sequence[UnitIndex]) -> list[UnitIndex]:
        """The places of now of units that stay, among some, in their order."""
        return [UnitIndex(self._now[index]) for index in indexes if index in self._now]

    @cached_property
    def _now(self) -> dict[int, int]:
        """The place of now of each place of before that stays."""
        stays = np.flatnonzero(self.kept >= 0)
        return dict(zip(self.kept[stays].tolist(), stays.tolist(), strict=True))


def replan(record: EpochRecord, change: PlanChange) -> EpochRecord:
    """A record as it would be if the flow had gone by another plan, and what is new had seen nothing yet. Its results
    are shown by now. Where there was no epoch yet, there are no statistics of units."""
    routing = replan_routing(record, change)
    places = UnitPlaces.between(record.routing, routing, change.fragments)
    layout = _ManifestLayout(places, change.states)
    at_level = [_units_at(Level(level), change.now, routing) for level in range(change.now.levels)]
    under_way = (replace(one, units=tuple(filter(routing.has_unit, one.units))) for one in record.under_way)
    ended = {one.decision for one in record.under_way if one.units and not any(map(routing.has_unit, one.units))}
    return replace(
        record,
        routing=routing,
        manifests=tuple(layout.of(manifest) for manifest in record.manifests),
        reached=tuple(_reached(record, Level(level)) for level in range(1, change.now.levels)),
        lagging=_cohorts(record.lagging, places, at_level),
        frozen=_cohorts(record.frozen, places, at_level),
        queues=_queues(record.queues, places, at_level),
        parts=(),
        listings=_listings(record, change),
        under_way=tuple(one for one in under_way if one.decision not in ended),
        stats=record.stats if len(record.stats.units.rows) < record.routing.units else _stats(record.stats, places),
    )


def replan_routing(record: EpochRecord, change: PlanChange) -> Routing:
    """The routing of a record with the units of another plan: those that are new are at the sites that hold fewest, or
    at home."""
    before, stays = record.routing, change.fragments
    was = {now: old for old, now in stays.items()}
    held = np.bincount(
        np.concatenate([np.arange(0), *(before.holders.array[slice(*before.directories[old].range)] for old in stays)]),
        minlength=before.sites,
    )
    directories, holders, ids = [], [], []
    first, next_id = UnitIndex(0), before.ids.next_id
    for number, fragment in enumerate(change.now.fragments):
        old = was.get(Fragment(number))
        if old is None:
            directory = Directory(change.now.units_of_new(fragment, change.partitions), first=first)
            if change.at_home and directory.units == 1:
                holders.append(np.array([change.now.data_flow.first_home(Fragment(number), before)]))
            else:
                holders.append(_spread(directory.units, held))
            ids.append(np.arange(next_id, next_id + directory.units))
            next_id += directory.units
        else:
            span = slice(*before.directories[old].range)
            directory = replace(before.directories[old], first=first)
            holders.append(before.holders.array[span])
            ids.append(before.ids.array[span])
        directories.append(directory)
        first = directory.range[1]
    unit_ids = UnitIds.of(np.concatenate([np.arange(0), *ids]), next_id)
    return replace(
        before,
        holders=IntColumn(np.concatenate([np.arange(0), *holders])),
        directories=tuple(directories),
        ids=unit_ids,
        shared=tuple(_renumber(sharing, change.states) for sharing in before.shared if unit_ids.has(sharing.unit)),
        version=before.version + 1,
        since=record.number + 1,
    )


def ended_units(before: Routing, now: Routing) -> list[Unit]:
    """The units that there are no longer."""
    return before.units_at(np.flatnonzero(~np.isin(before.ids.array, now.ids.array)))


def _spread(units: int, held: np.ndarray) -> np.ndarray:
    """Sites for so many new units, those that hold fewest first; neighbours are together. What they hold is counted."""
    sites = np.empty(units, dtype=np.int64)
    for unit in range(units):
        sites[unit] = held.argmin()
        held[sites[unit]] += 1
    return np.sort(sites)


def _renumber(sharing: SharedUnit, states: dict[InputNumber, InputNumber]) -> SharedUnit:
    return replace(sharing, inputs=tuple(states[input_] for input_ in sharing.inputs))


def _units_at(level: Level, layout: PlanLayout, routing: Routing) -> Ranges:
    """The units of fragments with operators on a level."""
    numbers = [number for number, fragment in enumerate(layout.fragments) if level in fragment.levels]
    return unite_all(routing.directories[number].range for number in numbers)


def _reached(record: EpochRecord, level: Level) -> Times:
    """How far a level has come: what is new there, as far as all that it may take rows from."""
    if level <= len(record.reached):
        return record.reached_at(level)
    lagging = [late.newest for late in record.lagging if late.level < level]
    missing = [cold.newest for cold in record.frozen if cold.missing and cold.level < level]
    return slowest([record.newest, *record.reached, *lagging, *missing])


def _cohorts(cohorts: Sequence[UnitCohort], places: UnitPlaces, at_level: Sequence[Ranges]) -> tuple[UnitCohort, ...]:
    """Cohorts without the units that have no operators on their level any more."""
    here = [cohort for cohort in cohorts if cohort.level < len(at_level)]
    mapped = [replace(one, units=intersect(places.map_ranges(one.units), at_level[one.level])) for one in here]
    return tuple(cohort for cohort in mapped if cohort.units)


def _queues(queues: Sequence[Queues], places: UnitPlaces, at_level: Sequence[Ranges]) -> tuple[Queues, ...]:
    """Queues without the units that have no operators on their level any more."""
    mapped = []
    for queue in queues:
        units = at_level[queue.level] if queue.level < len(at_level) else ()
        memory, disk = (
            tuple(place for place in places.of(indexes) if holds(units, place))
            for indexes in (queue.memory, queue.disk)
        )
        mapped.append(replace(queue, memory=memory, disk=disk))
    return tuple(queue for queue in mapped if queue.memory or queue.disk)


def _listings(record: EpochRecord, change: PlanChange) -> tuple[tuple[Listing, Listing], ...]:
    """What is listed of each output; of those that are new nothing."""
    if not record.listings:
        return ()
    shown = dict(zip(change.before.outputs, record.listings, strict=True))
    return tuple(shown.get(output, (Listing(), Listing())) for output in change.now.outputs)


def _stats(stats: EpochStats, places: UnitPlaces) -> EpochStats:
    columns = {column.name: places.take(getattr(stats.units, column.name)) for column in fields(UnitColumns)}
    return replace(stats, units=UnitColumns(**columns), slices=Slices.none())


class _ManifestLayout:
    """Manifests under other numbers of states and places of units: a segment that several sites have is laid out
    once."""

    def __init__(self, places: UnitPlaces, states: dict[InputNumber, InputNumber]) -> None:
        self._places, self._states = places, states
        self._segments: dict[str, SegmentRef] = {}
        self._ranges: dict[Ranges, Ranges] = {}

    def of(self, manifest: Manifest) -> Manifest:
        kept = (run for run in manifest if run.segment.input in self._states)
        return tuple(RunRef(self._segment(run.segment), self._units(run.units), run.generation) for run in kept)

    def _segment(self, segment: SegmentRef) -> SegmentRef:
        if segment.id not in self._segments:
            input_, units = self._states[segment.input], self._units(segment.units)
            self._segments[segment.id] = replace(segment, input=input_, units=units)
        return self._segments[segment.id]

    def _units(self, units: Ranges) -> Ranges:
        if units not in self._ranges:
            self._ranges[units] = self._places.map_ranges(units)
        return self._ranges[units]
