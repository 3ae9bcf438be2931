"""Which expressions mean the same though their parts stand in another order: `k + v` and `v + k`.

Sums of three are not reordered: of floating point `(a + b) + c` is another number than `a + (b + c)`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from sqlglot import exp

from sluice.expressions.parsing import Syntax
from sluice.sql.functions import function_name
from sluice.sql.text import essence_of_parts

_SYMMETRIC = (exp.Add, exp.Mul, exp.EQ, exp.NEQ, exp.NullSafeEQ, exp.NullSafeNEQ)
_JUNCTIONS = (exp.And, exp.Or)
_MIRRORED = {exp.GT: exp.LT, exp.GTE: exp.LTE}
_SYMMETRIC_FUNCTIONS = {"greatest", "least"}


def meaning_of(node: Any, column_of: Callable[[exp.Column], object]) -> object:
    """What equals for expressions that mean the same, with what stands for each column."""

    def meaning(part: Any) -> object:
        part = part.unnest() if isinstance(part, exp.Paren) else part
        if isinstance(part, exp.Column):
            return column_of(part)
        if type(part) in _MIRRORED:
            part = _MIRRORED[type(part)](this=part.expression.copy(), expression=part.this.copy())
        if isinstance(part, _JUNCTIONS):
            return [type(part).__name__, in_any_order(_operands(part, type(part)))]
        if isinstance(part, _SYMMETRIC):
            return [type(part).__name__, in_any_order([part.this, part.expression])]
        if function_name(part) in _SYMMETRIC_FUNCTIONS:
            return [function_name(part), in_any_order(part.expressions)]
        return essence_of_parts(part, meaning)

    def in_any_order(parts: Iterable[Syntax]) -> list[object]:
        return sorted(map(meaning, parts), key=repr)

    return meaning(node)


def _operands(node: Syntax, junction: type[Syntax]) -> list[Syntax]:
    """The conditions that a chain of ANDs or of ORs joins."""
    node = node.unnest()
    if not isinstance(node, junction):
        return [node]
    return _operands(node.this, junction) + _operands(node.expression, junction)
