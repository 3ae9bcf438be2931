"""`sluice top`: a running query in a terminal, from its checkpoint alone, drawn anew as its epochs commit."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TextIO

from sluice.cli.journal_tail import JournalTail
from sluice.control.journal import Journal
from sluice.dashboard.terminal import look_of
from sluice.dashboard.terminal_style import Look, cut, one_line
from sluice.dashboard.top import screen
from sluice.model.durations import seconds
from sluice.model.errors import FlowError, StorageError
from sluice.state.files.storage import Storage

SHORTEST, LONGEST = 0.01, 3600.0
_NO_END = 1_000_000  # columns or lines that nothing is cut to


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
    look = look_of(stream)
    if once or not stream.isatty() or os.environ.get("TERM") == "dumb":
        stream.write("\n".join(_once(following, clock(), look, stream.isatty())) + "\n")
        return 0
    try:
        _follow(following, stream, pause, sleep, clock)
    except KeyboardInterrupt:
        stream.write("\n")
    return 0


def _once(following: JournalTail, now: float, look: Look, terminal: bool) -> list[str]:
    """All lines; only a terminal has a width to keep to."""
    if not following.records:
        return [f"{one_line(following.identity.name)}: no epoch has committed yet"]
    look = replace(look, rows=_NO_END) if terminal else replace(look, rows=_NO_END, columns=_NO_END, colour=False)
    return screen(following.identity.name, following.records, now, look)


def _follow(
    following: JournalTail, stream: TextIO, pause: float, sleep: Callable[[float], object], clock: Callable[[], float]
) -> None:
    """Draw, wait, look again. What was on the terminal before scrolls up and stays."""
    stream.write("\n" * look_of(stream).rows)
    problem = ""
    while True:
        look = look_of(stream)
        room = replace(look, rows=max(1, look.rows - 1 - bool(problem)))
        lines = screen(following.identity.name, following.records, clock(), room)
        lines += [cut(problem, look)] if problem else []
        stream.write("\x1b[H" + "".join(f"{line}\x1b[K\n" for line in lines) + "\x1b[J")
        stream.flush()
        sleep(pause)
        try:
            following.look()
            problem = ""
        except StorageError as found:  # a store far away may be out of reach for a while
            problem = one_line(f"{found}; trying again")
