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

MERGED_AT_MOST = 0.6
"""Part of 2θ that two buddies may have together to be merged. The paper has 1: a unit around 2θ would split and merge
with every row that comes or expires. State expires a run at a time, and a run may span half the time for which it is
kept: at the same rate, a unit has up to 1.5 times what it has at its smallest."""
COOLED = 0.25
"""Part of the load from which a unit is hot that two buddies may have together to be merged. As half of it would be
just enough for twice as many sites, a quarter leaves a unit alone while sites come and go."""

LITTLE = 1 / 8
"""Part of θ that a unit may have to be moved only so that it can be merged."""
ROOMY = 0.7
"""How much of what would split again each part of a unit is to have: they do not all get as much."""
LEAST = 100
"""Rows and results of a unit from which they say how hot it is; and what would make a unit hot has to be as many for it
to be said of others that they are not."""


@dataclass(frozen=True)
class UnitSizes:
    """Split units above two times the view's `unit_size`, and units with more than `hot` of the mean site's load at
    sites that have more than `th_imb` times that; merge buddies at one site that are small and cool. At most `most` a
    round.

    Load is rows and results, as for sharing. A unit whose rows have all the same hash stays as it is, whatever it has.

    >>> from dataclasses import replace
    >>> view = replace(
    ...     ClusterView.at_rest(unit_site=[0, 0, 0, 1], site_memory=[1 << 30, 1 << 30]),
    ...     unit_bytes=np.array([10, 20, 130, 60]) << 20, unit_buddy=np.array([1, 0, -1, -1]),
    ...     unit_divisible=np.full(4, True), unit_rows=np.array([10, 20, 470, 500]),
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
        large = np.flatnonzero((view.unit_bytes > 2 * view.unit_size) & view.unit_divisible & ~view.unit_single)
        units = large[np.argsort(-view.unit_bytes[large], kind="stable")]
        theta = in_bytes(view.unit_size)
        return tuple(
            Split(
                unit, f"unit {unit} has {in_bytes(size)}, more than two times {theta}", _bits(size, 2 * view.unit_size)
            )
            for unit, size in zip(
                view.unit_id[units].tolist(), view.unit_bytes[units].astype(float).tolist(), strict=True
            )
        )

    def _splits_by_load(self, view: ClusterView, load: np.ndarray, mean: float) -> list[Split]:
        """Of units that are not too large, and have one holder: what is shared is divided among its holders already."""
        site = view.site_rows + view.site_results
        able = view.unit_divisible & ~view.unit_single & ~view.is_shared & (view.unit_bytes <= 2 * view.unit_size)
        hot = (load > self.hot * mean) & (load >= LEAST) & (site > self.th_imb * mean)[view.unit_site]
        places = np.flatnonzero(able & hot)
        return [
            Split(
                view.unit_at(place),
                f"unit {view.unit_at(place)} has {_share(load[place], mean)} of the mean site's load, more than "
                f"{_share(self.hot)}; its site {view.unit_site[place]} has {_share(site[view.unit_site[place]], mean)}",
                _bits(float(load[place]), self.hot * mean),
            )
            for place in places[np.argsort(-load[places], kind="stable")].tolist()
        ]

    def _merges(self, view: ClusterView, load: np.ndarray, mean: float) -> list[Merge]:
        first, second = self._small_pairs(view, load, mean)
        together = view.unit_site[first] == view.unit_site[second]
        limit = in_bytes(MERGED_AT_MOST * 2 * view.unit_size)
        return [
            Merge(
                view.unit_at(one),
                f"units {view.unit_at(one)} and {view.unit_at(other)} have {in_bytes(float(view.unit_bytes[one]))} and "
                f"{in_bytes(float(view.unit_bytes[other]))}, together below {limit}",
            )
            for one, other in zip(first[together].tolist(), second[together].tolist(), strict=True)
        ]

    def reunions(self, view: ClusterView, room: np.ndarray) -> tuple[Move, ...]:
        """Moves by which buddies come to one site that are to be merged: where a unit was split because it was hot, its
        parts went to other sites, and nothing else brings them back. The smaller one moves, if it has next to nothing
        and fits into the bytes of `room`."""
        first, second = self._small_pairs(view, *_load(view))
        apart = view.unit_site[first] != view.unit_site[second]
        moves = []
        for one, other in zip(first[apart].tolist(), second[apart].tolist(), strict=True):
            small, large = (one, other) if view.unit_bytes[one] <= view.unit_bytes[other] else (other, one)
            size, site = float(view.unit_bytes[small]), int(view.unit_site[large])
            if size <= min(room[site], LITTLE * view.unit_size):
                pair, moving = f"units {view.unit_at(one)} and {view.unit_at(other)}", view.unit_at(small)
                reason = f"{pair} are small and can be merged at one site; unit {moving} has {in_bytes(size)}"
                moves.append(Move(moving, Site(site), reason))
        return tuple(moves[: self.most])

    def _small_pairs(self, view: ClusterView, load: np.ndarray, mean: float) -> tuple[np.ndarray, np.ndarray]:
        """Buddies that are small and cool, wherever they are, the smallest first; none where that is not to be seen."""
        first = np.flatnonzero(view.unit_buddy > np.arange(len(view.unit_site)))
        second = view.unit_buddy[first]
        size = view.unit_bytes[first] + view.unit_bytes[second]
        small = np.minimum(view.unit_bytes[first], view.unit_bytes[second]) < view.unit_size
        settled = ~(view.unit_unready | view.is_shared)
        known = view.shows_load and self.hot * mean >= LEAST
        cool = known & (load[first] + load[second] <= COOLED * self.hot * mean)
        fits = small & (size < MERGED_AT_MOST * 2 * view.unit_size) & settled[first] & settled[second] & cool
        order = np.argsort(size[fits], kind="stable")
        return first[fits][order], second[fits][order]


def concerned_units(view: ClusterView, action: Split | Merge) -> set[Unit]:
    """The unit that is split or merged, and the one that it is merged with."""
    buddy = int(view.unit_buddy[view.index_of(action.unit)]) if isinstance(action, Merge) else -1
    return {action.unit} if buddy < 0 else {action.unit, view.unit_at(buddy)}


def _load(view: ClusterView) -> tuple[np.ndarray, float]:
    """Of each unit, and of the mean site."""
    mean = float((view.site_rows + view.site_results).mean()) if view.sites else 0.0
    return view.unit_rows + view.unit_results, mean


def _bits(has: float, most: float) -> int:
    """How often a unit has to be halved until every part has less, and some room to it.

    >>> _bits(6.0, 5.0), _bits(9.0, 5.0), _bits(1e9, 5.0)
    (1, 2, 5)
    """
    return min(MOST_BITS, max(1, math.ceil(math.log2(has / (ROOMY * most)))))


def _share(load: float, of: float = 1.0) -> str:
    return f"{100 * load / of:.0f} %"
