"""The first act: the same join of the same files by Spark's own operator and by Sluice, in one session."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from examples.demo.check import count_pairs
from examples.demo.rows import COLUMNS, DELAY, WITHIN, let_in, read_streams
from sluice import Flow

FILES_A_TRIGGER = 4
WARM_UP_FILES = 1


@dataclass(frozen=True)
class Pace:
    """How long a join took over all its rows, from its start to its end, and what it found."""

    rows: int
    results: int
    seconds: float

    @property
    def rate(self) -> float:
        return self.rows / self.seconds


def race(spark: SparkSession, source: Path, home: Path, files: int, rows: int) -> bool:
    """Both joins over so many files, after a short one that warms the session up; says how they did."""
    joins: dict[str, Callable[[SparkSession, Path, Path], Any]] = {
        "Spark's own join": _start_spark,
        "Sluice": _start_sluice,
    }
    paces = {}
    for name, start in joins.items():
        print(f"  {name:<17} warming up ...", end="", flush=True)
        _time(spark, start, source, home / f"{name} warm-up", WARM_UP_FILES, rows)
        print(" joining ...", end="", flush=True)
        pace = paces[name] = _time(spark, start, source, home / name, files, rows)
        print(
            f"\r  {name:<17} {pace.rate:>9,.0f} rows/s: {pace.rows:,} rows in {pace.seconds:.1f} s, "
            f"{pace.results:,} results"
        )
    spark_pace, pace = paces.values()
    expected = count_pairs(spark, home / "Sluice")
    print(f"  Sluice is {pace.rate / spark_pace.rate:.1f} times as fast; a batch join has {expected:,} results")
    return spark_pace.results == pace.results == expected


def _time(
    spark: SparkSession,
    start: Callable[[SparkSession, Path, Path], Any],
    source: Path,
    home: Path,
    files: int,
    rows: int,
) -> Pace:
    let_in(source, home, range(files))
    begin = time.monotonic()
    query = start(spark, home, home / "checkpoint")
    query.awaitTermination()
    seconds = time.monotonic() - begin
    return Pace(len(COLUMNS) * files * rows, _count_results(query.recentProgress), seconds)


def _count_results(progress: Any) -> int:
    """Of Spark's own progress and of Sluice's, which has every result at its top."""
    return sum(p["numOutputRows"] if "numOutputRows" in p else max(0, p["sink"]["numOutputRows"]) for p in progress)


def _start_spark(spark: SparkSession, home: Path, checkpoint: Path) -> Any:
    def side(stream: str) -> Any:
        files = spark.read.parquet(str(home / stream)).schema
        rows = spark.readStream.schema(files).option("maxFilesPerTrigger", FILES_A_TRIGGER).parquet(str(home / stream))
        renamed = rows.select(*(F.col(column).alias(f"{stream}_{column}") for column in COLUMNS[stream]))
        return renamed.withWatermark(f"{stream}_ts", f"{DELAY} seconds")

    near = f"INTERVAL {WITHIN} SECONDS"
    condition = f"trades_symbol = quotes_symbol AND trades_ts BETWEEN quotes_ts - {near} AND quotes_ts + {near}"
    pairs = side("trades").join(side("quotes"), F.expr(condition))
    writer = pairs.writeStream.format("noop").option("checkpointLocation", str(checkpoint))
    return writer.trigger(availableNow=True).start()


def _start_sluice(spark: SparkSession, home: Path, checkpoint: Path) -> Any:
    flow = Flow(spark, name="race")
    trades, quotes = read_streams(flow, home, FILES_A_TRIGGER)
    pairs = trades.join(quotes, on="symbol", within=f"{WITHIN} seconds")
    writer = pairs.writeStream.format("noop").option("checkpointLocation", str(checkpoint))
    return writer.trigger(availableNow=True).start()
