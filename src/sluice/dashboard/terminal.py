"""A running query in a terminal: a few lines drawn in place, or one line an epoch where the output is no terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol, TextIO

from rich.console import Console, Group
from rich.live import Live

from sluice.dashboard.progress_view import HEADING, Seen, epoch_line, panel
from sluice.dashboard.terminal_style import one_line
from sluice.record.progress import EpochProgress

INTERVAL = 0.25


class Watchable(Protocol):
    """What of a query is looked at."""

    @property
    def name(self) -> str | None: ...

    @property
    def recentEpochs(self) -> list[EpochProgress]: ...

    def awaitTermination(self, timeout: float | None = None) -> bool | None: ...

    def stop(self) -> None: ...


@dataclass
class _Watched:
    """A query and what was seen of it so far."""

    query: Watchable
    seen: Seen
    ended: bool = False

    def look(self, timeout: float) -> list[EpochProgress]:
        """Wait a little, then tell what is new; a query that failed raises its error."""
        self.ended = bool(self.query.awaitTermination(timeout))
        return self.new()

    def new(self) -> list[EpochProgress]:
        newest = self.seen.recent[-1].epoch if self.seen.recent else -1
        new = [progress for progress in self.query.recentEpochs if progress.epoch > newest]
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
    console = Console(file=stream, highlight=False)
    drawn = console.is_terminal and not console.is_dumb_terminal
    view: _Panels | _Lines = _Panels(console) if drawn else _Lines(stream, len(queries) > 1)
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
    finally:
        view.close()
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

    def show(self, watched: Sequence[_Watched], one: _Watched, new: list[EpochProgress]) -> None:
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

    def close(self) -> None:
        pass


class _Panels:
    """A panel a query, drawn over the one before."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.live = Live(console=console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False)
        self.live.start()

    def show(self, watched: Sequence[_Watched], one: _Watched, new: list[EpochProgress]) -> None:
        if new or not any(other.seen.recent for other in watched):
            height = max(8, self.console.height // len(watched) - 1)
            self.live.update(Group(*(panel(w.seen, self.console, height) for w in watched)), refresh=True)

    def say(self, text: str) -> None:
        """A line that stays above the panels."""
        self.console.print(text)

    def close(self) -> None:
        self.live.stop()
