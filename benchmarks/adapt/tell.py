"""How the adaptive benchmark speaks: text while it runs, files to keep, and Markdown from those files."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from benchmarks import report
from benchmarks.adapt.outcome import Chart, Outcome
from sluice.dashboard.chart import Axis, Line, Mark, chart
from sluice.dashboard.quantity import BYTES, ROWS, SECONDS
from sluice.figures.publish import HEAD as VERDICTS
from sluice.figures.publish import as_text, recorded_cells

BARS = ["bar", "measured", "asked for", ""]
QUANTITIES = {"seconds": SECONDS, "bytes in memory": BYTES}
"""What a chart's values are, by the name of its axis; all others are rows."""


def opening(head: dict[str, dict[str, str]]) -> None:
    for title, values in head.items():
        report.facts(title, values)
    print(
        "Sites are real executors' slots. Where 'emulation' says so, a site sleeps for every row, so that eight sites "
        "can be compared on fewer cores: rows/s are then of the emulated sites, not of this machine. A disk may be "
        "emulated too: this machine's own is behind a page cache."
    )


def outcome(found: Outcome) -> None:
    document = found.document()
    print(f"\n{found.scenario}: {found.about}")
    for title, text in found.facts.items():
        print(f"  {title}: {text}")
    report.table("", document["head"], document["rows"])
    if found.bars:
        report.table("", BARS, document["bars"])
    if found.verdicts:
        report.table("", list(VERDICTS), verdict_rows(document))


def keep(found: Outcome, head: dict[str, dict[str, str]], directory: Path) -> None:
    """A JSON file with every epoch, and the charts."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / f"{found.scenario}.json").write_text(as_text(head | found.document()), encoding="utf-8")
    for name, drawn in found.charts.items():
        suffix = f"-{name}" if name else ""
        (directory / f"{found.scenario}{suffix}.svg").write_text(svg(drawn, found))


def svg(drawn: Chart, found: Outcome) -> str:
    lines = [
        Line(name, [x for x, _ in points], [y for _, y in points], points=True) for name, points in drawn.lines.items()
    ]
    marks = [Mark(text, y=value) for text, value in drawn.marks.items()]
    marks += [Mark(text, x=moment) for text, moment in drawn.at.items()]
    low = None if drawn.log else 0
    y = Axis(drawn.y, QUANTITIES.get(drawn.y, ROWS), log=drawn.log, low=low)
    return chart(drawn.title, Axis(drawn.x), y, lines, marks, note=found.facts.get("emulation", ""))


def markdown(directory: Path, scenarios: Iterable[str]) -> str:
    """The tables of these scenarios, as far as they are on file, as the documentation shows them."""
    files = (directory / f"{name}.json" for name in scenarios)
    found = [json.loads(path.read_text()) for path in files if path.exists()]
    if not found:
        raise SystemExit(f"there are no figures in {directory}: run the benchmark first")
    return "\n\n".join(section(document) for document in found)


def section(document: dict[str, Any]) -> str:
    facts = [f"- {title}: {text}" for title, text in document["facts"].items()]
    parts = [f"### {document['scenario']}", document["about"] + ".", "\n".join(facts)]
    parts.append(piped(document["head"], document["rows"]))
    if document["bars"]:
        parts.append(
            piped(BARS, [[*row[:3], "**missed**" if row[3] == "MISSED" else row[3]] for row in document["bars"]])
        )
    if document.get("verdicts"):
        parts.append(piped(list(VERDICTS), verdict_rows(document)))
    return "\n\n".join(parts)


def verdict_rows(document: dict[str, Any]) -> list[list[str]]:
    """The verdicts of a scenario as a table shows them."""
    return [recorded_cells(verdict) for verdict in document["verdicts"]]


def piped(head: list[str], rows: list[list[str]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows))
