"""Whether more and more rows arrive, and what that means for sites that take some time to join."""

from __future__ import annotations

from collections import deque
from itertools import pairwise

JOINING = 15.0
"""Seconds that sites take to join, until it is known."""
BATCHES = 3
"""How many must have brought more each than the one before."""
AHEAD = 2
"""How many times as long as it was seen to grow it is taken to go on."""


class Growth:
    """The rates at which the last batches arrived, and how long sites take to join.

    >>> growth = Growth()
    >>> for rows in (1000, 1100, 1300): growth.add(rows, 10.0)
    >>> growth.outlook(0.0)  # 130 rows a second 5 seconds ago, 1.5 more every second, and sites are there in 15 seconds
    1.2307692307692308
    >>> growth.add(1250, 10.0)
    >>> growth.outlook(0.0)
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

    def outlook(self, age: float) -> float:
        """How many times the rate of the newest batch, which was taken in so many seconds ago, it will be when sites
        have joined that are asked for now, if it goes on as it did; 1 unless it grew with every batch."""
        rates, spans = zip(*self._arrived, strict=True) if self._arrived else ((), ())
        if len(rates) < BATCHES or not all(before < rate for before, rate in pairwise(rates)):
            return 1.0
        seen = sum(spans) - (spans[0] + spans[-1]) / 2
        ahead = min(spans[-1] / 2 + age + self.joining, AHEAD * seen)
        return float(1.0 + (rates[-1] - rates[0]) / seen * ahead / rates[-1])
