"""Joins: which call, or chain of calls, gives the combinations that the conditions of a query ask for.

All joins here are inner ones (`outer_joins.py` has the others), so it does not matter whether a condition stands in ON
or in WHERE. Conditions on one side filter it before the join; equalities become keys; bounds on event times become
`within`; the rest becomes `where`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from sqlglot import exp

from sluice.expressions.parsing import SparkAsWritten, Syntax
from sluice.model.durations import LONGEST, in_words
from sluice.sql.bounds import Bound, ColumnBound, Reach, distances, read_column_bound
from sluice.sql.conditions import Conditions
from sluice.sql.keys import Keys
from sluice.sql.scope import Scope
from sluice.sql.sides import Reference, Side
from sluice.sql.text import Text, column, write_name

Columns = dict[tuple[int, str], str]


@dataclass(frozen=True)
class Partial:
    """The sides joined so far: the relation, its name in the next join, and its columns."""

    handle: Any
    name: str
    sides: tuple[int, ...]
    columns: Columns


class Join:
    """One FROM with several sides."""

    def __init__(self, text: Text, sides: Sequence[Side], conjuncts: Iterable[Syntax], unbounded: bool = False) -> None:
        """Where it is `unbounded`, times that no condition bounds may be any; else each side needs bounds."""
        self.text, self.sides, self.unbounded = text, tuple(sides), unbounded
        everyone = frozenset(range(len(sides)))
        self.scope = Scope(text, self.sides, {}, (everyone,) * len(sides))
        self.conditions = Conditions.of(self.scope, conjuncts)
        self.keys = Keys(self.conditions.equalities)
        self.apart = distances(len(sides), self.conditions.bounds)
        if any(self.apart[s][s] < 0 for s in everyone):
            last = self.conditions.bounds[-1]
            text.refuse(last.at, "the time bounds of this query contradict each other, so it has no results")

    def run(self, join_many: Callable[..., Any]) -> tuple[Any, Scope]:
        """The joined relation and what the names of the query mean on it."""
        window = self._common_window()
        result = self._chain_joins() if window is None else self._at_once(join_many, window)
        handle = result.handle
        for sides, at in self.conditions.others:
            if not sides:
                with self.text.blame_on(at):
                    handle = handle.filter(self.text.write(at))
        everyone = range(len(self.sides))
        newest = tuple(frozenset(k for k in everyone if self.apart[i][k] <= 0) for i in everyone)
        return handle, Scope(self.text, self.sides, result.columns, newest)

    def take_side(self, number: int) -> Partial:
        """A side as it goes into its join: filtered, and under its name in the query."""
        side = self.sides[number]
        filters = [at for sides, at in self.conditions.others if sides == {number}]
        handle = side.table.handle
        if filters:
            with self.text.blame_on(filters[0]):
                handle = handle.filter(
                    write_all(write_parenthesised(self.scope, at, self.scope.bare) for at in filters)
                )
        if filters or side.table.name != side.name:
            with self.text.blame_on(side.at):
                handle = handle.alias(side.name)
        return Partial(handle, side.name, (number,), {(number, c): c for c in side.table.columns})

    def _common_window(self) -> int | None:
        """The bound between any two of three or more sides with common keys, if it is the same for all."""
        everyone = range(len(self.sides))
        bounds = {self.apart[i][j] for i in everyone for j in everyone if i != j}
        if len(self.sides) < 3 or len(bounds) > 1 or not self.keys.covering(everyone):
            return None
        window = bounds.pop()
        if window == math.inf and not self.unbounded:
            return None
        return int(min(window, LONGEST))

    def _at_once(self, join_many: Callable[..., Any], window: int) -> Partial:
        everyone = range(len(self.sides))
        parts = [self.take_side(number) for number in everyone]
        keys = self.keys.covering(everyone)
        implied = {at for at in self.conditions.equalities if any(at.within(k) for k in keys)}
        conditions = [
            self.scope.write(e.at, self.scope.qualified) for e in self.conditions.equalities if e not in implied
        ]
        conditions += [self._qualified(at) for sides, at in self.conditions.others if len(sides) > 1]
        on = _on({part.name: [key[number] for key in keys] for number, part in enumerate(parts)})
        with self.text.blame_on(self.sides[1].at):
            handle = join_many([p.handle for p in parts], on=on, within=in_words(window), **_where(conditions))
        return Partial(handle, "", tuple(everyone), self.name_columns(parts))

    def _qualified(self, at: Syntax) -> str:
        return write_parenthesised(self.scope, at, self.scope.qualified)

    def _chain_joins(self) -> Partial:
        """Joins side after side, in the order of the text as far as each has bounds with those before: those with a key
        first, then those with any condition; among these, sides that nothing bounds come last, when bounds have left
        fewer rows to keep for good."""
        result, left = self.take_side(0), list(range(1, len(self.sides)))
        while left:
            ready = [s for s in left if self._is_joinable(result, s)]
            if not ready:
                self.refuse_unbounded(result.sides, left[0])
            before = result
            following = min(ready, key=lambda s: (self._rank(before, s), self._reach(before, s).open_ends))
            if self._rank(before, following) == 2 and self._reach(before, following).open_ends:
                self._refuse_unrelated(following)
            result = self._join(result, following)
            left.remove(following)
        return result

    def _is_joinable(self, before: Partial, side: int) -> bool:
        return self.unbounded or not self._reach(before, side).open_ends or self._until(before, side) is not None

    def _until(self, before: Partial, side: int) -> ColumnBound | None:
        """The column that bounds the times of a join in the one direction in which nothing else does."""
        reach = self._reach(before, side)
        if self.unbounded or reach.open_ends != 1 or not self._keys(before, side):
            return None
        for sides, at in self.conditions.others:
            bound = read_column_bound(self.scope, at) if len(sides) == 2 else None
            if bound is None or not {bound.of, bound.over} <= {*before.sides, side}:
                continue
            if reach.later == LONGEST and bound.of == side:
                return bound
            if reach.earlier == LONGEST and (bound.of,) == before.sides:
                return bound
        return None

    def _reach(self, before: Partial, side: int) -> Reach:
        return Reach.of(self.apart, before.sides, side)

    def _rank(self, before: Partial, side: int) -> int:
        """A side with a key before one with another condition, and that before one with none."""
        if self._keys(before, side):
            return 0
        within = frozenset(before.sides) | {side}
        return 1 if any(side in of and len(of) > 1 and of <= within for of, _ in self.conditions.others) else 2

    def _keys(self, before: Partial, side: int) -> list[tuple[Reference, Reference]]:
        return self.keys.between(before.sides, side)

    def _join(self, before: Partial, side: int) -> Partial:
        other, reach, until = self.take_side(side), self._reach(before, side), self._until(before, side)
        before = self.name_result(before)
        within = reach.within
        if until is not None and until.of == side:
            within = in_words(reach.earlier), f"{before.name}.{before.columns[until.over, until.column]}"
        elif until is not None:
            within = f"{other.name}.{until.column}", in_words(reach.later)
        both = {*before.sides, side}

        def naming(reference: Reference) -> Sequence[str]:
            part = other if reference.side == side else before
            return (part.name, part.columns[reference.side, reference.column], *reference.fields)

        gaps = distances(len(self.sides), [b for b in self.conditions.bounds if {b.of, b.over} <= set(before.sides)])
        conditions = [
            self.write_bound(bound, naming)
            for bound in self.conditions.bounds
            if side in (bound.of, bound.over)
            and {bound.of, bound.over} <= both
            and not reach.implies(bound, gaps, before.sides, side)
        ]
        conditions += [
            self.scope.write(e.at, naming)
            for e in self.conditions.equalities
            if side in e.sides and e.sides <= both and not self.keys.implies(e)
        ]
        conditions += [
            write_parenthesised(self.scope, at, naming)
            for sides, at in self.conditions.others
            if len(sides) > 1
            and side in sides
            and sides <= both
            and (until is None or until.at is not at or until.is_strict)
        ]
        pairs = self._keys(before, side)
        keys = {
            before.name: [before.columns[own.side, own.column] for own, _ in pairs],
            other.name: [theirs.column for _, theirs in pairs],
        }
        how = {"on": _on(keys), **_where(conditions)} if pairs else _where(conditions or ["true"])
        with self.text.blame_on(self.sides[side].at):
            handle = before.handle.join(other.handle, within=within, **how)
        return Partial(handle, "", (*before.sides, side), self.name_columns([before, other]))

    def name_result(self, part: Partial) -> Partial:
        """Gives the result of a join a name for the next one."""
        if part.name:
            return part
        taken = {side.name.lower() for side in self.sides}
        name = "_".join(self.sides[s].name for s in part.sides)
        while name.lower() in taken:
            name += "_"
        return Partial(part.handle.alias(name), name, part.sides, part.columns)

    def name_columns(self, parts: Sequence[Partial]) -> Columns:
        """What the columns of these parts are called in the result of their join."""
        names_by_column = {key: f"{part.name}_{name}" for part in parts for key, name in part.columns.items()}
        names = list(names_by_column.values())
        for (side, column_), name in names_by_column.items():
            if names.count(name) > 1:
                at, why = self.sides[side].at, f"two columns of this join would be named {name!r}"
                self.text.refuse(at, f"{why}, one of them {column_!r} of this side; give it another alias")
        return names_by_column

    def write_bound(self, bound: Bound, naming: Callable[[Reference], Sequence[str]]) -> str:
        """A bound as a condition of a join."""
        if not bound.is_writable:
            why = "a time bound that is no join's `within`, such as one that leaves out zero,"
            self.text.refuse(bound.at, f"{why} cannot be longer than 32 days")

        def time_of(side: int) -> str:
            times = self.sides[side].table.times
            first = next(c for c in self.sides[side].table.columns if c in times)
            return column(*naming(Reference(side, first))).sql(dialect=SparkAsWritten)

        return bound.write(time_of)

    def _refuse_unrelated(self, number: int) -> NoReturn:
        why = "would be joined with all others, whenever they came; add a condition that relates the two sides"
        self.text.refuse(self.sides[number].at, f"every row of {self.sides[number].name} {why}")

    def refuse_unbounded(self, before: Sequence[int], number: int, *, in_place_of_using: bool = False) -> NoReturn:
        """Refuses a side whose distance in time from those before has no bound."""
        side, first = self.sides[number], self.sides[before[0]]
        own_time, other_time = f"{side.name}.{_time(side)}", f"{first.name}.{_time(first)}"
        later = any(self.apart[s][number] < math.inf for s in before)
        earlier = any(self.apart[number][s] < math.inf for s in before)
        missing = "how far apart" if not (later or earlier) else "how much earlier" if later else "how much later"
        than = (
            f"{own_time} and {other_time} may be"
            if missing == "how far apart"
            else f"{own_time} may be than {other_time}"
        )
        advice = f"{own_time} BETWEEN {other_time} - INTERVAL 30 SECONDS AND {other_time} + INTERVAL 30 SECONDS"
        add = "write ON in place of USING, with one like" if in_place_of_using else "add one like"
        on_purpose = 'or say that it may: flow.sql(..., within="unbounded")'
        self.text.refuse(
            side.at,
            f"nothing bounds {missing} {than}, so state would grow for ever; {add} {advice}, {on_purpose}",
        )


def _time(side: Side) -> str:
    return next((write_name(c) for c in side.table.columns if c in side.table.times), "time")


def write_parenthesised(scope: Scope, at: Syntax, naming: Callable[[Reference], Sequence[str]]) -> str:
    """A condition that can stand beside AND, with its columns named."""
    return scope.write(_parenthesise(at), naming)


def _parenthesise(at: Syntax) -> Syntax:
    """A condition that can stand beside AND."""
    return exp.Paren(this=at.copy()) if isinstance(at, exp.Or) else at


def write_all(conditions: Iterable[str]) -> str:
    """Conditions that all have to be true, as one."""
    return " AND ".join(conditions)


def _where(conditions: Sequence[str]) -> dict[str, str]:
    return {"where": write_all(conditions)} if conditions else {}


def _on(keys: dict[str, list[str]]) -> Any:
    """The keys of a join in the shortest way to say them."""
    short = {name: columns[0] if len(columns) == 1 else columns for name, columns in keys.items()}
    first, *others = short.values()
    return first if all(columns == first for columns in others) else short
