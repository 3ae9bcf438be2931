"""Routing: which site holds each unit, from which epoch on."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from sluice.model.columns import IntColumn
from sluice.model.errors import ProtocolError
from sluice.model.ids import Fragment, InputNumber, Site, Unit, UnitIndex
from sluice.model.routing.directory import Directory, HashRange
from sluice.model.routing.sharing import SharedUnit
from sluice.model.routing.unit_ids import UnitIds
from sluice.model.routing.unit_ranges import Ranges, numbers, to_ranges

_NO_IDS = UnitIds((), 0)


@dataclass(frozen=True)
class Routing:
    """The units of all fragments and the site that holds each, with the epoch from which it holds.

    `directories` has one for each fragment; if there is none, all units are roots of one. Arrays and ranges go by the
    places of units: fragment by fragment, in the order of their hashes. `holders` does; `ids` has the id of the unit at
    each place, by which everybody else names it. A unit with several holders is in `shared`; the first of them stands
    in `holders`. Each stream of the plan has its home, the site at which it is native, in `homes`.
    """

    sites: int
    holders: IntColumn[Site]
    version: int = 0
    since: int = 0
    directories: tuple[Directory, ...] = ()
    shared: tuple[SharedUnit, ...] = ()
    ids: UnitIds = _NO_IDS
    homes: tuple[Site, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "holders", IntColumn.of(self.holders))
        if not self.directories and self.units:
            object.__setattr__(self, "directories", (Directory(len(self.holders)),))
        if self.ids == _NO_IDS:
            object.__setattr__(self, "ids", UnitIds.new(self.units))
        if len(self.ids) != self.units:
            raise ProtocolError(f"{self.units} units have a site, {len(self.ids)} have an id")
        ends = [0, *(directory.range[1] for directory in self.directories)]
        if ends[-1] != self.units or any(d.first != end for d, end in zip(self.directories, ends, strict=False)):
            raise ProtocolError(f"{self.units} units have a site, the directories have {self.directories}")

    @classmethod
    def even(cls, units: int, sites: int, version: int = 0, since: int = 0, fragments: int = 1) -> Routing:
        """So many units a fragment: neighbours together, as many for each site as for any other.

        >>> Routing.even(5, 2).holders, Routing.even(2, 2, fragments=2).holders
        ((0, 0, 0, 1, 1), (0, 1, 0, 1))
        """
        holders: np.ndarray = np.arange(units) * sites // units
        directories = tuple(Directory(units, first=UnitIndex(units * fragment)) for fragment in range(fragments))
        return cls(sites, IntColumn(np.tile(holders, fragments)), version, since, directories)

    @classmethod
    def of_fragments(cls, units: Sequence[int], sites: int) -> Routing:
        """So many units for each fragment, spread evenly; those of fragments with fewer units than there are sites take
        turns at the sites.

        >>> Routing.of_fragments((4, 1, 2, 1), 3).holders
        (0, 0, 1, 2, 0, 1, 2, 0)
        """
        holders: list[Site] = []
        directories: list[Directory] = []
        turn = 0
        for count in units:
            directories.append(Directory(count, first=UnitIndex(len(holders))))
            if count < sites:
                holders += (Site((turn + place) % sites) for place in range(count))
                turn += count
            else:
                holders += map(Site, (np.arange(count) * sites // count).tolist())
        return cls(sites, IntColumn(holders), directories=tuple(directories))

    @property
    def units(self) -> int:
        """How many there are, of all fragments."""
        return len(self.holders)

    def has_unit(self, unit: Unit) -> bool:
        """Whether there is a unit with this id."""
        return self.ids.has(unit)

    def index_of(self, unit: Unit) -> UnitIndex:
        """The place of a unit in this routing."""
        return self.ids.index_of(unit)

    def unit_at(self, index: UnitIndex) -> Unit:
        """The unit at a place of this routing.

        >>> once = Routing.even(3, 1).split(1, since=0)
        >>> [once.unit_at(index) for index in range(4)], once.index_of(2)
        ([0, 3, 4, 2], 3)
        """
        return self.ids.unit_at(index)

    def units_at(self, indexes: np.ndarray) -> list[Unit]:
        """The units at some places."""
        units: list[Unit] = self.ids.array[indexes].tolist()
        return units

    def fragment_at(self, index: UnitIndex) -> Fragment:
        """The fragment of the unit at a place.

        >>> Routing.even(4, 2, fragments=3).fragment_at(7)
        1
        """
        return Fragment(next(f for f, directory in enumerate(self.directories) if index < directory.range[1]))

    def fragment_of(self, unit: Unit) -> Fragment:
        return self.fragment_at(self.index_of(unit))

    def hashes_of(self, unit: Unit) -> HashRange:
        """The range of a unit's hashes; the second is not in it."""
        return self.directories[self.fragment_of(unit)].hashes_of(self.index_of(unit))

    def units_in(self, fragment: Fragment, hashes: HashRange) -> tuple[Unit, ...]:
        """The units of a fragment that some hashes belong to, in the order of these.

        >>> Routing.even(2, 1).split(1, since=0).units_in(0, (2**31, 2**32))
        (2, 3)
        """
        return tuple(self.units_at(np.arange(*self.directories[fragment].units_in(*hashes))))

    def buddy_of(self, unit: Unit) -> Unit | None:
        """The unit with which one makes up what was split, None if that is split further, or the unit is a root."""
        buddy = self.directories[self.fragment_of(unit)].buddy(self.index_of(unit))
        return None if buddy is None else self.unit_at(buddy)

    def why_alone(self, unit: Unit) -> str:
        """Why a unit has no buddy."""
        if self.directories[self.fragment_of(unit)].depth(self.index_of(unit)):
            return f"the other half of what unit {unit} is of is itself split; merge its parts first"
        return f"unit {unit} has no buddy to be merged with: it was not split from another"

    def holder(self, unit: Unit) -> Site:
        """The site that holds a unit, the first one if there are several."""
        return self.holders[self.index_of(unit)]

    def holders_of(self, unit: Unit) -> tuple[Site, ...]:
        """All sites that hold a unit."""
        sharing = self.sharing(unit)
        return sharing.holders if sharing else (self.holder(unit),)

    def sharing(self, unit: Unit) -> SharedUnit | None:
        """How a unit is shared; None if one site holds it."""
        return next((sharing for sharing in self.shared if sharing.unit == unit), None)

    def with_move(self, unit: Unit, site: Site, since: int) -> Routing:
        """The same routing with one unit at another site from epoch `since` on."""
        if self.sharing(unit):
            raise ProtocolError(f"unit {unit} is shared: it is released, not moved")
        return replace(self, holders=self._holders_with(unit, site), version=self.version + 1, since=since)

    def moves_since(self, before: Routing) -> int:
        """How many units have moved.

        >>> shared = Routing(3, (0, 1)).share(0, 2, inputs=(0, 1), since=5)
        >>> shared.release(0, 0, since=6).moves_since(shared), shared.with_move(1, 0, since=6).moves_since(shared)
        (0, 1)
        """
        return len(self.units_moved_since(before))

    def units_moved_since(self, before: Routing) -> list[Unit]:
        """The units at a site that did not hold them: no more than one of those who shared a unit may be left."""
        changed = before.units_at(np.flatnonzero(before.holders.array != self.holders.array))
        return [unit for unit in changed if self.holder(unit) not in before.holders_of(unit)]

    def share(self, unit: Unit, site: Site, inputs: Sequence[InputNumber], since: int, evenly: bool = False) -> Routing:
        """The same routing with one more holder of a unit, of a join with these inputs; tokens stay. `evenly`: the
        holders stand on the grid for inputs of as many rows.

        >>> Routing(2, (0, 1)).share(0, 1, inputs=(0, 1), since=5).shared
        (SharedUnit(unit=0, holders=(0, 1), inputs=(0, 1), tokens=(0, 0), turns=False, grid_shape=()),)
        """
        before = self.sharing(unit) or SharedUnit.alone(unit, self.holder(unit), inputs)
        sharing = before.with_holder(site)
        return self.with_sharing(sharing.laid_out_evenly() if evenly else sharing, since)

    def pass_token(self, unit: Unit, input_: InputNumber, site: Site, since: int) -> Routing:
        """The same routing with the token of an input of a shared unit at another of its holders."""
        return self.with_sharing(self._require_sharing(unit).with_token(input_, site), since)

    def lay_out(self, unit: Unit, lines: Sequence[int], since: int) -> Routing:
        """The same routing with the holders of a shared unit on a grid; with no lines they store in turn."""
        sharing = self._require_sharing(unit)
        return self.with_sharing(sharing.on_grid(lines) if lines else sharing.taking_turns(), since)

    def release(self, unit: Unit, site: Site, since: int) -> Routing:
        """The same routing without one of the holders of a shared unit; what it stored, and its tokens, go to the first
        of those that stay."""
        return self.with_sharing(self._require_sharing(unit).without_holder(site), since)

    def with_sharing(self, sharing: SharedUnit, since: int) -> Routing:
        """The same routing with a unit shared like this, or not shared if one holder is left."""
        unit, holders = sharing.unit, sharing.holders
        others = [other for other in self.shared if other.unit != unit]
        shared = _in_order([*others, sharing] if len(holders) > 1 else others, self.ids)
        first = self._holders_with(unit, holders[0])
        return replace(self, holders=first, shared=shared, version=self.version + 1, since=since)

    def split(self, unit: Unit, since: int, further: Sequence[HashRange] = ()) -> Routing:
        """The same routing with two new units in place of one, where that was. Parts of it are split `further`, each
        given by its hashes.

        >>> Routing(2, (0, 1)).split(1, since=5).holders
        (0, 1, 1)
        """
        return self.repartitioned({unit: further}, (), since)

    def merge(self, unit: Unit, since: int) -> Routing:
        """The same routing with one new unit in place of two buddies, which have to have the same holders and
        tokens."""
        return self.repartitioned({}, (unit,), since)

    def repartitioned(self, split: Mapping[Unit, Sequence[HashRange]], merged: Collection[Unit], since: int) -> Routing:
        """The same routing with units split and merged, all at once. Parts of those that are `split` are split further,
        each given by its hashes. Units that come of it have new ids, all others keep theirs.

        >>> Routing.even(4, 1).repartitioned({3: (), 0: ()}, (), since=5).ids.array
        array([4, 5, 1, 2, 6, 7])
        """
        counts, ends = np.ones(self.units, dtype=np.int64), np.zeros(self.units, dtype=bool)
        parted = {self.index_of(unit): further for unit, further in split.items()}
        for index, further in parted.items():
            counts[index], ends[index] = 2 + len(further), True
        pairs = [self._mergeable(unit) for unit in merged]
        for pair in pairs:
            counts[pair[1]], ends[list(pair)] = 0, True
        begins = np.cumsum(counts) - counts
        directories = []
        for d in self.directories:
            halved = {i: (d.hashes_of(i), *further) for i, further in parted.items() if d.range[0] <= i < d.range[1]}
            here = [first for first, _ in pairs if d.range[0] <= first < d.range[1]]
            directories.append(d.repartitioned(halved, here, first=UnitIndex(int(begins[d.first]))))
        ids = self.ids.with_replacements(counts, ends)
        shared = [
            replace(sharing, unit=ids.unit_at(UnitIndex(int(begins[index]) + part)))
            for sharing in self.shared
            for index in [self.index_of(sharing.unit)]
            for part in range(int(counts[index]))
        ]
        return replace(
            self,
            holders=IntColumn(np.repeat(self.holders.array, counts)),
            directories=tuple(directories),
            shared=_in_order(shared, ids),
            version=self.version + 1,
            since=since,
            ids=ids,
        )

    def _mergeable(self, unit: Unit) -> tuple[UnitIndex, UnitIndex]:
        """The places of a unit and its buddy, in their order, if they can be merged."""
        buddy = self.buddy_of(unit)
        if buddy is None:
            raise ProtocolError(self.why_alone(unit))
        one, other = self.sharing(unit), self.sharing(buddy)
        if self.holders_of(unit) != self.holders_of(buddy) or (one and other and replace(one, unit=buddy) != other):
            raise ProtocolError(f"units {unit} and {buddy} are at different sites and cannot be merged")
        first, second = sorted((self.index_of(unit), self.index_of(buddy)))
        return first, second

    def with_added_sites(self, sites: int, since: int) -> Routing:
        """The same units where they are, and so many sites: those that are new hold nothing.

        >>> Routing(2, (0, 1)).with_added_sites(3, since=9).units_by_site()
        [array([0]), array([1]), array([], dtype=int64)]
        """
        homes = spread_homes(len(self.homes), sites)
        return replace(self, sites=sites, homes=homes, version=self.version + 1, since=since)

    def ranges_of(self, site: Site) -> Ranges:
        """The units of one site, by their places.

        >>> Routing(2, (0, 1, 1, 0)).ranges_of(0)
        ((0, 1), (3, 4))
        """
        is_held = self.holders.array == site
        for sharing in self.shared:
            is_held[self.index_of(sharing.unit)] = site in sharing.holders
        units: np.ndarray = np.flatnonzero(is_held)
        return to_ranges(units.tolist())

    def units_by_site(self, fragments: Sequence[Fragment] = (Fragment(0),)) -> list[np.ndarray]:
        """The places of the units of some fragments by site, in one pass over all of them; shared ones at each of their
        holders.

        >>> Routing(3, (0, 2, 2, 0)).units_by_site()
        [array([0, 3]), array([], dtype=int64), array([1, 2])]
        """
        units = numbers(tuple(self.directories[fragment].range for fragment in sorted(fragments)))
        holders = self.holders.array[units]
        here = set(fragments)
        for sharing in self.shared:
            index = self.index_of(sharing.unit)
            if self.fragment_at(index) in here:
                units = np.append(units, [index] * (len(sharing.holders) - 1))
                holders = np.append(holders, sharing.holders[1:])
        order = np.lexsort((units, holders)) if self.shared else np.argsort(holders, kind="stable")
        return np.split(units[order], np.searchsorted(holders[order], np.arange(1, self.sites)))

    def _require_sharing(self, unit: Unit) -> SharedUnit:
        sharing = self.sharing(unit)
        if sharing is None:
            raise ProtocolError(f"unit {unit} is not shared")
        return sharing

    def _holders_with(self, unit: Unit, site: Site) -> IntColumn[Site]:
        """The first holder of each unit, with this one of one of them."""
        holders = self.holders.array.copy()
        holders[self.index_of(unit)] = site
        return IntColumn(holders)


def spread_homes(streams: int, sites: int) -> tuple[Site, ...]:
    """A home for each of so many streams: sites take turns."""
    return tuple(Site(stream % sites) for stream in range(streams))


def _in_order(shared: Sequence[SharedUnit], ids: UnitIds) -> tuple[SharedUnit, ...]:
    """In the order of the units' places."""
    return tuple(sorted(shared, key=lambda sharing: ids.index_of(sharing.unit)))
