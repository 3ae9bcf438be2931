"""Sluice, or Spark's own join, over files that arrive; prints one JSON line when it is told to stop.

    python -m benchmarks.latency.spark_jobs DIRECTORY sluice|heap|rocksdb
    python -m benchmarks.latency.spark_jobs DIRECTORY sluice|heap|rocksdb --first 5

With `--first` all files are there, and the query is started so many times in one session, each time with a new
checkpoint and a new sink: how long it takes from the call of `start()` until the first results can be read.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from benchmarks.latency.job import RESULTS, await_stop, say_ready
from benchmarks.latency.sink_reader import LOOK_SECONDS, SparkLog
from benchmarks.measure import MEMORY, report
from benchmarks.session import session
from benchmarks.sluice_job import results
from benchmarks.spark_peer import PROVIDERS
from benchmarks.spark_queries import query
from benchmarks.workloads import Workload

SITES = 2
LONGEST_START = 300.0


def writer(spark: SparkSession, kind: str, home: Path, sink: Path, checkpoint: Path) -> Any:
    """The join over a directory, ready to start, Parquet out."""
    w = Workload.load(home)
    if kind == "sluice":
        made = results(spark, w, home, "files").writeStream.option("sites", SITES)
    else:
        made = query(spark, w, home).writeStream
    return made.format("parquet").option("path", str(sink)).option("checkpointLocation", str(checkpoint))


def seconds_to_first(spark: SparkSession, kind: str, work: Path, turn: int) -> float:
    """From the call of `start()` until the first results can be read."""
    sink = work / f"{RESULTS}-{turn}"
    made = writer(spark, kind, work / "in", sink, work / f"checkpoint-{turn}")
    log = SparkLog(sink)
    begin = time.monotonic()
    running = made.start()
    try:
        while not log.new_files():
            if time.monotonic() - begin > LONGEST_START:
                raise SystemExit(f"no results {LONGEST_START:.0f} s after start()")
            time.sleep(LOOK_SECONDS)
        return time.monotonic() - begin
    finally:
        running.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("work", type=Path)
    parser.add_argument("kind", choices=["sluice", *PROVIDERS])
    parser.add_argument("--first", type=int, default=0, metavar="TIMES")
    args = parser.parse_args()
    conf = PROVIDERS.get(args.kind, {})
    chosen = ", ".join(f"{key.removeprefix('spark.sql.')}={value.rsplit('.', 1)[-1]}" for key, value in conf.items())
    settings = f"local[2], {MEMORY} heap, Parquet sink, " + (chosen or f"{SITES} sites, files source")
    with session("local[2]", conf) as spark:
        if args.first:
            report(
                settings=settings, starts=[seconds_to_first(spark, args.kind, args.work, i) for i in range(args.first)]
            )
            return
        running = writer(spark, args.kind, args.work / "in", args.work / RESULTS, args.work / "checkpoint").start()
        say_ready()
        await_stop(args.work)
        running.stop()
        report(settings=settings)


if __name__ == "__main__":
    main()
