"""What a condition says of the partners of many rows: between which values they lie, and where that is certain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from sluice.kernels.probe import Run
from sluice.kernels.value_order import values_of
from sluice.model.plan.inequalities import Inequality, Narrowing, Ordering, Term, Total


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
    by_ordering: dict[Ordering, ValueBounds] = {}
    for inequality in inequalities:
        values = values_of(inequality.ordering_of(1 - leg), probes)
        if values is None:
            continue
        ordering = inequality.ordering_of(leg)
        bounds = by_ordering.get(ordering, ValueBounds(ordering))
        room = inequality.slack * np.abs(values) + inequality.slack * max(abs(inequality.offset), inequality.size)
        room[~np.isfinite(room)] = 0.0
        if leg == inequality.lesser_leg:
            with np.errstate(over="ignore"):  # infinity is a bound, too
                most = values + inequality.offset + room
            by_ordering[ordering] = ValueBounds(ordering, bounds.least, _narrow(np.minimum, bounds.most, most))
        else:
            with np.errstate(over="ignore"):
                least = values - inequality.offset - room
            by_ordering[ordering] = ValueBounds(ordering, _narrow(np.maximum, bounds.least, least), bounds.most)
    return list(by_ordering.values())


def _narrow(narrower: np.ufunc, bounds_so_far: np.ndarray | None, bound: np.ndarray) -> np.ndarray:
    """NaN, which has no partner, stays."""
    narrowed: np.ndarray = bound if bounds_so_far is None else narrower(bounds_so_far, bound)
    return narrowed


@dataclass(frozen=True)
class Exempt:
    """Probes, and places of a run in its order, to whose pairs bounds do not apply: the condition might fail there."""

    probes: np.ndarray
    places: np.ndarray


@dataclass(frozen=True)
class ProbeTotal:
    """What probes bring to a total, the values of a run's rows that are still to be added, and its limits.

    NaN is without a value: then nothing is computed, and nothing fails. Without `own` the probes bring nothing.
    """

    own: np.ndarray | None
    others: tuple[Term, ...]
    least: float
    most: float

    @cached_property
    def _own_span(self) -> tuple[float, float]:
        """The least and the greatest of what the probes bring."""
        present = np.empty(0) if self.own is None else self.own[~np.isnan(self.own)]
        return (float(present.min()), float(present.max())) if len(present) else (0.0, 0.0)

    def is_inside(self, spans: Sequence[tuple[float, float]]) -> bool:
        """Whether no total is outside of the limits, given between which numbers the other values lie."""
        low, high = self._own_span
        for term, span in zip(self.others, spans, strict=True):
            least, most = sorted(value * term.factor for value in span)
            low, high = low + least, high + most
        return self.least <= low and high <= self.most

    def exempt(self, run: Run, count: int) -> Exempt | None:
        """Rows of which one is in every pair whose total may be outside of the limits; None if no pair's is."""
        orders = [run.order_by(term.ordering) for term in self.others]
        if not all(order.is_usable for order in orders):
            return Exempt(np.ones(count, dtype=bool), np.empty(0, dtype=np.int64))
        if self.is_inside([order.span for order in orders]):
            return None
        # If no summand has more than its part of the limits, the sum is inside.
        summands = len(orders) + (self.own is not None)
        least, most = self.least / summands, self.most / summands
        probes = np.zeros(count, dtype=bool) if self.own is None else (self.own < least) | (self.own > most)
        parts = [sorted((least / term.factor, most / term.factor)) for term in self.others]
        places = [order.outside(*part) for order, part in zip(orders, parts, strict=True)]
        return Exempt(probes, np.concatenate([np.empty(0, dtype=np.int64), *places]))


@dataclass(frozen=True)
class ProbeNarrowing:
    """What a condition says of the partners of probes, computed once for all runs that they are compared with.

    Without `totals` there are values that cannot be computed, so the condition might fail for any pair.
    """

    bounds: Sequence[ValueBounds]
    totals: Sequence[ProbeTotal] | None
    nulls_can_fail: bool
    count: int
    """How many probes there are."""

    @cached_property
    def without_value(self) -> np.ndarray:
        """The probes for which something that is compared is null."""
        without = np.zeros(self.count, dtype=bool)
        for bound in self.bounds:
            for values in (bound.least, bound.most):
                if values is not None:
                    without |= np.isnan(values)
        return without

    def exempt(self, run: Run) -> Exempt:
        """The rows to whose pairs the bounds do not apply."""
        if self.totals is None:
            return Exempt(np.ones(self.count, dtype=bool), np.empty(0, dtype=np.int64))
        exempt = [found for total in self.totals if (found := total.exempt(run, self.count)) is not None]
        if self.nulls_can_fail:
            exempt.append(Exempt(self.without_value, np.empty(0, dtype=np.int64)))
        probes = np.zeros(self.count, dtype=bool)
        for found in exempt:
            probes |= found.probes
        return Exempt(probes, np.unique(np.concatenate([np.empty(0, dtype=np.int64), *(e.places for e in exempt)])))


def narrow_probes(narrowing: Narrowing, leg: int, probes: pa.RecordBatch) -> ProbeNarrowing:
    """What a condition says of the rows of a leg, given rows of the other leg."""
    bounds = bounds_for(narrowing.inequalities, leg, probes)
    totals: list[ProbeTotal] | None = []
    for total in narrowing.totals:
        probe_total = _probe_total(total, leg, probes)
        totals = None if probe_total is None or totals is None else [*totals, probe_total]
    return ProbeNarrowing(bounds, totals, narrowing.nulls_can_fail, probes.num_rows)


def _probe_total(total: Total, leg: int, probes: pa.RecordBatch) -> ProbeTotal | None:
    """None where a value cannot be computed."""
    own: np.ndarray | None = None
    for term in total.terms_of(1 - leg):
        values = values_of(term.ordering, probes)
        if values is None:
            return None
        own = values * term.factor if own is None else own + values * term.factor
    return ProbeTotal(own, total.terms_of(leg), total.least, total.most)
