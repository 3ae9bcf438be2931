"""What mkdocs calls while it builds the site: pages lose what only their tests read, and get the tables of figures."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from sluice.figures.publish import HEAD, recorded_cells

FIGURES = Path(__file__).parents[1] / "docs" / "figures"
HIDDEN = re.compile(r"^<!-- (?:setup|check)\b.*?^-->\n", re.MULTILINE | re.DOTALL)
RAISES = re.compile(r"^(\s*```\w+) raises=\w+$", re.MULTILINE)
VERDICTS = re.compile(r"^(\[verdicts[^\]]*\]\(\S*figures/([\w-]+)\.json\))$", re.MULTILINE)
"""A line with nothing but this link stands for the tables of what it leads to."""


def on_page_markdown(markdown: str, **_: Any) -> str:
    """The page without the code that runs unseen between its blocks, and without what its blocks must raise; with the
    tables of experiments whose files it names."""
    page = RAISES.sub(r"\1", HIDDEN.sub("", markdown))
    return VERDICTS.sub(lambda link: f"{verdict_tables(link[2])}\n\n{link[1]}", page)


def verdict_tables(name: str) -> str:
    """The verdicts on an experiment; of one that was run on Spark, what its contenders did as well."""
    document = json.loads((FIGURES / f"{name}.json").read_text(encoding="utf-8"))
    tables = [_table(HEAD, [recorded_cells(verdict) for verdict in document["verdicts"]])]
    if "rows" in document:
        tables.append(_table(document["head"], document["rows"]))
    return "\n\n".join(tables)


def _table(head: Any, rows: Any) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows))
