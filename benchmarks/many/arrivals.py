"""The rows of the many queries: files made once, which arrive in a run's own directory when it is time for them."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.many.queries import DELAY_SECONDS, STREAMS
from benchmarks.workloads import FIRST_EVENT

SECOND = 1_000_000
FIRST_ARRIVAL = 1_700_000_000
FEW = 10
"""Rows of a stream in an epoch that is nearly empty."""


@dataclass(frozen=True)
class ManyRows:
    """So many rows of each stream in an epoch, of so many seconds of event time; so many epochs, then so many nearly
    empty ones."""

    rows: int = 20_000
    seconds: int = 5
    keys: int = 50_000
    epochs: int = 16
    few: int = 12

    @property
    def files(self) -> int:
        return self.epochs + self.few

    def count(self, file: int) -> int:
        """Rows of one stream in a file."""
        return self.rows if file < self.epochs else FEW

    def newest(self, files: int) -> int:
        """The newest event time in the first files of a stream, in microseconds."""
        return FIRST_EVENT + files * self.seconds * SECOND - self.seconds * SECOND // self.count(files - 1)

    def final_until(self, files: int) -> int:
        """The time up to which windows are final when so many files have arrived."""
        return self.newest(files) - DELAY_SECONDS * SECOND


def prepare(rows: ManyRows, cache: Path) -> Path:
    """The directory with `<stream>/<number>.parquet`, made if it is not there yet."""
    home = cache / f"many-{rows.epochs}x{rows.rows}"
    mark = home / "rows.json"
    if mark.exists() and json.loads(mark.read_text()) == asdict(rows):
        return home
    shutil.rmtree(home, ignore_errors=True)
    for number, stream in enumerate(STREAMS):
        (home / stream).mkdir(parents=True)
        for file in range(rows.files):
            path = home / stream / f"{file:04d}.parquet"
            pq.write_table(_table(rows, number, file), path)
            os.utime(path, (FIRST_ARRIVAL + file,) * 2)
    mark.write_text(json.dumps(asdict(rows)))
    return home


def load(home: Path) -> ManyRows:
    return ManyRows(**json.loads((home / "rows.json").read_text()))


def _table(rows: ManyRows, stream: int, file: int) -> pa.Table:
    rng, count = np.random.default_rng([26, stream, file]), rows.count(file)
    begins = FIRST_EVENT + file * rows.seconds * SECOND
    at = begins + np.arange(count) * (rows.seconds * SECOND) // count
    return pa.table(
        {
            "k": rng.integers(0, rows.keys, count),
            "g": pa.array(rng.integers(0, 100, count), pa.int32()),
            "q": pa.array(rng.integers(0, 1000, count), pa.int32()),
            "v": rng.random(count).round(6),
            "ts": pa.array(at, pa.timestamp("us", "UTC")),
        }
    )


class Arrivals:
    """A run's own directory of each stream, in which files arrive."""

    def __init__(self, home: Path, work: Path) -> None:
        self.rows, self._home, self._work, self.arrived = load(home), home, work / "in", 0
        for stream in STREAMS:
            self.directory(stream).mkdir(parents=True)

    def directory(self, stream: str) -> Path:
        return self._work / stream

    def arrive(self, files: int = 1) -> int:
        """The next files of every stream are there; how many rows a stream has in them."""
        numbers = range(self.arrived, self.arrived + files)
        for stream in STREAMS:
            for number in numbers:
                os.link(self._home / stream / f"{number:04d}.parquet", self.directory(stream) / f"{number:04d}.parquet")
        self.arrived += files
        return sum(self.rows.count(number) for number in numbers)

    def skip_to_few(self) -> None:
        """What comes next is nearly empty; ordinary files that have not arrived never do."""
        self.arrived = max(self.arrived, self.rows.epochs)
