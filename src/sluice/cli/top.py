"""`sluice top`: a running query in a terminal, from its checkpoint alone, drawn anew as its epochs commit."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TextIO

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from sluice.cli.journal_tail import JournalTail
from sluice.control.journal import Journal
from sluice.dashboard.terminal_style import one_line
from sluice.dashboard.top import screen
from sluice.model.durations import seconds
from sluice.model.errors import FlowError, StorageError
from sluice.state.files.storage import Storage

SHORTEST, LONGEST = 0.01, 3600.0
_NO_END = 100_000  # columns or lines that nothing is cut to


def top(
    checkpoint: str,
    interval: str = "1s",
    once: bool = False,
    stream: TextIO | None = None,
    sleep: Callable[[float], object] = time.sleep,
    clock: Callable[[], float] = time.time,
) -> int:
    """Show the checkpoint's query until Ctrl-C; once, where that is asked for or the output is no terminal."""
    stream = sys.stdout if stream is None else stream
    pause = seconds(interval, "interval")
    if not SHORTEST <= pause <= LONGEST:
        raise FlowError(f"interval must be between 10 milliseconds and 1 hour, not {interval!r}")
    following = JournalTail(Journal(Storage(checkpoint)))
    following.look()
    console = Console(file=stream, highlight=False)
    if once or not console.is_terminal or console.is_dumb_terminal:
        stream.write(_once(following, clock(), stream))
        return 0
    with suppress(KeyboardInterrupt):
        _follow(following, console, pause, sleep, clock)
    return 0


def _once(following: JournalTail, now: float, stream: TextIO) -> str:
    """All lines; only a terminal has a width to keep to."""
    if not following.records:
        return f"{one_line(following.identity.name)}: no epoch has committed yet\n"
    console = Console(file=stream, highlight=False, width=None if stream.isatty() else _NO_END)
    with console.capture() as shown:
        console.print(screen(following.identity.name, following.records, now, console, _NO_END, following.plan))
        if following.damage:
            console.print(Text(one_line(following.damage)))
    return "".join(f"{line.rstrip()}\n" for line in shown.get().splitlines())


def _follow(
    following: JournalTail, console: Console, pause: float, sleep: Callable[[float], object], clock: Callable[[], float]
) -> None:
    """Draw, wait, look again. What was on the terminal before stays above."""
    problem = one_line(following.damage)
    with Live(console=console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False) as live:
        while True:
            problem_lines = list(Text(problem).wrap(console, console.width)) if problem else []
            rows = max(1, console.height - 1 - len(problem_lines))
            drawn = screen(following.identity.name, following.records, clock(), console, rows, following.plan)
            live.update(Group(drawn, *problem_lines), refresh=True)
            sleep(pause)
            try:
                following.look()
                problem = one_line(following.damage)
            except StorageError as found:  # a store far away may be out of reach for a while
                problem = one_line(f"{found}; trying again")
