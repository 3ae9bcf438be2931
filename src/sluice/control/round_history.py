"""What earlier rounds tell beside the newest: what the load of two sites was before and after a unit moved.

A policy estimates what a move will do by the rows of a unit and the speed of sites. Where the rows of one unit take
longer than those of others the estimate is wrong, and as wrong in every round. What the move came to is not.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import numpy as np

from sluice.model.view import ClusterView, MovedUnits


@dataclass(frozen=True)
class _Units:
    """An entry a unit. A load is the seconds that a site works, by row and result of the query."""

    id: np.ndarray
    site: np.ndarray
    """-1 while it has several holders."""
    work: np.ndarray
    """Its part of all rows and results."""
    origin: np.ndarray
    """The site that it came from, -1 if it has not moved."""
    origin_before: np.ndarray
    """The load of its origin in the last round with it."""
    origin_relief: np.ndarray
    """How many seconds less its origin worked without it, by row and result of the unit."""
    origin_cost: np.ndarray
    """Seconds that a row or result of other units took its origin in the first round without it in which it had any."""
    site_after: np.ndarray
    """The load of its site in the first round with it."""

    @classmethod
    def none(cls) -> _Units:
        return cls(*np.zeros((4, 0), dtype=np.int64), *np.zeros((4, 0)))

    def of(self, ids: np.ndarray) -> _Units:
        """The entries of these units. One that is new has not moved."""
        columns = {f.name: np.zeros(len(ids), getattr(self, f.name).dtype) for f in fields(self)}
        columns["site"], columns["origin"] = np.full((2, len(ids)), -1)
        _, before, now = np.intersect1d(self.id, ids, return_indices=True)
        for name, column in columns.items():
            column[now] = getattr(self, name)[before]
        return _Units(**{**columns, "id": ids})


class RoundHistory:
    """Remembers rounds as far as later ones need them.

    >>> history = RoundHistory()
    >>> view = ClusterView.at_rest(unit_site=[0, 0, 1], site_memory=[1 << 20] * 2)
    >>> view = view.with_units(rows=np.array([50, 25, 25]))
    >>> history.complete(view.with_sites(idle=np.array([0.0, 9.0]))).moved.unit
    array([], dtype=int64)
    >>> moved = view.with_units(site=np.array([1, 0, 1])).with_sites(idle=np.array([9.0, 0.0]))
    >>> moved = history.complete(moved).moved  # unit 0 kept site 0 busy, and now keeps site 1 busy
    >>> moved.unit, moved.origin, moved.origin_seconds, moved.outcome
    (array([0]), array([0]), array([9.]), array([1.]))
    """

    def __init__(self) -> None:
        self._units = _Units.none()
        self._load = np.zeros(0)
        """Of each site, in the newest round."""

    def complete(self, view: ClusterView) -> ClusterView:
        """The view of a round, with what earlier ones tell about it. One that shows no load is not remembered."""
        work = (view.units.rows + view.units.results).astype(np.float64)
        total = float(work.sum())
        if not view.shows_load or not total:
            return view
        if len(view.sites) != len(self._load):
            self._units, self._load = _Units.none(), np.zeros(len(view.sites))
        busy = np.clip(view.period.working_seconds - view.sites.idle, 0.0, None)
        cost = _divide(busy, view.rows_by_site + view.results_by_site)
        self._note(view, work / total, busy / total, cost)
        return replace(view, moved=self._moved_units(work, cost))

    def _note(self, view: ClusterView, work: np.ndarray, load: np.ndarray, cost: np.ndarray) -> None:
        """Remember the round: each unit's part of the work, the load of each site, what a row or result took there."""
        site, known = np.where(view.is_shared, -1, view.units.site), self._units.of(view.units.id)
        origin, is_alone = known.site, site >= 0
        moved, stayed = is_alone & (origin >= 0) & (origin != site), is_alone & (origin == site)
        left = np.bincount(origin[moved], weights=known.work[moved], minlength=len(load))
        relief = _divide(np.maximum(0.0, self._load - load), left)
        self._units = _Units(
            id=view.units.id,
            site=site,
            work=work,
            origin=np.where(moved, origin, np.where(stayed, known.origin, -1)),
            origin_before=np.where(moved, self._load[origin], known.origin_before),
            origin_relief=np.where(moved, relief[origin], known.origin_relief),
            origin_cost=np.where(moved, cost[origin], _first(known.origin_cost, cost[known.origin])),
            site_after=np.where(moved, load[site], known.site_after),
        )
        self._load = load

    def _moved_units(self, work: np.ndarray, cost: np.ndarray) -> MovedUnits:
        place = np.flatnonzero(self._units.origin >= 0)
        moved = _Units(**{f.name: getattr(self._units, f.name)[place] for f in fields(_Units)})
        shows_speed = (cost[moved.origin] > 0) & (moved.origin_cost > 0)
        slower = np.where(shows_speed, _divide(cost[moved.origin], moved.origin_cost), 1.0)
        return MovedUnits(
            unit=place,
            origin=moved.origin,
            origin_seconds=moved.origin_relief * work[place] * np.minimum(1.0, slower),
            outcome=_divide(moved.site_after, moved.origin_before, otherwise=np.inf),
            growth=_divide(self._load[moved.site], moved.site_after, otherwise=np.inf),
        )


def _first(numbers: np.ndarray, others: np.ndarray) -> np.ndarray:
    """The numbers above 0, and others in place of the rest."""
    first: np.ndarray = np.where(numbers > 0, numbers, others)
    return first


def _divide(numbers: np.ndarray, by: np.ndarray, otherwise: float = 0.0) -> np.ndarray:
    """The quotients; where there is nothing to divide by, something else."""
    quotients: np.ndarray = np.divide(numbers, by, out=np.full(len(numbers), otherwise), where=by > 0)
    return quotients
