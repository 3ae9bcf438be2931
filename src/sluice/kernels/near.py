"""Finding, for many rows at once, the rows of a run inside a time range and between values: no key, no equality.

The run is in the order of time, and of some values its order is known as well. Which of them leaves fewest candidates
is counted by binary searches before any is looked at; the others are then tested, a bounded number of pairs at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from sluice.kernels.probe import Run, expand
from sluice.kernels.value_order import ValueOrder, values_of
from sluice.model.ranges import Inequality, Ordering

CANDIDATES_AT_ONCE = 1 << 17
"""So few that they and what is taken for them stay in the processor's cache."""
_WORTH_A_SEARCH = 16
"""How many candidates a row must have for another search to pay."""


@dataclass(frozen=True)
class ValueBounds:
    """Between which values of an ordering the partners of each probe lie; None is without a bound, NaN has no partner.

    A bound has as much room as rounding may have taken.
    """

    ordering: Ordering
    least: np.ndarray | None = None
    most: np.ndarray | None = None

    def take(self, probes: np.ndarray) -> ValueBounds:
        least = None if self.least is None else self.least[probes]
        return ValueBounds(self.ordering, least, None if self.most is None else self.most[probes])

    def within(self, values: np.ndarray, probes: np.ndarray) -> np.ndarray:
        """Whether the values lie between the bounds of these probes."""
        inside = np.ones(len(values), dtype=bool) if self.least is None else values >= self.least[probes]
        if self.most is not None:
            inside &= values <= self.most[probes]
        return inside


def bounds_for(inequalities: Sequence[Inequality], leg: int, probes: pa.RecordBatch) -> list[ValueBounds]:
    """What inequalities say of the values of a leg's rows, given rows of the other leg; those of one ordering as one.

    What cannot be computed for the probes bounds nothing.
    """
    found: dict[Ordering, ValueBounds] = {}
    for inequality in inequalities:
        values = values_of(inequality.ordering_of(1 - leg), probes)
        if values is None:
            continue
        ordering = inequality.ordering_of(leg)
        known = found.get(ordering, ValueBounds(ordering))
        room = inequality.slack * np.abs(values) + inequality.slack * max(abs(inequality.offset), inequality.size)
        room[~np.isfinite(room)] = 0.0
        if leg == inequality.lesser_leg:
            with np.errstate(over="ignore"):  # infinity is a bound, too
                most = values + inequality.offset + room
            found[ordering] = ValueBounds(ordering, known.least, _narrowed(np.minimum, known.most, most))
        else:
            with np.errstate(over="ignore"):
                least = values - inequality.offset - room
            found[ordering] = ValueBounds(ordering, _narrowed(np.maximum, known.least, least), known.most)
    return list(found.values())


def _narrowed(narrower: np.ufunc, known: np.ndarray | None, bound: np.ndarray) -> np.ndarray:
    """NaN, which has no partner, stays."""
    narrowed: np.ndarray = bound if known is None else narrower(known, bound)
    return narrowed


def near_pairs(
    run: Run,
    low: np.ndarray,
    high: np.ndarray,
    bounds: Sequence[ValueBounds],
    at_once: int = CANDIDATES_AT_ONCE,
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Index pairs (probe row, run row) with low <= time <= high and values between the bounds, in chunks of bounded
    size. All rows of the run have the same hash, so it is in the order of time."""
    if len(run) == 0 or len(low) == 0:
        return
    reaching = (high >= run.earliest) & (low <= run.latest)
    for bound in bounds:
        for values in (bound.least, bound.most):
            if values is not None:
                reaching &= ~np.isnan(values)
    probes = np.flatnonzero(reaching)
    if len(probes) == 0:
        return
    low, high = low[probes], high[probes]
    bounds = [bound.take(probes) for bound in bounds]
    first = np.searchsorted(run.times, low)
    count = np.maximum(np.searchsorted(run.times, high, side="right") - first, 0)
    chosen: ValueOrder | None = None
    by: ValueBounds | None = None
    for bound in bounds:
        known = bound.ordering in run.by_value
        if count.sum() <= _WORTH_A_SEARCH * (len(probes) + (0 if known else len(run))):
            continue
        order = run.ordered_by(bound.ordering)
        if order.is_usable:
            begins, counts = order.ranges(bound.least, bound.most)
            if counts.sum() < count.sum():
                chosen, by, first, count = order, bound, begins, counts
    hit = np.flatnonzero(count)
    if len(hit) == 0:
        return
    others = [bound for bound in bounds if bound is not by]
    for which, found in expand(first[hit], count[hit], at_once):
        which = hit[which]
        if chosen is not None:
            found = chosen.places[found].astype(np.int64)
            times = run.times[found]
            near = np.flatnonzero((times >= low[which]) & (times <= high[which]))
            which, found = which[near], found[near]
        for bound in others:
            if len(found) == 0:
                break
            columns = list(bound.ordering.expression.columns)
            values = values_of(bound.ordering, run.rows.select(columns).take(pa.array(found)))
            if values is not None:
                inside = np.flatnonzero(bound.within(values, which))
                which, found = which[inside], found[inside]
        if len(found):
            yield probes[which], found
