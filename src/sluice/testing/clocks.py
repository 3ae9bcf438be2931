"""Clocks for runs that are the same whenever and wherever they are run."""

from __future__ import annotations

TICK_SECONDS = 0.001


class CountingClock:
    """A millisecond passes with every look at it, and more when it is told so.

    >>> clock = CountingClock(60.0)
    >>> clock.sleep(5); clock.time()
    65.001
    """

    def __init__(self, start: float = 0.0) -> None:
        self._ticks = round(start / TICK_SECONDS)

    def monotonic(self) -> float:
        """A millisecond later than at the look before."""
        self._ticks += 1
        return self._ticks * TICK_SECONDS

    time = process_time = monotonic

    def sleep(self, seconds: float) -> None:
        """Let so much time pass, at once."""
        self._ticks += max(0, round(seconds / TICK_SECONDS))
