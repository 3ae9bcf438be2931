"""Routing: which site holds each unit, from which epoch on."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import heapify, heapreplace
from itertools import islice

import numpy as np

from sluice.model.directory import Directory, HashRange
from sluice.model.errors import ProtocolError
from sluice.model.ids import Fragment, InputNumber, Site, Unit
from sluice.model.sharing import SharedUnit
from sluice.model.unit_ranges import Ranges, numbers, ranges


@dataclass(frozen=True)
class Routing:
    """The units of all fragments, numbered through, and the site that holds each, with the epoch from which it holds.

    `directories` has one for each fragment; if there is none, all units are roots of one. A unit with several holders
    is in `shared`; the first of them stands in `holders`.
    """

    sites: int
    holders: tuple[Site, ...]
    version: int = 0
    since: int = 0
    directories: tuple[Directory, ...] = ()
    shared: tuple[SharedUnit, ...] = ()

    def __post_init__(self) -> None:
        if not self.directories:
            object.__setattr__(self, "directories", (Directory(len(self.holders)),))
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
        directories = tuple(Directory(units, first=Unit(units * fragment)) for fragment in range(fragments))
        return cls(sites, tuple(holders.tolist()) * fragments, version, since, directories)

    @classmethod
    def of_fragments(cls, units: Sequence[int], sites: int) -> Routing:
        """So many units for each fragment, spread evenly; fragments of a single unit take turns at the sites.

        >>> Routing.of_fragments((4, 1, 1), 2).holders
        (0, 0, 1, 1, 0, 1)
        """
        holders: list[Site] = []
        directories: list[Directory] = []
        single = 0
        for count in units:
            directories.append(Directory(count, first=Unit(len(holders))))
            if count == 1:
                holders.append(Site(single % sites))
                single += 1
            else:
                holders += map(Site, (np.arange(count) * sites // count).tolist())
        return cls(sites, tuple(holders), directories=tuple(directories))

    @property
    def units(self) -> int:
        """How many there are, of all fragments."""
        return len(self.holders)

    def fragment_of(self, unit: Unit) -> Fragment:
        """
        >>> Routing.even(4, 2, fragments=3).fragment_of(7)
        1
        """
        return Fragment(next(f for f, directory in enumerate(self.directories) if unit < directory.range[1]))

    def holders_of(self, unit: Unit) -> tuple[Site, ...]:
        """All sites that hold a unit."""
        sharing = self.sharing(unit)
        return sharing.holders if sharing else (self.holders[unit],)

    def sharing(self, unit: Unit) -> SharedUnit | None:
        """How a unit is shared; None if one site holds it."""
        return next((sharing for sharing in self.shared if sharing.unit == unit), None)

    def moved(self, unit: Unit, site: Site, since: int) -> Routing:
        """The same routing with one unit at another site from epoch `since` on."""
        if self.sharing(unit):
            raise ProtocolError(f"unit {unit} is shared: it is released, not moved")
        holders = (*self.holders[:unit], site, *self.holders[unit + 1 :])
        return replace(self, holders=holders, version=self.version + 1, since=since)

    def moves_since(self, before: Routing) -> int:
        """How many units are at a site that did not hold them: no more than one of those who shared a unit may be left.

        >>> shared = Routing(3, (0, 1)).share(0, 2, inputs=(0, 1), since=5)
        >>> shared.release(0, 0, since=6).moves_since(shared), shared.moved(1, 0, since=6).moves_since(shared)
        (0, 1)
        """
        changed = np.flatnonzero(np.array(before.holders) != np.array(self.holders)).tolist()
        return sum(self.holders[unit] not in before.holders_of(Unit(unit)) for unit in changed)

    def share(self, unit: Unit, site: Site, inputs: Sequence[InputNumber], since: int, evenly: bool = False) -> Routing:
        """The same routing with one more holder of a unit, of a join with these inputs; tokens stay. `evenly`: the
        holders stand on the grid for inputs of as many rows.

        >>> Routing(2, (0, 1)).share(0, 1, inputs=(0, 1), since=5).shared
        (SharedUnit(unit=0, holders=(0, 1), inputs=(0, 1), tokens=(0, 0), turns=False, lines=()),)
        """
        before = self.sharing(unit) or SharedUnit.alone(unit, self.holders[unit], inputs)
        sharing = before.with_holder(site)
        return self.with_sharing(sharing.laid_out_evenly() if evenly else sharing, since)

    def pass_token(self, unit: Unit, input_: InputNumber, site: Site, since: int) -> Routing:
        """The same routing with the token of an input of a shared unit at another of its holders."""
        return self.with_sharing(self._shared(unit).with_token(input_, site), since)

    def lay_out(self, unit: Unit, lines: Sequence[int], since: int) -> Routing:
        """The same routing with the holders of a shared unit on a grid; with no lines they store in turn."""
        sharing = self._shared(unit)
        return self.with_sharing(sharing.on_grid(lines) if lines else sharing.taking_turns(), since)

    def release(self, unit: Unit, site: Site, since: int) -> Routing:
        """The same routing without one of the holders of a shared unit; what it stored, and its tokens, go to the first
        of those that stay."""
        return self.with_sharing(self._shared(unit).without_holder(site), since)

    def with_sharing(self, sharing: SharedUnit, since: int) -> Routing:
        """The same routing with a unit shared like this, or not shared if one holder is left."""
        unit, holders = sharing.unit, sharing.holders
        others = [other for other in self.shared if other.unit != unit]
        shared = _in_order([*others, sharing] if len(holders) > 1 else others)
        first = (*self.holders[:unit], holders[0], *self.holders[unit + 1 :])
        return replace(self, holders=first, shared=shared, version=self.version + 1, since=since)

    def split(self, unit: Unit, since: int, further: Sequence[HashRange] = ()) -> Routing:
        """The same routing with two units, where the one was, in place of one; those behind it count one more. Parts of
        it are split `further`, each given by its hashes.

        >>> Routing(2, (0, 1)).split(1, since=5).holders
        (0, 1, 1)
        """
        return self.redivided({unit: further}, (), since)

    def merge(self, unit: Unit, since: int) -> Routing:
        """The same routing with one unit in place of two buddies, which have to have the same holders and tokens."""
        return self.redivided({}, (unit,), since)

    def redivided(self, split: Mapping[Unit, Sequence[HashRange]], merged: Collection[Unit], since: int) -> Routing:
        """The same routing with units split and merged, all at once. Parts of those that are `split` are split further,
        each given by its hashes."""
        counts = np.ones(self.units, dtype=np.int64)
        for unit in split:
            counts[unit] = 2 + len(split[unit])
        for unit in merged:
            counts[self._second_of_mergeable(unit)] = 0
        begins = np.cumsum(counts) - counts
        directories = []
        for d in self.directories:
            halved = {u: (d.hashes_of(u), *further) for u, further in split.items() if d.range[0] <= u < d.range[1]}
            here = [unit for unit in merged if d.range[0] <= unit < d.range[1]]
            directories.append(d.redivided(halved, here, first=Unit(int(begins[d.first]))))
        shared = [
            replace(sharing, unit=Unit(int(begins[sharing.unit]) + part))
            for sharing in self.shared
            for part in range(int(counts[sharing.unit]))
        ]
        return replace(
            self,
            holders=tuple(np.repeat(np.array(self.holders), counts).tolist()),
            directories=tuple(directories),
            shared=_in_order(shared),
            version=self.version + 1,
            since=since,
        )

    def _second_of_mergeable(self, unit: Unit) -> Unit:
        """The later one of a unit and its buddy, if they can be merged."""
        directory = self.directories[self.fragment_of(unit)]
        buddy = directory.buddy(unit)
        if buddy is None:
            raise ProtocolError(directory.why_alone(unit))
        first, second = sorted((unit, buddy))
        one, other = self.sharing(first), self.sharing(second)
        if self.holders_of(first) != self.holders_of(second) or (one and other and replace(one, unit=second) != other):
            raise ProtocolError(f"units {unit} and {buddy} are at different sites and cannot be merged")
        return second

    def resized(self, sites: int, version: int, since: int) -> Routing:
        """The same units at another number of sites, with as few moves as that takes, fragment by fragment.

        New sites get units from those that have most; the units of sites that are gone go to those that have least. A
        holder of a shared unit that is gone leaves what it stored to the unit's first one.

        >>> Routing.even(6, 2).resized(3, version=1, since=9).holders
        (0, 0, 2, 1, 1, 2)
        >>> Routing.even(6, 3).resized(2, version=1, since=9).holders
        (0, 0, 1, 1, 0, 1)
        """
        if sites == self.sites:
            return self
        holders: list[Site] = []
        for low, high in (directory.range for directory in self.directories):
            holders += _resized(self.holders[low:high], self.sites, sites)
        shared = []
        for sharing in self.shared:
            staying = [holder for holder in sharing.holders if holder < sites]
            if staying:
                holders[sharing.unit] = staying[0]
            if len(staying) > 1:
                shared.append(sharing.kept_by(staying))
        return Routing(sites, tuple(holders), version, since, self.directories, tuple(shared))

    def joined(self, sites: int, since: int) -> Routing:
        """The same units where they are, and so many sites: those that are new hold nothing.

        >>> Routing(2, (0, 1)).joined(3, since=9).held()
        [array([0]), array([1]), array([], dtype=int64)]
        """
        return replace(self, sites=sites, version=self.version + 1, since=since)

    def ranges_of(self, site: Site) -> Ranges:
        """The units of one site.

        >>> Routing(2, (0, 1, 1, 0)).ranges_of(0)
        ((0, 1), (3, 4))
        """
        held = np.array(self.holders) == site
        for sharing in self.shared:
            held[sharing.unit] = site in sharing.holders
        units: np.ndarray = np.flatnonzero(held)
        return ranges(units.tolist())

    def held(self, fragments: Sequence[Fragment] = (Fragment(0),)) -> list[np.ndarray]:
        """The units of some fragments by site, in one pass over all of them; shared ones at each of their holders.

        >>> Routing(3, (0, 2, 2, 0)).held()
        [array([0, 3]), array([], dtype=int64), array([1, 2])]
        """
        units = numbers(tuple(self.directories[fragment].range for fragment in sorted(fragments)))
        holders = np.array(self.holders)[units]
        here = set(fragments)
        for sharing in self.shared:
            if self.fragment_of(sharing.unit) in here:
                units = np.append(units, [sharing.unit] * (len(sharing.holders) - 1))
                holders = np.append(holders, sharing.holders[1:])
        order = np.lexsort((units, holders)) if self.shared else np.argsort(holders, kind="stable")
        return np.split(units[order], np.searchsorted(holders[order], np.arange(1, self.sites)))

    def _shared(self, unit: Unit) -> SharedUnit:
        sharing = self.sharing(unit)
        if sharing is None:
            raise ProtocolError(f"unit {unit} is not shared")
        return sharing


def _in_order(shared: Sequence[SharedUnit]) -> tuple[SharedUnit, ...]:
    return tuple(sorted(shared, key=lambda sharing: sharing.unit))


def _resized(holders: Sequence[Site], before: int, sites: int) -> list[Site]:
    """A fragment's units at another number of sites."""
    held: list[list[int]] = [[] for _ in range(max(sites, before))]
    for place, holder in enumerate(holders):
        held[holder].append(place)
    if sites > before:
        free, takers = _given(held[:before], sites - before), range(before, sites)
    else:
        free, takers = [place for places in held[sites:] for place in places], range(sites)
    resized, remaining = list(holders), iter(sorted(free))
    for site, count in zip(map(Site, takers), _shares([len(held[site]) for site in takers], len(free)), strict=True):
        for place in islice(remaining, count):
            resized[place] = site
    return resized


def _given(held: list[list[int]], takers: int) -> list[int]:
    """The units that sites give away until the takers have as many: each the last one of whoever has most."""
    most = [(-len(units), site) for site, units in enumerate(held)]
    heapify(most)
    given: list[int] = []
    while -most[0][0] - len(given) // takers > 1:
        load, site = most[0]
        given.append(held[site].pop())
        heapreplace(most, (load + 1, site))
    return given


def _shares(loads: list[int], units: int) -> list[int]:
    """How many of the units each site gets on top of its load, if each goes to the one that has least."""
    least = [(load, site) for site, load in enumerate(loads)]
    heapify(least)
    for _ in range(units):
        load, site = least[0]
        heapreplace(least, (load + 1, site))
    return [load - loads[site] for load, site in sorted(least, key=lambda entry: entry[1])]
