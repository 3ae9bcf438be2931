"""JOIN ... USING (k): which columns are equal, what `k` and `*` mean behind it, and in which order Spark shows them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from sluice.expressions.parsing import Syntax
from sluice.model.plan.join_kind import JoinKind
from sluice.sql.conditions import conjuncts
from sluice.sql.scope import Scope
from sluice.sql.sides import Reference, Shown, Side, Visible
from sluice.sql.text import Text, column, copy_place


@dataclass(frozen=True)
class JoinedSide:
    """A side that is joined to those before it in the text: by the conditions of its ON, or by columns of the same
    names."""

    side: Side
    kind: JoinKind
    on: Syntax | None
    using: tuple[Syntax, ...] = ()


@dataclass(frozen=True)
class Merged:
    """A key of a full join, which is null on neither side alone: a new column on the left one for both."""

    column: str
    left: Reference
    right: Reference


@dataclass(frozen=True)
class JoinedColumns:
    """What a join compares, and what can be seen of its result. Its conditions are over columns that say whose they
    are."""

    conditions: list[Syntax]
    visible: Visible
    merged: tuple[Merged, ...] = ()


def see(number: int, side: Side) -> Visible:
    """What can be seen of one side."""
    return Visible(tuple(Shown(name, Reference(number, name)) for name in side.table.columns))


def join_columns(text: Text, sides: Sequence[Side], before: Visible, joined: JoinedSide) -> JoinedColumns:
    """What joining the last of these sides to the others compares and shows."""
    new = see(len(sides) - 1, joined.side)
    if joined.using:
        return _join_using(text, sides, before, new, joined)
    both = replace(before, columns=before.columns + new.columns)
    scope = Scope(text, tuple(sides), {}, (), both)
    conditions = [scope.qualify(at) for at in conjuncts(joined.on)]
    return JoinedColumns(conditions, both if joined.kind.shows_pairs else before)


def _join_using(text: Text, sides: Sequence[Side], before: Visible, new: Visible, joined: JoinedSide) -> JoinedColumns:
    lefts, rights = [], []
    for at in joined.using:
        lefts.append(_find_key(text, at, before, "the joins before it"))
        rights.append(_find_key(text, at, new, joined.side.name))
        if lefts[-1] in lefts[:-1]:
            text.refuse(at, f"USING names {at.name!r} twice")
    pairs = list(zip(lefts, rights, strict=True))
    conditions: list[Syntax] = [
        exp.EQ(this=_write(sides, left.reference, at), expression=_write(sides, right.reference, at))
        for at, (left, right) in zip(joined.using, pairs, strict=True)
    ]
    own = [shown for shown in before.columns if shown not in lefts]
    others = [shown for shown in new.columns if shown not in rights] if joined.kind.shows_pairs else []
    merged: tuple[Merged, ...] = ()
    keys, hidden = lefts, rights
    if joined.kind is JoinKind.RIGHT:
        keys, hidden = rights, lefts
    elif joined.kind is JoinKind.FULL:
        merged = tuple(_merge(sides, left, right) for left, right in pairs)
        keys = [Shown(one.name, Reference(m.left.side, m.column)) for one, m in zip(lefts, merged, strict=True)]
        hidden = [*lefts, *rights]
    elif not joined.kind.shows_pairs:
        hidden = []
    out_of_sight = tuple(shown.reference for shown in hidden) + before.hidden
    names = before.keys | {at.name.lower() for at in joined.using}
    return JoinedColumns(conditions, Visible((*keys, *own, *others), out_of_sight, names), merged)


def _find_key(text: Text, at: Syntax, visible: Visible, where: str) -> Shown:
    """The first column of that name, as Spark takes it."""
    columns = visible.named(at.name)
    if not columns:
        there = ", ".join(shown.name for shown in visible.columns)
        text.refuse(at, f"USING names {at.name!r}, which is no column of {where}; there are {there}")
    return columns[0]


def _write(sides: Sequence[Side], reference: Reference, at: Syntax) -> Syntax:
    return copy_place(at, column(sides[reference.side].name, reference.column))


def _merge(sides: Sequence[Side], left: Shown, right: Shown) -> Merged:
    names = [sides[number].name for number in (left.reference.side, right.reference.side)]
    return Merged(f"{left.reference.column} of {' and '.join(names)}", left.reference, right.reference)


def add_merged(sides: Sequence[Side], merged: Sequence[Merged]) -> tuple[Side, ...]:
    """The sides with the columns that a full join makes of its keys, each on the side of its left one."""
    new = list(sides)
    for one in merged:
        side = new[one.left.side]
        known = side.table.merged
        sources = (*known.get(one.left.column, (one.left,)), one.right)
        new[one.left.side] = replace(side, table=replace(side.table, merged={**known, one.column: sources}))
    return tuple(new)
