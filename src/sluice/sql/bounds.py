"""Time bounds between the sides of a join: from conditions on event times to `within` and back to conditions.

Every spelling comes down to bounds of one form: the event time of one side is at most that of another plus a number
of microseconds. Event times are whole microseconds, so `a < b` is `a <= b - 1 microsecond`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import product

from sqlglot import exp

from sluice.expressions.parsing import SourceText, Syntax, is_interval, read_interval
from sluice.model.durations import LONGEST, in_words
from sluice.model.errors import FlowError
from sluice.sql.scope import Scope

_LONGEST_STEP = 12 * 3_600_000_000  # Spark adds 24 hours as a day of the calendar, which summer time makes 23 or 25
_MOST_STEPS = 64


@dataclass(frozen=True)
class Bound:
    """The event time of side `of` is at most `most` microseconds after that of side `over`."""

    of: int
    over: int
    most: int
    at: Syntax

    def write(self, time_of: Callable[[int], str]) -> str:
        """The bound as a condition, exact in every time zone."""
        operator = "+" if self.most > 0 else "-"
        rest, steps = abs(self.most), []
        while rest:
            steps.append(min(rest, _LONGEST_STEP))
            rest -= steps[-1]
        shift = "".join(f" {operator} INTERVAL {in_words(step).upper()}" for step in steps)
        return f"{time_of(self.of)} <= {time_of(self.over)}{shift}"

    @property
    def is_writable(self) -> bool:
        return abs(self.most) <= _MOST_STEPS * _LONGEST_STEP


def read_bounds(scope: Scope, at: Syntax) -> list[Bound]:
    """The bounds that a condition sets between the event times of two sides; none if it is about something else."""
    node = at.unnest()
    if isinstance(node, exp.Between) and set(_arguments_of(node)) == {"this", "low", "high"}:
        low, high = node.args["low"], node.args["high"]
        parts = [_read_comparison(scope, at, low, node.this, 0), _read_comparison(scope, at, node.this, high, 0)]
    elif isinstance(node, exp.LTE | exp.LT):
        parts = [_read_comparison(scope, at, node.this, node.expression, isinstance(node, exp.LT))]
    elif isinstance(node, exp.GTE | exp.GT):
        parts = [_read_comparison(scope, at, node.expression, node.this, isinstance(node, exp.GT))]
    elif isinstance(node, exp.EQ):
        parts = [
            _read_comparison(scope, at, node.this, node.expression, 0),
            _read_comparison(scope, at, node.expression, node.this, 0),
        ]
    else:
        return []
    return [part for part in parts if part] if all(parts) else []


@dataclass(frozen=True)
class ColumnBound:
    """The event time of side `of` is not later than a column of side `over`; `is_strict` if it is earlier."""

    of: int
    over: int
    column: str
    is_strict: bool
    at: Syntax


def read_column_bound(scope: Scope, at: Syntax) -> ColumnBound | None:
    """The bound that a column of one side sets to the event time of another; None if the condition is another."""
    node = at.unnest()
    if isinstance(node, exp.LTE | exp.LT):
        less, more = node.this.unnest(), node.expression.unnest()
    elif isinstance(node, exp.GTE | exp.GT):
        less, more = node.expression.unnest(), node.this.unnest()
    else:
        return None
    of = scope.time_of(less)
    if of is None or not isinstance(more, exp.Column):
        return None
    reference = scope.resolve(more)
    if reference.side == of or reference.fields:
        return None
    return ColumnBound(of, reference.side, reference.column, isinstance(node, exp.LT | exp.GT), at)


def split_between(scope: Scope, at: Syntax) -> list[Syntax]:
    """A BETWEEN of which one end is a bound between event times as two conditions, any other condition as it is."""
    node = at.unnest()
    if (
        not isinstance(node, exp.Between)
        or set(_arguments_of(node)) != {"this", "low", "high"}
        or read_bounds(scope, at)
    ):
        return [at]
    low = exp.GTE(this=node.this.copy(), expression=node.args["low"].copy())
    high = exp.LTE(this=node.this.copy(), expression=node.args["high"].copy())
    return [low, high] if read_bounds(scope, low) or read_bounds(scope, high) else [at]


def _arguments_of(node: Syntax) -> Iterable[str]:
    return (name for name, value in node.args.items() if value not in (None, False, []))


def _read_comparison(scope: Scope, at: Syntax, less: Syntax, more: Syntax, gap: int) -> Bound | None:
    """`less + gap <= more` as a bound."""
    left, right = _linear(scope, less), _linear(scope, more)
    if left is None or right is None:
        return None
    times = left.times.copy()
    times.subtract(right.times)
    of = [side for side, factor in times.items() if factor == 1]
    over = [side for side, factor in times.items() if factor == -1]
    if len(of) != 1 or len(over) != 1 or any(factor not in (-1, 0, 1) for factor in times.values()):
        return None
    most = right.length(scope) - left.length(scope)
    return Bound(of[0], over[0], most - gap, at)


@dataclass(frozen=True)
class _Linear:
    """A sum of event times and intervals, some of them subtracted."""

    times: Counter[int]
    intervals: tuple[tuple[int, Syntax], ...] = ()

    def plus(self, other: _Linear, sign: int = 1) -> _Linear:
        times = self.times.copy()
        times.update({side: sign * factor for side, factor in other.times.items()})
        return _Linear(times, self.intervals + tuple((sign * factor, at) for factor, at in other.intervals))

    def length(self, scope: Scope) -> int:
        return sum(factor * _length(scope, at) for factor, at in self.intervals)


def _linear(scope: Scope, node: Syntax) -> _Linear | None:
    node = node.unnest()
    if is_interval(node):
        return _Linear(Counter(), ((1, node),))
    if isinstance(node, exp.Neg):
        inner = _linear(scope, node.this)
        return _Linear(Counter()).plus(inner, -1) if inner else None
    if isinstance(node, exp.Add | exp.Sub):
        left, right = _linear(scope, node.this), _linear(scope, node.expression)
        if left is None or right is None:
            return None
        return left.plus(right, 1 if isinstance(node, exp.Add) else -1)
    side = scope.time_of(node)
    return None if side is None else _Linear(Counter({side: 1}))


def _length(scope: Scope, interval: Syntax) -> int:
    try:
        months, micros, _ = read_interval(SourceText(scope.text.text), interval)
    except FlowError:
        advice = "write it like INTERVAL 5 MINUTES or INTERVAL '1 day 2.5 seconds'"
        scope.text.refuse(interval, f"the interval of this time bound cannot be read; {advice}")
    if months:
        scope.text.refuse(interval, "months and years differ in length, so they bound no state; give days or less")
    return micros


Distances = list[list[float]]


def distances(count: int, bounds: Iterable[Bound]) -> Distances:
    """How much later than side i side j can be at most, by all bounds together."""
    matrix: Distances = [[0 if i == j else math.inf for j in range(count)] for i in range(count)]
    for bound in bounds:
        matrix[bound.over][bound.of] = min(matrix[bound.over][bound.of], bound.most)
    for k, i, j in product(range(count), repeat=3):
        matrix[i][j] = min(matrix[i][j], matrix[i][k] + matrix[k][j])
    return matrix


@dataclass(frozen=True)
class Reach:
    """How much earlier and later than the newest of the sides so far a side's row may be: a join's `within`."""

    earlier: int
    later: int

    @staticmethod
    def of(apart: Distances, so_far: Sequence[int], side: int) -> Reach:
        """The narrowest that lets all pass which the bounds allow; `LONGEST` where nothing is bounded."""
        earlier = max(apart[side][s] for s in so_far)
        later = min(apart[s][side] for s in so_far)
        return Reach(*(int(min(max(bound, 0), LONGEST)) for bound in (earlier, later)))

    @property
    def open_ends(self) -> int:
        """In how many directions nothing is bounded."""
        return (self.earlier, self.later).count(LONGEST)

    def implies(self, bound: Bound, distances_held: Distances, so_far: Sequence[int], side: int) -> bool:
        """Whether a bound between the side and one before needs no check, given the bounds held so far."""
        if bound.over == side:
            return self.earlier <= bound.most
        return self.later + max(distances_held[bound.over][s] for s in so_far) <= bound.most

    @property
    def within(self) -> str | tuple[str, str]:
        if self.earlier == self.later:
            return in_words(self.earlier)
        return in_words(self.earlier), in_words(self.later)
