"""What a condition on pairs of rows says by its conjuncts: which columns are equal, and which values are in order.

It is read off the compiled condition, where every operand has Spark's type already. Only what is certain is said: a
conjunct of any other form is left to be evaluated.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa

from sluice.expressions import Expression
from sluice.expressions.nodes import Call, Choice, Column, Constant, FirstValid, Junction, Node
from sluice.expressions.types import (
    BINARY,
    BOOLEAN,
    DOUBLE,
    FLOAT,
    INTEGRALS,
    INTERVAL,
    LONG,
    STRING,
    decimal_for,
    is_decimal,
    is_floating,
    is_integral,
    is_numeric,
    is_temporal,
    is_timestamp,
)
from sluice.model.plan.inequalities import Inequality, Ordering

_SIGNS = {"add": "+", "subtract": "-", "multiply": "*"}
_HALF_A_DAY = 12 * 3_600_000_000  # longer intervals are days of the calendar, which are not all of one length
_SLACK, _FLOAT_SLACK = 2.0**-48, 2.0**-20
_ROUNDINGS = 16
"""How many sums the slack has room for."""
_MOST_FLOAT = float.fromhex("0x1.fffffep127")
_HUGE = 2.0**900  # with more than that added a number may become infinite, and then be equal to others

Sides = Mapping[str, tuple[int, str]]
"""Of each column of a pair: which side has it, and its name there."""


@dataclass(frozen=True)
class _Shift:
    """What constants add to a value, how large they are together, and how many: each addition rounds by the size of
    what is added, also where it is taken away again."""

    by: float = 0.0
    size: float = 0.0
    count: int = 0

    def plus(self, number: float) -> _Shift:
        return _Shift(self.by + number, self.size + abs(number), self.count + 1)

    def minus(self, other: _Shift) -> _Shift:
        return _Shift(self.by - other.by, self.size + other.size, self.count + other.count)

    def inside(self, type_: pa.DataType) -> _Shift:
        """As a bound of a number of this type: beyond the greatest one there is only infinity, which a sum reaches as
        soon as it is a little greater."""
        return replace(self, by=max(-_MOST_FLOAT, min(self.by, _MOST_FLOAT))) if type_ == FLOAT else self


@dataclass(frozen=True)
class Equality:
    """Two columns, one of each side, whose values are the same in every pair that matches."""

    left: str
    right: str
    conjunct: Node


def equalities(condition: Expression, sides: Sides) -> list[Equality]:
    """The conjuncts that say no more than that two columns are equal."""
    pairs = []
    for conjunct in conjuncts(condition.root):
        if isinstance(conjunct, Call) and conjunct.operation == "equal":
            ends = [without_casts(end, _is_exact) for end in conjunct.arguments]
            columns = sorted(sides[end.name] for end in ends if isinstance(end, Column))
            if [side for side, _ in columns] == [0, 1]:
                pairs.append(Equality(columns[0][1], columns[1][1], conjunct))
    return pairs


def without(condition: Expression, implied: list[Equality]) -> Expression | None:
    """What is left of a condition where these equalities are seen to; None if nothing is."""
    done = [id(equality.conjunct) for equality in implied]
    rest = [conjunct for conjunct in conjuncts(condition.root) if id(conjunct) not in done]
    if not rest:
        return None
    root = rest[0]
    for conjunct in rest[1:]:
        root = Junction(BOOLEAN, root, conjunct, False)
    return Expression(condition.text, tuple(dict.fromkeys(_columns(root))), condition.type, root)


def inequalities(conjunct: Node, sides: Sides) -> tuple[Inequality, ...]:
    """What a conjunct says of values of the two sides, as far as that can be searched for."""
    bounds: list[Inequality] = []
    if isinstance(conjunct, Call) and len(conjunct.arguments) == 2:
        left, right = conjunct.arguments
        if conjunct.operation in ("less", "less_equal", "equal"):
            bounds += _at_most(left, right, sides)
        if conjunct.operation in ("greater", "greater_equal", "equal"):
            bounds += _at_most(right, left, sides)
    return tuple(dict.fromkeys(bounds))


def conjuncts(node: Node) -> Iterator[Node]:
    """What has to be true for a condition to be, from left to right."""
    if isinstance(node, Junction) and not node.decided:
        yield from conjuncts(node.left)
        yield from conjuncts(node.right)
    else:
        yield node


def _at_most(lesser: Node, greater: Node, sides: Sides) -> Iterator[Inequality]:
    """`lesser <= greater`, in whichever of the known forms it is."""
    lesser, less_by = _without_shift(lesser)
    greater, greater_by = _without_shift(greater)
    offset = greater_by.minus(less_by)
    of = sides_of(lesser, sides), sides_of(greater, sides)
    if [len(terms) for terms in of] == [1, 1] and of[0] != of[1]:
        yield from _inequality(lesser, greater, sides, offset)
    elif isinstance(greater, Constant):
        limit = number_of(greater)
        if limit is not None:
            yield from _difference_at_most(lesser, offset.plus(limit), sides)
    elif isinstance(lesser, Constant):
        limit, difference = number_of(lesser), _difference(greater)
        if limit is not None and difference is not None:
            offset = offset.plus(-limit).inside(difference.type)
            less, more = difference.right, difference.left
            yield from _inequality(less, more, sides, offset, nan_is_least=True)


def _difference_at_most(node: Node, limit: _Shift, sides: Sides) -> Iterator[Inequality]:
    """`x - y <= limit` or `abs(x - y) <= limit`."""
    node, shift = _without_shift(node)
    if isinstance(node, Call) and node.operation == "abs":
        difference = _difference(node.arguments[0])
        if difference is not None and not shift.count:
            limit = limit.inside(difference.type)
            yield from _inequality(difference.left, difference.right, sides, limit)
            yield from _inequality(difference.right, difference.left, sides, limit)
        return
    difference = _difference(node)
    if difference is not None:
        limit = limit.minus(shift).inside(difference.type)
        yield from _inequality(difference.left, difference.right, sides, limit)


@dataclass(frozen=True)
class _Difference:
    """Two numbers, and the type in which one is subtracted from the other."""

    left: Node
    right: Node
    type: pa.DataType


def _difference(node: Node) -> _Difference | None:
    """The two numbers of which a node is the difference, computed without loss of digits but for a double's."""
    node = without_casts(node)
    if not isinstance(node, Call) or node.operation != "subtract" or not is_numeric(node.type):
        return None
    if is_decimal(node.type) and node.raises:
        return None
    left, right = node.arguments
    return _Difference(left, right, node.type)


