"""Queries with an outer, semi or anti join: one join after the other, in the order of the text.

Unlike those of inner joins, their conditions mean something else in ON than in WHERE: ON says which rows are partners,
WHERE filters what came out. A side that an outer join may leave null has no event time then, so a bound on it is always
checked, and what it implies for others holds where it is there.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sluice.expressions.parsing import Syntax
from sluice.model.durations import LONGEST
from sluice.model.plan.join_kind import JoinKind
from sluice.sql.bounds import Bound, Reach, distances
from sluice.sql.computed_columns import free_name
from sluice.sql.conditions import Conditions
from sluice.sql.joins import Join, Partial, write_all, write_parenthesised
from sluice.sql.keys import Equality
from sluice.sql.scope import Scope
from sluice.sql.sides import Reference, Side
from sluice.sql.table_joins import join_table
from sluice.sql.text import Text, write_name
from sluice.sql.using import JoinedSide, Merged, add_merged, join_columns, see


def join_in_order(text: Text, first: Side, others: Sequence[JoinedSide], unbounded: bool) -> tuple[Any, Scope]:
    """The relation that joins as they stand in the text give, and what the names of the query mean on it."""
    joins = _OuterJoins(text, first, unbounded)
    for joined in others:
        joins.add(joined)
    return joins.result()


class _OuterJoins:
    """One FROM whose joins are carried out as they stand."""

    def __init__(self, text: Text, first: Side, unbounded: bool) -> None:
        self._text, self._unbounded = text, unbounded
        self._sides: tuple[Side, ...] = (first,)
        self._nullable: frozenset[int] = frozenset()
        """The sides that may be null in what has been joined so far."""
        self._bounds: tuple[Bound, ...] = ()
        """What holds between the times of two sides where neither is null."""
        self._result = Join(text, [first], []).take_side(0)
        self._visible = see(0, first)

    def result(self) -> tuple[Any, Scope]:
        """The joined relation and what the names of the query mean on it."""
        everyone = range(len(self._sides))
        tables = frozenset(number for number in everyone if self._sides[number].table.is_static)
        apart = distances(len(self._sides), self._bounds)
        newest = tuple(
            tables | (frozenset([i]) if i in self._nullable else frozenset(k for k in everyone if apart[i][k] <= 0))
            for i in everyone
        )
        return self._result.handle, Scope(self._text, self._sides, self._result.columns, newest, self._visible)

    def add(self, joined: JoinedSide) -> None:
        """Joins the next side of the text."""
        sides, new = (*self._sides, joined.side), len(self._sides)
        step = Join(self._text, sides, [], self._unbounded)
        joining = join_columns(self._text, sides, self._visible, joined)
        self._visible = joining.visible
        if joined.side.table.is_static:
            self._add_table(step, joined, joining.conditions)
            return
        conditions = Conditions.of(step.scope, joining.conditions)
        if any(row[i] < 0 for i, row in enumerate(distances(len(sides), conditions.bounds))):
            self._text.refuse(conditions.bounds[-1].at, "the time bounds contradict each other: no row has a partner")
        if joined.kind not in (JoinKind.RIGHT, JoinKind.FULL):  # whose rows appear whatever ON says of them
            step.conditions.others = [(of, at) for of, at in conditions.others if of == {new}]
        before, other = step.name_result(self._result), step.take_side(new)
        bounds = (*self._bounds, *conditions.bounds)
        reach = self._reach(conditions.bounds, bounds, new)
        if reach.open_ends and not self._unbounded:
            step.apart = distances(len(sides), bounds)
            step.refuse_unbounded(self._streams(new), new, in_place_of_using=bool(joined.using))
        keys = _choose_keys(conditions.equalities, new)

        def naming(reference: Reference) -> Sequence[str]:
            part = other if reference.side == new else before
            return (part.name, part.columns[reference.side, reference.column], *reference.fields)

        gaps = distances(len(sides), self._bounds)
        checked = [
            step.write_bound(bound, naming)
            for bound in conditions.bounds
            if {bound.of, bound.over} & self._nullable
            or new not in (bound.of, bound.over)
            or not reach.implies(bound, gaps, self._streams(new), new)
        ]
        checked += [step.scope.write(e.at, naming) for e in conditions.equalities if e not in keys]
        others = [at for of, at in conditions.others if (of, at) not in step.conditions.others]
        checked += [write_parenthesised(step.scope, at, naming) for at in others]
        pairs = [(e.left, e.right) if e.right.side == new else (e.right, e.left) for e in keys]
        on = {
            before.name: [before.columns[own.side, own.column] for own, _ in pairs],
            other.name: [theirs.column for _, theirs in pairs],
        }
        how: dict[str, Any] = {"how": joined.kind.value, **({"on": on} if pairs else {})}
        if checked or not pairs:
            how["where"] = write_all(checked or ["true"])
        with self._text.blame_on(joined.side.at):
            handle = before.handle.join(other.handle, within=reach.within, **how)
        if joined.kind.shows_pairs:
            columns = step.name_columns([before, other])
            self._sides, self._bounds = sides, bounds
            left = frozenset(range(new)) if joined.kind in (JoinKind.RIGHT, JoinKind.FULL) else frozenset()
            right = frozenset([new]) if joined.kind in (JoinKind.LEFT, JoinKind.FULL) else frozenset()
            self._nullable |= left | right
        else:
            columns = step.name_columns([before])
        self._result = Partial(handle, "", tuple(range(len(self._sides))), columns)
        self._merge_keys(joining.merged, joined)

    def _merge_keys(self, merged: Sequence[Merged], joined: JoinedSide) -> None:
        """Adds a column for each key of a full join by USING, of which either side may be null."""
        handle, columns = self._result.handle, dict(self._result.columns)
        for one in merged:
            name = free_name(f"using_{one.right.column}", {name.lower() for name in handle.columns})
            left, right = (write_name(columns[end.side, end.column]) for end in (one.left, one.right))
            with self._text.blame_on(joined.using[0]):
                handle = handle.withColumn(name, f"coalesce({left}, {right})")
            columns[one.left.side, one.column] = name
        self._sides = add_merged(self._sides, merged)
        self._result = replace(self._result, handle=handle, columns=columns)

    def _add_table(self, step: Join, joined: JoinedSide, conditions: Sequence[Syntax]) -> None:
        """Joins a table, which may be null from here on."""
        new = len(self._sides)
        for at in conditions:
            step.scope.vet(at)
        result = join_table(step, self._result, new, joined.kind, conditions)
        if joined.kind.shows_pairs:
            self._sides = step.sides
            self._nullable |= frozenset([new]) if joined.kind is JoinKind.LEFT else frozenset()
        self._result = result

    def _streams(self, new: int) -> list[int]:
        """Those among the sides before this one, which have event times."""
        return [side for side in range(new) if not self._sides[side].table.is_static]

    def _reach(self, own: Sequence[Bound], bounds: Sequence[Bound], new: int) -> Reach:
        """How far from the event time of what was joined so far, the newest of its sides that are there, the new side's
        rows may be. A pair satisfies all bounds of its ON, so the sides that these name are there."""
        apart = distances(new + 1, bounds)
        named = {side for bound in own for side in (bound.of, bound.over)}
        streams = self._streams(new)
        there = [s for s in streams if s not in self._nullable or s in named]
        earlier = max(apart[new][s] for s in streams)
        later = min((apart[s][new] for s in there), default=math.inf)
        return Reach(*(int(min(max(bound, 0), LONGEST)) for bound in (earlier, later)))


def _choose_keys(equalities: Sequence[Equality], new: int) -> list[Equality]:
    """The equalities that become the key: those of the new side with one before, one for each of its columns."""
    keys: dict[str, Equality] = {}
    for equality in equalities:
        ends = (equality.left, equality.right)
        own = [end for end in ends if end.side == new]
        if len(own) == 1:
            keys.setdefault(own[0].column, equality)
    return list(keys.values())
