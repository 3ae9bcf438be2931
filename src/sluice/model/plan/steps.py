"""Stateless steps on the way of rows to an operator or a sink: filters, projections, and joins with tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from sluice.model.errors import EvaluationError
from sluice.model.plan.join_kind import JoinKind
from sluice.model.plan.stream import BY_SPARK, TIME_COLUMN, Expression, Filter, Project, columns_of, plain_column


@dataclass(frozen=True)
class StaticTable:
    """A table that streams are joined with: its name in the flow, and its columns. What is in it, is said epoch by
    epoch."""

    name: str
    schema: pa.Schema


@dataclass(frozen=True)
class TableJoin:
    """Joins rows with a table by equal keys: an inner, left, semi or anti join.

    `columns` and `table_columns` are what columns are called afterwards, and before. `where` is a further condition on
    rows and their partners, over the names afterwards.
    """

    table: StaticTable
    kind: JoinKind
    keys: tuple[str, ...]
    table_keys: tuple[str, ...]
    key_types: tuple[pa.DataType, ...]
    columns: tuple[tuple[str, str], ...]
    table_columns: tuple[tuple[str, str], ...]
    where: Expression | None = None

    def rename_rows(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The rows under their new names; the hidden event time goes along."""
        hidden = {name: rows.column(name) for name in rows.schema.names if name == TIME_COLUMN}
        return pa.RecordBatch.from_pydict(hidden | {name: rows.column(before) for name, before in self.columns})

    def rename_partners(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Rows of the table under their new names."""
        return pa.RecordBatch.from_pydict({name: rows.column(before) for name, before in self.table_columns})

    def evaluate_where(self, pairs: pa.RecordBatch) -> pa.Array:
        """Its condition for each pair of a row and its partner."""
        assert self.where is not None, "a join without a condition has nothing to evaluate"
        try:
            return self.where.evaluate(pairs)
        except EvaluationError as error:
            raise EvaluationError(f"join with table {self.table.name!r}, condition: {error}") from error

    def structure(self) -> object:
        """What it does: two joins with the same structure make the same rows."""
        where = None if self.where is None else (self.where.meaning, str(self.where.type))
        keys = self.keys, self.table_keys, tuple(map(str, self.key_types))
        names = self.columns, self.table_columns
        return "table", self.table.name, columns_of(self.table.schema), self.kind.value, keys, names, where

    def describe(self) -> str:
        pairs = zip(self.keys, self.table_keys, strict=True)
        on = ", ".join(key if key == other else f"{key} = {other}" for key, other in pairs)
        where = "" if self.where is None else f", where {self.where.text}"
        kind = f"{self.kind.words} " if self.kind.words else ""
        return f"{kind}joined with table {self.table.name!r} on {on}{where}"


Step = Filter | Project | TableJoin


def columns_before(steps: Sequence[Step], columns: Iterable[str]) -> set[str]:
    """The columns that rows need before some steps, so that these columns are right behind them. What steps compute
    counts as needed: it might fail."""
    needed = set(columns)
    for step in reversed(steps):
        match step:
            case Filter():
                needed |= set(step.condition.columns)
            case Project():
                needed = _before_projection(step, needed)
            case TableJoin():
                needed |= set(() if step.where is None else step.where.columns)
                hidden = needed & {TIME_COLUMN}
                needed = {before for name, before in step.columns if name in needed} | set(step.keys) | hidden
    return needed


def _before_projection(step: Project, needed: set[str]) -> set[str]:
    read = {name for name in needed if name == TIME_COLUMN or name.startswith(BY_SPARK)}
    read |= set() if step.time is None else {step.time}
    for name, expression in step.columns:
        if name in needed or plain_column(expression) is None:
            read |= set(expression.columns)
    return read
