"""Many queries as one flow of Sluice, or one after the other as flows of their own; prints one JSON line.

python -m benchmarks.many.flow_job DIRECTORY --count 500 --epochs 6 --few 6 --checked 20
python -m benchmarks.many.flow_job DIRECTORY --alone 0,7,42 --epochs 3
python -m benchmarks.many.flow_job DIRECTORY --sharing 16 --epochs 6
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import duckdb
from pyspark.sql import SparkSession

from benchmarks.many.arrivals import Arrivals
from benchmarks.many.queries import DELAY_SECONDS, SCHEMA, STREAMS, ManyQuery, draw_queries, sharing_queries
from benchmarks.measure import MEMORY, report
from benchmarks.session import scratch, session
from sluice import Flow, Query

FIRST = 2
"""Epochs that are not counted: they load code and fill the first windows."""
ADDED = "SELECT a.k, a.q FROM s0 a JOIN s1 b ON a.k = b.k AND b.ts BETWEEN a.ts - INTERVAL 5 SECONDS AND a.ts"
"""What is added while the others run: it finds its rows in states that are there."""


class FlowRun:
    """One flow over rows that arrive; some of its queries store their results, to be checked."""

    def __init__(
        self, spark: SparkSession, home: Path, work: Path, queries: Sequence[ManyQuery], checked: int = 0
    ) -> None:
        self.queries, self.work, self.arrivals = queries, work, Arrivals(home, work)
        self.stored = queries[:: max(1, len(queries) // checked)][:checked] if checked else ()
        flow = Flow(spark, name="many")
        for stream in STREAMS:
            directory, delay = str(self.arrivals.directory(stream)), f"{DELAY_SECONDS} second"
            flow.readFiles(
                stream,
                directory,
                eventTime="ts",
                delay=delay,
                schema=SCHEMA,
                maxFilesPerTrigger=1,
            )
        self.flow = flow
        begun = time.monotonic()
        writers = [self._writer(query) for query in queries]
        self.query: Query = flow.start(*writers, checkpointLocation=str(work / "checkpoint"), sites=2)
        self.start_seconds = time.monotonic() - begun

    def _writer(self, query: ManyQuery) -> Any:
        writer = self.flow.sql(query.text).writeStream.queryName(query.name)
        if query in self.stored:
            return writer.format("parquet").option("path", str(self.work / "results" / query.name))
        return writer.format("noop")

    def take_in(self, files: int = 1) -> tuple[int, float]:
        """Have files arrive and wait until all queries are through with them: rows of a stream, and seconds."""
        begun = time.monotonic()
        rows = self.arrivals.arrive(files)
        self.query.processAllAvailable()
        return rows, time.monotonic() - begun

    def last_epochs(self, count: int) -> list[dict[str, Any]]:
        """The progress of the last epochs that took something in."""
        return [p for p in self.query.recentProgress if p["numInputRows"]][-count:]

    def wrong_results(self) -> list[str]:
        """The stored queries whose results are not DuckDB's over the same rows."""
        wrong = []
        with duckdb.connect(config={"threads": 2}) as db:
            db.execute("SET TimeZone = 'UTC'")
            for stream in STREAMS:
                files = f"{self.arrivals.directory(stream)}/*.parquet"
                db.execute(f"CREATE VIEW {stream} AS FROM read_parquet('{files}')")
            until = self.arrivals.rows.final_until(self.arrivals.arrived)
            for query in self.stored:
                stored = f"FROM read_parquet('{self.work}/results/{query.name}/*.parquet')"
                right = query.duckdb.format(until=until)
                for one, other in ((stored, right), (right, stored)):
                    (left,) = db.sql(f"SELECT count(*) FROM ({one} EXCEPT ALL {other})").fetchall()[0]
                    if left:
                        wrong.append(f"{query.name}: {left:,} rows differ")
                        break
        return wrong


def query_rows(queries: Sequence[ManyQuery], rows: int) -> int:
    """The rows that queries have to take in, each counted for itself, if every stream has so many."""
    return rows * sum(len(query.streams) for query in queries)


