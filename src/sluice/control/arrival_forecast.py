"""How fast rows will arrive when sites have joined that are asked for now."""

from __future__ import annotations

from collections import deque
from itertools import pairwise

JOIN_SECONDS = 15.0
"""Seconds that sites take to join, until it was measured."""
GROWING_BATCHES = 3
"""Batches that must have come faster, each than the one before, for a forecast of more."""
MAX_HORIZON = 2
"""Times as long as arrivals were seen to grow that they are taken to grow further, at most."""


class ArrivalForecast:
    """The rates at which the last batches arrived, and how long sites take to join.

    >>> forecast = ArrivalForecast()
    >>> for rows in (1000, 1100, 1300): forecast.add(rows, 10.0)
    >>> forecast.growth_factor(0.0)  # 130 rows a second 5 seconds ago, 1.5 more every second, sites join in 15 seconds
    1.2307692307692308
    >>> forecast.add(1250, 10.0)
    >>> forecast.growth_factor(0.0)
    1.0
    """

    def __init__(self) -> None:
        self.join_seconds = JOIN_SECONDS
        self._batches: deque[tuple[float, float]] = deque(maxlen=GROWING_BATCHES)
        """Rows a second, and the seconds in which they arrived."""

    def add(self, rows: int, seconds: float) -> None:
        """A batch has brought so many rows, which arrived in so many seconds."""
        if seconds > 0:
            self._batches.append((rows / seconds, seconds))

    def growth_factor(self, age: float) -> float:
        """Expected arrival rate when new sites are ready, as a multiple of that of the newest batch, which is `age`
        seconds old; 1 unless every batch came faster than the one before."""
        rates, spans = zip(*self._batches, strict=True) if self._batches else ((), ())
        if len(rates) < GROWING_BATCHES or not all(before < rate for before, rate in pairwise(rates)):
            return 1.0
        observed = sum(spans) - (spans[0] + spans[-1]) / 2
        ahead = min(spans[-1] / 2 + age + self.join_seconds, MAX_HORIZON * observed)
        return float(1.0 + (rates[-1] - rates[0]) / observed * ahead / rates[-1])
