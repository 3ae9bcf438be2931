"""What a compiled expression is made of, and how it gets its value on the rows of a table.

A node yields an Arrow array as long as the rows, or a scalar that stands for every row. Spark decides row by row
which parts of an expression it looks at: `a <> 0 AND b / a > 2` never divides by zero. Evaluating every part on all
rows is faster, and gives the same result if nothing fails; if something does, the expression is evaluated once more,
each part that can fail only on the rows that reach it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sluice.expressions.types import spark_type
from sluice.model.errors import EvaluationError

Datum: TypeAlias = pa.Array | pa.Scalar
Kernel = Callable[..., Datum]


class Rows:
    """The rows an expression is evaluated on; a column is fetched, and cut to the kept rows, when first read."""

    def __init__(self, count: int, fetch: Callable[[str], pa.Array], *, careful: bool) -> None:
        self.count = count
        self.careful = careful
        self._fetch = fetch
        self._columns: dict[str, pa.Array] = {}

    def column(self, name: str) -> pa.Array:
        if name not in self._columns:
            self._columns[name] = self._fetch(name)
        return self._columns[name]

    def where(self, keep: pa.Array) -> Rows:
        return Rows(keep.true_count, lambda name: self.column(name).filter(keep), careful=self.careful)

    def all_reach(self, node: Node) -> bool:
        """Whether the node may be evaluated on all rows, though Spark would not look at it for some."""
        return not (self.careful and node.fallible)


def spread(value: Datum, count: int) -> pa.Array:
    """The value as an array of that many rows."""
    return pa.repeat(value, count) if isinstance(value, pa.Scalar) else value


def scatter(value: Datum, keep: pa.Array) -> pa.Array:
    """Puts the values of the kept rows back in their places; the other rows are null."""
    if isinstance(value, pa.Scalar):
        return pc.if_else(keep, value, pa.scalar(None, value.type))
    kept = keep.to_numpy(zero_copy_only=False)
    return value.take(pa.array(np.cumsum(kept) - 1, mask=~kept))


@dataclass(frozen=True)
class Node:
    type: pa.DataType

    @property
    def parts(self) -> Sequence[Node]:
        return ()

    @cached_property
    def fallible(self) -> bool:
        """Whether some row could make this node raise."""
        return any(part.fallible for part in self.parts)

    def evaluate(self, rows: Rows) -> Datum:
        raise NotImplementedError


@dataclass(frozen=True)
class Column(Node):
    name: str

    def evaluate(self, rows: Rows) -> Datum:
        array = rows.column(self.name)
        if array.type == self.type:
            return array
        if spark_type(array.type, getattr(self.type, "tz", None) or "UTC") != self.type:
            raise EvaluationError(f"column '{self.name}' arrived as {array.type}, but was announced as {self.type}")
        return array.cast(self.type)


@dataclass(frozen=True)
class Constant(Node):
    value: pa.Scalar
    literal: bool = False  # written by the user as such: Spark gives integer literals their narrowest decimal type

    def evaluate(self, rows: Rows) -> Datum:
        return self.value


class Days(Constant):
    """An interval literal in days or weeks alone: added to a date it yields a date, others yield a timestamp."""


@dataclass(frozen=True)
class Call(Node):
    """A kernel over the values of the arguments.

    A strict call is null where an argument is, and Spark then looks at no further argument. A kernel that raises
    must do so only for rows where all arguments are valid.
    """

    kernel: Kernel
    arguments: tuple[Node, ...]
    fragment: str
    raises: bool = False
    strict: bool = True
    operation: str = ""
    """What it is, where others ask: a comparison, a cast, a sum."""

    @property
    def parts(self) -> Sequence[Node]:
        return self.arguments

    @cached_property
    def fallible(self) -> bool:
        return self.raises or super().fallible

    def evaluate(self, rows: Rows) -> Datum:
        values: list[Datum] = []
        for argument in self.arguments:
            values.append(self._evaluate_reached(argument, values, rows))
        if not all(isinstance(value, pa.Scalar) for value in values):
            return self._apply(values)
        if rows.count == 0:
            return pa.scalar(None, self.type)
        return self._apply([pa.repeat(value, 1) for value in values])[0]

    def _evaluate_reached(self, argument: Node, before: Sequence[Datum], rows: Rows) -> Datum:
        if not (self.strict and before) or rows.all_reach(argument):
            return argument.evaluate(rows)
        keep = pa.repeat(True, rows.count)
        for value in before:
            keep = pc.and_(keep, pc.is_valid(value))
        return scatter(argument.evaluate(rows.where(keep)), keep)

    def _apply(self, values: Sequence[Datum]) -> Datum:
        try:
            return self.kernel(*values)
        except (pa.ArrowInvalid, EvaluationError) as error:
            reason = {"divide by zero": "division by zero"}.get(str(error), str(error))
            raise EvaluationError(f"{reason}, in {self.fragment}") from error


@dataclass(frozen=True)
class Junction(Node):
    """AND and OR in three-valued logic; the right side counts only where the left has not `decided`."""

    left: Node
    right: Node
    decided: bool  # False for AND, True for OR

    @property
    def parts(self) -> Sequence[Node]:
        return (self.left, self.right)

    def evaluate(self, rows: Rows) -> Datum:
        combine = pc.or_kleene if self.decided else pc.and_kleene
        left = self.left.evaluate(rows)
        if rows.all_reach(self.right):
            return combine(left, self.right.evaluate(rows))
        undecided = spread(pc.fill_null(pc.not_equal(left, self.decided), True), rows.count)
        return combine(left, scatter(self.right.evaluate(rows.where(undecided)), undecided))


@dataclass(frozen=True)
class Choice(Node):
    """CASE WHEN: the value of the first condition that is true."""

    branches: tuple[tuple[Node, Node], ...]
    otherwise: Node

    @property
    def parts(self) -> Sequence[Node]:
        return [part for branch in self.branches for part in branch] + [self.otherwise]

    def evaluate(self, rows: Rows) -> Datum:
        if rows.all_reach(self):
            result = self.otherwise.evaluate(rows)
            for condition, value in reversed(self.branches):
                met = pc.fill_null(condition.evaluate(rows), False)
                result = pc.if_else(met, value.evaluate(rows), result)
            return result
        rest, places, pieces = rows, np.arange(rows.count), []
        for condition, value in self.branches:
            met = spread(pc.fill_null(condition.evaluate(rest), False), rest.count)
            hits = met.to_numpy(zero_copy_only=False)
            pieces.append((places[hits], spread(value.evaluate(rest.where(met)), met.true_count)))
            rest, places = rest.where(pc.invert(met)), places[~hits]
        pieces.append((places, spread(self.otherwise.evaluate(rest), rest.count)))
        order = np.argsort(np.concatenate([place for place, _ in pieces]))
        return pa.concat_arrays([values for _, values in pieces]).take(pa.array(order))


@dataclass(frozen=True)
class FirstValid(Node):
    """coalesce: the first value that is not null."""

    options: tuple[Node, ...]

    @property
    def parts(self) -> Sequence[Node]:
        return self.options

    def evaluate(self, rows: Rows) -> Datum:
        result = self.options[0].evaluate(rows)
        for option in self.options[1:]:
            if rows.all_reach(option):
                result = pc.coalesce(result, option.evaluate(rows))
            else:
                missing = spread(pc.is_null(result), rows.count)
                result = pc.coalesce(result, scatter(option.evaluate(rows.where(missing)), missing))
        return result
