"""Which inequalities of a condition the pairs of a join can be searched by, and where they can be relied on.

The meaning of a condition is that of evaluating it on every pair, from left to right: a conjunct that is false ends it,
one that is null does not, and where one fails the query does. So an inequality is used only if no conjunct up to its
own can fail for the pairs that it leaves out. Most failures are sums that leave their type: totals say of which values
that takes. A conjunct that can fail otherwise, in a division for instance, ends what can be searched by.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from sluice.expressions import Expression
from sluice.expressions.inequalities import (
    Sides,
    conjuncts,
    expression_of,
    inequalities,
    number_of,
    sides_of,
    without_casts,
)
from sluice.expressions.nodes import Call, Column, Constant, Node
from sluice.expressions.types import (
    INTERVAL,
    is_decimal,
    is_floating,
    is_integral,
    is_temporal,
    is_timestamp,
)
from sluice.model.plan.inequalities import Inequality, Narrowing, Ordering, Term, Total, orderings_of
from sluice.model.plan.stream import EARLIEST, LATEST

_MARGIN = 2.0**-20
"""Of limits that doubles do not have exactly. It is more than clocks are put forward or back, too."""
_EXACT = 2.0**53


def narrowing(condition: Expression, sides: Sides, event_times: tuple[str, ...], most_orderings: int) -> Narrowing:
    """What pairs can be searched by: not event times, in whose order rows are anyway, and no more than so many
    orderings a side, as state has each."""
    parts = list(conjuncts(condition.root))
    by_conjunct = _chosen([inequalities(part, sides) for part in parts], event_times, most_orderings)
    searched = len(parts)
    while True:
        used = tuple(dict.fromkeys(i for conjunct in by_conjunct[:searched] for i in conjunct))
        failures = _Failures(sides, event_times, used)
        understood = failures.understood(parts)
        if understood >= searched or not used:
            return (
                Narrowing(used, tuple(dict.fromkeys(failures.totals)), understood < len(parts)) if used else Narrowing()
            )
        searched = understood


def _chosen(
    by_conjunct: Sequence[Sequence[Inequality]], event_times: tuple[str, ...], most_orderings: int
) -> list[list[Inequality]]:
    chosen: list[list[Inequality]] = []
    for conjunct in by_conjunct:
        chosen.append([])
        for inequality in conjunct:
            names = tuple(inequality.ordering_of(leg).expression.text for leg in (0, 1))
            so_far = [i for earlier in chosen for i in earlier]
            few = all(len(orderings_of([*so_far, inequality], leg)) <= most_orderings for leg in (0, 1))
            if few and names != event_times:
                chosen[-1].append(inequality)
    return chosen


@dataclass(frozen=True)
class _Range:
    """A sum of terms and of something between two numbers."""

    terms: tuple[Term, ...] = ()
    least: float = 0.0
    most: float = 0.0

    def plus(self, other: _Range) -> _Range:
        return _Range(self.terms + other.terms, self.least + other.least, self.most + other.most)

    def times(self, factor: float) -> _Range:
        terms = tuple(Term(t.ordering, t.leg, t.factor * factor) for t in self.terms)
        return _Range(terms, *sorted((self.least * factor, self.most * factor)))


@dataclass
class _Failures:
    """Goes through conjuncts and notes the totals by which they can fail."""

    sides: Sides
    event_times: tuple[str, ...]
    used: Iterable[Inequality]
    totals: list[Total] = field(default_factory=list)

    def understood(self, parts: Sequence[Node]) -> int:
        """How many of the conjuncts, from the first one on, fail by these totals alone."""
        for number, part in enumerate(parts):
            before = len(self.totals)
            if not self._is_understood(part):
                del self.totals[before:]
                return number
        return len(parts)

    def _is_understood(self, node: Node) -> bool:
        if not node.fallible:
            return True
        term = self._term(node)
        if term is not None:
            self.totals.append(Total((term,), -math.inf, math.inf))
            return True
        if isinstance(node, Call) and node.raises and not self._raises_by_total(node):
            return False
        return all(map(self._is_understood, node.parts))

    def _raises_by_total(self, node: Call) -> bool:
        """Whether a call fails only where a total is outside of its limits, which is then noted."""
        if node.operation in ("divide", "remainder"):
            return _divides_by_constant(node)
        if node.operation not in ("add", "subtract", "multiply", "negate", "abs"):
            return False
        limits = _limits(node.type)
        result = self._range(node.arguments[0] if node.operation == "abs" else node)
        if limits is None or not all(map(math.isfinite, (result.least, result.most))):
            return False
        least, most = limits[0] - result.least, limits[1] - result.most
        widest = self._without_terms(result)
        if limits[0] <= widest.least and widest.most <= limits[1]:
            return True
        if not result.terms or least > most:
            return False
        self.totals.append(Total(result.terms, least, most))
        return True

    def _without_terms(self, result: _Range) -> _Range:
        """The same with all values that a term's type has."""
        for term in result.terms:
            result = result.plus(_of_type(term.ordering.expression.type).times(term.factor))
        return _Range((), result.least, result.most)

    def _range(self, node: Node) -> _Range:
        """What values a node has, where it has one."""
        node = without_casts(node)
        if isinstance(node, Constant):
            if not node.value.is_valid:
                return _Range()
            value = number_of(node)
            return _of_type(node.type) if value is None else _Range((), value, value)
        term = self._term(node)
        if term is not None:
            return _Range((term,))
        if isinstance(node, Column) and self.sides[node.name][1] == self.event_times[self.sides[node.name][0]]:
            return _Range((), EARLIEST, LATEST)
        if isinstance(node, Call) and not is_floating(node.type):
            parts = [self._range(part) for part in node.arguments]
            match node.operation:
                case "add":
                    return parts[0].plus(parts[1])
                case "subtract":
                    return parts[0].plus(parts[1].times(-1.0))
                case "negate":
                    return parts[0].times(-1.0)
                case "multiply" if _is_point(parts[1]):
                    return parts[0].times(parts[1].least)
                case "multiply" if _is_point(parts[0]):
                    return parts[1].times(parts[0].least)
        return _of_type(node.type)

    def _term(self, node: Node) -> Term | None:
        """A node whose values are those of an ordering."""
        of = sides_of(node, self.sides)
        if len(of) != 1:
            return None
        (leg,) = of
        expression = expression_of(node, self.sides)
        for ordering in orderings_of(self.used, leg):
            if ordering.expression == expression:
                return Term(Ordering(expression, ordering.nan_is_least), leg, 1.0)
        return None


