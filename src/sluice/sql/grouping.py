"""Group-bys: over time windows (GROUP BY window(...)), over the newest rows (OVER ... ROWS), or for good."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlglot import exp, parse_one

from sluice.expressions.parsing import SparkAsWritten, Syntax
from sluice.sql.computed_columns import ComputedColumns, free_name
from sluice.sql.functions import AGGREGATES, function_name, is_aggregate
from sluice.sql.scope import Scope
from sluice.sql.text import column, replace_parts, write_name
from sluice.sql.windows import NoWindow, RowWindow, TimeColumn, TimeWindow, Window

WINDOW_COLUMNS = {"start": "window_start", "end": "window_end"}
_LAST = "(window_end - INTERVAL '1' MICROSECOND)"
"""The last time in a window."""
_KNOWN = "count, sum, avg, min, max, stddev, variance, stddev_pop, var_pop, first and last"


class Grouping:
    """Collects what a group-by has to compute, while the expressions above it are written over its result."""

    def __init__(self, handle: Any, scope: Scope, groups: Sequence[Syntax], over: Window) -> None:
        self.scope, self.text, self.over = scope, scope.text, over
        self._columns = ComputedColumns(handle, scope)
        self._aggregates: dict[tuple[str, str], str] = {}  # names of aggregates by column and function
        self._group_nodes = groups
        self._groups = [(scope.meaning(at), self._columns.name_of(at, "group")) for at in groups]
        self._taken = {name.lower() for _, name in self._groups}
        self._taken |= {name.lower() for name in (handle.event_time, *WINDOW_COLUMNS.values())}

    def has_group(self, name: str) -> bool:
        """Whether a name without a table is that of a column which is grouped by."""
        columns = self.scope.columns_named(name)
        return len(columns) == 1 and any(meaning == columns[0] for meaning, _ in self._groups)

    def over_result(self, node: Syntax, name: str | None = None) -> Syntax:
        """An expression of the SELECT list or HAVING in terms of the result; `name` is what the user calls it."""
        return replace_parts(node, lambda part: self._replacement(part, name if part is node else None))

    def _replacement(self, at: Syntax, name: str | None) -> Syntax | None:
        if isinstance(at, exp.Query | exp.Exists):
            self.scope.vet(at)
        aggregate = self._aggregate_of(at)
        if aggregate is not None:
            return column(self._aggregate(aggregate, name))
        if isinstance(self.over, TimeWindow) and (bound := self.over.bound_of(at)) is not None:
            return column(WINDOW_COLUMNS[bound]) if bound in WINDOW_COLUMNS else parse_one(_LAST, read=SparkAsWritten)
        if isinstance(at, exp.Column):
            return column(*self._plain(at))
        if self._columns.is_any and isinstance(at, exp.Condition) and not self._is_above(at):
            meaning = self.scope.meaning(at)
            return next((column(name) for group, name in self._groups if group == meaning), None)
        return None

    def _is_above(self, at: Syntax) -> bool:
        """Whether an expression has parts that only the result of the group-by can give."""
        over = self.over
        return any(
            is_aggregate(part) or (isinstance(over, TimeWindow) and over.bound_of(part) is not None)
            for part in at.walk()
        )

    def _aggregate_of(self, at: Syntax) -> Syntax | None:
        """The call of an aggregate function that a part is, if it is one this group-by computes."""
        if isinstance(at, exp.IgnoreNulls | exp.RespectNulls | exp.Filter | exp.WithinGroup):
            self.text.refuse(at, "aggregates take no FILTER, IGNORE NULLS or WITHIN GROUP; use CASE WHEN inside them")
        if not isinstance(self.over, RowWindow):
            if isinstance(at, exp.Window):
                self.text.refuse(at, "OVER cannot be used together with GROUP BY; put one of them into a subquery")
            return at if is_aggregate(at) else None
        if is_aggregate(at):
            self.text.refuse(at, "an aggregate without OVER cannot stand beside one with it; give it the same OVER")
        if not isinstance(at, exp.Window):
            return None
        if isinstance(at.this, exp.IgnoreNulls | exp.RespectNulls | exp.Filter):
            self.text.refuse(at, "aggregates take no FILTER or IGNORE NULLS; use CASE WHEN inside them")
        if not isinstance(at.this, exp.Anonymous):
            self.text.refuse(at, f"this cannot be computed OVER rows; {_KNOWN} can")
        return at.this

    def _aggregate(self, at: Syntax, name: str | None) -> str:
        function, arguments = AGGREGATES.get(function_name(at)), at.expressions
        if function is None:
            self.text.refuse(at, f"{at.name} cannot be computed over a stream; {_KNOWN} can")
        if len(arguments) != 1:
            self.text.refuse(at, f"{at.name} takes one argument here")
        argument = arguments[0]
        if isinstance(argument, exp.Distinct):
            self.text.refuse(at, "DISTINCT inside an aggregate cannot be run: its state would not be bounded")
        if isinstance(argument, exp.Star) or (function == "count" and isinstance(argument, exp.Literal)):
            if function != "count":
                self.text.refuse(argument, f"{at.name} takes a column, * is for count")
            return self._named_aggregate("*", "count", name or "count")
        value = self._columns.name_of(argument, "value")
        return self._named_aggregate(value, function, name or f"{function}_{value}")

    def _named_aggregate(self, value: str, function: str, preferred: str) -> str:
        if (value, function) not in self._aggregates:
            self._aggregates[value, function] = free_name(preferred, self._taken)
            self._taken.add(self._aggregates[value, function].lower())
        return self._aggregates[value, function]

    def _plain(self, at: exp.Column) -> Sequence[str]:
        """A column outside of aggregates: one of the group's, or in a row window the row's own."""
        reference, meaning = self.scope.resolve(at), self.scope.meaning(at)
        name = self.scope.columns[reference.side, reference.column]
        groups = [group for group_meaning, group in self._groups if group_meaning == meaning]
        if groups or name in (group for _, group in self._groups):
            return (groups[0],) if groups else (name, *reference.fields)
        if isinstance(self.over, RowWindow):
            own = name if name == self._columns.handle.event_time else self._named_aggregate(name, "last", name)
            return (own, *reference.fields)
        around = next((group for group in self._group_nodes if reference in self.scope.references(group)), None)
        if around is not None:
            advice = f"write that expression as it stands there, or name {at.name} in GROUP BY too"
            self.text.refuse(at, f"{at.name!r} is in GROUP BY only within {self.text.write(around)}; {advice}")
        what = f"{at.name!r} is neither in GROUP BY nor inside an aggregate"
        self.text.refuse(at, f"{what}; use for example last({write_name(at.name)})")

    def result(self, at: Syntax) -> Any:
        """The relation of groups and aggregates, after everything above it has been written. Groups alone that never
        end are the distinct ones."""
        aggregates_by_name = {name: pair for pair, name in self._aggregates.items()}
        handle = self._columns.handle
        names = [name for _, name in self._groups]
        if isinstance(self.over, TimeColumn):
            names.append(handle.event_time)
        with self.text.blame_on(at):
            if isinstance(self.over, NoWindow) and not aggregates_by_name:
                return handle.select(*map(write_name, dict.fromkeys(names))).distinct()
            grouped = handle.groupBy(*dict.fromkeys(names))
            return self.over.apply(grouped).agg(**aggregates_by_name)