def _inequality(
    lesser: Node, greater: Node, sides: Sides, offset: _Shift, *, nan_is_least: bool = False
) -> Iterator[Inequality]:
    """One between the two sides, if that is what the nodes are of."""
    single = is_floating(lesser.type) and FLOAT in (lesser.type, greater.type)
    lesser, less_by = _without_shift(lesser)
    greater, greater_by = _without_shift(greater)
    of = sides_of(lesser, sides), sides_of(greater, sides)
    if [len(terms) for terms in of] != [1, 1] or of[0] == of[1] or not (_is_ordered(lesser) and _is_ordered(greater)):
        return
    (leg,) = of[0]
    least = Ordering(expression_of(lesser, sides), nan_is_least and is_floating(lesser.type))
    offset = offset.minus(less_by.minus(greater_by))
    slack = (_FLOAT_SLACK if single else _SLACK) * (1 + offset.count // _ROUNDINGS)
    yield Inequality(least, Ordering(expression_of(greater, sides)), leg, offset.by, offset.size, slack)


def _is_ordered(node: Node) -> bool:
    kinds = (BOOLEAN, STRING, BINARY, INTERVAL)
    return is_numeric(node.type) or is_temporal(node.type) or node.type in kinds


def _without_shift(node: Node) -> tuple[Node, _Shift]:
    """A number or time without what a constant adds to it, and that."""
    shift = _Shift()
    while True:
        node = without_casts(node)
        if not isinstance(node, Call) or node.operation not in ("add", "subtract"):
            return node, shift
        if not (is_numeric(node.type) or is_timestamp(node.type)) or (is_decimal(node.type) and node.raises):
            return node, shift
        left, right = node.arguments
        if isinstance(left, Constant) and node.operation == "add":
            left, right = right, left
        by = number_of(right) if isinstance(right, Constant) else None
        if by is None or abs(by) > _HUGE or isinstance(left, Constant) or node.type == FLOAT:
            return node, shift
        if is_timestamp(node.type) and abs(by) > _HALF_A_DAY:
            return node, shift
        shift = shift.plus(by if node.operation == "add" else -by)
        node = left


def number_of(constant: Constant) -> float | None:
    """A constant's value where it is a plain one: a number, or the microseconds of an interval."""
    if not constant.value.is_valid:
        return None
    if constant.type == INTERVAL:
        return float(constant.value.value)
    if not is_numeric(constant.type):
        return None
    value = float(constant.value.as_py())
    return value if math.isfinite(value) else None


def without_casts(node: Node, are_kept: Callable[[Call], bool] | None = None) -> Node:
    """A value before casts that keep it, but for the rounding to a double."""
    are_kept = are_kept or _is_kept
    while isinstance(node, Call) and node.operation == "cast" and are_kept(node):
        node = node.arguments[0]
    return node


def _is_exact(cast: Call) -> bool:
    """Whether values that differ do so after a cast too: as doubles, large numbers become equal."""
    before = cast.arguments[0].type
    if cast.type == DOUBLE:
        return is_floating(before) or (is_integral(before) and before != LONG)
    return _is_kept(cast)


def _is_kept(cast: Call) -> bool:
    before, after = cast.arguments[0].type, cast.type
    if not (is_numeric(before) and is_numeric(after)):
        return False
    if after == DOUBLE:
        return True
    if is_integral(before) and is_integral(after):
        return INTEGRALS.index(before) <= INTEGRALS.index(after)
    if is_decimal(after) and not is_floating(before):
        exact = decimal_for(before)
        return bool(after.scale >= exact.scale and after.precision - after.scale >= exact.precision - exact.scale)
    return False


def _columns(node: Node) -> Iterator[str]:
    if isinstance(node, Column):
        yield node.name
    for part in node.parts:
        yield from _columns(part)


def sides_of(node: Node, sides: Sides) -> frozenset[int]:
    return frozenset(sides[name][0] for name in _columns(node))


def expression_of(node: Node, sides: Sides) -> Expression:
    """A part of the condition as an expression over the rows of its side."""
    own = _rename(node, lambda name: sides[name][1])
    return Expression(_write_node(own), tuple(dict.fromkeys(_columns(own))), own.type, own)


def _rename(node: Node, rename: Callable[[str], str]) -> Node:
    again = partial(_rename, rename=rename)
    match node:
        case Column():
            return replace(node, name=rename(node.name))
        case Call():
            return replace(node, arguments=tuple(map(again, node.arguments)))
        case Junction():
            return replace(node, left=again(node.left), right=again(node.right))
        case Choice():
            branches = tuple((again(condition), again(value)) for condition, value in node.branches)
            return replace(node, branches=branches, otherwise=again(node.otherwise))
        case FirstValid():
            return replace(node, options=tuple(map(again, node.options)))
    return node


def _write_node(node: Node) -> str:
    """A text that two nodes share only if they compute the same."""
    parts = [_write_node(part) for part in node.parts]
    match node:
        case Column():
            return node.name
        case Constant():
            return repr(node.value.as_py())
        case Call(operation=operation) if operation in _SIGNS:
            return f"({parts[0]} {_SIGNS[operation]} {parts[1]})"
        case Call(operation="cast"):
            return f"CAST({parts[0]} AS {node.type})"
        case Call():
            return f"{node.operation or _name_of(node.kernel)}({', '.join(parts)})"
        case Junction():
            return f"({parts[0]} {'OR' if node.decided else 'AND'} {parts[1]})"
    return f"{type(node).__name__}({', '.join(parts)})"


def _name_of(kernel: object) -> str:
    if isinstance(kernel, partial):
        settings = "".join(f" {name}={_write_value(value)}" for name, value in sorted(kernel.keywords.items()))
        return f"{_name_of(kernel.func)}{settings}"
    return str(getattr(kernel, "__name__", kernel))


def _write_value(value: object) -> object:
    """Of long arrays, Arrow itself writes only the beginning and the end."""
    return value.to_pylist() if isinstance(value, pa.Array) else value
