"""Input that has to wait at a site of the movement tests: rows of units that are on their way."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Generic, TypeVar

Run = TypeVar("Run")


class Spool(Generic[Run]):
    """The input of units that are not in memory, in order of arrival, until they are.

    >>> spool = Spool[str]()
    >>> spool.offer(7, "first", resident=False)
    False
    >>> spool.offer(7, "second", resident=True)  # would overtake the first
    False
    >>> spool.next(7), spool.next(7), spool.next(7)
    ('first', 'second', None)
    >>> spool.offer(7, "third", resident=True)
    True
    """

    def __init__(self) -> None:
        self._waiting: dict[int, deque[Run]] = {}

    def offer(self, unit: int, run: Run, resident: bool) -> bool:
        """True: process this input now. False: it is kept, as its unit is not in memory or older input still waits."""
        if resident and unit not in self._waiting:
            return True
        self._waiting.setdefault(unit, deque()).append(run)
        return False

    def next(self, unit: int) -> Run | None:
        """The oldest input that waits, taken out; None if there is none."""
        waiting = self._waiting.get(unit)
        if waiting is None:
            return None
        run = waiting.popleft()
        if not waiting:
            del self._waiting[unit]
        return run

    def pending(self, unit: int) -> int:
        """How many pieces of input wait."""
        return len(self._waiting.get(unit, ()))

    def take_all(self, unit: int) -> list[Run]:
        """All that waits, oldest first, taken out: it goes along when the unit moves."""
        return list(self._waiting.pop(unit, ()))

    def restore(self, unit: int, runs: Sequence[Run]) -> None:
        """Put back what `take_all` gave, here or at another site: before all that has come in since, being older."""
        if runs:
            self._waiting.setdefault(unit, deque()).extendleft(reversed(runs))
