"""The relations of a FROM, their columns, and what is seen of them behind joins by USING."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sluice.expressions.parsing import Syntax


@dataclass(frozen=True)
class Table:
    """A stream as a table of SQL: its columns, and those among them that always hold its event time. Or, if it
    `is_static`, a table that streams are joined with.

    Where its rows are of windows, `window_times` has the columns with other times of these, and which they are.
    `merged` has the columns that full joins make of one of its own and others that equal it, by their names."""

    handle: Any
    columns: tuple[str, ...]
    times: frozenset[str]
    name: str | None = None  # under which joins know it already
    window_times: Mapping[str, str] = field(default_factory=dict)
    is_static: bool = False
    merged: Mapping[str, tuple[Reference, ...]] = field(default_factory=dict)


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


@dataclass(frozen=True)
class Shown:
    """A column that a FROM shows, under a name."""

    name: str
    reference: Reference


@dataclass(frozen=True)
class Visible:
    """What a FROM with joins by USING shows, in order; `hidden` columns are seen with the name of their table alone.
    `keys` are the names in USING, in small letters."""

    columns: tuple[Shown, ...]
    hidden: tuple[Reference, ...] = ()
    keys: frozenset[str] = frozenset()

    def named(self, name: str) -> list[Shown]:
        """The columns of this name, of any case where a side has none that is spelled exactly so."""
        alike = [one for one in self.columns if one.name.lower() == name.lower()]
        exact = {one.reference.side for one in alike if one.name == name}
        return [one for one in alike if one.name == name or one.reference.side not in exact]
