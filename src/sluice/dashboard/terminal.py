"""A running query in a terminal: a few lines drawn in place, or one line an epoch where the output is no terminal."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Protocol, TextIO

from sluice.dashboard.progress_view import HEADING, Seen, epoch_line, panel
from sluice.dashboard.terminal_style import Look, one_line

INTERVAL = 0.25


class Watchable(Protocol):
    """What of a query is looked at."""

    @property
    def name(self) -> str | None: ...

    @property
    def recentProgress(self) -> list[dict[str, Any]]: ...

    def awaitTermination(self, timeout: float | None = None) -> bool | None: ...

    def stop(self) -> None: ...


@dataclass
class _Watched:
    """A query and what was seen of it so far."""

    query: Watchable
    seen: Seen
    ended: bool = False

    def look(self, timeout: float) -> list[dict[str, Any]]:
        """Wait a little, then tell what is new; a query that failed raises its error."""
        self.ended = bool(self.query.awaitTermination(timeout))
        return self.new()

    def new(self) -> list[dict[str, Any]]:
        newest = self.seen.recent[-1]["epoch"] if self.seen.recent else -1
        new = [p for p in self.query.recentProgress if p["epoch"] > newest]
        for progress in new:
            self.seen.add(progress)
        return new


def watch(query: Watchable, stream: TextIO | None = None) -> Seen:
    """Show a query until it has ended; returns what was seen of it.

    Ctrl-C stops the query and returns. If the query fails, its error is raised.
    """
    return watch_all([query], stream)[0]


def watch_all(
    queries: Sequence[Watchable], stream: TextIO | None = None, interrupted: Callable[[], bool] = lambda: False
) -> list[Seen]:
    """Show several queries until all have ended, or are stopped by Ctrl-C or because they are `interrupted`.

    If one fails, the others are stopped and its error is raised.
    """
    stream = sys.stderr if stream is None else stream
    unnamed = "query {}" if len(queries) > 1 else "query"
    watched = [_Watched(q, Seen(q.name or unnamed.format(n))) for n, q in enumerate(queries, 1)]
    view: _Panels | _Lines = _Panels(stream) if stream.isatty() else _Lines(stream, len(queries) > 1)
    try:
        while not all(w.ended for w in watched):
            for one in watched:
                if interrupted():
                    raise KeyboardInterrupt
                if not one.ended:
                    view.show(watched, one, one.look(INTERVAL / len(watched)))
    except KeyboardInterrupt:
        view.say("stopping")
        _stop(watched)
        _show_last(view, watched)
    except BaseException:
        _stop(watched)
        _show_last(view, watched)
        raise
    return [one.seen for one in watched]


def _show_last(view: _Panels | _Lines, watched: Sequence[_Watched]) -> None:
    """The epochs that ended while the queries did."""
    for one in watched:
        with suppress(Exception):  # what matters then is how they ended
            view.show(watched, one, one.new())


def _stop(watched: Sequence[_Watched]) -> None:
    """Also those that have ended: `stop` returns when they are cleaned up."""
    for one in watched:
        with suppress(Exception):  # one that cannot be stopped must not keep the others running
            one.query.stop()


class _Lines:
    """One line an epoch."""

    def __init__(self, stream: TextIO, several: bool) -> None:
        self.stream, self.several, self.headed = stream, several, False

    def show(self, watched: Sequence[_Watched], one: _Watched, new: list[dict[str, Any]]) -> None:
        for progress in new:
            if not self.headed:
                self.headed = True
                self.stream.write(HEADING + "\n")
            name = f"   [{one_line(one.seen.name)}]" if self.several else ""
            self.stream.write(epoch_line(progress) + name + "\n")
            self.stream.flush()

    def say(self, text: str) -> None:
        self.stream.write(text + "\n")
        self.stream.flush()


class _Panels:
    """A panel a query, drawn over the one before."""

    def __init__(self, stream: TextIO) -> None:
        self.stream, self.drawn = stream, 0

    def show(self, watched: Sequence[_Watched], one: _Watched, new: list[dict[str, Any]]) -> None:
        if not new and self.drawn:
            return
        look = self._look(len(watched))
        lines = [line for w in watched for line in panel(w.seen, look)]
        back = f"\x1b[{self.drawn}F\x1b[J" if self.drawn else ""
        self.stream.write(back + "\n".join(lines) + "\n")
        self.stream.flush()
        self.drawn = len(lines)

    def say(self, text: str) -> None:
        """A line that stays; the next panel begins below it."""
        self.stream.write(text + "\n")
        self.stream.flush()
        self.drawn = 0

    def _look(self, queries: int) -> Look:
        look = look_of(self.stream)
        return replace(look, columns=max(40, look.columns), rows=max(8, look.rows // queries - 1))


def look_of(stream: TextIO) -> Look:
    """What the terminal behind a stream can show."""
    try:
        columns, rows = os.get_terminal_size(stream.fileno())
    except (OSError, ValueError, AttributeError):
        columns, rows = 0, 0
    try:
        "█▁…".encode(stream.encoding or "ascii")
        blocks = True
    except (UnicodeError, LookupError):
        blocks = False
    return Look(
        columns=columns or 80,
        rows=rows or 24,
        colour="NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb",
        blocks=blocks,
    )
