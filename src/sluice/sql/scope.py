"""What the names in a query stand for: the relations of its FROM and their columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sqlglot import exp

from sluice.expressions.parsing import Syntax
from sluice.sql.functions import is_aggregate
from sluice.sql.meaning import meaning_of
from sluice.sql.text import Text, column, replace_parts


@dataclass(frozen=True)
class Table:
    """A stream as a table of SQL: its columns, and those among them that always hold its event time. Or, if it
    `is_static`, a table that streams are joined with.

    Where its rows are of windows, `window_times` has the columns with other times of these, and which they are."""

    handle: Any
    columns: tuple[str, ...]
    times: frozenset[str]
    name: str | None = None  # under which joins know it already
    window_times: Mapping[str, str] = field(default_factory=dict)
    is_static: bool = False


@dataclass(frozen=True)
class Side:
    """A table under its name in this query."""

    name: str
    table: Table
    at: Syntax


@dataclass(frozen=True)
class Reference:
    """A column of one side, and the fields asked for inside it."""

    side: int
    column: str
    fields: tuple[str, ...] = ()


Naming = Callable[[Reference], Sequence[str]]


@dataclass(frozen=True)
class Scope:
    """The sides of a FROM, and the columns of the relation they were joined to.

    `columns` maps a side's number and column to the name in the joined relation. `newest[i]` are the sides whose rows
    are never later than side i's.
    """

    text: Text
    sides: tuple[Side, ...]
    columns: Mapping[tuple[int, str], str]
    newest: tuple[frozenset[int], ...]

    def resolve(self, at: exp.Column) -> Reference:
        names = [part.name for part in at.parts]
        for number, side in enumerate(self.sides):
            if len(names) > 1 and side.name.lower() == names[0].lower():
                match = _match(side.table.columns, names[1])
                if match is None:
                    offered = ", ".join(side.table.columns)
                    self.text.refuse(at, f"{side.name!r} has no column {names[1]!r}; it has {offered}")
                return Reference(number, match, tuple(names[2:]))
        holders = self.columns_named(names[0])
        if len(holders) > 1:
            choices = " or ".join(f"{self.sides[holder.side].name}.{holder.column}" for holder in holders)
            self.text.refuse(at, f"{names[0]!r} is a column of more than one side; write {choices}")
        if not holders:
            offered = "; ".join(f"{s.name} has {', '.join(s.table.columns)}" for s in self.sides)
            if len(names) > 1:
                self.text.refuse(at, f"there is neither a relation nor a column {names[0]!r} here; {offered}")
            self.text.refuse(at, f"there is no column {names[0]!r}; {offered}")
        return replace(holders[0], fields=tuple(names[1:]))

    def columns_named(self, name: str) -> list[Reference]:
        """The columns that a name without a table can mean."""
        matches = ((number, _match(side.table.columns, name)) for number, side in enumerate(self.sides))
        return [Reference(number, match) for number, match in matches if match is not None]

    def type_of(self, reference: Reference) -> Any:
        """The type of a side's column, without its fields; None if it is not known."""
        return self.sides[reference.side].table.handle.column_types.get(reference.column)

    def references(self, node: Syntax) -> list[Reference]:
        """The columns that an expression reads."""
        return [self.resolve(at) for at in node.find_all(exp.Column)]

    def sides_of(self, node: Syntax) -> frozenset[int]:
        return frozenset(reference.side for reference in self.references(node))

    def joined(self, reference: Reference) -> Sequence[str]:
        """How an expression over the joined relation names a column."""
        return (self.columns[reference.side, reference.column], *reference.fields)

    def qualified(self, reference: Reference) -> Sequence[str]:
        """How the condition of a join names a column."""
        return (self.sides[reference.side].name, reference.column, *reference.fields)

    def bare(self, reference: Reference) -> Sequence[str]:
        """How an expression over one side alone names a column."""
        return (reference.column, *reference.fields)

    def write(self, node: Syntax, naming: Naming | None = None) -> str:
        """An expression with its columns named for the relation it is evaluated on."""
        self.vet(node)
        naming = naming or self.joined
        names = {id(at): naming(self.resolve(at)) for at in node.find_all(exp.Column)}
        return self.text.write(replace_parts(node, lambda at: column(*names[id(at)]) if id(at) in names else None))

    def meaning(self, node: Syntax) -> object:
        """What equals for expressions that mean the same, however their columns are qualified."""
        return meaning_of(node, self.resolve)

    def vet(self, node: Syntax) -> None:
        """Refuses what no expression of a flow can hold."""
        for part in node.walk():
            if isinstance(part, exp.Not) and isinstance(part.this, exp.In) and part.this.args.get("query"):
                self.text.refuse(
                    part,
                    "NOT IN (SELECT ...) is true of no row once the query has a null; write NOT EXISTS (SELECT ...)",
                )
            if isinstance(part, exp.Query | exp.Exists):
                advice = "IN (SELECT ...) and EXISTS can stand in WHERE, joined to the rest by AND"
                self.text.refuse(
                    part, f"a query inside an expression cannot be run; {advice}; else join with it in FROM"
                )
            if isinstance(part, exp.Window):
                self.text.refuse(part, "OVER can stand in the SELECT list only; filter in a query around this one")
            if is_aggregate(part):
                self.text.refuse(part, "an aggregate cannot stand here; filter with HAVING or in a query around this")
            if isinstance(part, exp.Lambda | exp.Placeholder | exp.Parameter | exp.Star | exp.Alias):
                self.text.refuse(part, "this cannot stand in an expression here")

    def is_event_time(self, node: Syntax) -> bool:
        """Whether an expression is always the event time of the joined relation, the greatest of its sides'."""
        node = node.unnest()
        is_greatest = isinstance(node, exp.Anonymous) and node.name.lower() == "greatest"
        covered: set[int] = set()
        for at in node.expressions if is_greatest else [node]:
            side = self.time_of(at)
            if side is None:
                return False
            covered |= self.newest[side]
        return covered == set(range(len(self.sides)))

    def window_time_of(self, node: Syntax) -> str | None:
        """Which time of the windows that the rows are of a column is, None if it is none or the event time."""
        node = node.unnest()
        if len(self.sides) > 1 or not isinstance(node, exp.Column) or isinstance(node.this, exp.Star):
            return None
        reference = self.resolve(node)
        return None if reference.fields else self.sides[0].table.window_times.get(reference.column)

    def fixes_event_time(self, node: Syntax) -> bool:
        """Whether rows that are equal in an expression have the same event time: it is that, or another time of the
        windows that they are of."""
        return self.is_event_time(node) or self.window_time_of(node) is not None

    def time_of(self, node: Syntax) -> int | None:
        """The side whose event time a column is, None if it is none."""
        if not isinstance(node, exp.Column) or isinstance(node.this, exp.Star):
            return None
        reference = self.resolve(node)
        return (
            reference.side
            if not reference.fields and reference.column in self.sides[reference.side].table.times
            else None
        )


def _match(columns: Sequence[str], name: str) -> str | None:
    """The column of that name, of any case unless there is one spelled exactly so."""
    if name in columns:
        return name
    return next((c for c in columns if c.lower() == name.lower()), None)
