"""What the names in a query stand for: the relations of its FROM and their columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlglot import exp

from sluice.expressions.parsing import Syntax
from sluice.sql.functions import is_aggregate
from sluice.sql.meaning import meaning_of
from sluice.sql.sides import Reference, Shown, Side, Visible
from sluice.sql.text import Text, column, copy_place, replace_parts

Naming = Callable[[Reference], Sequence[str]]


@dataclass(frozen=True)
class Scope:
    """The sides of a FROM, and the columns of the relation they were joined to.

    `columns` maps a side's number and column to the name in the joined relation. `newest[i]` are the sides whose rows
    are never later than side i's. `visible` is None where all columns of all sides are.
    """

    text: Text
    sides: tuple[Side, ...]
    columns: Mapping[tuple[int, str], str]
    newest: tuple[frozenset[int], ...]
    visible: Visible | None = None

    def resolve(self, at: exp.Column) -> Reference:
        names = [part.name for part in at.parts]
        for number, side in enumerate(self.sides):
            if len(names) > 1 and side.name.lower() == names[0].lower():
                match = _match((*side.table.columns, *side.table.merged), names[1])
                if match is None:
                    offered = ", ".join(side.table.columns)
                    self.text.refuse(at, f"{side.name!r} has no column {names[1]!r}; it has {offered}")
                return Reference(number, match, tuple(names[2:]))
        holders = self.columns_named(names[0])
        if len(holders) > 1:
            choices = " or ".join(map(self._written, holders))
            self.text.refuse(at, f"{names[0]!r} is a column of more than one side; write {choices}")
        if not holders:
            offered = "; ".join(f"{s.name} has {', '.join(s.table.columns)}" for s in self.sides)
            if len(names) > 1:
                self.text.refuse(at, f"there is neither a relation nor a column {names[0]!r} here; {offered}")
            self.text.refuse(at, f"there is no column {names[0]!r}; {offered}")
        return replace(holders[0], fields=tuple(names[1:]))

    def _written(self, reference: Reference) -> str:
        """How a query names a column without doubt."""
        sources = self.sides[reference.side].table.merged.get(reference.column, ())
        if sources:
            return f"coalesce({', '.join(map(self._written, sources))})"
        return f"{self.sides[reference.side].name}.{reference.column}"

    def columns_named(self, name: str) -> list[Reference]:
        """The columns that a name without a table can mean."""
        if self.visible is not None:
            return [one.reference for one in self.visible.named(name)]
        matches = ((number, _match(side.table.columns, name)) for number, side in enumerate(self.sides))
        return [Reference(number, match) for number, match in matches if match is not None]

    def star(self, whose: str | None = None) -> list[Shown]:
        """The columns that a star stands for, or that of one table."""
        visible = self.visible
        if visible is None:
            sides = enumerate(self.sides)
            shown = [Shown(name, Reference(number, name)) for number, side in sides for name in side.table.columns]
        elif whose is None:
            return list(visible.columns)
        else:
            shown = [*(Shown(hidden.column, hidden) for hidden in visible.hidden), *visible.columns]
            shown = [one for one in shown if one.reference.column not in self.sides[one.reference.side].table.merged]
        return [one for one in shown if whose is None or self.sides[one.reference.side].name.lower() == whose.lower()]

    def name_of(self, at: exp.Column) -> str:
        """The name that a column or its field has without AS: of a key of USING, as it is written."""
        reference = self.resolve(at)
        if reference.fields:
            return reference.fields[-1]
        is_key = len(at.parts) == 1 and self.visible is not None and at.name.lower() in self.visible.keys
        return at.name if is_key else reference.column

    def types_of(self, reference: Reference) -> list[Any]:
        """The type of a column, without its fields, or those of all that it is merged of."""
        table = self.sides[reference.side].table
        sources = table.merged.get(reference.column)
        if sources is None:
            return [table.handle.column_types.get(reference.column)]
        return [kind for source in sources for kind in self.types_of(source)]

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

    def qualify(self, node: Syntax) -> Syntax:
        """An expression whose columns all say whose they are."""

        def qualified(at: Syntax) -> Syntax | None:
            if not isinstance(at, exp.Column) or isinstance(at.this, exp.Star):
                return None
            return copy_place(at, column(*self.qualified(self.resolve(at))))

        return replace_parts(node, qualified)

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
            sides = self._sides_in_time(at)
            if not sides:
                return False
            covered = covered.union(*(self.newest[side] for side in sides))
        return covered == set(range(len(self.sides)))

    def _sides_in_time(self, node: Syntax) -> list[int]:
        """The sides of which a column has the event time, where they are not null; none if it is no event time."""
        side = self.time_of(node)
        if side is not None:
            return [side]
        if not isinstance(node, exp.Column) or isinstance(node.this, exp.Star):
            return []
        reference = self.resolve(node)
        sources = self.sides[reference.side].table.merged.get(reference.column, ())
        are_times = all(source.column in self.sides[source.side].table.times for source in sources)
        return [source.side for source in sources] if are_times and not reference.fields else []

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
