"""Tables as users hold them: what streams are joined with, by equal keys."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
from pyspark.sql import Column

from sluice.api.joining import On, check_keys, check_sides, compile_where, keys_in, read_condition, result_columns
from sluice.api.relation import NamedRelation, Registry, refuse_changing, result_of
from sluice.model.errors import FlowError
from sluice.model.plan.join_kind import JoinKind
from sluice.model.plan.relation import Relation
from sluice.model.plan.steps import StaticTable, TableJoin
from sluice.model.plan.stream import TIME_COLUMN, Stream
from sluice.model.plan.table_lookup import TableLookup, table_stream

KINDS = (JoinKind.INNER, JoinKind.LEFT, JoinKind.SEMI, JoinKind.ANTI)
"""The kinds of joins in which a table can stand, on the right."""


class Table(NamedRelation):
    """A table of a flow, under its own name or an alias: `stream.join(table, on=...)`.

    >>> symbols
    Table(symbols: symbol, sector)
    """

    def alias(self, name: str) -> Table:
        """The same table under another name, to join it twice. It is kept once.

        Args:
            name: a plain word; columns of joins begin with it.

        >>> trades.join(symbols.alias("listed"), on="symbol").columns[-1]
        'listed_sector'
        """
        if not isinstance(name, str) or not name.isidentifier():
            raise FlowError(f"an alias must be a plain word such as 'sellers', not {name!r}")
        return Table(self.registry, name, self.relation)

    @property
    def title(self) -> str:
        """As messages name it.

        >>> symbols.title
        "table 'symbols'"
        """

        return f"table {self.name!r}"

    def __repr__(self) -> str:
        return f"Table({self.name}: {', '.join(self.columns)})"


def table_of(registry: Registry, table: StaticTable) -> Table:
    """A registered table, as users hold it."""
    described = Stream(table.name, table.schema, "", None)
    return Table(registry, table.name, Relation(described, (), described))


def join_table(
    rows: NamedRelation,
    table: Table,
    on: On | None,
    within: object,
    where: str | Column | None,
    kind: JoinKind,
) -> Relation:
    """The rows of a stream after a join with a table, checked."""
    on, where = read_condition(on, where)
    sides = [rows, table]
    check_sides(sides)
    refuse_changing([rows.relation])
    if kind not in KINDS:
        raise FlowError(
            f"how={kind.value!r}: rows of table {table.name!r} never appear by themselves, since a row of the stream "
            f"may always come; a join with a table is one of {', '.join(kind.value for kind in KINDS)}"
        )
    if within is not None:
        raise FlowError(f"table {table.name!r} has no event time, so a join with it takes no within=; leave it out")
    condition = None if where is None else compile_where(where, sides)
    if on is None and condition is not None:
        on, condition = keys_in(condition, sides)
    if on is None:
        raise FlowError(
            f"a join with table {table.name!r} needs on=, the key column or columns with equal values on both sides; "
            "where= is a further condition"
        )
    keys, types = check_keys(sides, on)
    static = StaticTable(table.stream.name, table.stream.schema)
    if table.registry.tables[static.name].divided:
        result_columns(sides)
        own, other = keys[rows.name], keys[table.name]
        stream = replace(rows.stream, name=rows.name)
        spec = TableLookup(stream, rows.name, static, table.name, kind, own, other, types, condition)
        result = result_of(spec, (rows.relation, Relation(static, (), table_stream(static))))
        return replace(result, stream=replace(result.stream, of_several=stream.of_several))
    columns = tuple((f"{rows.name}_{column}", column) for column in rows.columns)
    table_columns = tuple((f"{table.name}_{column}", column) for column in table.columns)
    step = TableJoin(
        static,
        kind,
        keys[rows.name],
        keys[table.name],
        types,
        columns,
        table_columns,
        condition,
    )
    both = result_columns(sides)
    shown = both if kind.shows_pairs else result_columns([rows])
    is_hidden_time = rows.event_time == TIME_COLUMN
    hidden = [rows.stream.schema.field(TIME_COLUMN)] if is_hidden_time else []
    event_time = TIME_COLUMN if is_hidden_time else f"{rows.name}_{rows.event_time}"
    stream = replace(rows.stream, schema=pa.schema([*hidden, *shown]), event_time=event_time)
    return Relation(rows.relation.origin, (*rows.relation.steps, step), stream)
