"""Expressions that an operator needs as columns of the rows it takes in."""

from __future__ import annotations

from collections.abc import Set
from typing import Any

from sqlglot import exp

from sluice.expressions.parsing import Syntax
from sluice.sql.scope import Scope


class ComputedColumns:
    """The rows of a relation with a column for each expression that is asked for, added where there is none yet."""

    def __init__(self, handle: Any, scope: Scope) -> None:
        self.handle, self._scope = handle, scope
        self._names: dict[str, str] = {}  # of the columns that were added, by their expression

    @property
    def is_any(self) -> bool:
        """Whether a column was added."""
        return bool(self._names)

    def name_of(self, at: Syntax, kind: str) -> str:
        """The column that holds an expression."""
        node = at.unnest()
        if isinstance(node, exp.Column):
            reference = self._scope.resolve(node)
            if not reference.fields:
                return self._scope.columns[reference.side, reference.column]
        written = self._scope.write(at)
        if written not in self._names:
            taken = {name.lower() for name in self.handle.columns}
            name = free_name(f"{kind}_{len(self._names) + 1}", taken)
            with self._scope.text.blame_on(at):
                self.handle = self.handle.withColumn(name, written)
            self._names[written] = name
        return self._names[written]


def free_name(preferred: str, taken: Set[str]) -> str:
    """The wanted name, or one like it if that is taken."""
    name, number = preferred, 1
    while name.lower() in taken:
        number += 1
        name = f"{preferred}_{number}"
    return name
