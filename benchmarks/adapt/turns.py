"""Queries that take turns: an epoch of one, then an epoch of the next, so that the machine is the same for all."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any


class Turns:
    """Each query's `foreachBatch` function ends its turn and waits for the next one; the last epoch waits for none.

    Before their first turn all of them start up at once: that epoch is worth nothing.
    """

    def __init__(self, queries: int, epochs: int) -> None:
        self.epochs = epochs
        self.seconds: list[list[float]] = [[] for _ in range(queries)]
        self._begun = [time.monotonic()] * queries
        self._turn, self._ended = 0, False
        self._changed = threading.Condition()

    def of(self, query: int) -> Callable[[Any, int], None]:
        def over(_: Any, epoch: int) -> None:
            with self._changed:
                self.seconds[query].append(time.monotonic() - self._begun[query])
                self._turn = (query + 1) % len(self.seconds)
                self._changed.notify_all()
                if epoch < self.epochs - 1:
                    self._changed.wait_for(lambda: self._turn == query or self._ended)
                self._begun[query] = time.monotonic()

        return over

    def end(self) -> None:
        """Keep nobody waiting any more."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()
