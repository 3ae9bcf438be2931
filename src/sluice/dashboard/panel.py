"""What the terminal shows of a query: its progress as lines of text. Pure; `terminal` does the drawing."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sluice.dashboard.quantity import BYTES, ROWS, SECONDS
from sluice.dashboard.series import TIERS

HEADING = f"{'epoch':>6} {'rows in':>9} {'rows/s':>9} {'results':>10} {'late':>6} {'time':>8}   state: rows, by tier"
_COLOURS = (33, 214, 36, 175, 117, 166, 185, 245, 140)  # of the terminal's 256, near those of the report
_SPARKS = "▁▂▃▄▅▆▇█"
_CODES = re.compile(r"\x1b\[[0-9;]*m")
_LABEL = 10


@dataclass
class Seen:
    """What was seen of a query: totals over all its epochs, and the progress of the last ones."""

    name: str
    epochs: int = 0
    rows_in: int = 0
    results: int = 0
    late: int = 0
    recent: deque[Mapping[str, Any]] = field(default_factory=lambda: deque(maxlen=100))

    def add(self, progress: Mapping[str, Any]) -> None:
        self.epochs += 1
        self.rows_in += progress["numInputRows"]
        self.results += progress["numOutputRows"]
        self.late += progress["lateRows"]
        self.recent.append(progress)


@dataclass(frozen=True)
class Look:
    """What the terminal can show: its size, colours, and whether it has block characters."""

    columns: int = 80
    rows: int = 24
    colour: bool = False
    blocks: bool = True


def epoch_line(progress: Mapping[str, Any]) -> str:
    """An epoch in one line."""
    rows, tiers = _state(progress)
    return (
        f"{progress['epoch']:>6} {progress['numInputRows']:>9,} {progress['processedRowsPerSecond']:>9,.0f} "
        f"{progress['numOutputRows']:>10,} {progress['lateRows']:>6,} {SECONDS.text(_took(progress)):>8}   "
        f"{rows:,}, {tiers}"
    )


def panel(seen: Seen, look: Look) -> list[str]:
    """The newest epoch of a query, with its rate over the last epochs and a bar for every site."""
    if not seen.recent:
        return [_cut(f"{seen.name}: waiting for the first epoch", look)]
    last = seen.recent[-1]
    rows, tiers = _state(last)
    rates = [p["processedRowsPerSecond"] for p in seen.recent]
    lines = [
        f"{seen.name}: epoch {last['epoch']:,}",
        _line("rows in", f"{ROWS.text(rates[-1])}/s  {_spark(rates[-40:], look)}"),
        _line("results", f"{seen.results:,}, {last['numOutputRows']:,} of them new; {seen.late:,} late rows dropped"),
        _line("state", f"{rows:,} rows; {tiers}"),
        _line("time", f"{SECONDS.text(_took(last))}  {_phases(last, look)}"),
    ]
    lines += _sites(last["sites"], look, look.rows - len(lines))
    return [_cut(line, look) for line in lines]


def _sites(sites: Sequence[Mapping[str, Any]], look: Look, room: int) -> list[str]:
    """A bar a site of the rows it holds; where there is no room for all, those that worked longest."""
    room = max(2, room)
    shown = list(sites)
    if len(shown) > room:
        shown = sorted(sites, key=lambda s: -float(s.get("busySeconds", 0)))[: room - 1]
        shown.sort(key=lambda s: int(s["site"]))
    most = max((s["rows"] for s in sites), default=0) or 1
    width = max(8, min(40, look.columns - 46))
    full, empty = ("█", "░") if look.blocks else ("#", ".")
    lines = []
    for site in shown:
        part = round(width * site["rows"] / most)
        bar = _paint(full * part, 0, look) + empty * (width - part)
        busy = SECONDS.text(float(site.get("busySeconds", 0)))
        lines.append(_line(f"site {site['site']}", f"{bar}  {site['rows']:,} rows, {busy} busy"))
    if len(sites) > len(shown):
        lines.append(_line("", f"and {len(sites) - len(shown)} more sites that were less busy"))
    return lines


def _phases(progress: Mapping[str, Any], look: Look) -> str:
    """The phases that took a noticeable part, as a bar of their colours and in words."""
    phases = {k: v for k, v in progress.get("phaseSeconds", {}).items() if v > 0}
    whole = sum(phases.values()) or 1.0
    places = {phase: n for n, phase in enumerate(progress.get("phaseSeconds", {}))}
    bar = ""
    if look.colour and look.blocks:
        bar = "".join(_paint("█" * round(20 * v / whole), places[k], look) for k, v in phases.items()) + "  "
    told = (_paint(f"{k} {v / whole:.0%}", places[k], look) for k, v in phases.items() if v / whole >= 0.02)
    return bar + ", ".join(told)


def _spark(values: Sequence[float], look: Look) -> str:
    if not look.blocks:
        return ""
    top = max(values) or 1.0
    return "".join(_SPARKS[min(7, int(8 * max(0.0, v) / top))] for v in values)


def _state(progress: Mapping[str, Any]) -> tuple[int, str]:
    sites = progress["sites"]
    tiers = (f"{BYTES.text(sum(s.get(figure, 0) for s in sites))} {tier}" for tier, figure in TIERS.items())
    return sum(s["rows"] for s in sites), ", ".join(tiers)


def _took(progress: Mapping[str, Any]) -> float:
    """Seconds of the epoch: Spark's own measure, else the sum of the phases."""
    spark = progress.get("durationMs", {}).get("triggerExecution")
    return float(spark / 1000 if spark is not None else sum(progress.get("phaseSeconds", {}).values()))


def _line(label: str, text: str) -> str:
    return f"  {label:<{_LABEL}}{text}"


def _paint(text: str, colour: int, look: Look) -> str:
    if not look.colour or not text:
        return text
    return f"\x1b[38;5;{_COLOURS[colour % len(_COLOURS)]}m{text}\x1b[0m"


def _cut(line: str, look: Look) -> str:
    """The line within the terminal's width, so that it is one line there; colours take no room."""
    room, out, at = look.columns - 1, [], 0
    for code in [*_CODES.finditer(line), None]:
        text = line[at : code.start() if code else len(line)]
        out.append(text[:room])
        room -= len(out[-1])
        if code:
            out.append(code[0])
            at = code.end()
    return "".join(out)
