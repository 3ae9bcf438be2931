"""What a join's condition says of the order of values: enough to find partners without a look at every row.

A condition such as `trades.price > quotes.ask` holds only for pairs in which one side's value is not greater than the
other's, and `abs(a.x - b.x) <= 5` only where each is not greater than the other by more than five. Such inequalities
narrow the search, they decide nothing: the whole condition is evaluated on what they leave.

A pair may be left out only if the condition is false or null for it, not if the condition fails. `a.x - b.x` of two
integers fails where it leaves its type: such totals say of which rows that cannot be ruled out.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sluice.model.plan.stream import Expression


@dataclass(frozen=True)
class Ordering:
    """An expression over the rows of one side, by whose values they can be put in order.

    Spark takes NaN for the greatest of all numbers. Where it comes out of a subtraction, that makes a difference large
    whichever side it stands on: `nan_is_least` is for the side on which it has to count as small for that.
    """

    expression: Expression
    nan_is_least: bool = False


@dataclass(frozen=True)
class Inequality:
    """The value of one leg's row is at most that of the other leg's row plus an offset, in every pair that matches.

    `slack` is how much of the numbers' size the rounding of either computation can amount to; `size` is that of all
    constants which were added on the way to them.
    """

    lesser: Ordering
    greater: Ordering
    lesser_leg: int
    offset: float = 0.0
    size: float = 0.0
    slack: float = 2.0**-48

    def ordering_of(self, leg: int) -> Ordering:
        """By which rows of this leg can be found."""
        return self.lesser if leg == self.lesser_leg else self.greater


@dataclass(frozen=True)
class Term:
    """The value of one leg's row in a total."""

    ordering: Ordering
    leg: int
    factor: float


@dataclass(frozen=True)
class Total:
    """A sum of values that a condition computes. It fails for no pair in which the sum lies inside these limits and
    the values of both rows can be computed."""

    terms: tuple[Term, ...]
    least: float
    most: float

    def terms_of(self, leg: int) -> tuple[Term, ...]:
        return tuple(term for term in self.terms if term.leg == leg)


@dataclass(frozen=True)
class Narrowing:
    """What a condition says of pairs before it is evaluated: which inequalities hold where it is true, and which totals
    have to be inside their limits for the inequalities to be relied on.

    With `nulls_can_fail` a row without a value can be in a pair for which the condition fails: null decides nothing,
    so what stands behind is evaluated, too.
    """

    inequalities: tuple[Inequality, ...] = ()
    totals: tuple[Total, ...] = ()
    nulls_can_fail: bool = False


def orderings_of(inequalities: Iterable[Inequality], leg: int) -> tuple[Ordering, ...]:
    """All by which the rows of a leg can be found, each once."""
    return tuple(dict.fromkeys(inequality.ordering_of(leg) for inequality in inequalities))
