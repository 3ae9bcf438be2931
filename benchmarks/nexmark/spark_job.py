"""A query of Nexmark as Spark's own streaming query, over a prepared directory; prints one JSON line.

    python -m benchmarks.nexmark.spark_job DIRECTORY q3 heap|rocksdb

The text is Sluice's but for windows of windows. What Spark refuses, it refuses here: the log has its reason.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

from pyspark.sql import functions as F

from benchmarks.measure import MEMORY, Batch, batches, report, run_warm, streamed
from benchmarks.nexmark.generator import SCHEMAS, SIDE_TABLE, make_side_table
from benchmarks.nexmark.queries import BY_NAME
from benchmarks.session import scratch, session
from benchmarks.spark_peer import NO_DATA, PROVIDERS


def count_once(progress: dict[str, Any]) -> dict[str, Any]:
    """A trigger's progress with each stream's rows counted once. A query that names a stream twice has Spark read it
    twice, and count it so."""
    rows = {source["description"]: source["numInputRows"] for source in progress["sources"]}
    return progress | {"numInputRows": sum(rows.values())}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("home", type=Path)
    parser.add_argument("query", choices=list(BY_NAME))
    parser.add_argument("provider", choices=["heap", "rocksdb"])
    parser.add_argument("--files-per-trigger", type=int, default=1, help="of each stream")
    args = parser.parse_args()
    query = BY_NAME[args.query]
    conf = PROVIDERS[args.provider] | {NO_DATA: "true"}
    begin = time.monotonic()
    ended, found = [], []
    with session("local[2]", conf) as spark:
        for stream, columns in SCHEMAS.items():
            reader = spark.readStream.schema(columns).option("maxFilesPerTrigger", args.files_per_trigger)
            source = reader.parquet(str(args.home / stream)).withWatermark("dateTime", "0 seconds")
            source.createOrReplaceTempView(stream)
        spark.createDataFrame(make_side_table()).createOrReplaceTempView(SIDE_TABLE)
        results = spark.sql(query.spark_sql).observe("check", F.count(F.lit(1)).alias("rows"))

        def run_all() -> list[Batch]:
            with scratch(args.home) as work:
                writer = results.writeStream.format("noop").option("checkpointLocation", str(work / "checkpoint"))
                writer = writer.outputMode("update" if query.changes else "append")
                running = writer.trigger(availableNow=True).start()
                running.awaitTermination()
            ended.append(time.monotonic() - begin)
            progress = [count_once(json.loads(p.json)) for p in running.recentProgress]
            given = {p["batchId"]: p.get("observedMetrics", {}).get("check", {}).get("rows", 0) for p in progress}
            found.append(sum(given.values()))
            return batches(progress, given)

        figures = streamed(run_warm(run_all, 0), 0) | {"rows_out": found[-1]}
    startup = figures["rows_in"] / ended[0]
    report(settings=f"local[2], {MEMORY} heap, noop sink, {args.provider}", startup_rate=startup, **figures)


if __name__ == "__main__":
    main()
