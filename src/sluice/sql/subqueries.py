"""Queries in WHERE: `IN (SELECT ...)`, `EXISTS` and `NOT EXISTS` as semi and anti joins with what they select from.

A query that only filters a stream may name columns of the query around it: its own WHERE becomes the condition of the
join, bounds on event times among it. Any other is run by itself, and its result joined.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from sqlglot import exp

from sluice.expressions.parsing import Syntax
from sluice.model.plan.join_kind import JoinKind
from sluice.sql.functions import is_aggregate
from sluice.sql.scope import Scope
from sluice.sql.sides import Side
from sluice.sql.text import Text, column, name_parts, replace_parts
from sluice.sql.using import JoinedSide

_FILTERING = {"from_", "where", "expressions"}


@dataclass(frozen=True)
class InnerQuery:
    """A query in WHERE: which rows around it stay, and the value that one of its rows has to have, if any."""

    at: Syntax
    select: Syntax
    kind: JoinKind
    value: Syntax | None = None

    @property
    def is_filter(self) -> bool:
        """Whether it takes rows of one relation as they are."""
        parts = {name for name, part in self.select.args.items() if part}
        computed = (part for item in self.select.expressions for part in item.walk())
        return (
            isinstance(self.select, exp.Select)
            and parts <= _FILTERING
            and not any(is_aggregate(part) or isinstance(part, exp.Window) for part in computed)
        )

    def join(self, text: Text, outer: Scope, side: Side, name: str) -> JoinedSide:
        """The join that keeps the rows; the query's relation goes by this name in it."""
        names = _Names(outer, Scope(text, (side,), {}, (frozenset([0]),)), name)
        conditions = []
        where = self.select.args.get("where")
        if self.is_filter and where is not None:
            conditions.append(names.qualify(where.this))
        if self.value is not None:
            selected = names.qualify(self._selected_item(text, side))
            conditions.append(exp.EQ(this=names.qualify(self.value, of_outer=True), expression=selected))
        return JoinedSide(replace(side, name=name), self.kind, exp.and_(*conditions) if conditions else None)

    def _selected_item(self, text: Text, side: Side) -> Syntax:
        """What IN compares with."""
        items = self.select.expressions if self.is_filter else [column(name) for name in side.table.columns]
        if len(items) != 1 or isinstance(items[0], exp.Star):
            text.refuse(self.select.expressions[0], "a query behind IN has one column")
        item: Syntax = items[0]
        return item.this if isinstance(item, exp.Alias) else item


@dataclass(frozen=True)
class _Names:
    """What names mean in a query in WHERE: columns of its own relation, called `name` in the join, before those of the
    query around it."""

    outer: Scope
    inner: Scope
    name: str

    def qualify(self, node: Syntax, of_outer: bool = False) -> Syntax:
        """An expression whose columns all say whose they are; one `of_outer` stands in the query around."""
        return replace_parts(node, lambda at: self._qualified(at, of_outer))

    def _qualified(self, at: Syntax, of_outer: bool) -> Syntax | None:
        if not isinstance(at, exp.Column) or isinstance(at.this, exp.Star):
            return None
        scope, owner = self.outer, ""
        if not of_outer and self._is_inner(at):
            scope, owner = self.inner, self.name
        reference = scope.resolve(at)
        return column(owner or scope.sides[reference.side].name, reference.column, *reference.fields)

    def _is_inner(self, at: Syntax) -> bool:
        (side,) = self.inner.sides
        names = [part.name.lower() for part in name_parts(at) or ()]
        columns = {name.lower() for name in side.table.columns}
        return bool(names) and (names[0] in columns or (len(names) > 1 and names[0] == side.name.lower()))


def split_subqueries(conditions: Iterable[Syntax]) -> tuple[list[InnerQuery], list[Syntax]]:
    """The conditions of a WHERE that are queries which joins can run, and all others."""
    inner: list[InnerQuery] = []
    others: list[Syntax] = []
    for at in conditions:
        node = at.unnest()
        negated = isinstance(node, exp.Not)
        query = node.this.unnest() if isinstance(node, exp.Not) else node
        if isinstance(query, exp.Exists):
            inner.append(InnerQuery(at, query.this.unnest(), JoinKind.ANTI if negated else JoinKind.SEMI))
        elif isinstance(query, exp.In) and query.args.get("query") is not None and not negated:
            inner.append(InnerQuery(at, query.args["query"].unnest(), JoinKind.SEMI, query.this))
        else:
            others.append(at)
    return inner, others
