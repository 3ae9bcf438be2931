"""Rows that arrive by a clock: files made once, put in place every tick, and when each of them was there."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pcsv
import pyarrow.parquet as pq

from benchmarks import data
from benchmarks.workloads import FIRST_EVENT, Workload

TICK_SECONDS = 0.1
ROWS_PER_SECOND = 10_000
"""Of each stream; both together have twice as many."""
WINDOW_SECONDS = 10
KEYS = 100_000
"""A row meets 2 * 10 s * 10,000 rows/s / 100,000 keys = 2 of the other stream: as many results as rows of both."""


def arriving(seconds: int) -> Workload:
    """The two streams, for so many seconds; every trigger takes what is there."""
    files = round(seconds / TICK_SECONDS)
    return Workload(
        "latency",
        f"{2 * ROWS_PER_SECOND:,} rows a second arrive, a file of each stream every {TICK_SECONDS * 1000:.0f} ms",
        keys=KEYS,
        window_seconds=WINDOW_SECONDS,
        rows_per_second=ROWS_PER_SECOND,
        files=files,
        rows_per_file=round(ROWS_PER_SECOND * TICK_SECONDS),
        files_per_trigger=files,
    )


def prepare(w: Workload, cache: Path) -> Path:
    """The directory with `<stream>/<number>.parquet`, and the same rows as `csv/<stream>/<number>.csv`."""
    home = data.prepare(w, cache)
    done = home / "csv" / "workload.json"
    if not done.exists():
        for stream in w.streams:
            (home / "csv" / stream).mkdir(parents=True, exist_ok=True)
            for path in sorted((home / stream).glob("*.parquet")):
                _write_csv(path, home / "csv" / stream / f"{path.stem}.csv")
        w.save(home / "csv")
    return home


def _write_csv(source: Path, target: Path) -> None:
    """One file with event times as whole microseconds."""
    table = pq.read_table(source)
    pcsv.write_csv(table.set_column(table.column_names.index("ts"), "ts", table["ts"].cast(pa.int64())), target)


def link_files(home: Path, target: Path, w: Workload, count: int) -> None:
    """The first files of each stream, in a directory of a run's own, with the workload."""
    for stream in w.streams:
        (target / stream).mkdir(parents=True)
        for number in range(count):
            os.link(home / stream / f"{number:04d}.parquet", target / stream / f"{number:04d}.parquet")
    w.save(target)


class Feeder(threading.Thread):
    """Puts the next file of every stream in place at each tick, in one atomic step a file."""

    def __init__(self, w: Workload, home: Path, target: Path, suffix: str) -> None:
        super().__init__(daemon=True)
        self._w, self._home, self._target, self._suffix = w, home, target, suffix
        self.arrived = np.zeros((len(w.streams), w.files))
        """When each file of each stream was there, in seconds of the clock that does not jump."""
        for stream in w.streams:
            (target / stream).mkdir(parents=True)
        w.save(target)

    def run(self) -> None:
        begin = time.monotonic()
        for number in range(self._w.files):
            time.sleep(max(0.0, begin + number * TICK_SECONDS - time.monotonic()))
            for place, stream in enumerate(self._w.streams):
                name = f"{stream}/{number:04d}.{self._suffix}"
                os.link(self._home / name, self._target / name)
                self.arrived[place, number] = time.monotonic()

    @property
    def latest_by(self) -> float:
        """By how many seconds a file was later than its tick, at most."""
        planned = self.arrived[0, 0] + np.arange(self._w.files) * TICK_SECONDS
        return float((self.arrived - planned).max())


def file_of(times: np.ndarray) -> np.ndarray:
    """The numbers of the files that rows arrived in, by their event times in microseconds."""
    return (times - FIRST_EVENT) // round(TICK_SECONDS * 1_000_000)
