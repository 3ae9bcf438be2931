"""Evening out: as many moves in one round as make the busiest site less busy.

Load balancing as in Flux moves one unit from a site in a round. Where a site has just joined, or a large unit has just
been split, that takes many rounds. Here moves are planned one after the other, each for the sites as those before it
will leave them. As in load balancing, every unit is taken to keep its rows and every site its speed.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

from sluice.model.ids import Site, Unit
from sluice.model.view import ClusterView
from sluice.verbs.move import Move

MIN_STEP_SHARE = 0.03
"""Part of the mean site's work that has to be there to be taken off the busier of two sites."""

MAX_IDLE_SHARE = 0.05
"""Part of the time below which the busiest site has so little to do that it gains nothing by giving some of it away."""


def busy_by_site(view: ClusterView) -> np.ndarray:
    """How many of the `seconds` each site worked."""
    return np.clip(view.period.working_seconds - view.sites.idle, 0.0, view.period.working_seconds)


def work_by_unit(view: ClusterView, busy: np.ndarray) -> np.ndarray:
    """How many seconds each unit took its site, as its rows and results are of all that the site had. Of those that are
    shared it is not known."""
    work = view.rows_by_site + view.results_by_site
    cost = np.divide(busy, work, out=np.zeros(len(view.sites)), where=work > 0)
    seconds: np.ndarray = np.where(view.is_shared, 0.0, (view.units.rows + view.units.results) * cost[view.units.site])
    return seconds


def waiting_by_unit(view: ClusterView, busy: np.ndarray) -> np.ndarray:
    """How many seconds the input of each unit that waits will take its site, as a row took it on average."""
    cost = np.divide(busy, view.sites.rows_done, out=np.zeros(len(view.sites)), where=view.sites.rows_done > 0)
    seconds: np.ndarray = np.where(view.is_shared, 0.0, view.units.pending * cost[view.units.site])
    return seconds


def load_by_site(view: ClusterView) -> np.ndarray:
    """How many seconds each site worked, and has to for what waits: for more than the `seconds`, if it falls behind."""
    busy = busy_by_site(view)
    load: np.ndarray = busy + view.by_site(waiting_by_unit(view, busy))
    return load


def load_by_unit(view: ClusterView) -> np.ndarray:
    """The same by unit."""
    busy = busy_by_site(view)
    load: np.ndarray = work_by_unit(view, busy) + waiting_by_unit(view, busy)
    return load


def best_unit(work: np.ndarray, units: np.ndarray, difference: float) -> int | None:
    """Of some units, by their places, the one that brings two sites closest that differ by so much work; None if it
    leaves the greater of the two as large.

    >>> work = np.array([5.0, 1.0, 9.0])
    >>> best_unit(work, np.array([0, 1, 2]), difference=8.0), best_unit(work, np.array([2]), difference=8.0)
    (0, None)
    """
    units = units[(work[units] > 0) & (work[units] < difference)]
    return int(units[np.argmin(np.abs(work[units] - difference / 2))]) if len(units) else None


def even_out(view: ClusterView, th_imb: float, most: int, room: np.ndarray) -> tuple[Move, ...]:
    """At most so many moves, if the busiest site has `th_imb` times as much to do as the mean; of units that fit into
    the bytes of `room` where they go.

    >>> view = ClusterView.at_rest(unit_site=[0] * 6, site_memory=[1 << 30] * 3)
    >>> view = view.with_units(rows=np.array([40, 30, 10, 10, 5, 5])).with_sites(idle=np.array([0.0, 10.0, 10.0]))
    >>> moves = even_out(view, th_imb=1.2, most=8, room=np.full(3, np.inf))
    >>> [(move.unit, move.site) for move in moves], moves[1].reason
    ([(0, 1), (1, 2)], 'site 0 would be 60 % busy, site 2 0 %; unit 1 takes 30 %')
    """
    load = load_by_site(view)
    if (
        len(view.sites) < 2
        or load.max() <= MAX_IDLE_SHARE * view.period.elapsed_seconds
        or load.max() < th_imb * load.mean()
    ):
        return ()
    moves: list[Move] = []
    for step in level(view, load, load_by_unit(view), most, room):
        would = "would be" if moves else "is"
        reason = (
            f"site {step.donor} {would} {_share(step.gives, view)} busy, site {step.receiver} "
            f"{_share(step.gets, view)}; unit {step.unit} takes {_share(step.takes, view)}"
        )
        moves.append(Move(step.unit, step.receiver, reason))
    return tuple(moves)


@dataclass(frozen=True)
class Step:
    """A unit with so much load that goes from one site to another, and what load these have before."""

    unit: Unit
    donor: Site
    receiver: Site
    takes: float
    gives: float
    gets: float


def level(view: ClusterView, site_load: np.ndarray, unit_load: np.ndarray, most: int, room: np.ndarray) -> list[Step]:
    """At most so many steps, always from the site with most load that can give any to the one with least, as long as
    they are worth it and the unit fits into the bytes of `room` where it goes."""
    load, left, free = site_load.astype(float), room.astype(float), ~view.is_shared
    least, donors = MIN_STEP_SHARE * float(load.mean()), np.full(len(load), True)
    units_of = cache(lambda site: np.flatnonzero(view.units.site == site))
    steps: list[Step] = []
    while len(steps) < most and donors.any():
        donor, receiver = int(np.where(donors, load, -1.0).argmax()), int(load.argmin())
        gap = float(load[donor] - load[receiver])
        units = units_of(donor)
        units = units[free[units] & (view.units.bytes[units] <= left[receiver])]
        unit = best_unit(unit_load, units, gap)
        # where units are many and small it is what they have together that counts
        together = float(unit_load[units[unit_load[units] < gap]].sum())
        if unit is None or min(together, gap - unit_load[unit]) < least:
            donors[donor] = False
            continue
        takes = float(unit_load[unit])
        gives, gets = float(load[donor]), float(load[receiver])
        steps.append(Step(view.units.unit_at(unit), Site(donor), Site(receiver), takes, gives, gets))
        load[donor] -= takes
        load[receiver] += takes
        left[receiver] -= view.units.bytes[unit]
        free[unit] = False
    return steps


def _share(seconds: float, view: ClusterView) -> str:
    return f"{100 * seconds / view.period.working_seconds:.0f} %"
