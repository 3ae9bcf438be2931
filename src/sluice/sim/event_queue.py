"""What is planned to happen at some time: the events that are seldom enough to be Python's."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from itertools import count


class EventQueue:
    """Calls in the order of their times; of one time, in the order they were planned."""

    def __init__(self) -> None:
        self.now = 0.0
        self._numbers = count()
        self._planned: list[tuple[float, int, Callable[[], object]]] = []

    def at(self, time: float, call: Callable[[], object]) -> None:
        if time == math.inf:
            return
        heapq.heappush(self._planned, (max(time, self.now), next(self._numbers), call))

    def after(self, delay: float, call: Callable[[], object]) -> None:
        self.at(self.now + delay, call)

    def next_time(self) -> float:
        return self._planned[0][0] if self._planned else float("inf")

    def run_due(self) -> None:
        """Calls what is due now."""
        while self._planned and self._planned[0][0] <= self.now:
            heapq.heappop(self._planned)[2]()
