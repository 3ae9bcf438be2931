"""Finding, for many rows at once, the rows of a run inside a time range and between values: no key, no equality.

The run is in the order of time, and of some values its order is known as well. Which of them leaves fewest candidates
is counted by binary searches before any is looked at; the others are then tested, a bounded number of pairs at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from sluice.kernels.narrowed import ProbeNarrowing, ValueBounds
from sluice.kernels.probe import Run, expand
from sluice.kernels.value_order import ValueOrder, values_of

CANDIDATES_AT_ONCE = 1 << 17
"""So few that they and what is taken for them stay in the processor's cache."""
_WORTH_A_SEARCH = 16
"""How many candidates a row must have for another search to pay."""

Pairs = Iterator[tuple[np.ndarray, np.ndarray]]


def near_pairs(
    run: Run, low: np.ndarray, high: np.ndarray, narrowing: ProbeNarrowing, at_once: int = CANDIDATES_AT_ONCE
) -> Pairs:
    """Index pairs (probe row, run row) with low <= time <= high for which the condition may be true or fail, in chunks
    of bounded size. All rows of the run have the same hash, so it is in the order of time."""
    if len(run) == 0 or len(low) == 0:
        return
    reaching = (high >= run.earliest) & (low <= run.latest)
    if not reaching.any():
        return
    exempt = narrowing.exempt(run)
    bounded = reaching & ~exempt.probes
    if len(exempt.places):
        probes = np.flatnonzero(bounded)
        yield from _at(probes, _by_time(run.times[exempt.places], low[probes], high[probes], at_once), exempt.places)
    if not narrowing.nulls_can_fail:
        bounded &= ~narrowing.without_value
    probes = np.flatnonzero(bounded)
    bounds = [bound.take(probes) for bound in narrowing.bounds]
    for which, candidates in _between(run, low[probes], high[probes], bounds, narrowing.nulls_can_fail, at_once):
        if len(exempt.places):
            others = np.flatnonzero(~np.isin(candidates, exempt.places))
            which, candidates = which[others], candidates[others]
        yield probes[which], candidates
    probes = np.flatnonzero(reaching & exempt.probes)
    yield from _at(probes, _by_time(run.times, low[probes], high[probes], at_once))


def _at(probes: np.ndarray, pairs: Pairs, places: np.ndarray | None = None) -> Pairs:
    """Pairs of some probes and some places, given where they are among them."""
    return ((probes[which], candidates if places is None else places[candidates]) for which, candidates in pairs)


def _ranges_of_time(times: np.ndarray, low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where each range begins among times that are in order, and how many are in it."""
    first = np.searchsorted(times, low)
    return first, np.maximum(np.searchsorted(times, high, side="right") - first, 0)


def _by_time(times: np.ndarray, low: np.ndarray, high: np.ndarray, at_once: int) -> Pairs:
    first, count = _ranges_of_time(times, low, high)
    hit = np.flatnonzero(count)
    if len(hit):
        yield from _at(hit, expand(first[hit], count[hit], at_once))


def _between(
    run: Run, low: np.ndarray, high: np.ndarray, bounds: Sequence[ValueBounds], with_nulls: bool, at_once: int
) -> Pairs:
    """Index pairs with low <= time <= high and values between the bounds, and also those without a value if asked."""
    first, count = _ranges_of_time(run.times, low, high)
    chosen: ValueOrder | None = None
    by: ValueBounds | None = None
    for bound in bounds:
        is_ordered = bound.ordering in run.by_value
        if count.sum() <= _WORTH_A_SEARCH * (len(low) + (0 if is_ordered else len(run))):
            continue
        order = run.order_by(bound.ordering)
        if order.is_usable:
            begins, counts = order.ranges(bound.least, bound.most)
            nulls = len(run) - order.end if with_nulls else 0
            if counts.sum() + nulls * len(low) < count.sum():
                chosen, by, first, count = order, bound, begins, counts
    hit = np.flatnonzero(count)
    first, count = first[hit], count[hit]
    if chosen is not None and with_nulls and chosen.end < len(run):
        hit = np.concatenate([hit, np.arange(len(low))])
        first = np.concatenate([first, np.full(len(low), chosen.end)])
        count = np.concatenate([count, np.full(len(low), len(run) - chosen.end)])
    if len(hit) == 0:
        return
    others = [bound for bound in bounds if bound is not by]
    for which, candidates in expand(first, count, at_once):
        which = hit[which]
        if chosen is not None:
            candidates = chosen.places[candidates].astype(np.int64)
            times = run.times[candidates]
            near = np.flatnonzero((times >= low[which]) & (times <= high[which]))
            which, candidates = which[near], candidates[near]
        for bound in others:
            if len(candidates) == 0:
                break
            columns = list(bound.ordering.expression.columns)
            values = values_of(bound.ordering, run.rows.select(columns).take(pa.array(candidates)))
            if values is not None:
                inside = bound.within(values, which)
                if with_nulls:
                    inside |= np.isnan(values)
                inside = np.flatnonzero(inside)
                which, candidates = which[inside], candidates[inside]
        if len(candidates):
            yield which, candidates
