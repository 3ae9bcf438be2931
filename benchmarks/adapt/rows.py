"""The rows of a scenario, made once: two streams of Parquet files, one file of each an epoch.

A row's id tells the file it came in, so that every result tells when its newest row arrived.
"""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.data import FIRST_ARRIVAL
from benchmarks.workloads import FIRST_EVENT
from sluice.kernels.hashing import hash_keys
from sluice.model.directory import Directory

STREAMS = "AB"
SECOND = 1_000_000


@dataclass(frozen=True)
class Hot:
    """Keys that get a greater share of the rows: those of some neighbouring units, which move on with time.

    Neighbours in the hash are at one site until something moves them. Skew of as many keys drawn at random would be
    spread evenly by the hash, and no placement would be better than another.
    """

    units: int  # whose keys are hot
    of: int
    share: float  # of the rows that they get
    first: int  # files before the first change
    files: int  # from one change to the next
    step: int  # units that are hot no longer after a change, and as many that are hot now

    def holds(self, unit: np.ndarray, number: int) -> np.ndarray:
        """Which units are hot in a file."""
        turn = max(0, (number - self.first) // self.files)
        hot: np.ndarray = (unit - turn * self.step) % self.of < self.units
        return hot


@dataclass(frozen=True)
class Rows:
    """Two streams of files with `rows` rows each, joined on `key` within `within` seconds of event time."""

    name: str
    files: int
    rows: int
    keys: int
    seconds: int = 5  # of event time in a file
    within: int = 10
    wide: int = 0  # bytes of payload a row, for state that has a size
    hot: Hot | None = None

    def says(self) -> str:
        text = f"2 streams x {self.files} files x {self.rows:,} rows, {self.keys:,} keys, within {self.within} s"
        if self.hot:
            part = self.hot.units / self.hot.of
            text += (
                f"; {self.hot.share:.0%} of the rows on {part:.0%} of the keys, neighbours in the hash, of which "
                f"{self.hot.step / self.hot.units:.0%} change after every {self.hot.files} files"
            )
        return text


def prepared(rows: Rows, cache: Path) -> Path:
    """Directory with `A/<number>.parquet` and `B/<number>.parquet`, made if it is not there yet."""
    home = cache / f"adapt-{rows.name}-{rows.files}x{rows.rows}"
    about = home / "rows.json"
    if about.exists() and json.loads(about.read_text()) == asdict(rows):
        return home
    shutil.rmtree(home, ignore_errors=True)
    for stream in range(len(STREAMS)):
        (home / STREAMS[stream]).mkdir(parents=True)
        for number in range(rows.files):
            path = home / STREAMS[stream] / f"{number:04d}.parquet"
            pq.write_table(table(rows, stream, number), path)
            os.utime(path, (FIRST_ARRIVAL + number,) * 2)
    about.write_text(json.dumps(asdict(rows)))
    return home


def table(rows: Rows, stream: int, number: int) -> pa.Table:
    """One file of one stream; the same rows whenever it is asked for."""
    rng = np.random.default_rng([5, stream, number])
    ids = np.arange(number * rows.rows, (number + 1) * rows.rows)
    at = FIRST_EVENT + ids * (rows.seconds * SECOND) // rows.rows
    drawn = keys(rows, rng, number)
    columns = {"key": drawn, "ts": pa.array(at, pa.timestamp("us", tz="UTC")), "id": ids}
    if rows.wide:
        drawn_bytes = pa.py_buffer(rng.bytes(rows.wide * rows.rows))
        fixed = pa.FixedSizeBinaryArray.from_buffers(pa.binary(rows.wide), rows.rows, [None, drawn_bytes])
        columns["payload"] = fixed.cast(pa.binary())
    return pa.table(columns)


def keys(rows: Rows, rng: np.random.Generator, number: int) -> np.ndarray:
    drawn = rng.integers(0, rows.keys, rows.rows)
    if rows.hot is None:
        return drawn
    all_ = np.arange(rows.keys)
    hot = all_[rows.hot.holds(Directory(rows.hot.of).unit_of(hash_keys([pa.array(all_)])), number)]
    return np.where(rng.random(rows.rows) < rows.hot.share, rng.choice(hot, rows.rows), drawn)


def linked(home: Path, target: Path, first: int, last: int) -> None:
    """Have files of both streams arrive in a directory, each at once and whole."""
    for number in range(first, last):
        for stream in STREAMS:
            os.link(home / stream / f"{number:04d}.parquet", target / stream / f"{number:04d}.parquet")
