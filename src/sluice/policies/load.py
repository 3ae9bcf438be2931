"""Load balancing: busy sites give units to idle ones, as in section 5.3 of the Flux paper.

The paper's U is how much of the time a site was not idle, its T the rows the site processed and its N those of a unit.
What a move will do is estimated by assuming that every unit keeps its rows and every site its speed. What the last move
of a unit came to is measured, and counts for more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from sluice.model.ids import Site, Unit
from sluice.model.view import ClusterView
from sluice.policies.base import Policy
from sluice.policies.planning.moved_units import may_go
from sluice.policies.planning.pairing import Pairs, first_of_each
from sluice.policies.settings import Flag, Imbalance, Number, check_settings
from sluice.verbs import Action
from sluice.verbs.move import Move

ROUNDING = 1e-9
"""Less than this between two utilizations is no difference.

A unit that only makes two sites change places must not look like a gain through the last digit of a division: it would
go back and forth for ever.
"""
LEAST_GAIN = 0.05
"""The part by which a receiver stays less busy than its donor was. A unit that makes it nearly as busy only has two
sites change places, and how busy these are is not known to a few per cent."""
LARGEST = 0.75
"""Part of what two sites differ by that a unit may be where units are shared. Holders of a hot unit are busy with much
the same then, and what they differ by is often one small unit, whose work is hard to tell from that of the hot one: if
it is taken to be a little less than it is, it would go back and forth."""


@dataclass(frozen=True)
class LoadBalancing(Policy):
    """Pair the busiest site with the idlest and move one unit that brings the two closer. The receiver stays less busy
    than the donor was, by a twentieth.

    A pair is left alone, and all after it, when its donor is less busy than the average or less than `th_imb` times as
    busy as its receiver, or when the receiver is busier than `th_util`. A site that processed nothing shows no speed:
    it is taken to be as fast as its donor. From one that is several times slower the unit comes back, and does not go
    there again. With `as_printed` such a site is taken to stay idle whatever it gets, which is what the paper's
    U (1 + N / T) comes to where U is zero, and nothing is learnt: popular units go from one site without rows to the
    next.

    >>> view = ClusterView.at_rest(unit_site=[0, 0, 0, 1], site_memory=[1 << 30, 1 << 30])
    >>> view = view.with_units(rows=np.array([600, 300, 100, 400])).with_sites(idle=np.array([0.0, 6.0]))
    >>> LoadBalancing().decide(view)  # unit 0 would leave site 1 as busy as site 0 is now
    (Move(unit=1, site=1, reason="site 0 is 100 % busy, site 1 40 %; unit 1 takes 30 % of site 0's rows"),)
    """

    th_imb: Imbalance = 1.2
    th_util: Annotated[float, Number("how much of the time a receiver is busy at most", least=0, most=1)] = 0.9
    as_printed: Annotated[bool, Flag("whether a site without rows is taken to stay idle")] = False

    name = "load"

    def __post_init__(self) -> None:
        check_settings(self)

    def decide(self, view: ClusterView) -> tuple[Action, ...]:
        return self.moves(view, np.full(len(view.sites), np.inf))

    def moves(self, view: ClusterView, room: np.ndarray) -> tuple[Move, ...]:
        """The moves of one round, of units that fit into the bytes of `room` at their destination."""
        if len(view.sites) < 2 or view.period.working_seconds <= 0:
            return ()
        busy = np.clip(1 - view.sites.idle / view.period.working_seconds, 0, 1)
        rows = view.rows_by_site
        pairs = Pairs.from_ends(np.argsort(-busy, kind="stable"))
        pairs = pairs.until_failure(self.worthwhile(busy[pairs.donor], busy[pairs.receiver], float(busy.mean())))

        unit, pair = pairs.units(view.units.site, len(view.sites))
        fits = fitting(view.units.rows[unit], busy, rows, pairs, pair, self.as_printed)
        fits &= (view.units.bytes[unit] <= room[pairs.receiver[pair]]) & ~view.is_shared[unit]
        if not self.as_printed:
            fits &= may_go(view, unit, pairs.receiver[pair], self.th_imb)
        if view.shared.units:
            difference = (busy[pairs.donor] - busy[pairs.receiver])[pair]
            fits &= _at_most(view, unit) * busy[pairs.donor[pair]] <= LARGEST * difference
        unit, pair = unit[fits], pair[fits]
        first = first_of_each(pair, len(pairs.donor), view.units.rows[unit])
        unit, pair = unit[first], pair[first]

        donor, receiver = pairs.donor[pair], pairs.receiver[pair]
        share = view.units.rows[unit] / rows[donor]
        columns = (
            view.units.id[unit],
            donor,
            receiver,
            busy[donor],
            busy[receiver],
            share,
            (rows[receiver] == 0) & (not self.as_printed),
        )
        return tuple(
            Move(u, r, explained(u, d, r, *numbers))
            for u, d, r, *numbers in zip(*(column.tolist() for column in columns), strict=True)
        )

    def worthwhile(self, donor: np.ndarray, receiver: np.ndarray, average: float) -> np.ndarray:
        """The threshold test of each pair."""
        passes: np.ndarray = (
            (donor >= average - ROUNDING)
            & (donor >= self.th_imb * receiver - ROUNDING)
            & (receiver <= self.th_util + ROUNDING)
        )
        return passes


def fitting(
    unit_rows: np.ndarray,
    busy: np.ndarray,
    rows: np.ndarray,
    pairs: Pairs,
    pair: np.ndarray,
    as_printed: bool = False,
) -> np.ndarray:
    """Which units would bring donor and receiver closer and leave the receiver less busy than the donor is; as printed,
    no more than fully busy.

    A unit without rows brings them no closer, and so never moves.
    """
    cost = np.divide(busy, rows, out=np.zeros(len(busy)), where=rows > 0)  # of one row: the paper's U / T
    gives = cost[pairs.donor]
    gets = np.where(as_printed | (rows[pairs.receiver] > 0), cost[pairs.receiver], gives)
    before = busy[pairs.donor] - busy[pairs.receiver]
    receiver = busy[pairs.receiver][pair] + unit_rows * gets[pair]
    after = np.abs(busy[pairs.donor][pair] - unit_rows * gives[pair] - receiver)
    most = np.where(as_printed, 1.0, (1 - LEAST_GAIN) * busy[pairs.donor])
    fits: np.ndarray = (after < before[pair] - ROUNDING) & (receiver <= most[pair] + ROUNDING)
    return fits


def _at_most(view: ClusterView, unit: np.ndarray) -> np.ndarray:
    """The part that each unit can have of its site's work: of the rows or of the results, whichever is more."""
    site = view.units.site[unit]
    parts: np.ndarray = np.maximum(
        view.units.rows[unit] / np.maximum(view.rows_by_site, 1)[site],
        view.units.results[unit] / np.maximum(view.results_by_site, 1)[site],
    )
    return parts


def explained(unit: Unit, donor: Site, receiver: Site, gives: float, gets: float, share: float, unknown: bool) -> str:
    part = f"{100 * share:.3g} %" if share >= 0.001 else "under 0.1 %"
    speed = f", and is taken to cost site {receiver}, which had no rows, as much" if unknown else ""
    return (
        f"site {donor} is {100 * gives:.0f} % busy, site {receiver} {100 * gets:.0f} %; "
        f"unit {unit} takes {part} of site {donor}'s rows{speed}"
    )
