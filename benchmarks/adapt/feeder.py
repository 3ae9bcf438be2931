"""Files that arrive on a schedule, whether the query keeps up or not."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pyarrow.parquet as pq

from benchmarks.adapt.rows import linked


class Feeder:
    """Brings files `first` to `last` into a directory, one of each stream every `every` seconds from `begin` on.

    `arrived` has the times at which they were due: a feeder that is late itself makes no result look early.
    """

    def __init__(self, streams: str, home: Path, target: Path, first: int, last: int, every: float) -> None:
        self.streams, self.home, self.target, self.every = streams, home, target, every
        self.first, self.last, self.there = first, last, first
        self.arrived: dict[int, float] = {}
        self._of_a_file = sum(pq.read_metadata(home / s / "0000.parquet").num_rows for s in streams)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._feed, name="feeder", daemon=True)

    def rows(self) -> int:
        """Rows that have arrived so far, of all streams."""
        return self.there * self._of_a_file

    @property
    def over(self) -> bool:
        return self.there == self.last

    def begin(self) -> None:
        if not self._thread.ident:
            self._thread.start()

    def end(self) -> None:
        self._ended.set()
        if self._thread.ident:
            self._thread.join()

    def _feed(self) -> None:
        begun = time.time()
        for number in range(self.first, self.last):
            due = begun + (number - self.first) * self.every
            if self._ended.wait(max(0.0, due - time.time())):
                return
            self.arrived[number] = due
            linked(self.streams, self.home, self.target, number, number + 1)
            self.there = number + 1
