"""Writes the tables of docs/reference/options.md anew from the tables of options in the code."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from sluice.api.options import OPTIONS, QUERY
from sluice.model.option import FLAG, Option
from sluice.sources.file_options import FILE_OPTIONS

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "options.md"
TABLES = {
    "Of a query": [row for row in OPTIONS if row.scope == QUERY],
    "Of a sink": [row for row in OPTIONS if row.scope != QUERY],
    "Of files": list(FILE_OPTIONS),
}


def write_tables(page: str) -> str:
    """The page with the table under each of these headings as the code has it."""
    for heading, rows in TABLES.items():
        table = re.compile(rf"(^## {heading}$.*?^)\|.*?(?=^[^|]|\Z)", re.MULTILINE | re.DOTALL)
        found = table.search(page)
        assert found is not None, f"there is no table under {heading!r}"
        page = page[: found.start()] + found[1] + format_table(rows) + page[found.end() :]
    return page


def format_table(rows: Iterable[Option[Any]]) -> str:
    """A table of options in Markdown; their scope is a column where they are of several."""
    rows = list(rows)
    several = len({row.scope for row in rows}) > 1
    lines = [["option", *(["of"] if several else []), "meaning", "default"]]
    lines.append(["---"] * len(lines[0]))
    for row in rows:
        scope = [row.scope] if several else []
        lines.append([f"`{row.name}`", *scope, describe_option(row), row.default_text])
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def describe_option(row: Option[Any]) -> str:
    """What it is for, and which values it takes where these are few and not named yet; the page says how flags, sizes
    and durations are written."""
    words = row.kind.words
    takes_choices = words.startswith("`") and words != FLAG.words
    return row.help if not takes_choices or words.split(", ")[0] in row.help else f"{row.help}: {words}"


if __name__ == "__main__":
    PAGE.write_text(write_tables(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
