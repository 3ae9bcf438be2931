"""Two streams joined and grouped while they arrive and one machine turns slow: once with `static`, once with `hybrid`.

    make demo                                  # or: python examples/demo.py --help

Trades and quotes come as Parquet files at a steady rate. Eight rows in ten belong to two symbols in ten, rows arrive
out of order by up to `DELAY`, and some trades are planted far too late, so that Sluice has to drop and count them. Four
sites share the work; every row is given a service time by `sluice.experiments.slowDown`, so that four sites can be told
apart on however few processors, and after a while one site takes `SLOWER` times as long. Both answers are held against
batch queries.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from sluice import Flow, Query
from sluice.dashboard.chart import Axis, Line, Mark, chart
from sluice.dashboard.progress_view import Seen
from sluice.dashboard.terminal import watch
from sluice.experiments import slowDown

SYMBOLS, HOT = 100_000, 20_000
SECONDS_PER_FILE = 10  # of event time
DELAY, WITHIN, BAR = 5, 10, 30  # seconds
LATE_PER_FILE = 10
SECOND = 1_000_000  # event times are microseconds
OPENING = 1_767_348_000 * SECOND

SITES, UNITS = 4, 24
SERVICE, SLOWER, SLOW_SITE = "400 microseconds", 3, 1
EVERY = 2.5  # seconds between files
AT_ONCE = 2  # files that are there from the beginning

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


@dataclass
class Fed:
    """When each file arrived and when one site turned slow, in seconds since 1970."""

    arrived: list[float] = field(default_factory=list)
    slow: float = 0.0


@dataclass
class Outcome:
    """What came of one policy: its query and what was seen of it."""

    policy: str
    seen: Seen
    fed: Fed
    epochs: list[dict[str, float]]
    moves: int


def started(spark: SparkSession, home: Path, policy: str) -> Query:
    """The join and a group-by of its results, as one query."""
    flow = Flow(spark, name="demo")
    trades, quotes = (
        flow.readFiles(
            stream,
            str(home / stream),
            format="parquet",
            eventTime="ts",
            delay=f"{DELAY} seconds",
            maxFilesPerTrigger=1,
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
    return flow.start(
        pairs.writeStream.format("parquet")
        .option("path", str(home / "out"))
        .option("checkpointLocation", str(home / "checkpoint"))
        .option("sites", SITES)
        .option("partitions", UNITS)
        .policy(policy, collect="1 second")
        .trigger(processingTime="100 milliseconds"),
        bars.writeStream.format("parquet").option("path", str(home / "bars")),
    )


def feed(query: Query, source: Path, home: Path, files: int, fed: Fed) -> None:
    """Let files arrive at a steady rate, make one site slow when a third of them has, and stop the query at the end."""
    try:
        began = time.time()
        for number in range(AT_ONCE, files):
            time.sleep(max(0.0, began + (number - AT_ONCE + 1) * EVERY - time.time()))
            if number == files // 3:
                slowDown(query, SLOW_SITE, f"{float(SERVICE.split()[0]) * SLOWER} microseconds")
                fed.slow = time.time()
            arrive(source, home, number, fed)
        query.processAllAvailable()
    finally:
        query.stop()


def arrive(source: Path, home: Path, number: int, fed: Fed) -> None:
    for stream in COLUMNS:
        os.link(source / stream / f"{number:04d}.parquet", home / stream / f"{number:04d}.parquet")
    fed.arrived.append(time.time())


def run(spark: SparkSession, home: Path, policy: str, files: int, rows: int) -> Outcome:
    """The whole stream under one policy."""
    mine = home / policy
    for stream in COLUMNS:
        (mine / stream).mkdir(parents=True)
    fed = Fed()
    for number in range(AT_ONCE):
        arrive(home, mine, number, fed)
    query = started(spark, mine, policy)
    for site in range(SITES):
        slowDown(query, site, SERVICE)
    feeder = threading.Thread(target=feed, args=(query, home, mine, files, fed), daemon=True)
    feeder.start()
    seen = watch(query, sys.stdout)
    feeder.join()
    moves = [d for d in query.decisions() if d.action == "move" and d.refused is None]
    return Outcome(policy, seen, fed, timed(query, fed, rows), len(moves))


def timed(query: Query, fed: Fed, rows: int) -> list[dict[str, float]]:
    """Of every epoch: when it ended, how many rows a second it took in, and how long its oldest file had to wait."""
    found, files, before = [], 0, fed.arrived[0]
    for epoch in query.recentProgress:
        if epoch["numInputRows"]:
            end = epoch["committedAt"]
            rate = epoch["numInputRows"] / max(1e-3, end - max(before, fed.arrived[files]))
            found.append({"end": end, "rate": rate, "latency": end - fed.arrived[files]})
            files, before = files + epoch["numInputRows"] // (len(COLUMNS) * rows), end
    return found


def page(outcomes: list[Outcome], path: str) -> None:
    """Both policies in two charts, as a page that stands alone."""
    lines: dict[str, list[Line]] = {"rate": [], "latency": []}
    slow = 0.0
    for outcome in outcomes:
        begin = outcome.fed.arrived[0]
        slow = outcome.fed.slow - begin
        for value, into in lines.items():
            at = [epoch["end"] - begin for epoch in outcome.epochs]
            into.append(Line(outcome.policy, at, [epoch[value] for epoch in outcome.epochs]))
    mark = Mark(f"site {SLOW_SITE} takes {SLOWER} times as long", x=slow)
    since = Axis("seconds since the first file")
    charts = [
        chart("Throughput", since, Axis("rows a second"), lines["rate"], [mark]),
        chart("How long rows wait for their results", since, Axis("seconds"), lines["latency"], [mark]),
    ]
    title = f"{SITES} sites, one of them slow: static and hybrid"
    with open(path, "w", encoding="utf-8") as out:
        out.write(f"<!doctype html><html lang=en><meta charset=utf-8><title>{title}</title>\n")
        out.write("<body style='max-width:780px;margin:2em auto;font-family:sans-serif'>\n")
        out.write(f"<h1>{title}</h1>\n" + "\n".join(charts) + "\n</body></html>\n")


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


def exact(spark: SparkSession, home: Path, outcome: Outcome, planted: Planted) -> bool:
    """Whether both outputs are those of the batch queries; says so."""
    dropped = outcome.seen.late
    by, (got, wanted, missing, surplus) = compare(spark, home, planted)
    right = missing == surplus == 0 and dropped == len(planted.late) and wanted > 0
    print(f"  {got:,} results, {by}'s batch join of the same rows {wanted:,}; {dropped:,} late rows dropped")
    if right:
        print("  EXACT: the same rows, each as often")
    else:
        print(f"  WRONG: {missing:,} rows missing, {surplus:,} too many; {len(planted.late):,} late rows were planted")
    by, (bars, missing, surplus) = compare_bars(spark, home)
    if missing or surplus or not bars:
        print(f"  WRONG: of {bars:,} bars {missing:,} are missing, {surplus:,} too many")
        return False
    print(f"  EXACT: so are the {bars:,} bars of {BAR} seconds, a group-by of those results")
    return right


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--files", type=int, default=26, help="files in each stream (default %(default)s)")
    parser.add_argument("--rows", type=int, default=4_000, help="rows in each file (default %(default)s)")
    parser.add_argument("--report", default="demo-report.html", help="where the page goes (default %(default)s)")
    args = parser.parse_args()
    if args.files < 12 or args.rows < LATE_PER_FILE:
        parser.error(f"needs at least 12 files and {LATE_PER_FILE} rows in each")

    home, spark = scratch(), None
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("demo: told to end"))  # so that it cleans up
    try:
        planted = generate(home, args.files, args.rows)
        print(
            f"{args.files} files each of trades and quotes, {planted.rows:,} rows, 80 % of them on {HOT:,} of "
            f"{SYMBOLS:,} symbols,\nfiles of {args.rows:,} rows every {EVERY} s; joined on symbol within {WITHIN} "
            f"seconds, grouped into bars of {BAR} seconds\n{SITES} sites, {SERVICE} a row (emulated); after a third "
            f"of the files site {SLOW_SITE} takes {SLOWER} times as long"
        )
        spark = session()
        outcomes, right = [], True
        for policy in ("static", "hybrid"):
            print(f"\npolicy {policy}")
            outcome = run(spark, home, policy, args.files, args.rows)
            right &= exact(spark, home / policy, outcome, planted)
            outcomes.append(outcome)
        print("\nWith the slow site:")
        for outcome in outcomes:
            after = [e for e in outcome.epochs if e["end"] > outcome.fed.slow]
            waited = max(e["latency"] for e in after)
            print(
                f"  {outcome.policy:<7} the last rows waited {after[-1]['latency']:5.1f} s for their results, at worst "
                f"{waited:5.1f} s; units moved: {outcome.moves}"
            )
        page(outcomes, args.report)
        print(f"Both as a page: {os.path.abspath(args.report)}")
        return 0 if right else 1
    finally:
        try:
            if spark is not None:
                spark.stop()
        finally:  # in the midst of a call, Spark may not be able to
            shutil.rmtree(home, ignore_errors=True)


def scratch() -> Path:
    """A directory of its own. Those of demos that were killed are removed: their names have the process's number."""
    for left in Path(tempfile.gettempdir()).glob("sluice-demo-*-*"):
        process = left.name.split("-")[2]
        if process.isdecimal() and not is_alive(int(process)):
            shutil.rmtree(left, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix=f"sluice-demo-{os.getpid()}-"))


def is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # it is somebody else's
    return True


def session() -> SparkSession:
    spark = (
        SparkSession.builder.master(f"local[{SITES}]")
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
