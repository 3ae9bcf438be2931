"""Spark's own stream-stream join over a prepared directory; prints one JSON line.

    python -m benchmarks.spark_join DIRECTORY heap|rocksdb

Settings follow what is documented for stateful queries: shuffle partitions once the cores, no micro-batches without
data, and for RocksDB changelog checkpoints, no counting of its rows, and the newest format of the join's state.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks.measure import MEMORY, batches, report, streamed
from benchmarks.session import schema, scratch, session
from benchmarks.workloads import Workload

STORE = "spark.sql.streaming.stateStore"
HEAP = {"spark.sql.shuffle.partitions": "2", "spark.sql.streaming.noDataMicroBatches.enabled": "false"}
ROCKSDB = HEAP | {
    f"{STORE}.providerClass": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    f"{STORE}.rocksdb.changelogCheckpointing.enabled": "true",
    f"{STORE}.rocksdb.trackTotalNumberOfRows": "false",
    "spark.sql.streaming.join.stateFormatVersion": "4",
}


def stream(spark: SparkSession, w: Workload, home: Path, name: str) -> DataFrame:
    read = spark.readStream.schema(schema(w.columns)).option("maxFilesPerTrigger", w.files_per_trigger)
    renamed = [F.col(column).alias(f"{name}_{column}") for column, _ in w.columns]
    return read.parquet(str(home / name)).select(*renamed).withWatermark(f"{name}_ts", "0 seconds")


def near(w: Workload, left: str, right: str) -> str:
    width = f"INTERVAL {w.window_seconds} SECONDS"
    return f"{left} BETWEEN {right} - {width} AND {right} + {width}"


def joined(spark: SparkSession, w: Workload, home: Path) -> DataFrame:
    a, b = stream(spark, w, home, "A"), stream(spark, w, home, "B")
    pairs = a.join(b, F.expr(f"A_key = B_key AND {near(w, 'A_ts', 'B_ts')}"))
    if w.streams == "AB":
        return pairs
    # A second stateful join takes one event-time column a side: B's becomes a plain timestamp on the way.
    plain = pairs.withColumn("B_ts", F.expr("timestamp_micros(unix_micros(B_ts))"))
    c = stream(spark, w, home, "C")
    return plain.join(c, F.expr(f"A_key = C_key AND {near(w, 'A_ts', 'C_ts')} AND {near(w, 'B_ts', 'C_ts')}"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("home", type=Path)
    parser.add_argument("provider", choices=["heap", "rocksdb"])
    parser.add_argument("--conf", action="append", default=[], metavar="KEY=VALUE", help="try another setting")
    args = parser.parse_args()
    w = Workload.load(args.home)
    conf = (HEAP if args.provider == "heap" else ROCKSDB) | dict(c.split("=", 1) for c in args.conf)
    begin = time.monotonic()
    with session("local[2]", conf) as spark, scratch(args.home) as work:
        writer = joined(spark, w, args.home).writeStream.format("noop").trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(work / "checkpoint")).start()
        query.awaitTermination()
        seconds = time.monotonic() - begin
        progress = [json.loads(p.json) for p in query.recentProgress]
        run = batches(progress, {p["batchId"]: p["sink"].get("numOutputRows", 0) for p in progress})
        settings = [f"{key.removeprefix('spark.sql.')}={value.rsplit('.', 1)[-1]}" for key, value in conf.items()]
        report(
            settings=f"local[2], {MEMORY} heap, noop sink, {w.files_per_trigger} files a stream per trigger, "
            + ", ".join(settings),
            **streamed(run, w.fill_rows, seconds),
        )


if __name__ == "__main__":
    main()