def measure_flow(spark: SparkSession, home: Path, work: Path, args: argparse.Namespace) -> dict[str, Any]:
    """One flow of all queries."""
    queries = sharing_queries(args.sharing) if args.sharing else draw_queries(args.count)
    run = FlowRun(spark, home, work, queries, args.checked)
    try:
        figures: dict[str, Any] = {"queries": len(queries), "start_seconds": run.start_seconds}
        run.take_in(FIRST)
        rows, seconds = run.take_in(args.epochs)
        ordinary = run.last_epochs(args.epochs)
        epochs = [p["durationMs"]["triggerExecution"] / 1000 for p in ordinary]
        figures |= {
            "epochs": args.epochs,
            "rows": rows * len(STREAMS),
            "seconds": seconds,
            "rate": rows * len(STREAMS) / seconds,
            "query_rate": query_rows(queries, rows) / seconds,
            "epoch_seconds": median(epochs),
            "phases": {name: median(p["phaseSeconds"][name] for p in ordinary) for name in ordinary[0]["phaseSeconds"]},
            "state_bytes": sum(site["memoryBytes"] + site["diskBytes"] for site in ordinary[-1]["sites"]),
            "units": ordinary[-1]["units"],
            "results": sum(p["numOutputRows"] for p in ordinary),
        }
        if args.add and hasattr(run.query, "add"):
            figures |= add_one(run, median(epochs))
        figures["wrong"] = run.wrong_results()
        figures["checked"] = len(run.stored)
        if args.few:
            run.arrivals.skip_to_few()
            few = [run.take_in()[1] for _ in range(args.few)]
            figures["few_seconds"] = median(few)
            figures["few_epoch_seconds"] = median(
                p["durationMs"]["triggerExecution"] / 1000 for p in run.last_epochs(args.few)
            )
            entries = sorted((work / "checkpoint" / "journal").glob("*.json"))
            figures["few_entry_bytes"] = entries[-1].stat().st_size
        return figures
    finally:
        run.query.stop()


def add_one(run: FlowRun, ordinary: float) -> dict[str, Any]:
    """A query is added while two epochs have something to take in: how long the epoch takes that has it first."""
    writer = run.flow.sql(ADDED).writeStream.format("noop").queryName("added")
    before = run.query.recentProgress[-1]["epoch"]
    run.arrivals.arrive(2)
    begun = time.monotonic()
    run.query.add(writer)
    waited = time.monotonic() - begun
    run.query.processAllAvailable()
    epochs = [p for p in run.query.recentProgress if p["epoch"] > before and p["numInputRows"]]
    longest = max(p["durationMs"]["triggerExecution"] / 1000 for p in epochs)
    run.query.drop("added")
    return {"add_wait_seconds": waited, "add_epoch_seconds": longest, "add_ordinary_seconds": ordinary}


def measure_alone(spark: SparkSession, home: Path, work: Path, args: argparse.Namespace) -> dict[str, Any]:
    """Some of the queries, each as a flow of its own."""
    chosen = [int(number) for number in args.alone.split(",")]
    every, seconds = draw_queries(max(chosen) + 1), {}
    rows = 0
    for number in chosen:
        place = work / str(number)
        place.mkdir()
        run = FlowRun(spark, home, place, [every[number]])
        try:
            run.take_in(FIRST)
            rows, seconds[every[number].name] = run.take_in(args.epochs)
        finally:
            run.query.stop()
    return {"epochs": args.epochs, "rows": rows * len(STREAMS), "alone_seconds": seconds}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("home", type=Path)
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--sharing", type=int, default=0)
    parser.add_argument("--alone", default="")
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--few", type=int, default=0)
    parser.add_argument("--checked", type=int, default=0)
    parser.add_argument("--add", action="store_true")
    args = parser.parse_args()
    with session("local[2]", {}) as spark, scratch(args.home) as work:
        figures = (measure_alone if args.alone else measure_flow)(spark, args.home, work, args)
        report(settings=f"local[2], {MEMORY} driver heap, 2 sites, files, noop sinks", **figures)


if __name__ == "__main__":
    main()
