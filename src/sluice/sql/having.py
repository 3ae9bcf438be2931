"""Names in HAVING: those of the SELECT list stand for its expressions, as Spark reads them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NoReturn

from sqlglot import exp

from sluice.expressions.parsing import Syntax
from sluice.sql.functions import AGGREGATES, function_name, is_aggregate
from sluice.sql.grouping import Grouping
from sluice.sql.scope import Scope
from sluice.sql.sides import Reference
from sluice.sql.text import name_parts, replace_parts

_OF_ONE_KIND = {"sum", "min", "max", "first", "last"}
"""Aggregates of a column's own kind: whatever this is compared with, Spark converts both alike and loses nothing."""


def replace_names(condition: Syntax, items: Mapping[str, Syntax], grouping: Grouping) -> Syntax:
    """A condition with the names of the SELECT list replaced by what they stand for. A column that is grouped by goes
    before them; within an aggregate there are columns alone."""

    def replacement(at: Syntax) -> Syntax | None:
        if is_aggregate(at):
            return at.copy()
        names = name_parts(at)
        name = names[0].name.lower() if names is not None and len(names) == 1 else ""
        if name not in items or grouping.has_group(name):
            return None
        node = items[name]
        columns = grouping.scope.columns_named(name)
        if len(columns) == 1 and not _is_of_its_kind(node, columns[0], grouping.scope):
            _refuse_either(grouping.scope, at, node)
        return exp.Paren(this=node.copy()) if isinstance(node, exp.Binary) else node.copy()

    return replace_parts(condition, replacement)


def _is_of_its_kind(node: Syntax, column: Reference, scope: Scope) -> bool:
    """Whether an expression is an aggregate that has the type of a column, or a wider one of its kind."""
    node = node.unnest()
    if AGGREGATES.get(function_name(node)) not in _OF_ONE_KIND or len(node.expressions) != 1:
        return False
    argument = node.expressions[0].unnest()
    return isinstance(argument, exp.Column) and scope.resolve(argument) == column


def _refuse_either(scope: Scope, at: Syntax, node: Syntax) -> NoReturn:
    """Refuses a name that Spark converts as the column of that name would have to be, which may cut digits: of
    `avg(v) AS v` it takes `HAVING v > 13.3` for false where the average is 13.33."""
    why = f"{at.name!r} names both {scope.text.write(node)} and a column in FROM, by whose type Spark would compare it"
    scope.text.refuse(at, f"{why}; write {scope.text.write(node)} here, or give it another name")
