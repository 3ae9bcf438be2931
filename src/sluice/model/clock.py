"""The clock that is handed to whatever has to know the time, so that a test can hand it another one."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Seconds; the names are those of the module `time`."""

    def time(self) -> float:
        """Seconds since 1970, as the machine has it; they may go back."""

    def monotonic(self) -> float:
        """Seconds since whenever, which only go forward."""

    def process_time(self) -> float:
        """Processor seconds of this process."""

    def sleep(self, seconds: float) -> None:
        """Let so much time pass."""


class SystemClock:
    """The machine's own clock."""

    def time(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()

    def process_time(self) -> float:
        return time.process_time()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)
