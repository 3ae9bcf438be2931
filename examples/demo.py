"""Two skewed streams joined and grouped while they arrive, then held against batch queries over the same rows.

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

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from sluice import Flow
from sluice.dashboard.panel import Seen
from sluice.dashboard.report import report_checkpoint
from sluice.dashboard.terminal import watch

SYMBOLS, HOT = 100_000, 20_000
SECONDS_PER_FILE = 10  # of event time
DELAY, WITHIN, BAR = 5, 10, 30  # seconds
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


def run(spark: SparkSession, home: Path, site_memory: str) -> Seen:
    """The join and a group-by of its results, as one query; returns what was seen of it."""
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
    bars = (
        pairs.withColumn("spread", "quotes_ask - quotes_bid")
        .groupBy("trades_symbol")
        .window(f"{BAR} seconds")
        .agg(pairs=("*", "count"), shares=("trades_size", "sum"), spread=("spread", "avg"))
    )
    query = flow.start(
        pairs.writeStream.format("parquet")
        .option("path", str(home / "out"))
        .option("checkpointLocation", str(home / "checkpoint"))
        .option("sites", 2)
        .option("partitions", 64)
        .option("siteMemory", site_memory)
        .trigger(availableNow=True),
        bars.writeStream.format("parquet").option("path", str(home / "bars")),
    )
    return watch(query, sys.stdout)


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
    (home / "late").mkdir()
    pq.write_table(late, home / "late" / "late.parquet")
    where = {"trades": "trades", "quotes": "quotes", "results": "out", "late": "late"}
    return asked(spark, {view: home / place for view, place in where.items()}, DIFFERENCE)


def asked(spark: SparkSession, views: dict[str, Path], query: str) -> tuple[str, tuple[int, ...]]:
    """A query with one row of numbers over Parquet directories, and who answered it."""
    try:
        import duckdb
    except ImportError:
        for view, place in views.items():
            spark.read.parquet(str(place)).createOrReplaceTempView(view)
        return "Spark SQL", tuple(spark.sql(query).first())
    with duckdb.connect() as db:
        for view, place in views.items():
            db.read_parquet(str(place / "*.parquet")).create_view(view)
        return "DuckDB", db.sql(query).fetchall()[0]


def compare_bars(spark: SparkSession, home: Path) -> tuple[str, tuple[int, ...]]:
    """The same for the bars; averages to nine digits, since a batch query adds the numbers in another order."""
    time_ = "CASE WHEN trades_ts > quotes_ts THEN trades_ts ELSE quotes_ts END"
    second = f"CAST(floor(date_part('epoch', {time_}) / {BAR}) AS BIGINT) * {BAR}"
    ends = "SELECT CAST(date_part('epoch', max(window_end)) AS BIGINT) FROM bars"
    wanted = f"""
        SELECT trades_symbol, {second} AS start, count(*) AS pairs, CAST(sum(trades_size) AS BIGINT) AS shares,
               round(avg(quotes_ask - quotes_bid), 9) AS spread
        FROM results GROUP BY 1, 2 HAVING {second} + {BAR} <= ({ends})"""
    got = """
        SELECT trades_symbol, CAST(date_part('epoch', window_start) AS BIGINT) AS start, pairs, shares,
               round(spread, 9) AS spread FROM bars"""
    return asked(
        spark,
        {"results": home / "out", "bars": home / "bars"},
        f"""SELECT (SELECT count(*) FROM bars),
                   (SELECT count(*) FROM ({wanted} EXCEPT ALL {got})),
                   (SELECT count(*) FROM ({got} EXCEPT ALL {wanted}))""",
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--files", type=int, default=24, help="files in each stream (default %(default)s)")
    parser.add_argument("--rows", type=int, default=25_000, help="rows in each file (default %(default)s)")
    parser.add_argument("--report", default="demo-report.html", help="where the page goes (default %(default)s)")
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
        took, dropped = time.perf_counter() - began, seen.late
        print(f"\n{seen.epochs} epochs in {took:.1f} s; {dropped:,} late rows dropped, {len(planted.late):,} planted")
        by, (got, wanted, missing, surplus) = compare(spark, home, planted)
        print(f"Sluice has {got:,} results, {by}'s batch join of the same rows {wanted:,}")
        exact = missing == surplus == 0 and dropped == len(planted.late) and wanted > 0
        if exact:
            print("EXACT: the same rows, each as often")
        else:
            print(f"WRONG: {missing:,} rows missing, {surplus:,} rows too many, late rows {dropped:,}")
        by, (bars, missing, surplus) = compare_bars(spark, home)
        if missing or surplus or not bars:
            print(f"WRONG: of {bars:,} bars {missing:,} are missing, {surplus:,} too many")
            exact = False
        else:
            print(f"EXACT: so are the {bars:,} bars of {BAR} seconds, a group-by of those results")
        report_checkpoint(str(home / "checkpoint"), args.report)
        print(f"What happened, as a page: {os.path.abspath(args.report)}")
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
