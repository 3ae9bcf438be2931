"""The conditions of ON and WHERE, sorted by what a join makes of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from sqlglot import exp

from sluice.expressions.parsing import Syntax
from sluice.sql.bounds import Bound, read_bounds, split_between
from sluice.sql.keys import Equality
from sluice.sql.scope import Scope


@dataclass
class Conditions:
    """The conditions of a query, each under what it will become."""

    bounds: list[Bound] = field(default_factory=list)
    equalities: list[Equality] = field(default_factory=list)
    others: list[tuple[frozenset[int], Syntax]] = field(default_factory=list)

    @staticmethod
    def of(scope: Scope, conjuncts: Iterable[Syntax]) -> Conditions:
        found, simultaneous = Conditions(), []
        for at in (part for each in conjuncts for part in split_between(scope, each)):
            scope.vet(at)
            bounds, equality = read_bounds(scope, at), Equality.read(scope, at)
            if bounds:
                found.bounds += bounds
                simultaneous += [equality] if equality else []
            elif equality:
                found.equalities.append(equality)
            else:
                found.others.append((scope.sides_of(at), at))
        found.equalities = found.equalities or simultaneous  # equal event times can be the key if nothing else is
        return found


def conjuncts(at: Syntax | None) -> list[Syntax]:
    """The conditions that AND joins, without those that are simply TRUE."""
    if at is None or (isinstance(at, exp.Boolean) and at.this):
        return []
    if isinstance(at, exp.And):
        return conjuncts(at.this) + conjuncts(at.expression)
    if isinstance(at, exp.Paren) and isinstance(at.this, exp.And):
        return conjuncts(at.this)
    return [at]
