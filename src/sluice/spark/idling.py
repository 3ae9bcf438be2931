"""When a query to which no input comes has epochs of its own: Spark has no batches then."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

IDLE = 1.0
"""Seconds without a batch after which input that waits is processed in epochs of its own."""
IDLE_EPOCH_AFTER_S = 10.0
"""Seconds without a batch that was due after which a query whose policy scales has an epoch over nothing."""
MAX_IDLE_EPOCHS = 3
"""How many of those there are at most until sites leave or new input comes."""
UNREACHABLE_S = 30.0
"""Seconds for which looking after an idle query may fail before the query does."""


class Work(Protocol):
    """What of a query is known without Spark: `Epochs`."""

    @property
    def is_behind(self) -> bool:
        """Whether input waits, or units are to be cleaned up."""

    @property
    def is_under_way(self) -> bool:
        """Whether something was asked for, or begun, that more epochs take on."""

    @property
    def may_need_fewer_sites(self) -> bool:
        """Whether the policy might have sites leave, if it saw that nothing comes."""


class Idling:
    """Counts the time since the newest batch, and the idle epochs since then. `interval` is the trigger's."""

    def __init__(self, work: Work, interval: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._work, self._interval, self._clock = work, interval, clock
        self._since = clock()
        self._idle_epochs = 0

    def batch_is_over(self) -> None:
        """Input has come, and was taken in."""
        self._since, self._idle_epochs = self._clock(), 0

    def idle_epoch_is_over(self) -> None:
        """The policy has seen that nothing came."""
        self._since, self._idle_epochs = self._clock(), self._idle_epochs + 1

    def sites_have_changed(self) -> None:
        """What the policy sees is another thing than before."""
        self._idle_epochs = 0

    def is_epoch_due(self, can_resize: Callable[[], bool]) -> bool:
        """Whether there is something to do in an epoch without input; sites that were asked for may be able to join."""
        if self._clock() - self._since <= IDLE:
            return False
        return self._work.is_behind or self._work.is_under_way or can_resize() or self.is_idle_epoch_due

    @property
    def is_idle_epoch_due(self) -> bool:
        """Whether the policy is to see that nothing comes: without epochs it is never asked."""
        waited = self._clock() - self._since > IDLE_EPOCH_AFTER_S + self._interval
        return waited and self._idle_epochs < MAX_IDLE_EPOCHS and self._work.may_need_fewer_sites


class Failing:
    """For how long something has failed each time it was tried."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._since: float | None = None

    def note_success(self) -> None:
        self._since = None

    def note_failure(self) -> bool:
        """It failed once more; whether it has for too long."""
        self._since = self._clock() if self._since is None else self._since
        return self._clock() - self._since >= UNREACHABLE_S
