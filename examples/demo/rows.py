"""Trades and quotes as Parquet files, made once and then let in as the acts of the demo want them.

Eight rows in ten belong to two symbols in ten. Rows arrive out of order by up to `DELAY`, and some trades are planted
far too late, so that Sluice has to drop and count them.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sluice import DataStream, Flow

SYMBOLS, HOT = 1_000_000, 200_000
SECONDS_PER_FILE = 10  # of event time
DELAY, WITHIN = 5, 10  # seconds
LATE_PER_FILE = 10
SECOND = 1_000_000  # event times are microseconds

COLUMNS = {"trades": ("symbol", "ts", "trade_id", "price", "size"), "quotes": ("symbol", "ts", "bid", "ask")}


@dataclass(frozen=True)
class Planted:
    """What the generated files hold, known before anything is joined."""

    rows: int
    late: tuple[int, ...]
    """`trade_id` of every trade that comes too late; all are in the second half of the files."""


def generate(home: Path, files: int, rows: int) -> Planted:
    """Write both streams as files whose modification times say in which order they arrived."""
    rng = np.random.default_rng(11)
    late: list[int] = []
    opening = _open_at(files)
    for stream in COLUMNS:
        (home / stream).mkdir()
        for number in range(files):
            ids = np.arange(number * rows, (number + 1) * rows)
            jitter = rng.integers(0, (DELAY - 1) * SECOND, rows)
            at = opening + ids * SECONDS_PER_FILE * SECOND // rows - jitter
            # At the opening, where quotes would match them, and only in files that arrive long after it.
            if stream == "trades" and number >= files // 2:
                chosen = rng.choice(rows, LATE_PER_FILE, replace=False)
                at[chosen] = opening + rng.integers(0, SECONDS_PER_FILE * SECOND, LATE_PER_FILE)
                late += ids[chosen].tolist()
            path = home / stream / f"{number:04d}.parquet"
            pq.write_table(_rows(stream, ids, at, rng), path)
            os.utime(path, (1_700_000_000 + number,) * 2)
    return Planted(len(COLUMNS) * files * rows, tuple(late))


def _open_at(files: int) -> int:
    """So that the last rows are of about now, and watermarks near the clock. It is a whole minute: so windows have the
    same rows whenever the demo runs."""
    return (int(time.time()) - files * SECONDS_PER_FILE) // 60 * 60 * SECOND


def _rows(stream: str, ids: np.ndarray, at: np.ndarray, rng: np.random.Generator) -> pa.Table:
    n = len(ids)
    hot = rng.random(n) < 0.8
    numbers = pa.array(np.where(hot, rng.integers(0, HOT, n), rng.integers(HOT, SYMBOLS, n)))
    symbol = pc.binary_join_element_wise("S", pc.utf8_lpad(numbers.cast(pa.string()), 6, padding="0"), "")
    ts = pa.array(at, pa.timestamp("us", tz="UTC"))
    price = (100 + rng.standard_normal(n)).round(2)
    if stream == "trades":
        values = (symbol, ts, ids, price, rng.integers(1, 1000, n).astype(np.int32))
    else:
        values = (symbol, ts, price - 0.01, price + 0.01)
    return pa.table(dict(zip(COLUMNS[stream], values, strict=True)))


def let_in(source: Path, home: Path, numbers: range) -> None:
    """Put files of both streams in place, each in one atomic step."""
    for stream in COLUMNS:
        (home / stream).mkdir(parents=True, exist_ok=True)
        for number in numbers:
            name = f"{number:04d}.parquet"
            os.link(source / stream / name, home / stream / name)


def read_streams(flow: Flow, home: Path, files_a_trigger: int) -> list[DataStream]:
    """Trades and quotes as streams of a flow."""
    return [
        flow.readFiles(
            stream,
            str(home / stream),
            format="parquet",
            eventTime="ts",
            delay=f"{DELAY} seconds",
            maxFilesPerTrigger=files_a_trigger,
        )
        for stream in COLUMNS
    ]
