"""Writes the bars of docs/research/adaptive-benchmarks.md anew, from docs/figures/spark-SCENARIO.json.

python -m benchmarks.adapt --only quiet --out DIR, then DIR/quiet.json as docs/figures/spark-quiet.json, then
python -m scripts.adaptive_page
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from benchmarks.adapt import tell

DOCS = Path(__file__).parents[1] / "docs"
PAGE = DOCS / "research" / "adaptive-benchmarks.md"
BEGIN, END = "<!-- figures: scripts/adaptive_page.py -->\n", "<!-- end of figures -->"
HEAD = ["scenario", "bar", "measured", "others"]
SIGNS = {("least", True): "≥", ("least", False): "<", ("most", True): "≤", ("most", False): ">"}


def recorded_documents() -> list[dict[str, Any]]:
    """What is on file of scenarios that have bars of their own."""
    documents = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(DOCS.glob("figures/spark-*.json"))]
    return [document for document in documents if document.get("bars")]


def write_bars(page: str, documents: list[dict[str, Any]]) -> str:
    """The page with the bars of these scenarios, each with what other processes took of the machine meanwhile."""
    rows = [row for document in documents for row in bar_rows(document)]
    text = f"{BEGIN}\n{tell.piped(HEAD, rows)}\n\n{END}"
    return re.sub(f"{BEGIN}.*?{END}", lambda _: text, page, flags=re.DOTALL)


def bar_rows(document: dict[str, Any]) -> list[list[str]]:
    """A row for each bar of a scenario; the first one leads to its file."""
    name = document["scenario"]
    rows = [["", what, judged(measured, bar, met), ""] for what, measured, bar, met in document["bars"]]
    rows[0][0], rows[0][-1] = f"[`{name}`](../figures/spark-{name}.json)", most_others(document)
    return rows


def judged(measured: str, bar: str, met: str) -> str:
    """What was measured, beside its bar.

    >>> judged("1.29", "at most 1.35", "met"), judged("0.8", "at least 1", "MISSED")
    ('1.29 ≤ 1.35', '0.8 < 1 **missed**')
    """
    _, kind, limit = bar.split(maxsplit=2)
    return f"{measured} {SIGNS[kind, met != 'MISSED']} {limit}" + " **missed**" * (met == "MISSED")


def most_others(document: dict[str, Any]) -> str:
    """The greatest part of the machine that others took; some scenarios have it among their facts.

    >>> most_others({"head": ["policy", "others"], "rows": [["static", "3%"], ["hybrid", "12%"]], "facts": {}})
    '12%'
    >>> most_others({"head": ["epochs", "number"], "rows": [["before", "8"]], "facts": {"others": "4%"}})
    '4%'
    """
    if "others" not in document["head"]:
        return str(document["facts"].get("others", ""))
    place = document["head"].index("others")
    return max((row[place] for row in document["rows"]), key=lambda text: float(text.rstrip("%")))


if __name__ == "__main__":
    PAGE.write_text(write_bars(PAGE.read_text(encoding="utf-8"), recorded_documents()), encoding="utf-8")
