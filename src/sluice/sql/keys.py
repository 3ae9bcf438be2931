"""The keys of a join: which columns its equalities make equal, directly or through others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from sqlglot import exp

from sluice.expressions.parsing import Syntax
from sluice.sql.scope import Scope
from sluice.sql.sides import Reference


@dataclass(frozen=True, eq=False)
class Equality:
    """A condition that two columns of different sides are equal."""

    left: Reference
    right: Reference
    at: Syntax

    @staticmethod
    def read(scope: Scope, at: Syntax) -> Equality | None:
        node = at.unnest()
        if not isinstance(node, exp.EQ):
            return None
        ends = [end.unnest() for end in (node.this, node.expression)]
        if not all(isinstance(end, exp.Column) for end in ends):
            return None
        left, right = (scope.resolve(end) for end in ends)
        return None if left.side == right.side or left.fields or right.fields else Equality(left, right, at)

    @property
    def sides(self) -> frozenset[int]:
        return frozenset((self.left.side, self.right.side))

    def within(self, key: Mapping[int, str]) -> bool:
        return all(key.get(end.side) == end.column for end in (self.left, self.right))


class Keys:
    """Classes of equal columns. Of each side the first column in a class stands for it in keys."""

    def __init__(self, equalities: Iterable[Equality]) -> None:
        classes: list[list[Reference]] = []
        for equality in equalities:
            ends = [equality.left, equality.right]
            touched = [columns for columns in classes if any(end in columns for end in ends)]
            merged = list(dict.fromkeys([*(end for columns in touched for end in columns), *ends]))
            classes = [columns for columns in classes if columns not in touched] + [merged]
        self._classes = [_first_of_each_side(columns) for columns in classes]

    def covering(self, sides: Iterable[int]) -> list[dict[int, str]]:
        """The classes with a column of every side."""
        needed = set(sides)
        return [columns for columns in self._classes if needed <= set(columns)]

    def between(self, before: Sequence[int], side: int) -> list[tuple[Reference, Reference]]:
        """Columns of the sides before that equal columns of the side, as pairs."""
        pairs = []
        for columns in self._classes:
            first = next((s for s in before if s in columns), None)
            if first is not None and side in columns:
                pairs.append((Reference(first, columns[first]), Reference(side, columns[side])))
        return pairs

    def implies(self, equality: Equality) -> bool:
        """Whether the keys of a chain of joins make this equality hold."""
        return any(equality.within(columns) for columns in self._classes)


def _first_of_each_side(columns: Iterable[Reference]) -> dict[int, str]:
    first_columns: dict[int, str] = {}
    for reference in columns:
        first_columns.setdefault(reference.side, reference.column)
    return first_columns
