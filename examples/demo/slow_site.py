"""The second act: a join and a group-by of its results while one site turns slow, under `static` and under `hybrid`.

Files come at a steady rate. Every row is given a service time by `sluice.experiments.slowDown`, so that four sites can
be told apart on however few processors; after a third of the files one site takes `SLOWER` times as long.
"""

from __future__ import annotations

import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.sql import SparkSession

from examples.demo.rows import COLUMNS, WITHIN, let_in, read_streams
from sluice import Flow, Query
from sluice.dashboard.chart import Axis, Line, Mark, chart
from sluice.dashboard.progress_view import Seen
from sluice.dashboard.terminal import watch
from sluice.experiments import slowDown

BAR = 30  # seconds
SITES, UNITS = 4, 24
SERVICE_MICROSECONDS, SLOWER, SLOW_SITE = 40, 3, 1
EVERY = 1.5  # seconds between files
AT_ONCE = 2  # files that are there from the beginning


@dataclass
class Arrivals:
    """When each file arrived and when one site turned slow, in seconds since 1970."""

    files: list[float] = field(default_factory=list)
    slow: float = 0.0


@dataclass(frozen=True)
class EpochPace:
    """Of an epoch: when it ended, how many rows a second it took in, and how long its oldest file had to wait."""

    end: float
    rate: float
    latency: float


@dataclass(frozen=True)
class Outcome:
    """What came of one policy: what was seen of its query."""

    policy: str
    seen: Seen
    arrivals: Arrivals
    epochs: list[EpochPace]
    moves: int


def run_policy(spark: SparkSession, source: Path, home: Path, policy: str, files: int, rows: int) -> Outcome:
    """The whole stream under one policy."""
    arrivals = Arrivals()
    for number in range(AT_ONCE):
        _arrive(source, home, number, arrivals)
    query = _start(spark, home, policy)
    print(f"  in a browser while it runs: {query.ui()}", flush=True)
    for site in range(SITES):
        slowDown(query, site, f"{SERVICE_MICROSECONDS} microseconds")
    feeder = threading.Thread(target=_feed, args=(query, source, home, files, arrivals), daemon=True)
    feeder.start()
    seen = watch(query, sys.stdout)
    feeder.join()
    moves = [d for d in query.decisions() if d.action == "move" and d.refused is None]
    return Outcome(policy, seen, arrivals, _paces(query, arrivals, rows), len(moves))


def _start(spark: SparkSession, home: Path, policy: str) -> Query:
    """The join and a group-by of its results, as one query."""
    flow = Flow(spark, name="demo")
    trades, quotes = read_streams(flow, home, 1)
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
        .option("checkpointLocation", str(checkpoint(home)))
        .option("sites", SITES)
        .option("partitions", UNITS)
        .policy(policy, collect="1 second")
        .trigger(processingTime="100 milliseconds"),
        bars.writeStream.format("parquet").option("path", str(home / "bars")),
    )


def _feed(query: Query, source: Path, home: Path, files: int, arrivals: Arrivals) -> None:
    """Let files arrive at a steady rate, make one site slow when a third of them has, and stop the query at the end."""
    try:
        began = time.time()
        for number in range(AT_ONCE, files):
            time.sleep(max(0.0, began + (number - AT_ONCE + 1) * EVERY - time.time()))
            if number == files // 3:
                slowDown(query, SLOW_SITE, f"{SERVICE_MICROSECONDS * SLOWER} microseconds")
                arrivals.slow = time.time()
            _arrive(source, home, number, arrivals)
        query.processAllAvailable()
    finally:
        query.stop()


def _arrive(source: Path, home: Path, number: int, arrivals: Arrivals) -> None:
    let_in(source, home, range(number, number + 1))
    arrivals.files.append(time.time())


def _paces(query: Query, arrivals: Arrivals, rows: int) -> list[EpochPace]:
    paces, files, before = [], 0, arrivals.files[0]
    for epoch in query.recentProgress:
        if epoch["numInputRows"]:
            end = epoch["committedAt"]
            arrived = arrivals.files[files]
            rate = epoch["numInputRows"] / max(1e-3, end - max(before, arrived))
            paces.append(EpochPace(end, rate, end - arrived))
            files, before = files + epoch["numInputRows"] // (len(COLUMNS) * rows), end
    return paces


def checkpoint(home: Path) -> Path:
    """Where a policy's run keeps its state, until the demo ends."""
    return home / "checkpoint"


def write_page(outcomes: list[Outcome], path: str) -> None:
    """Both policies in two charts, as a page that stands alone."""
    rates, latencies, slow = [], [], 0.0
    for outcome in outcomes:
        begin = outcome.arrivals.files[0]
        slow = outcome.arrivals.slow - begin
        at = [epoch.end - begin for epoch in outcome.epochs]
        rates.append(Line(outcome.policy, at, [epoch.rate for epoch in outcome.epochs]))
        latencies.append(Line(outcome.policy, at, [epoch.latency for epoch in outcome.epochs]))
    mark = Mark(f"site {SLOW_SITE} takes {SLOWER} times as long", x=slow)
    since = Axis("seconds since the first file")
    charts = [
        chart("Throughput", since, Axis("rows a second"), rates, [mark]),
        chart("How long rows wait for their results", since, Axis("seconds"), latencies, [mark]),
    ]
    title = f"{SITES} sites, one of them slow: static and hybrid"
    with open(path, "w", encoding="utf-8") as out:
        out.write(f"<!doctype html><html lang=en><meta charset=utf-8><title>{title}</title>\n")
        out.write("<body style='max-width:780px;margin:2em auto;font-family:sans-serif'>\n")
        out.write(f"<h1>{title}</h1>\n" + "\n".join(charts) + "\n</body></html>\n")
