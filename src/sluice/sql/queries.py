"""From a SELECT to the relation it stands for: its FROM and WHERE first, then its grouping, then its columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, count
from typing import Any

from sqlglot import exp

from sluice.expressions.parsing import Syntax
from sluice.model.plan.join_kind import JoinKind
from sluice.sql.conditions import conjuncts
from sluice.sql.functions import function_name, is_aggregate
from sluice.sql.grouping import WINDOW_COLUMNS, Grouping
from sluice.sql.having import replace_names
from sluice.sql.joins import Join
from sluice.sql.names import name_in_spark
from sluice.sql.outer_joins import join_in_order
from sluice.sql.scope import Scope
from sluice.sql.sides import Side, Table, Visible
from sluice.sql.subqueries import InnerQuery, split_subqueries
from sluice.sql.table_joins import join_inner_tables, refuse_alone
from sluice.sql.text import Text, column, name_parts, write_name
from sluice.sql.top_rows import TopRows, is_row_number
from sluice.sql.using import JoinedSide, join_columns, see
from sluice.sql.vetting import vet_join, vet_select, vet_table, vet_union
from sluice.sql.windows import (
    NoWindow,
    RowWindow,
    TimeColumn,
    TimeWindow,
    is_time_window,
    is_window_name,
    row_windows,
)

Known = Mapping[str, Table]


@dataclass(frozen=True)
class Item:
    """One column of a SELECT list: its name, where it stands, and its expression."""

    name: str
    at: Syntax
    node: Syntax


class Queries:
    """Translates the queries of one text, each into calls on the relations it reads."""

    def __init__(
        self,
        text: Text,
        relations: Mapping[str, Any],
        join_many: Callable[..., Any],
        unbounded: bool,
        tables: Mapping[str, Any],
    ) -> None:
        self.text, self._join_many, self._unbounded = text, join_many, unbounded
        static = {
            name.lower(): Table(handle, tuple(handle.columns), frozenset(), name, is_static=True)
            for name, handle in tables.items()
        }
        self._streams = static | {name.lower(): _table_of(name, handle) for name, handle in relations.items()}

    def result(self, tree: Syntax) -> Any:
        """What the whole text stands for."""
        return self._query(tree, self._streams, outermost=True).handle

    def _query(self, at: Syntax, tables: Known, *, outermost: bool = False, names: Sequence[str] = ()) -> Table:
        """The table that a query is. Its columns have these `names` where any are given, whatever it calls them."""
        while isinstance(at, exp.Subquery) and not any(v for name, v in at.args.items() if name != "this"):
            at = at.this
        if isinstance(at, exp.Union):
            vet_union(self.text, at)
            return self._union(at, self._with_names(at, tables), names)
        select = vet_select(self.text, at)
        handle, scope = self._source(select, self._with_names(select, tables))
        items = list(self._items(select, scope, names))
        top = TopRows.read(self.text, select, [(item.name, item.node) for item in items])
        if top is not None:
            handle = top.apply(handle, scope)
            written = [write_name(top.name) if is_row_number(item.node) else scope.write(item.node) for item in items]
            table = self._project(handle, scope, items, written, None, outermost)
        else:
            grouping = self._grouping(select, items, handle, scope)
            if grouping is None:
                written = [scope.write(item.node) for item in items]
            else:
                handle, written = self._write_grouped(select, items, grouping)
            table = self._project(handle, scope, items, written, grouping, outermost)
        return self._drop_duplicates(table, select) if select.args.get("distinct") else table

    def _drop_duplicates(self, table: Table, select: Syntax) -> Table:
        """The distinct rows by the columns of the SELECT list."""
        with self.text.blame_on(select.expressions[0]):
            return replace(table, handle=table.handle.dropDuplicates(list(table.columns)))

    def _with_names(self, at: exp.Query, tables: Known) -> Known:
        """The tables that a query knows: those around it, and those of its WITH."""
        names: set[str] = set()
        for cte in at.ctes:
            name = cte.alias.lower()
            if name in names:
                self.text.refuse(cte.args["alias"], f"WITH has two queries {name!r}; give one another name")
            names.add(name)
            tables = {**tables, name: self._named_query(cte, tables)}
        return tables

    def _named_query(self, at: Syntax, tables: Known) -> Table:
        """A query in WITH or in FROM, its columns under the names behind its own, if there are any."""
        names = _names_behind(at)
        if not names:
            return self._query(at.this, tables)
        table = self._query(at.this, tables, outermost=True, names=[name.name for name in names])
        self._check_names(names, table)
        return table

    def _check_names(self, names: Sequence[Syntax], table: Table) -> None:
        if len(names) != len(table.columns):
            columns = ", ".join(table.columns)
            self.text.refuse(names[0], f"{len(names)} names for {len(table.columns)} columns: {columns}")

    def _rename(self, table: Table, names: Sequence[Syntax]) -> Table:
        """A stream whose columns have other names."""
        self._check_names(names, table)
        if table.is_static:
            self.text.refuse(names[0], "the columns of a table keep their names; name them with AS in the SELECT list")
        renamed = dict(zip(table.columns, (name.name for name in names), strict=True))
        columns = [f"{write_name(column)} AS {write_name(name)}" for column, name in renamed.items()]
        with self.text.blame_on(names[0]):
            handle = table.handle.select(*columns)
        return Table(handle, tuple(renamed.values()), frozenset(renamed[time] for time in table.times))

    def _union(self, at: exp.Union, tables: Known, names: Sequence[str]) -> Table:
        """The rows of both queries, columns by their places and under the names of the first; without ALL each once."""
        first = self._query(at.this, tables, outermost=True, names=names)
        second = self._query(at.expression, tables, outermost=True, names=first.columns)
        with self.text.blame_on(at.expression):
            handle = first.handle.union(second.handle)
            handle = handle.distinct() if at.args.get("distinct") else handle
        pairs = zip(first.columns, second.columns, strict=True)
        return Table(handle, first.columns, frozenset(a for a, b in pairs if a in first.times and b in second.times))

    def _source(self, at: Syntax, tables: Known) -> tuple[Any, Scope]:
        """FROM and WHERE: the rows that everything else is computed from."""
        sides = [self._side(at.args["from_"].this, tables)]
        joined: list[JoinedSide] = []
        for join in at.args.get("joins") or []:
            kind, using = vet_join(self.text, join), tuple(join.args.get("using") or ())
            if using and not all(other.on is not None or other.using for other in joined):
                self.text.refuse(using[0], "USING cannot stand behind a comma or CROSS JOIN; put those sides last")
            sides.append(self._side(join.this, tables, len(sides)))
            joined.append(JoinedSide(sides[-1], kind, join.args.get("on"), using))
        for number, side in enumerate(sides):
            if side.name.lower() in (other.name.lower() for other in sides[:number]):
                self.text.refuse(
                    side.at, f"{side.name!r} stands twice in this FROM; give one an alias: {side.name} AS other"
                )
        where = at.args.get("where")
        if sides[0].table.is_static and (len(sides) == 1 or any(join.kind is not JoinKind.INNER for join in joined)):
            refuse_alone(self.text, sides[0])
        inner, others = split_subqueries(conjuncts(where and where.this))
        if inner:
            return self._semi_join(sides, inner, others, tables)
        if any(join.kind is not JoinKind.INNER for join in joined):
            handle, scope = join_in_order(self.text, sides[0], joined, self._unbounded)
            return self._filter(handle, scope, where), scope
        if len(sides) > 1:
            return self._inner_join(sides, joined, conjuncts(where and where.this))
        table = sides[0].table
        scope = Scope(self.text, tuple(sides), {(0, c): c for c in table.columns}, (frozenset([0]),))
        return self._filter(table.handle, scope, where), scope

    def _inner_join(
        self, sides: Sequence[Side], joined: Sequence[JoinedSide], where: Sequence[Syntax]
    ) -> tuple[Any, Scope]:
        """Sides of which only rows with partners appear."""
        visible: Visible | None = None
        conditions = [condition for join in joined for condition in conjuncts(join.on)]
        if any(join.using for join in joined):
            conditions, visible = [], see(0, sides[0])
            for number, join in enumerate(joined, 1):
                joining = join_columns(self.text, sides[: number + 1], visible, join)
                conditions, visible = conditions + joining.conditions, joining.visible
            scope = Scope(self.text, tuple(sides), {}, (), visible)
            where = [scope.qualify(condition) for condition in where]
        conditions += where
        if any(side.table.is_static for side in sides):
            handle, scope = join_inner_tables(self.text, sides, conditions, self._unbounded, self._join_many)
        else:
            handle, scope = Join(self.text, sides, conditions, self._unbounded).run(self._join_many)
        return handle, replace(scope, visible=visible)

    def _semi_join(
        self, sides: Sequence[Side], inner: Sequence[InnerQuery], others: Sequence[Syntax], tables: Known
    ) -> tuple[Any, Scope]:
        """One side, of which WHERE keeps the rows with a partner in each query in it, or without one."""
        if len(sides) > 1:
            advice = "put the join into a query: FROM (SELECT ... JOIN ...) AS joined WHERE ..."
            self.text.refuse(inner[0].at, f"a query in WHERE can be run where FROM has one stream; {advice}")
        table = sides[0].table
        scope = Scope(self.text, tuple(sides), {(0, c): c for c in table.columns}, (frozenset([0]),))
        handle = table.handle
        for condition in others:
            with self.text.blame_on(condition):
                handle = handle.filter(scope.write(condition))
        first = Side(sides[0].name, replace(table, handle=handle, name=table.name if not others else None), sides[0].at)
        joined: list[JoinedSide] = []
        for query in inner:
            taken = {first.name.lower(), *(other.side.name.lower() for other in joined)}
            side = self._inner_side(query, tables)
            names = chain([side.name], (f"{side.name}_{number}" for number in count(2)))
            free = next(name for name in names if name.lower() not in taken)
            joined.append(query.join(self.text, scope, side, free))
        return join_in_order(self.text, first, joined, self._unbounded)

    def _inner_side(self, query: InnerQuery, tables: Known) -> Side:
        """What a query in WHERE takes its rows from: its stream, or, where it is more than a filter, its result."""
        if query.is_filter:
            vet_select(self.text, query.select)
            return self._side(query.select.args["from_"].this, tables)
        return Side("subquery", self._query(query.select, tables), query.at)

    def _filter(self, handle: Any, scope: Scope, where: Syntax | None) -> Any:
        if where is None:
            return handle
        with self.text.blame_on(where.this):
            return handle.filter(scope.write(where.this))

    def _side(self, at: Syntax, tables: Known, number: int = 0) -> Side:
        vet_table(self.text, at)
        if isinstance(at, exp.Subquery):
            name = at.alias or (f"_subquery{number + 1}" if number else "_subquery")
            return Side(name, self._named_query(at, tables), at.args.get("alias") or at.this)
        table = tables.get(at.name.lower())
        if table is None:
            there = ", ".join(sorted(tables)) or "none"
            self.text.refuse(at, f"there is no stream or table {at.name!r} in this flow; it has {there}")
        names = _names_behind(at)
        return Side(at.alias or table.name or at.name, self._rename(table, names) if names else table, at)

    def _items(self, at: Syntax, scope: Scope, names: Sequence[str]) -> Iterator[Item]:
        """The columns of the SELECT list, stars spelled out; under these names, if any are given."""
        seen: set[str] = set()
        for node in at.expressions:
            grouped = at.args.get("group") is not None
            for item in self._spell_out(node, scope, grouped=grouped, is_named=len(names) > 0):
                if names:
                    place = len(seen)
                    item = replace(item, name=names[place] if place < len(names) else f"_{place + 1}")
                if item.name.lower() in seen:
                    self.text.refuse(item.at, f"two columns would be named {item.name!r}; name one of them with AS")
                seen.add(item.name.lower())
                yield item

    def _spell_out(self, node: Syntax, scope: Scope, *, grouped: bool, is_named: bool) -> Iterator[Item]:
        star = node.this if isinstance(node, exp.Column) else node
        if isinstance(star, exp.Star):
            if grouped or any(star.args.values()):
                self.text.refuse(node, "name the columns instead of this *")
            whose = node.table if isinstance(node, exp.Column) else None
            if not any(whose is None or whose.lower() == side.name.lower() for side in scope.sides):
                self.text.refuse(node, f"there is no {whose!r} in FROM")
            for shown in scope.star(whose):
                yield Item(shown.name, node, column(*scope.qualified(shown.reference)))
        elif isinstance(node, exp.Alias) and isinstance(node.args.get("alias"), exp.Identifier):
            yield Item(node.alias, node.args["alias"], node.this)
        else:
            yield Item("" if is_named else self._name_of(node, scope), node, node)

    def _name_of(self, node: Syntax, scope: Scope) -> str:
        """The name SQL gives to a column that has no AS."""
        names = name_parts(node)
        if function_name(node) == "window_time":
            return "window_time"
        if names is None:
            name = name_in_spark(scope, node)
            if name is None:
                self.text.refuse(node, "this column needs a name: write AS name after it")
            return name
        first = names[0].name.lower()
        if is_window_name(first) and not any(first in s.table.columns for s in scope.sides):
            if len(names) != 2 or names[1].name.lower() not in WINDOW_COLUMNS:
                self.text.refuse(node, f"a window is no single column; select {first}.start and {first}.end")
            return WINDOW_COLUMNS[names[1].name.lower()]
        return scope.name_of(node) if isinstance(node, exp.Column) else str(names[-1].name)

    def _grouping(self, at: Syntax, items: Sequence[Item], handle: Any, scope: Scope) -> Grouping | None:
        nodes, group = [item.node for item in items], at.args.get("group")
        if group is not None:
            return self._read_grouping(items, group, handle, scope)
        having = at.args.get("having")
        if having is not None:
            self.text.refuse(self.text.before("HAVING", having.this), "HAVING is for GROUP BY; use WHERE")
        windows = row_windows(self.text, nodes, at.args.get("windows") or [])
        if not windows:
            is_one_group = any(is_aggregate(part) for node in nodes for part in node.walk())
            return Grouping(handle, scope, [], NoWindow()) if is_one_group else None
        groups = [window.args.get("partition_by") or [] for window in windows]
        kinds = [RowWindow.read(scope, window) for window in windows]
        for window, kind, columns in zip(windows, kinds, groups, strict=True):
            meanings, first = ([scope.meaning(c) for c in columns] for columns in (columns, groups[0]))
            if (meanings, kind) != (first, kinds[0]):
                self.text.refuse(window, "all OVER clauses of a SELECT must be the same; put one into a subquery")
        return Grouping(handle, scope, groups[0], kinds[0])

    def _read_grouping(self, items: Sequence[Item], group: Syntax, handle: Any, scope: Scope) -> Grouping:
        by = group.expressions
        if not by or any(value for name, value in group.args.items() if name != "expressions"):
            place = self.text.after("GROUP", group.parent.args["from_"] if group.parent else group)
            self.text.refuse(place, "GROUP BY takes columns and a window; ALL, ROLLUP and CUBE cannot be run")
        windows = [TimeWindow.read(scope, part) for part in by if is_time_window(part)]
        groups = [self._read_group(part, items, scope) for part in by if not is_time_window(part)]
        if not windows:
            timed = [at for at in groups if scope.fixes_event_time(at)]
            if timed and handle.event_time not in handle.columns:
                time = f"window({self.text.write(timed[0])}, '1 microsecond')"
                self.text.refuse(timed[0], f"the event time of a join is no column of it; GROUP BY {time} instead")
            return Grouping(handle, scope, groups, TimeColumn() if timed else NoWindow())
        if len(windows) > 1:
            self.text.refuse(windows[1].call, "GROUP BY takes one window over the event time")
        return Grouping(handle, scope, groups, windows[0])

    def _read_group(self, at: Syntax, items: Sequence[Item], scope: Scope) -> Syntax:
        """What to group by: a column, an expression, or the expression that the SELECT list gives this name."""
        if isinstance(at, exp.Literal | exp.Tuple | exp.GroupingSets | exp.Cube | exp.Rollup):
            self.text.refuse(at, "GROUP BY takes columns and expressions by name")
        names = name_parts(at)
        if names is not None and len(names) == 1:
            name = names[0].name.lower()
            meant = [item.node for item in items if item.name.lower() == name]
            if meant and not any(c.lower() == name for s in scope.sides for c in s.table.columns):
                return meant[0]
        return at

    def _write_grouped(self, at: Syntax, items: Sequence[Item], grouping: Grouping) -> tuple[Any, list[str]]:
        """The result of a group-by, filtered by HAVING, and the columns of the SELECT list over it."""
        written = [self.text.write(grouping.over_result(item.node, item.name)) for item in items]
        having, condition = at.args.get("having"), None
        if having is not None:
            named = replace_names(having.this, {item.name.lower(): item.node for item in items}, grouping)
            condition = self.text.write(grouping.over_result(named))
        handle = grouping.result(at.args.get("group") or items[0].at)
        if having is not None and condition is not None:
            with self.text.blame_on(having.this):
                handle = handle.filter(condition)
        return handle, written

    def _project(
        self,
        handle: Any,
        scope: Scope,
        items: Sequence[Item],
        written: Sequence[str],
        grouping: Grouping | None,
        outermost: bool,
    ) -> Table:
        """The columns of the SELECT list; inner queries also keep the event time for what is built on them."""
        names = tuple(item.name for item in items)
        columns = [
            text if text == write_name(name) else f"{text} AS {write_name(name)}"
            for text, name in zip(written, names, strict=True)
        ]
        times: set[str] = set()
        if grouping is not None and not isinstance(grouping.over, RowWindow):
            times = {name for text, name in zip(written, names, strict=True) if text == write_name(handle.event_time)}
        if grouping is None or not isinstance(grouping.over, TimeWindow):
            times |= {item.name for item in items if scope.is_event_time(item.node)}
        window_times = {item.name: time for item in items if (time := _window_time(item, scope, grouping)) is not None}
        hidden = handle.event_time
        if not outermost and hidden in handle.columns and write_name(hidden) not in columns:
            if hidden in names:
                at = items[names.index(hidden)].at
                self.text.refuse(at, f"{hidden!r} is the name of the event time; choose another")
            columns.append(write_name(hidden))
        if columns == [write_name(name) for name in handle.columns]:
            return Table(handle, names, frozenset(times), window_times=window_times)
        with self.text.blame_on(items[0].at):
            return Table(handle.select(*columns), names, frozenset(times), window_times=window_times)


def _names_behind(at: Syntax) -> list[Syntax]:
    """The names of columns behind the name of a table or query."""
    return at.args["alias"].columns if at.args.get("alias") else []


def _table_of(name: str, handle: Any) -> Table:
    return Table(handle, tuple(handle.columns), frozenset([handle.event_time]), name)


def _window_time(item: Item, scope: Scope, grouping: Grouping | None) -> str | None:
    """Which time of a window a column is, other than its end; None if it is none."""
    if grouping is None or not isinstance(grouping.over, TimeWindow):
        return scope.window_time_of(item.node)
    bound = grouping.over.bound_of(item.node)
    return {"time": "window_time", "start": "window_start" if grouping.over.is_fixed else None}.get(bound or "")
