"""Sharing hot units: what no placement can part is given to several sites.

A unit that alone is more work than a site's fair share keeps its site busy wherever it goes. It is shared by as many
sites as leaves the busiest of all least busy, on the grid that sends the fewest copies; and given back to one when that
would do as well. As in load balancing, every unit is taken to keep its rows and every site its speed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sluice.model.ids import Site
from sluice.model.routing.sharing import SharedUnit, best_grid, copied_rows
from sluice.model.view import ClusterView
from sluice.policies.settings import Imbalance, check_settings
from sluice.verbs import Action
from sluice.verbs.share import LayOut, Release, Share


@dataclass(frozen=True)
class _Work:
    """What a unit asks for, whoever does it: its rows by input, each counted once, its results, and its bytes."""

    rows: tuple[float, ...]
    results: float
    bytes: float

    def at_each(self, holders: int) -> tuple[float, tuple[int, ...]]:
        """The rows and results at each of so many holders, and the grid on which they stand; none for a stream that is
        joined with itself, whose rows go everywhere."""
        lines = () if len(self.rows) == 1 else best_grid(holders, self.rows)
        return self.at_each_of(holders, lines), lines

    def at_each_of(self, holders: int, lines: tuple[int, ...]) -> float:
        """The rows and results at each of so many holders that stand on a grid, or all get every row."""
        rows = copied_rows(lines, self.rows) / holders if lines else sum(self.rows)
        return rows + self.results / holders

    def bytes_at_each(self, holders: int) -> float:
        """The state that each of so many holders has."""
        if len(self.rows) == 1:
            return self.bytes / holders
        copies = copied_rows(best_grid(holders, self.rows), self.rows) / max(1.0, sum(self.rows))
        return self.bytes * copies / holders


@dataclass(frozen=True)
class HotUnits:
    """Share the unit with most work if that takes at least `th_imb` off the busiest site; one unit a round.

    >>> view = ClusterView.at_rest(unit_site=[0, 0, 1, 2, 3], site_memory=[1 << 30] * 4).with_units(
    ...     rows=np.array([800, 50, 50, 50, 50]), first_rows=np.array([400, 25, 25, 25, 25]),
    ...     results=np.array([9000, 10, 10, 10, 10]), inputs=np.full(5, 2),
    ... ).with_sites(idle=np.array([0.0, 9.9, 9.9, 9.9]))
    >>> print(*(action.verb for action in HotUnits().decide(view)), sep=", ")
    share, share, share, lay out
    >>> print(HotUnits().decide(view)[-1].reason)
    unit 0 is 99 % of what site 0 does, which is 100 % busy; at 4 sites, 2 x 2, the busiest would be 28 %
    """

    th_imb: Imbalance = 1.2

    def __post_init__(self) -> None:
        check_settings(self)

    def decide(self, view: ClusterView) -> tuple[Action, ...]:
        if len(view.sites) < 2 or view.period.working_seconds <= 0 or not view.shows_load:
            return ()
        busy = np.clip(1 - view.sites.idle / view.period.working_seconds, 0, 1)
        work = view.rows_by_site + view.results_by_site
        cost = np.divide(busy, work, out=np.zeros(len(view.sites)), where=work > 0)
        for sharing in view.shared.units:
            actions = self._about_shared(view, sharing, busy, cost)
            if actions:
                return actions
        return self._share_hottest(view, busy, work, cost)

    def _share_hottest(
        self, view: ClusterView, busy: np.ndarray, work: np.ndarray, cost: np.ndarray
    ) -> tuple[Action, ...]:
        able = (view.units.inputs > 0) & ~view.units.unready & ~view.is_shared
        loads = np.where(able, (view.units.rows + view.units.results) * cost[view.units.site], 0.0)
        if not loads.any():
            return ()
        place = int(loads.argmax())
        unit, site = view.units.unit_at(place), Site(int(view.units.site[place]))
        if busy[site] < busy.max() or loads[place] < self.th_imb * busy.mean():
            return ()  # another unit, or another site, is what keeps the busiest one busy: moves can help there
        first = float(view.units.first_rows[place])
        rows = (first, float(view.units.rows[place]) - first) if view.units.inputs[place] == 2 else (first,)
        hot = _Work(rows, float(view.units.results[place]), float(view.units.bytes[place]))
        others = busy.copy()
        others[site] -= loads[place]
        level, holders = self._best(view, hot, others, (site,), float(cost[site]), np.zeros(len(view.sites)))
        if level * self.th_imb > busy.max():
            return ()
        part = (view.units.rows[place] + view.units.results[place]) / max(1, work[site])
        lines = hot.at_each(len(holders))[1]
        reason = (
            f"unit {unit} is {part:.0%} of what site {site} does, which is {busy[site]:.0%} busy; at {len(holders)} "
            f"sites{_shape(lines)}, the busiest would be {level:.0%}"
        ).replace("%", " %")
        return (*(Share(unit, other, reason) for other in holders[1:]), LayOut(unit, lines, reason))

    def _about_shared(
        self, view: ClusterView, sharing: SharedUnit, busy: np.ndarray, cost: np.ndarray
    ) -> tuple[Action, ...]:
        """Other holders for a shared unit, or another grid, if that is much better; one holder, if that is no worse."""
        unit, place = sharing.unit, view.units.index_of(sharing.unit)
        own = view.shared.slices.unit == place
        if view.units.unready[place] or not own.any() or (not sharing.grid_shape and len(sharing.inputs) == 2):
            return ()  # storing by token is for short memory, and not ours
        sites = view.shared.slices.site[own]
        others, stored = busy.copy(), np.zeros(len(view.sites))
        others[sites] -= (view.shared.slices.rows + view.shared.slices.results)[own] * cost[sites]
        stored[sites] = view.shared.slices.bytes[own]
        hot = _shared_work(view, sharing, own)
        average = float(cost[sites].mean())
        first = sharing.holders[0]  # who keeps the unit when the others release it
        given_back = others.copy()
        given_back[first] += hot.at_each(1)[0] * average
        alone, fits = float(given_back.max()), _room(view, stored)[first] >= hot.bytes
        if fits and alone <= max(float(busy.max()), self.th_imb * float(busy.mean())) and busy.any():
            reason = f"unit {unit} has cooled down: at one site the busiest would be {alone:.0%}".replace("%", " %")
            return tuple(Release(unit, site, reason) for site in sharing.holders[1:])
        level, holders = self._best(view, hot, np.maximum(others, 0.0), sharing.holders, average, stored)
        lines = hot.at_each(len(holders))[1]
        now = np.maximum(others, 0.0)  # by the same reckoning: sites that are slow are so on any grid
        now[sites] += hot.at_each_of(len(sites), sharing.grid_shape) * average
        if level * self.th_imb > min(float(busy.max()), float(now.max())):
            return ()
        reason = (
            f"the busiest site is {busy.max():.0%} busy; with unit {unit} at {len(holders)} sites{_shape(lines)}, "
            f"it would be {level:.0%}"
        ).replace("%", " %")
        coming = [Share(unit, site, reason) for site in holders if site not in sharing.holders]
        leaving = [Release(unit, site, reason) for site in sharing.holders if site not in holders]
        return (*coming, *leaving, LayOut(unit, lines, reason))

    def _best(
        self,
        view: ClusterView,
        hot: _Work,
        others: np.ndarray,
        present: tuple[Site, ...],
        cost: float,
        stored: np.ndarray,
    ) -> tuple[float, list[Site]]:
        """How busy the busiest site would be with the holders that leave it least so, and those; the present ones
        first. `others` is what keeps sites busy beside the unit."""
        new = [Site(int(site)) for site in np.argsort(others, kind="stable") if site not in present]
        order = [*present, *new]
        room = _room(view, stored)
        best: tuple[float, list[Site]] = (np.inf, list(present))
        for count in range(2, len(view.sites) + 1):
            holders = order[:count]
            if (room[holders[1:]] < hot.bytes_at_each(count)).any():
                continue
            levels = others.copy()
            levels[holders] += hot.at_each(count)[0] * cost
            if levels.max() < best[0] * 0.99:  # one more holder has to be worth it
                best = float(levels.max()), holders
        return best


def _room(view: ClusterView, stored: np.ndarray) -> np.ndarray:
    """The bytes that each site has for a unit, of which it has so many `stored` now."""
    left: np.ndarray = view.sites.memory - view.bytes_by_site + stored
    return left


def _shared_work(view: ClusterView, sharing: SharedUnit, own: np.ndarray) -> _Work:
    """What a shared unit asks for: each row counted once, though it was sent to several holders."""
    place = view.units.index_of(sharing.unit)
    sent = (float(view.units.first_rows[place]), float(view.units.rows[place] - view.units.first_rows[place]))
    rows = tuple(count / sharing.copies(i) for count, i in zip(sent, sharing.inputs, strict=False))
    weights = rows if any(rows) else (1.0,) * len(rows)  # state stays for a while where no rows come any more
    copies = copied_rows(sharing.grid_shape, weights) / sum(weights) if sharing.grid_shape else 1.0
    return _Work(
        rows, float(view.shared.slices.results[own].sum()), float(view.shared.slices.bytes[own].sum()) / copies
    )


def _shape(lines: tuple[int, ...]) -> str:
    return f", {' x '.join(map(str, lines))}" if lines else ", which all get every row"
