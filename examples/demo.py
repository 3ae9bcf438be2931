"""Two skewed streams joined while they arrive, then the answer held against a batch join of the same rows.

    make demo                                  # or: python examples/demo.py --help

Trades and quotes come as Parquet files, a few per epoch. Eight rows in ten belong to two symbols in ten, rows arrive
out of order by up to `DELAY`, and some trades are planted far too late, so that Sluice has to drop and count them.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from sluice import Flow

SYMBOLS, HOT = 100_000, 20_000
SECONDS_PER_FILE = 10  # of event time
DELAY, WITHIN = 5, 10  # seconds
FILES_PER_EPOCH = 3
LATE_PER_FILE = 10
SECOND = 1_000_000  # event times are microseconds
OPENING = 1_767_348_000 * SECOND

COLUMNS = {"trades": ("symbol", "ts", "trade_id", "price", "size"), "quotes": ("symbol", "ts", "bid", "ask")}


@dataclass(frozen=True)
class Planted:
    """What the generated files hold, known before anything is joined."""

    rows: int
    late: tuple[int, ...]  # trade_id of every trade that comes too late


def generate(home: Path, files: int, rows: int) -> Planted:
    """Write both streams as files whose modification times say in which order they arrived."""
    rng = np.random.default_rng(11)
    late: list[int] = []
    for stream in COLUMNS:
        (home / stream).mkdir()
        for number in range(files):
            ids = np.arange(number * rows, (number + 1) * rows)
            jitter = rng.integers(0, (DELAY - 1) * SECOND, rows)
            at = OPENING + ids * SECONDS_PER_FILE * SECOND // rows - jitter
            # At the opening, where quotes would match them, and only in files that arrive long after it.
            if stream == "trades" and number >= files // 2:
                chosen = rng.choice(rows, LATE_PER_FILE, replace=False)
                at[chosen] = OPENING + rng.integers(0, SECONDS_PER_FILE * SECOND, LATE_PER_FILE)
                late += ids[chosen].tolist()
            path = home / stream / f"{number:04d}.parquet"
            pq.write_table(rows_of(stream, ids, at, rng), path)
            os.utime(path, (1_700_000_000 + number,) * 2)
    return Planted(len(COLUMNS) * files * rows, tuple(late))


def rows_of(stream: str, ids: np.ndarray, at: np.ndarray, rng: np.random.Generator) -> pa.Table:
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


def run(spark: SparkSession, home: Path, site_memory: str) -> list[dict[str, Any]]:
    """The join itself; returns the progress of every epoch."""
    flow = Flow(spark, name="demo")
    trades, quotes = (
        flow.readFiles(
            stream,
            str(home / stream),
            format="parquet",
            eventTime="ts",
            delay=f"{DELAY} seconds",
            maxFilesPerTrigger=FILES_PER_EPOCH,
        )
        for stream in COLUMNS
    )
    pairs = trades.join(quotes, on="symbol", within=f"{WITHIN} seconds")
    query = (
        pairs.writeStream.format("parquet")
        .option("path", str(home / "out"))
        .option("checkpointLocation", str(home / "checkpoint"))
        .option("sites", 2)
        .option("partitions", 64)
        .option("siteMemory", site_memory)
        .trigger(availableNow=True)
        .start()
    )
    seen: list[dict[str, Any]] = []
    print(f"{'epoch':>5} {'rows in':>8} {'rows/s':>8} {'results':>9} {'late':>5}   state by site: rows, memory + disk")
    ended = False
    while not ended:
        ended = query.awaitTermination(0.25)
        for progress in query.recentProgress[-10:]:
            if not seen or progress["batchId"] > seen[-1]["batchId"]:
                seen.append(progress)
                print(progress_line(progress), flush=True)
    return seen


def progress_line(p: dict[str, Any]) -> str:
    sites = "   ".join(
        f"{s['site']}: {s['rows']:,}, {in_bytes(s['memoryBytes'])} + {in_bytes(s['diskBytes'])}" for s in p["sites"]
    )
    return (
        f"{p['batchId']:>5} {p['numInputRows']:>8,} {p['processedRowsPerSecond']:>8,.0f} "
        f"{p['numOutputRows']:>9,} {p['lateRows']:>5}   {sites}"
    )


def in_bytes(size: float) -> str:
    if size < 1024:
        return f"{size:.0f} B"
    for unit in ("KiB", "MiB"):
        size /= 1024
        if size < 1024:
            return f"{size:.1f} {unit}"
    return f"{size / 1024:.1f} GiB"


# The check. One text for DuckDB and for Spark SQL: both read the views trades, quotes, late and results.

WANTED = f"""
    SELECT {", ".join(f"{s}.{c} AS {s}_{c}" for s, columns in COLUMNS.items() for c in columns)}
    FROM trades JOIN quotes ON trades.symbol = quotes.symbol
     AND trades.ts BETWEEN quotes.ts - INTERVAL {WITHIN} SECOND AND quotes.ts + INTERVAL {WITHIN} SECOND
    WHERE trades.trade_id NOT IN (SELECT trade_id FROM late)"""
GOT = f"SELECT {', '.join(f'{s}_{c}' for s, columns in COLUMNS.items() for c in columns)} FROM results"
DIFFERENCE = f"""
    SELECT (SELECT count(*) FROM results) AS got,
           (SELECT count(*) FROM ({WANTED})) AS wanted,
           (SELECT count(*) FROM ({WANTED} EXCEPT ALL {GOT})) AS missing,
           (SELECT count(*) FROM ({GOT} EXCEPT ALL {WANTED})) AS surplus"""


def compare(spark: SparkSession, home: Path, planted: Planted) -> tuple[str, tuple[int, ...]]:
    """Who joined, and: rows got, rows wanted, rows missing, rows too many; as multisets of whole rows."""
    late = pa.table({"trade_id": pa.array(planted.late, pa.int64())})
    pq.write_table(late, home / "late.parquet")
    where = {"trades": "trades", "quotes": "quotes", "results": "out", "late": "late.parquet"}
    try:
        import duckdb
    except ImportError:
        for view, place in where.items():
            spark.read.parquet(str(home / place)).createOrReplaceTempView(view)
        return "Spark SQL", tuple(spark.sql(DIFFERENCE).first())
    with duckdb.connect() as db:
        for view, place in where.items():
            parts = str(home / place) if place.endswith(".parquet") else str(home / place / "*.parquet")
            db.read_parquet(parts).create_view(view)
        return "DuckDB", db.sql(DIFFERENCE).fetchall()[0]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--files", type=int, default=24, help="files in each stream (default %(default)s)")
    parser.add_argument("--rows", type=int, default=25_000, help="rows in each file (default %(default)s)")
    parser.add_argument("--site-memory", default="256m", help="memory of a site before it spills (default %(default)s)")
    args = parser.parse_args()
    if args.files < 4 * FILES_PER_EPOCH or args.rows < LATE_PER_FILE:
        parser.error(f"needs at least {4 * FILES_PER_EPOCH} files and {LATE_PER_FILE} rows in each")

    home = Path(tempfile.mkdtemp(prefix="sluice-demo-"))
    spark = None
    try:
        planted = generate(home, args.files, args.rows)
        print(
            f"{args.files} files each of trades and quotes, {planted.rows:,} rows, 80 % of them on {HOT:,} of "
            f"{SYMBOLS:,} symbols\njoin on symbol within {WITHIN} seconds, rows up to {DELAY} seconds late accepted\n"
        )
        spark = session()
        began = time.perf_counter()
        seen = run(spark, home, args.site_memory)
        took = time.perf_counter() - began
        dropped = sum(p["lateRows"] for p in seen)
        print(f"\n{len(seen)} epochs in {took:.1f} s; {dropped:,} late rows dropped, {len(planted.late):,} planted")
        by, (got, wanted, missing, surplus) = compare(spark, home, planted)
        print(f"Sluice has {got:,} results, {by}'s batch join of the same rows {wanted:,}")
        exact = missing == surplus == 0 and dropped == len(planted.late) and wanted > 0
        if exact:
            print("EXACT: the same rows, each as often")
        else:
            print(f"WRONG: {missing:,} rows missing, {surplus:,} rows too many, late rows {dropped:,}")
        return 0 if exact else 1
    finally:
        if spark is not None:
            spark.stop()
        shutil.rmtree(home, ignore_errors=True)


def session() -> SparkSession:
    spark = (
        SparkSession.builder.master("local[2]")
        .appName("sluice-demo")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    return spark


if __name__ == "__main__":
    sys.exit(main())