def _is_point(range_: _Range) -> bool:
    return not range_.terms and range_.least == range_.most


def _divides_by_constant(node: Call) -> bool:
    """Whether the divisor, which comes first, is a number by which all others can be divided."""
    divisor = node.arguments[0]
    if not isinstance(divisor, Constant) or is_decimal(node.type):
        return False
    if not divisor.value.is_valid:
        return True
    value = divisor.value.as_py()
    return value != 0 and (value != -1 or is_floating(node.type) or node.operation == "remainder")


def _of_type(type_: pa.DataType) -> _Range:
    """All values of a type."""
    if is_integral(type_):
        limits = np.iinfo(type_.to_pandas_dtype())
        return _Range((), float(limits.min), float(limits.max))
    if is_decimal(type_):
        return _Range((), -(10.0 ** (type_.precision - type_.scale)), 10.0 ** (type_.precision - type_.scale))
    if is_temporal(type_) or type_ == INTERVAL:
        return _Range((), -(2.0**63), 2.0**63)
    return _Range((), -math.inf, math.inf)


def _limits(type_: pa.DataType) -> tuple[float, float] | None:
    """Between which numbers a sum of this type surely does not fail. The least integer is out: it cannot be negated."""
    if is_timestamp(type_):
        most = 2.0**62  # beyond it no time zone is known
    elif is_integral(type_) or is_decimal(type_) or type_ == INTERVAL:
        most = _of_type(type_).most
    else:
        return None
    if most > _EXACT or is_decimal(type_):
        most -= most * _MARGIN
    return -most, most
