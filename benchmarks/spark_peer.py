"""A workload on Spark's own streaming operators, over a prepared directory; prints one JSON line.

    python -m benchmarks.spark_peer DIRECTORY heap|rocksdb|pandas

Settings follow what is documented for stateful queries: shuffle partitions once the cores, no micro-batches without
data, and for RocksDB changelog checkpoints, no counting of its rows, and the newest format of the join's state. Windows
need the one micro-batch without data at the end, which gives the results that the last rows made final. `pandas` is
`transformWithStateInPandas`, which runs on RocksDB only.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from benchmarks.measure import MEMORY, Batch, batches, report, run_warm, streamed
from benchmarks.session import scratch, session
from benchmarks.spark_queries import query
from benchmarks.workloads import Workload

STORE = "spark.sql.streaming.stateStore"
NO_DATA = "spark.sql.streaming.noDataMicroBatches.enabled"
HEAP = {"spark.sql.shuffle.partitions": "2", NO_DATA: "false"}
ROCKSDB = HEAP | {
    f"{STORE}.providerClass": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    f"{STORE}.rocksdb.changelogCheckpointing.enabled": "true",
    f"{STORE}.rocksdb.trackTotalNumberOfRows": "false",
    "spark.sql.streaming.join.stateFormatVersion": "4",
}
PANDAS = ROCKSDB | {
    "spark.sql.execution.arrow.transformWithStateInPandas.maxRecordsPerBatch": "100000",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",
}
PROVIDERS = {"heap": HEAP, "rocksdb": ROCKSDB, "pandas": PANDAS}


def watched(w: Workload, results: DataFrame) -> DataFrame:
    """The results, with what they are checked by added up on their way."""
    if w.is_join:
        return results
    return results.observe("check", F.count(F.lit(1)).alias("rows"), F.sum("total").alias("total"))


def observed(progress: list[dict[str, Any]]) -> dict[str, int]:
    """Number of results and their checked total, over all micro-batches."""
    seen = [p["observedMetrics"]["check"] for p in progress if "check" in p.get("observedMetrics", {})]
    return {"rows_out": sum(s["rows"] for s in seen), "total": sum(s["total"] or 0 for s in seen)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("home", type=Path)
    parser.add_argument("provider", choices=list(PROVIDERS))
    parser.add_argument("--conf", action="append", default=[], metavar="KEY=VALUE", help="try another setting")
    args = parser.parse_args()
    w = Workload.load(args.home)
    conf = PROVIDERS[args.provider] | dict(c.split("=", 1) for c in args.conf)
    if w.operation in ("sliding", "joined-groups"):
        conf[NO_DATA] = "true"
    # transformWithStateInPandas cannot fill the state in bearable time: all but its first micro-batch count.
    fill_rows = 0 if args.provider == "pandas" else w.fill_rows
    begin = time.monotonic()
    ended, found = [], []
    with session("local[2]", conf) as spark:
        results = watched(w, query(spark, w, args.home))

        def run_all() -> list[Batch]:
            with scratch(args.home) as work:
                writer = results.writeStream.format("noop").trigger(availableNow=True)
                running = writer.option("checkpointLocation", str(work / "checkpoint")).start()
                running.awaitTermination()
            ended.append(time.monotonic() - begin)
            progress = [json.loads(p.json) for p in running.recentProgress]
            found.append({} if w.is_join else observed(progress))
            return batches(progress, {p["batchId"]: p["sink"].get("numOutputRows", 0) for p in progress})

        figures = streamed(run_warm(run_all, fill_rows), fill_rows)
    settings = [f"{key.removeprefix('spark.sql.')}={value.rsplit('.', 1)[-1]}" for key, value in conf.items()]
    report(
        settings=f"local[2], {MEMORY} heap, noop sink, {w.files_per_trigger} files a stream per trigger, "
        + ", ".join(settings),
        startup_rate=figures["rows_in"] / ended[0],
        **(figures | found[-1]),
    )


if __name__ == "__main__":
    main()
