"""Writes trades and quotes as Parquet files into data/, as if they arrived; run again, it goes on where it ended.

python make_data.py                        # 30 files of each stream at once
python make_data.py --files 60 --every 1   # one a second, to watch a running flow
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

DATA = Path(__file__).parent / "data"
SYMBOLS = np.array([f"S{number:03d}" for number in range(100)])
ROWS = 1_000  # in a file
SECONDS = 10  # of event time in a file
OPENING = np.datetime64("2026-01-02T09:30:00", "us")


def times(number: int, rng: np.random.Generator) -> np.ndarray:
    """Event times of a file, up to four seconds out of order; one row in a thousand comes far too late."""
    step = np.arange(ROWS) * SECONDS * 1_000_000 // ROWS + number * SECONDS * 1_000_000
    late = np.where(rng.random(ROWS) < 0.001, 60_000_000, 0)
    return OPENING + (step - rng.integers(0, 4_000_000, ROWS) - late).astype("timedelta64[us]")


def rows(stream: str, number: int) -> pa.Table:
    rng = np.random.default_rng([number, len(stream), ord(stream[0])])
    price = (100 + rng.standard_normal(ROWS)).round(2)
    columns = {
        "symbol": pa.array(rng.choice(SYMBOLS, ROWS)),
        "ts": pa.array(times(number, rng), pa.timestamp("us", tz="UTC")),
    }
    if stream == "trades":
        columns |= {"price": pa.array(price), "size": pa.array(rng.integers(1, 1_000, ROWS))}
    else:
        columns |= {"bid": pa.array(price - 0.01), "ask": pa.array(price + 0.01)}
    return pa.table(columns)


def write(stream: str, number: int) -> None:
    """Under a hidden name first, so that a running flow never reads half a file."""
    draft = DATA / stream / f".{number:05d}.parquet"
    pq.write_table(rows(stream, number), draft)
    draft.rename(DATA / stream / f"{number:05d}.parquet")


def main() -> None:
    parser = argparse.ArgumentParser(description="Write trades and quotes as Parquet files into data/.")
    parser.add_argument("--files", type=int, default=30, help="how many of each stream (30)")
    parser.add_argument("--every", type=float, default=0.0, metavar="SECONDS", help="wait after each (0)")
    args = parser.parse_args()
    for stream in ("trades", "quotes"):
        (DATA / stream).mkdir(parents=True, exist_ok=True)
    there = len(list((DATA / "quotes").glob("*.parquet")))
    for number in range(there, there + args.files):
        for stream in ("trades", "quotes"):
            write(stream, number)
        time.sleep(args.every)
    print(f"{args.files} files of {ROWS:,} rows each in {DATA / 'trades'} and {DATA / 'quotes'}")


if __name__ == "__main__":
    main()
