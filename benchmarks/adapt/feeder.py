"""Files that arrive on a schedule, whether the query keeps up or not."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq

from benchmarks.adapt.rows import linked


@dataclass(frozen=True)
class Schedule:
    """How many files are there at the start, and when each of the others is due, in seconds from when these are done.

    >>> Schedule.steady(there=2, more=3, every=0.5)
    Schedule(there=2, due=(0.0, 0.5, 1.0))
    """

    there: int
    due: tuple[float, ...]

    @classmethod
    def steady(cls, there: int, more: int, every: float) -> Schedule:
        """One after the other, always as many seconds apart."""
        return cls(there, tuple(number * every for number in range(more)))

    @property
    def files(self) -> int:
        return self.there + len(self.due)


class Feeder:
    """Brings files into a directory, one of each stream at a time, when they are due from `begin` on.

    `arrived` has the times at which they were due: a feeder that is late itself makes no result look early.
    """

    def __init__(self, streams: str, home: Path, target: Path, schedule: Schedule) -> None:
        self.streams, self.home, self.target, self.schedule = streams, home, target, schedule
        self.there = schedule.there
        self.arrived: dict[int, float] = {}
        self._of_a_file = sum(pq.read_metadata(home / s / "0000.parquet").num_rows for s in streams)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._feed, name="feeder", daemon=True)

    def rows(self) -> int:
        """Rows that have arrived so far, of all streams."""
        return self.there * self._of_a_file

    @property
    def over(self) -> bool:
        return self.there == self.schedule.files

    def begin(self) -> None:
        if not self._thread.ident:
            self._thread.start()

    def end(self) -> None:
        self._ended.set()
        if self._thread.ident:
            self._thread.join()

    def _feed(self) -> None:
        begun = time.time()
        for number, after in enumerate(self.schedule.due, self.schedule.there):
            due = begun + after
            if self._ended.wait(max(0.0, due - time.time())):
                return
            self.arrived[number] = due
            linked(self.streams, self.home, self.target, number, number + 1)
            self.there = number + 1
