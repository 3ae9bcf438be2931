"""Units of the right size: those above 2θ split, buddies that are small together merge (parallel window joins, IV-D).

The paper keeps each partition-group within θ to 2θ by extendible hashing, so that scanning it stays cheap. Here a unit
that is split can also be moved in parts, so a unit splits, too, when it is small but hot: when it alone is a large part
of what a site has to do, while its site has more to do than others.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from sluice.model.ids import Site, Unit
from sluice.model.routing.directory import MOST_BITS
from sluice.model.view import ClusterView
from sluice.policies.memory import in_bytes
from sluice.policies.settings import HotPart, Imbalance, MostActions, check_settings
from sluice.verbs.move import Move
from sluice.verbs.split import Merge, Split

MAX_MERGED_SHARE = 0.6
"""Part of 2θ that two buddies may have together to be merged. The paper has 1: a unit around 2θ would split and merge
with every row that comes or expires. State expires a run at a time, and a run may span half the time for which it is
kept: at the same rate, a unit has up to 1.5 times what it has at its smallest."""
MAX_COOL_SHARE = 0.25
"""Part of the load from which a unit is hot that two buddies may have together to be merged. As half of it would be
just enough for twice as many sites, a quarter leaves a unit alone while sites come and go."""

REUNION_SHARE = 1 / 8
"""Part of θ that a unit may have to be moved only so that it can be merged."""
SPLIT_HEADROOM = 0.7
"""How much of what would split again each part of a unit is to have: they do not all get as much."""
MIN_VISIBLE_LOAD = 100
"""Rows and results of a unit from which they say how hot it is; and what would make a unit hot has to be as many for it
to be said of others that they are not."""


@dataclass(frozen=True)
class UnitSizes:
    """Split units above two times the view's `unit_size`, and units with more than `hot` of the mean site's load at
    sites that have more than `th_imb` times that; merge buddies at one site that are small and cool. At most `most` a
    round.

    Load is rows and results, as for sharing. A unit whose rows have all the same hash stays as it is, whatever it has.

    >>> view = ClusterView.at_rest(unit_site=[0, 0, 0, 1], site_memory=[1 << 30, 1 << 30]).with_units(
    ...     bytes=np.array([10, 20, 130, 60]) << 20, buddy=np.array([1, 0, -1, -1]),
    ...     divisible=np.full(4, True), rows=np.array([10, 20, 470, 500]),
    ... )
    >>> for action in UnitSizes().decide(view): print(action)
    Split(unit=2, reason='unit 2 has 130 MiB, more than two times 64 MiB', bits=1)
    Merge(unit=0, reason='units 0 and 1 have 10 MiB and 20 MiB, together below 76.8 MiB')
    """

    hot: HotPart = 0.25
    th_imb: Imbalance = 1.1
    most: MostActions = 16

    def __post_init__(self) -> None:
        check_settings(self)

    def decide(self, view: ClusterView) -> tuple[Split | Merge, ...]:
        load, mean = _load(view)
        splits = [*self.splits_by_size(view), *(self._splits_by_load(view, load, mean) if view.shows_load else ())]
        divided = {split.unit for split in splits}
        actions: list[Split | Merge] = list(splits)
        actions += [m for m in self._merges(view, load, mean) if not divided & concerned_units(view, m)]
        return tuple(actions[: self.most])

    def splits_by_size(self, view: ClusterView) -> tuple[Split, ...]:
        """Of units that are too large."""
        units = view.units
        large = np.flatnonzero((units.bytes > 2 * view.unit_size) & units.divisible & ~units.single_key)
        places = large[np.argsort(-units.bytes[large], kind="stable")]
        theta = in_bytes(view.unit_size)
        return tuple(
            Split(
                unit, f"unit {unit} has {in_bytes(size)}, more than two times {theta}", _bits(size, 2 * view.unit_size)
            )
            for unit, size in zip(units.id[places].tolist(), units.bytes[places].astype(float).tolist(), strict=True)
        )

    def _splits_by_load(self, view: ClusterView, load: np.ndarray, mean: float) -> list[Split]:
        """Of units that are not too large, and have one holder: what is shared is divided among its holders already."""
        units, site = view.units, view.rows_by_site + view.results_by_site
        able = units.divisible & ~units.single_key & ~view.is_shared & (units.bytes <= 2 * view.unit_size)
        hot = (load > self.hot * mean) & (load >= MIN_VISIBLE_LOAD) & (site > self.th_imb * mean)[units.site]
        places = np.flatnonzero(able & hot)
        return [
            Split(
                units.unit_at(place),
                f"unit {units.unit_at(place)} has {_share(load[place], mean)} of the mean site's load, more than "
                f"{_share(self.hot)}; its site {units.site[place]} has {_share(site[units.site[place]], mean)}",
                _bits(float(load[place]), self.hot * mean),
            )
            for place in places[np.argsort(-load[places], kind="stable")].tolist()
        ]

    def _merges(self, view: ClusterView, load: np.ndarray, mean: float) -> list[Merge]:
        units = view.units
        first, second = self._small_pairs(view, load, mean)
        together = units.site[first] == units.site[second]
        limit = in_bytes(MAX_MERGED_SHARE * 2 * view.unit_size)
        return [
            Merge(
                units.unit_at(one),
                f"units {units.unit_at(one)} and {units.unit_at(other)} have {in_bytes(float(units.bytes[one]))} and "
                f"{in_bytes(float(units.bytes[other]))}, together below {limit}",
            )
            for one, other in zip(first[together].tolist(), second[together].tolist(), strict=True)
        ]

    def reunions(self, view: ClusterView, room: np.ndarray) -> tuple[Move, ...]:
        """Moves by which buddies come to one site that are to be merged: where a unit was split because it was hot, its
        parts went to other sites, and nothing else brings them back. The smaller one moves, if it has next to nothing
        and fits into the bytes of `room`."""
        units = view.units
        first, second = self._small_pairs(view, *_load(view))
        apart = units.site[first] != units.site[second]
        moves = []
        for one, other in zip(first[apart].tolist(), second[apart].tolist(), strict=True):
            small, large = (one, other) if units.bytes[one] <= units.bytes[other] else (other, one)
            size, site = float(units.bytes[small]), int(units.site[large])
            if size <= min(room[site], REUNION_SHARE * view.unit_size):
                pair, moving = f"units {units.unit_at(one)} and {units.unit_at(other)}", units.unit_at(small)
                reason = f"{pair} are small and can be merged at one site; unit {moving} has {in_bytes(size)}"
                moves.append(Move(moving, Site(site), reason))
        return tuple(moves[: self.most])

    def _small_pairs(self, view: ClusterView, load: np.ndarray, mean: float) -> tuple[np.ndarray, np.ndarray]:
        """Buddies that are small and cool, wherever they are, the smallest first; none where that is not to be seen."""
        units = view.units
        first = np.flatnonzero(units.buddy > np.arange(len(units)))
        second = units.buddy[first]
        size = units.bytes[first] + units.bytes[second]
        small = np.minimum(units.bytes[first], units.bytes[second]) < view.unit_size
        settled = ~(units.unready | view.is_shared)
        is_load_visible = view.shows_load and self.hot * mean >= MIN_VISIBLE_LOAD
        cool = is_load_visible & (load[first] + load[second] <= MAX_COOL_SHARE * self.hot * mean)
        fits = small & (size < MAX_MERGED_SHARE * 2 * view.unit_size) & settled[first] & settled[second] & cool
        order = np.argsort(size[fits], kind="stable")
        return first[fits][order], second[fits][order]


def concerned_units(view: ClusterView, action: Split | Merge) -> set[Unit]:
    """The unit that is split or merged, and the one that it is merged with."""
    buddy = int(view.units.buddy[view.units.index_of(action.unit)]) if isinstance(action, Merge) else -1
    return {action.unit} if buddy < 0 else {action.unit, view.units.unit_at(buddy)}


def _load(view: ClusterView) -> tuple[np.ndarray, float]:
    """Of each unit, and of the mean site."""
    mean = float((view.rows_by_site + view.results_by_site).mean()) if len(view.sites) else 0.0
    return view.units.rows + view.units.results, mean


def _bits(has: float, most: float) -> int:
    """How often a unit has to be halved until every part has less, and some room to it.

    >>> _bits(6.0, 5.0), _bits(9.0, 5.0), _bits(1e9, 5.0)
    (1, 2, 5)
    """
    return min(MOST_BITS, max(1, math.ceil(math.log2(has / (SPLIT_HEADROOM * most)))))


def _share(load: float, of: float = 1.0) -> str:
    return f"{100 * load / of:.0f} %"
