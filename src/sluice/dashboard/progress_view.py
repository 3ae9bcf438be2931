"""What the terminal shows of a query: its progress as a line an epoch, and as a panel. Pure; `terminal` draws."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from rich.console import Console, Group, RenderableType
from rich.text import Text

from sluice.dashboard.decision_text import adapted_text
from sluice.dashboard.frozen_text import clean_up_text, frozen_text
from sluice.dashboard.quantity import BYTES, ROWS, SECONDS
from sluice.dashboard.site_rows import TIERS, busiest
from sluice.dashboard.table import Column, table
from sluice.dashboard.terminal_style import one_line, spark
from sluice.model.epoch.stats import CleanUpProgress, SiteStats
from sluice.record.progress import EpochProgress

HEADING = f"{'epoch':>6} {'rows in':>9} {'rows/s':>9} {'results':>10} {'late':>6} {'time':>8}   state: rows, by tier"
_COLOURS = ("blue", "yellow", "green", "magenta", "cyan", "red", "bright_yellow", "bright_black", "bright_magenta")
_NOTICEABLE = 0.02
"""The least share of an epoch's time for which a phase is named."""


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
    recent: deque[EpochProgress] = field(default_factory=lambda: deque(maxlen=100))

    def add(self, progress: EpochProgress) -> None:
        stats = progress.stats
        self.epochs += 1
        self.rows_in += stats.rows_in
        self.results += stats.rows_out
        self.late += stats.late_rows
        self.moves += stats.moves
        self.spills += stats.spills
        self.fetches += stats.fetches
        self.recent.append(progress)


def epoch_line(progress: EpochProgress) -> str:
    """An epoch in one line, with what is out of the ordinary at its end."""
    stats, (rows, tiers) = progress.stats, _state(progress)
    waiting = f"; backlog {stats.backlog_rows:,}" if stats.backlog_rows else ""
    moved = f"; {stats.moves:,} move{'s' if stats.moves > 1 else ''}" if stats.moves else ""
    cleaning = f"; cleaning up: {_clean_up(stats.clean_up)}" if stats.clean_up else ""
    return (
        f"{progress.epoch:>6} {stats.rows_in:>9,} {progress.rows_per_second:>9,.0f} {stats.rows_out:>10,} "
        f"{stats.late_rows:>6,} {SECONDS.text(progress.seconds):>8}   {rows:,}, {tiers}{waiting}{moved}{cleaning}"
    )


def panel(seen: Seen, console: Console, height: int) -> Group:
    """The newest epoch of a query, with its rate over the last epochs and a bar for every site."""
    if not seen.recent:
        return Group(_cut(Text(f"{one_line(seen.name)}: waiting for the first epoch"), console))
    last = seen.recent[-1]
    stats, (rows, tiers) = last.stats, _state(last)
    rates = [progress.rows_per_second for progress in seen.recent]
    curve = "" if console.options.ascii_only else spark(rates[-40:])
    facts: list[tuple[str, str | Text]] = [
        ("rows in", f"{ROWS.text(rates[-1])}/s  {curve}"),
        ("results", f"{seen.results:,}, {stats.rows_out:,} of them new; {seen.late:,} late rows dropped"),
        ("state", f"{rows:,} rows; {tiers}"),
        ("time", Text.assemble(f"{SECONDS.text(last.seconds)}  ", *_phases(last))),
    ]
    if stats.backlog_rows or seen.moves or seen.spills or seen.fetches:
        so_far = adapted_text(seen.moves, seen.spills, seen.fetches)
        facts.append(("adapted", f"{so_far}; backlog {stats.backlog_rows:,} rows"))
    facts += [("frozen", frozen_text(*stats.frozen))] if stats.frozen.units else []
    facts += [("cleaning", _clean_up(stats.clean_up))] if stats.clean_up else []
    head = Text(f"{one_line(seen.name)}: epoch {last.epoch:,}")
    lines = [head, *(Text.assemble(f"  {label:<10}", text) for label, text in facts)]
    sites = _sites(stats.sites, console, height - len(lines) - 1)
    return Group(*(_cut(line, console) for line in lines), *sites)


def _cut(line: Text, console: Console) -> Text:
    line.no_wrap, line.overflow = True, "crop" if console.options.ascii_only else "ellipsis"
    return line


def _clean_up(done: CleanUpProgress) -> str:
    return clean_up_text(done.rows_done, done.rows_left, done.results, done.rows_per_second)


def _sites(sites: Sequence[SiteStats], console: Console, room: int) -> list[RenderableType]:
    """A bar a site of the rows it holds; where there is no room for all, those that worked longest."""
    if not sites or room < 2:
        return []
    shown = [sites[site] for site in busiest([site.busy_seconds for site in sites], room)]
    most = max(site.rows for site in sites) or 1
    rows = Column("state", [f"{site.rows:,}" for site in shown], shares=[site.rows / most for site in shown])
    busy = Column("busy", [SECONDS.text(site.busy_seconds) for site in shown])
    drawn: list[RenderableType] = [table([Column("site", [str(site.site) for site in shown]), busy, rows], console)]
    left = len(sites) - len(shown)
    return [*drawn, _cut(Text(f"  and {left} more sites that were less busy"), console)] if left else drawn


def _phases(progress: EpochProgress) -> list[tuple[str, str]]:
    """The phases that took a noticeable part, each in its colour."""
    phases = progress.phase_seconds
    whole = sum(phases.values()) or 1.0
    shares = [(name, taken / whole, colour) for (name, taken), colour in zip(phases.items(), _COLOURS, strict=False)]
    return [(f"{name} {100 * share:.0f} %  ", colour) for name, share, colour in shares if share >= _NOTICEABLE]


def _state(progress: EpochProgress) -> tuple[int, str]:
    sites = progress.stats.sites
    tiers = (f"{BYTES.text(sum(getattr(site, column) for site in sites))} {tier}" for tier, column in TIERS.items())
    return sum(site.rows for site in sites), ", ".join(tiers)
