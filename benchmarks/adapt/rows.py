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
from sluice.model.routing import unit_of

STREAMS = "AB"
SECOND = 1_000_000
POOL = 1 << 16  # keys among which hot ones are looked for


@dataclass(frozen=True)
class Hot:
    """A few keys that get most rows, other ones after every `files` files.

    Each set lies on `sites` sites of the first routing, of as many as `of`, as evenly as it can: how bad skew is for a
    placement that stays depends on little else, and is not left to chance.
    """

    keys: int
    share: float
    files: int
    sites: int
    of: int


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
            text += (
                f"; {self.hot.share:.0%} of the rows on {self.hot.keys} keys at {self.hot.sites} of {self.hot.of} "
                f"sites, other ones after every {self.hot.files} files"
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
    (cache / ".gitignore").write_text("*\n")
    about.write_text(json.dumps(asdict(rows)))
    return home


def table(rows: Rows, stream: int, number: int) -> pa.Table:
    """One file of one stream; the same rows whenever it is asked for."""
    rng = np.random.default_rng([5, stream, number])
    ids = np.arange(number * rows.rows, (number + 1) * rows.rows)
    at = FIRST_EVENT + ids * (rows.seconds * SECOND) // rows.rows
    drawn = rng.integers(0, rows.keys, rows.rows)
    if rows.hot:
        chosen = hot_keys(rows.hot, number // rows.hot.files)
        drawn = np.where(rng.random(rows.rows) < rows.hot.share, rng.choice(chosen, rows.rows), drawn)
    columns = {"key": drawn, "ts": pa.array(at, pa.timestamp("us", tz="UTC")), "id": ids}
    if rows.wide:
        columns["payload"] = pa.array([rng.bytes(rows.wide) for _ in range(rows.rows)], pa.binary())
    return pa.table(columns)


def hot_keys(hot: Hot, turn: int) -> np.ndarray:
    """The keys that are hot in a turn: on the sites whose turn it is, each key in a 64th of the hashes of its own."""
    pool = np.arange(POOL)
    fine = unit_of(hash_keys([pa.array(pool)]), 64)
    sites = [(turn * hot.sites + i) % hot.of for i in range(hot.sites)]
    found: list[int] = []
    for i in range(hot.keys):
        site, place = sites[i % hot.sites], i // hot.sites
        found.append(int(pool[fine == site * 64 // hot.of + place][turn]))
    return np.array(found)


def linked(home: Path, target: Path, first: int, last: int) -> None:
    """Have files of both streams arrive in a directory, each at once and whole."""
    for number in range(first, last):
        for stream in STREAMS:
            os.link(home / stream / f"{number:04d}.parquet", target / stream / f"{number:04d}.parquet")
