"""Whether more and more rows arrive, and what that means for sites that take some time to join."""

from __future__ import annotations

from collections import deque
from itertools import pairwise

JOINING = 15.0
"""Seconds that sites take to join, until it is known."""
BATCHES = 3
"""How many must have brought more each than the one before."""


class Growth:
    """The rates at which the last batches arrived, and how long sites take to join.

    >>> growth = Growth()
    >>> for rows in (1000, 1100, 1300): growth.add(rows, 10.0)
    >>> growth.outlook  # at least 10 more every 10 seconds: 15 in the time in which sites join, on top of 130
    1.1153846153846154
    >>> growth.add(1250, 10.0)
    >>> growth.outlook
    1.0
    """

    def __init__(self) -> None:
        self.joining = JOINING
        self._arrived: deque[tuple[float, float]] = deque(maxlen=BATCHES)
        """Rows a second, and the seconds in which they arrived."""

    def add(self, rows: int, seconds: float) -> None:
        """A batch has brought so many rows, which arrived in so many seconds."""
        if seconds > 0:
            self._arrived.append((rows / seconds, seconds))

    @property
    def outlook(self) -> float:
        """How many times the newest rate it will be when sites have joined that are asked for now, if it grows as it
        did at least from one batch to the next; 1 unless it grew each time."""
        newest = self._arrived[-1][0] if len(self._arrived) == BATCHES else 0.0
        if newest <= 0:
            return 1.0
        slopes = [2 * (rate - before) / (seconds + span) for (before, span), (rate, seconds) in pairwise(self._arrived)]
        return 1.0 + max(0.0, min(slopes)) * self.joining / newest
