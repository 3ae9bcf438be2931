"""What a browser is told of new epochs, by server-sent events."""

from __future__ import annotations

from dataclasses import dataclass

from sluice.control.advice import ADVISERS
from sluice.dashboard.page.epoch_point import EpochPoint
from sluice.dashboard.page.frames import Strip
from sluice.dashboard.page.history import History, since
from sluice.model.codec import encode

KEEP_ALIVE = b": \n\n"
"""A comment, so that nobody in between takes the connection for dead."""


@dataclass(frozen=True)
class News:
    """Epochs that a browser has not seen, oldest first; the first of them may be one that it knows, with all of its
    time. `anew`: what it knows is of another checkpoint. `problem` says why the journal cannot be read, if so. With
    `control`, things can be asked for."""

    name: str
    checkpoint: str
    anew: bool
    problem: str
    advisers: tuple[str, ...]
    control: bool
    points: tuple[EpochPoint, ...]
    strips: tuple[Strip, ...]

    def event(self) -> bytes:
        """As server-sent events have it."""
        return b"event: epochs\ndata: " + encode(self) + b"\n\n"


class NewsFeed:
    """What one browser was told so far."""

    def __init__(self, history: History, control: bool = False) -> None:
        self._history, self._control = history, control
        self._newest: int | None = None
        self._problem = ""
        self._beginnings = -1

    def next(self) -> News | None:
        """What is new since the last time, all there is at first; None if nothing is."""
        beginnings, problem, snapshots = self._history.standing()
        anew = beginnings != self._beginnings
        newest = snapshots[-1].point.epoch if snapshots else None
        if not anew and problem == self._problem and newest == self._newest:
            return None
        first = -1 if anew or self._newest is None else self._newest
        new = tuple(since(snapshots, first))
        self._newest, self._problem, self._beginnings = newest, problem, beginnings
        return News(
            self._history.name,
            self._history.journal.storage.uri,
            anew,
            problem,
            ADVISERS,
            self._control,
            tuple(one.point for one in new),
            tuple(one.strip for one in new),
        )
