"""What the terminal shows of a query: its progress as lines of text. Pure; `terminal` does the drawing."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sluice.dashboard.decision_text import adapted_text
from sluice.dashboard.frozen_text import clean_up_text, frozen_text
from sluice.dashboard.quantity import BYTES, ROWS, SECONDS
from sluice.dashboard.series import busiest
from sluice.dashboard.terminal_style import Look, bar, cut, one_line, paint, spark

HEADING = f"{'epoch':>6} {'rows in':>9} {'rows/s':>9} {'results':>10} {'late':>6} {'time':>8}   state: rows, by tier"
_LABEL = 10
_TIERS = {"memory": "memoryBytes", "disk": "diskBytes", "durable": "durableBytes"}


@dataclass
class Seen:
    """What was seen of a query: totals over all its epochs, and the progress of the last ones."""

    name: str
    epochs: int = 0
    rows_in: int = 0
    results: int = 0
    late: int = 0
    moves: int = 0
    spills: int = 0
    fetches: int = 0
    recent: deque[Mapping[str, Any]] = field(default_factory=lambda: deque(maxlen=100))

    def add(self, progress: Mapping[str, Any]) -> None:
        self.epochs += 1
        self.rows_in += progress["numInputRows"]
        self.results += progress["numOutputRows"]
        self.late += progress["lateRows"]
        self.moves += progress["moves"]
        self.spills += progress["spills"]
        self.fetches += progress["fetches"]
        self.recent.append(progress)


def epoch_line(progress: Mapping[str, Any]) -> str:
    """An epoch in one line."""
    rows, tiers = _state(progress)
    return (
        f"{progress['epoch']:>6} {progress['numInputRows']:>9,} {progress['processedRowsPerSecond']:>9,.0f} "
        f"{progress['numOutputRows']:>10,} {progress['lateRows']:>6,} {SECONDS.text(_took(progress)):>8}   "
        f"{rows:,}, {tiers}{_told(progress)}"
    )


def panel(seen: Seen, look: Look) -> list[str]:
    """The newest epoch of a query, with its rate over the last epochs and a bar for every site."""
    if not seen.recent:
        return [cut(f"{one_line(seen.name)}: waiting for the first epoch", look)]
    last = seen.recent[-1]
    rows, tiers = _state(last)
    rates = [p["processedRowsPerSecond"] for p in seen.recent]
    lines = [
        f"{one_line(seen.name)}: epoch {last['epoch']:,}",
        _line("rows in", f"{ROWS.text(rates[-1])}/s  {spark(rates[-40:], look)}"),
        _line("results", f"{seen.results:,}, {last['numOutputRows']:,} of them new; {seen.late:,} late rows dropped"),
        _line("state", f"{rows:,} rows; {tiers}"),
        _line("time", f"{SECONDS.text(_took(last))}  {_phases(last, look)}"),
    ]
    if last["backlogRows"] or seen.moves or seen.spills or seen.fetches:
        so_far = adapted_text(seen.moves, seen.spills, seen.fetches)
        lines.append(_line("adapted", f"{so_far}; backlog {last['backlogRows']:,} rows"))
    lines += _frozen(last)
    lines += _sites(last["sites"], look, look.rows - len(lines))
    return [cut(line, look) for line in lines]


def _frozen(progress: Mapping[str, Any]) -> list[str]:
    """What lies outside of memory, and how far cleaning it up has come; nothing where there is neither."""
    units, rows, size, missing = (
        sum(site.get(figure, 0) for site in progress["sites"])
        for figure in ("frozenUnits", "frozenRows", "frozenBytes", "missingUnits")
    )
    lines = [_line("frozen", frozen_text(units, rows, size, missing))] if units else []
    if progress.get("cleanUp"):
        lines.append(_line("cleaning", _clean_up(progress)))
    return lines


def _clean_up(progress: Mapping[str, Any]) -> str:
    done = progress["cleanUp"]
    return clean_up_text(done["rowsDone"], done["rowsLeft"], done["results"], done["rowsPerSecond"])


def _told(progress: Mapping[str, Any]) -> str:
    """What is out of the ordinary: input that waits, units that changed their place, results that were missing."""
    backlog, moves = progress["backlogRows"], progress["moves"]
    waiting = f"; backlog {backlog:,}" if backlog else ""
    moved = f"; {moves:,} move{'s' if moves > 1 else ''}" if moves else ""
    return waiting + moved + (f"; cleaning up: {_clean_up(progress)}" if progress.get("cleanUp") else "")


def _sites(sites: Sequence[Mapping[str, Any]], look: Look, room: int) -> list[str]:
    """A bar a site of the rows it holds; where there is no room for all, those that worked longest."""
    shown = [sites[site] for site in busiest([site["busySeconds"] for site in sites], max(2, room))]
    most = max((s["rows"] for s in sites), default=0) or 1
    width = max(8, min(40, look.columns - 46))
    lines = []
    for site in shown:
        busy = SECONDS.text(float(site.get("busySeconds", 0)))
        drawn = bar(site["rows"] / most, width, look)
        lines.append(_line(f"site {site['site']}", f"{drawn}  {site['rows']:,} rows, {busy} busy"))
    if len(sites) > len(shown):
        lines.append(_line("", f"and {len(sites) - len(shown)} more sites that were less busy"))
    return lines


def _phases(progress: Mapping[str, Any], look: Look) -> str:
    """The phases that took a noticeable part, as a bar of their colours and in words."""
    phases = {k: v for k, v in progress.get("phaseSeconds", {}).items() if v > 0}
    whole = sum(phases.values()) or 1.0
    places = {phase: n for n, phase in enumerate(progress.get("phaseSeconds", {}))}
    drawn = ""
    if look.colour and look.blocks:
        drawn = "".join(paint("█" * round(20 * v / whole), places[k], look) for k, v in phases.items()) + "  "
    told = (paint(f"{k} {v / whole:.0%}", places[k], look) for k, v in phases.items() if v / whole >= 0.02)
    return drawn + ", ".join(told)


def _state(progress: Mapping[str, Any]) -> tuple[int, str]:
    sites = progress["sites"]
    tiers = (f"{BYTES.text(sum(s.get(figure, 0) for s in sites))} {tier}" for tier, figure in _TIERS.items())
    return sum(s["rows"] for s in sites), ", ".join(tiers)


def _took(progress: Mapping[str, Any]) -> float:
    """Seconds of the epoch: Spark's own measure, else the sum of the phases."""
    measured = progress.get("durationMs", {}).get("triggerExecution")
    return float(measured / 1000 if measured is not None else sum(progress.get("phaseSeconds", {}).values()))


def _line(label: str, text: str) -> str:
    return f"  {label:<{_LABEL}}{text}"
