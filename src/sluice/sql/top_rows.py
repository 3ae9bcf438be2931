"""The first rows of groups as SQL spells them: row_number() OVER (PARTITION BY ... ORDER BY ...), which the query
around it bounds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sqlglot import exp

from sluice.expressions.parsing import Syntax
from sluice.sql.computed_columns import ComputedColumns
from sluice.sql.conditions import conjuncts
from sluice.sql.functions import function_name
from sluice.sql.scope import Scope
from sluice.sql.text import Text, name_parts, write_name
from sluice.sql.windows import row_windows

_ADVICE = "SELECT * FROM (SELECT *, row_number() OVER (...) AS place FROM ...) WHERE place <= 3"


@dataclass(frozen=True)
class TopRows:
    """A row's place in its group, in a column of this name: of the first rows, as many as are wanted `most`."""

    name: str
    window: exp.Window
    most: int

    @staticmethod
    def read(text: Text, select: exp.Select, columns: Sequence[tuple[str, Syntax]]) -> TopRows | None:
        """The one among the named columns of a SELECT list, if there is one."""
        places = [(name, node) for name, node in columns if is_row_number(node)]
        if not places:
            return None
        (name, node), *others = places
        over = [part for _, node in columns for part in node.find_all(exp.Window)]
        if others or len(over) > 1:
            text.refuse(others[0][1] if others else over[1], "a query with row_number can have no other OVER")
        if select.args.get("group") is not None:
            text.refuse(node, "row_number cannot stand beside GROUP BY; put the GROUP BY into a query in FROM")
        (window,) = row_windows(text, [node], select.args.get("windows") or [])
        if window.args.get("spec") is not None:
            text.refuse(node, "row_number takes no frame: leave ROWS or RANGE out")
        if window.args.get("order") is None:
            text.refuse(node, "row_number needs ORDER BY")
        most = _bound_around(select, name)
        if most is None:
            text.refuse(node, f"row_number needs a bound in the query around it, or its state would grow: {_ADVICE}")
        return TopRows(name, window, most)

    def apply(self, handle: Any, scope: Scope) -> Any:
        """The first rows of a relation."""
        computed = ComputedColumns(handle, scope)
        groups = self.window.args.get("partition_by") or []
        keys = [computed.name_of(at, "group") for at in groups]
        order = [self._write_order(at, computed) for at in self.window.args["order"].expressions]
        handle = computed.handle
        if handle.event_time in handle.columns and any(scope.fixes_event_time(at) for at in groups):
            keys.append(handle.event_time)
        with scope.text.blame_on(self.window):
            return handle.groupBy(*dict.fromkeys(keys)).top(self.most, *order, number=self.name)

    @staticmethod
    def _write_order(at: Syntax, computed: ComputedColumns) -> str:
        column = write_name(computed.name_of(at.this, "order"))
        way, nulls = ("DESC" if at.args.get("desc") else "ASC"), ("FIRST" if at.args.get("nulls_first") else "LAST")
        return f"{column} {way} NULLS {nulls}"


def is_row_number(node: Syntax) -> bool:
    """Whether an expression is nothing but row_number() OVER something."""
    node = node.unnest()
    return isinstance(node, exp.Window) and function_name(node.this) == "row_number"


@dataclass(frozen=True)
class _Reading:
    """A query that reads another one in FROM, under a name; `is_hidden` if only its ON can see the columns."""

    query: exp.Select
    name: str
    is_hidden: bool

    @staticmethod
    def of(source: Syntax) -> _Reading | None:
        """The one that reads from this part; None if it is no part of a FROM, or a table there whose columns get other
        names (those of a query have them already)."""
        clause, query, alias = source.parent, source.find_ancestor(exp.Select), source.args.get("alias")
        is_renamed = isinstance(source, exp.Table) and alias is not None and bool(alias.columns)
        if query is None or is_renamed or not isinstance(clause, exp.From | exp.Join):
            return None
        is_hidden = isinstance(clause, exp.Join) and str(clause.kind).upper() in ("SEMI", "ANTI")
        return _Reading(query, source.alias_or_name.lower(), is_hidden)

    def is_column(self, at: Syntax, column: str) -> bool:
        """Whether an expression of the query's WHERE is a column of what it reads. A name without a table is, as it
        would be refused if another table had it too."""
        names = [part.name.lower() for part in name_parts(at) or ()]
        return not self.is_hidden and names in ([column.lower()], [self.name, column.lower()])

    def bound(self, column: str) -> int | None:
        """Up to which value a column is wanted, by a condition of the query's WHERE."""
        where = self.query.args.get("where")
        bounds = [_read_bound(condition, self, column) for condition in conjuncts(where and where.this)]
        return min((bound for bound in bounds if bound is not None), default=None)


def _bound_around(select: exp.Select, column: str) -> int | None:
    """The greatest value of a column that the queries around need, None if one of them needs all."""
    bounds = [None if reading is None else reading.bound(column) for reading in _readings(select)]
    return None if not bounds or None in bounds else max(bound for bound in bounds if bound is not None)


def _readings(select: exp.Select) -> Iterator[_Reading | None]:
    """Where a query is read, alone or beside others: once, or by its name in WITH, as often as that stands there."""
    around = select.parent
    if isinstance(around, exp.Subquery):
        yield _Reading.of(around)
    elif isinstance(around, exp.CTE):
        scope = around.parent.parent if around.parent is not None else None
        for table in scope.find_all(exp.Table) if scope is not None else ():
            if table.name.lower() == around.alias.lower():
                yield _Reading.of(table)


def _read_bound(condition: Syntax, reading: _Reading, column: str) -> int | None:
    node = condition.unnest()
    if isinstance(node, exp.GTE | exp.GT):
        mirrored = exp.LTE if isinstance(node, exp.GTE) else exp.LT
        node = mirrored(this=node.expression, expression=node.this)
    if isinstance(node, exp.EQ) and isinstance(node.this, exp.Literal):
        node = exp.EQ(this=node.expression, expression=node.this)
    if isinstance(node, exp.Between):
        node = exp.LTE(this=node.this, expression=node.args["high"])
    if not isinstance(node, exp.LTE | exp.LT | exp.EQ):
        return None
    most = node.expression
    if not reading.is_column(node.this, column):
        return None
    if not isinstance(most, exp.Literal) or most.is_string or not str(most.this).isdigit():
        return None
    return int(most.this) - isinstance(node, exp.LT)
