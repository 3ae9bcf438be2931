"""Elastic: overloaded sites give units to idle ones, and there are as many sites as the load needs (parallel window
joins, sections IV-C, IV-D and V-A).

The paper's f is how much of a site's buffer was filled on average: above `th_sup` the site is a supplier, below
`th_con` a consumer, else neutral. What differs from the paper, and why:

- It moves a unit drawn at random. Here it is the one that brings the two sites closest, by the time they worked.
- It takes a node away whenever none is a supplier, and so goes back and forth around the right number: its "minimally
  overloaded" system is one that is overloaded every other time. A policy has no memory by which it could wait. So both
  ways are decided by the same number, the time that all sites together worked: there are more sites only if one of
  them less would be filled above `aim`, and one less only if every one that stays would be filled to at most `low`.
  As that is less than `aim`, the same work never asks for both, whatever was before; nor can a site that has just
  joined, and has nothing yet, be sent away, as all the work is there before it as after it.
- It waits for buffers to fill. Here there are more sites also when those there are work more than `high` of the time,
  and as many at once as the work needs. Work is what came in, by the time in which it arrived: more than sites manage
  as long as the rate goes up, and what waits already comes on top. And where the rate has gone up all the time, it is
  counted as what it will be when they have joined (`growth_factor`).
- One unit in a round is little for a site that has just joined, or where a unit was just split. A site that joins gets
  its share at once, whatever the policy (`control/scaling.py`); and where the busiest site has much more to do than the
  mean, as many units move at once as make it even (`even`). Suppliers and consumers are for what is left.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from sluice.model.errors import FlowError
from sluice.model.ids import Site
from sluice.model.view import ClusterView
from sluice.policies.base import Policy
from sluice.policies.memory import excess_capacity
from sluice.policies.planning.draining import drain
from sluice.policies.planning.rebalancing import best_unit, busy_by_site, even_out, load_by_site, work_by_unit
from sluice.policies.planning.unit_sizes import UnitSizes, concerned_units
from sluice.policies.settings import Flag, HotPart, Imbalance, MostActions, Number, check_settings
from sluice.verbs import Action
from sluice.verbs.move import Move
from sluice.verbs.scale import Scale

_WAITING = Number("a part of the input that may wait at a site", least=0, most=1)
_WORKING = Number("a part of a site's time", above=0)  # above 1 where it has more to do than it manages


@dataclass(frozen=True)
class Elastic(Policy):
    """One unit from each supplier to a consumer of its own; more sites when there are more suppliers than `beta` times
    the consumers, or all work more than `high` of the time; one less when nobody is a supplier and the others would
    work at most `low` of it. Units are kept within one and two times the query's `unitSize`, and split when they are
    `hot`.

    >>> view = ClusterView.at_rest(unit_site=[0, 0, 0, 1, 1, 1], site_memory=[1 << 30, 1 << 30])
    >>> view = view.with_units(rows=np.array([50, 30, 20, 40, 10, 0]))
    >>> uneven = view.with_sites(idle=np.array([0.0, 5.0]), occupancy=np.array([0.8, 0.0]))
    >>> for action in Elastic(hot=1.0, even=False).decide(uneven): print(action.reason)
    the input that waits fills site 0 to 80 %, site 1 to 0 %; they are 100 % and 50 % busy, and unit 1 takes 30 %
    >>> busy = view.with_sites(idle=np.array([0.0, 1.0])).with_scaling(most_sites=8)
    >>> for action in Elastic(hot=1.0).decide(busy): print(action)
    Scale(sites=3, reason='2 sites work 95 % of the time, more than 85 %; 3 would work 63 %')
    """

    name = "elastic"
    scales = True
    """It chooses the number of sites by the input that waits at them, so some has to be able to wait."""

    th_sup: Annotated[float, _WAITING] = 0.5
    th_con: Annotated[float, _WAITING] = 0.01
    beta: Annotated[float, Number("how many suppliers there may be for each consumer", least=0)] = 0.5
    low: Annotated[float, _WORKING] = 0.6
    high: Annotated[float, _WORKING] = 0.85
    even: Annotated[bool, Flag("whether as many units move at once as make the sites even")] = True
    th_imb: Imbalance = 1.2
    hot: HotPart = 0.25
    most: MostActions = 16

    def __post_init__(self) -> None:
        check_settings(self)
        if self.th_con >= self.th_sup:
            raise FlowError(f"th_con must be less than th_sup; they are {self.th_con} and {self.th_sup}")
        if self.low >= self.high:
            raise FlowError(f"low must be less than high; they are {self.low} and {self.high}")

    @property
    def sizes(self) -> UnitSizes:
        """How large units are."""
        return UnitSizes(self.hot, most=self.most)

    @property
    def aim(self) -> float:
        """How much of their time sites work when there are as many as they should be: what lies between."""
        return (self.low + self.high) / 2

    def decide(self, view: ClusterView) -> tuple[Action, ...]:
        """Fewer sites alone, as their units are to move then; else more sites, or moves of units, as sites that join
        have units move anyway; and units that are split or merged, each unit in one of these."""
        if not len(view.sites) or view.period.working_seconds <= 0:
            return self.sizes.decide(view)
        evening = even_out(view, self.th_imb, self.most, excess_capacity(view)) if self.even else ()
        scale = self._scale(view, is_even=not evening)
        if scale is not None and scale.sites < len(view.sites):
            return (scale,)
        redivisions = self.sizes.decide(view)
        divided = {unit for action in redivisions for unit in concerned_units(view, action)}
        if scale is not None:
            return (scale, *redivisions)
        moves = tuple(move for move in evening or self._supply(view) if move.unit not in divided)
        return (*moves, *redivisions) or self.sizes.reunions(view, excess_capacity(view))

    def _supply(self, view: ClusterView) -> tuple[Move, ...]:
        """One scan: the fullest supplier and the idlest consumer, and so on."""
        busy, filled, room = busy_by_site(view), view.sites.occupancy, excess_capacity(view)
        work, seconds = work_by_unit(view, busy), view.period.working_seconds
        suppliers, consumers = np.flatnonzero(filled > self.th_sup), np.flatnonzero(filled < self.th_con)
        suppliers = suppliers[np.argsort(-filled[suppliers], kind="stable")]
        consumers = consumers[np.argsort(busy[consumers], kind="stable")]
        moves = []
        for donor, receiver in zip(suppliers.tolist(), consumers.tolist(), strict=False):
            able = ~view.is_shared & (view.units.bytes <= room[receiver])
            place = best_unit(
                work, np.flatnonzero(able & (view.units.site == donor)), float(busy[donor] - busy[receiver])
            )
            if place is not None:
                unit = view.units.unit_at(place)
                reason = (
                    f"the input that waits fills site {donor} to {_percent(filled[donor])}, site {receiver} to "
                    f"{_percent(filled[receiver])}; they are {_percent(busy[donor] / seconds)} and "
                    f"{_percent(busy[receiver] / seconds)} busy, and unit {unit} takes "
                    f"{_percent(work[place] / seconds)}"
                )
                moves.append(Move(unit, Site(receiver), reason))
        return tuple(moves)

    def _scale(self, view: ClusterView, is_even: bool) -> Scale | None:
        """Where work can be evened out, suppliers alone do not ask for more sites: there may be enough. As long as
        nothing was taken in, how much arrives is not known."""
        period = view.period
        if period.arrival_seconds <= 0:
            return None
        suppliers = int(np.count_nonzero(view.sites.occupancy > self.th_sup))
        consumers = int(np.count_nonzero(view.sites.occupancy < self.th_con))
        # input that waits leaves no time unused but that in which no site can work
        working = period.working_seconds / period.elapsed_seconds if suppliers else 1.0
        filled = load_by_site(view) / period.arrival_seconds / working
        crowded = is_even and suppliers > self.beta * consumers
        if crowded or filled.mean() > self.high:
            return self._more(view, filled, suppliers if crowded else 0, consumers)
        return None if suppliers else self._fewer(view, filled)

    def _more(self, view: ClusterView, filled: np.ndarray, suppliers: int, consumers: int) -> Scale | None:
        work, now, growth = float(filled.sum()), len(view.sites), view.scaling.growth_factor
        sites = min(max(now + 1, math.ceil(work * growth / self.aim - 1e-9)), view.scaling.most_sites)
        if sites <= max(now, view.scaling.requested_sites) or work <= self.aim * now:
            return None
        if suppliers:
            why = f"sites whose waiting input fills more than {_percent(self.th_sup)}: {suppliers}, less than " + (
                f"{_percent(self.th_con)}: {consumers}; {now} sites work {_percent(work / now)}"
            )
        else:
            why = f"{now} sites work {_percent(work / now)} of the time, more than {_percent(self.high)}"
        soon = "" if growth == 1 else f", and soon {_percent(growth)} of that"
        return Scale(sites, f"{why}{soon}; {sites} would work {_percent(growth * work / sites)}")

    def _fewer(self, view: ClusterView, filled: np.ndarray) -> Scale | None:
        sites, growth = len(view.sites) - 1, view.scaling.growth_factor
        if sites < max(1, view.scaling.least_sites) or growth * filled.sum() > self.low * sites:
            return None
        after, stored = self._after_leaving(view, filled * growth)
        if after.max() > self.low or (stored > view.sites.memory[:-1]).any():
            return None
        why = f"no site's waiting input fills more than {_percent(self.th_sup)}; {len(view.sites)} sites work "
        return Scale(
            sites, f"{why}{_percent(filled.mean())} of the time, {sites} would work at most {_percent(after.max())}"
        )

    def _after_leaving(self, view: ClusterView, filled: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """How filled the other sites would be without the last one, and what bytes they would hold, with its units
        where draining has them go. Its part of units that are shared goes, nobody knows where to: to the most filled
        one."""
        work = work_by_unit(view, filled)
        last, staying = Site(len(view.sites) - 1), [Site(site) for site in range(len(view.sites) - 1)]
        after, stored = filled[:-1].copy(), view.bytes_by_site[:-1].astype(float)
        for unit, site in drain(view.units.site, work, view.units.bytes, [last], staying):
            after[site] += work[unit]
            stored[site] += view.units.bytes[unit]
        shared = filled[-1] - work[view.units.site == last].sum()
        after[int(after.argmax())] += max(0.0, float(shared))
        return after, stored


def _percent(part: float) -> str:
    return f"{100 * part:.0f} %"
