"""A workload on Sluice, over a prepared directory; prints one JSON line.

    python -m benchmarks.sluice_job DIRECTORY [--source stream] [--sink parquet] [--master 'local-cluster[2,1,2048]']

Epochs that count are those that began on a full state; the phases are their medians.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from benchmarks.measure import MEMORY, Batch, batches, report, run_warm, streamed, warm
from benchmarks.session import schema, scratch, session
from benchmarks.workloads import BAND, BUCKETS, PRODUCT, Workload
from sluice import Flow

COLLECT = "1 second"
"""How long a policy looks before it decides: a run is short."""


def results(spark: SparkSession, w: Workload, home: Path, source: str) -> Any:
    flow = Flow(spark, name=w.name)

    def stream(name: str) -> Any:
        path, columns = str(home / name), schema(w.columns)
        if source == "files":
            return flow.readFiles(
                name,
                path,
                format="parquet",
                eventTime="ts",
                schema=columns,
                maxFilesPerTrigger=w.files_per_trigger,
            )
        read = spark.readStream.schema(columns).option("maxFilesPerTrigger", w.files_per_trigger)
        return flow.readStream(name, read.parquet(path), eventTime="ts")

    streams = [stream(name) for name in w.streams]
    within, slide = f"{w.window_seconds} seconds", f"{w.slide_seconds} seconds"
    match w.operation:
        case "sliding":
            return streams[0].groupBy("key").window(within, slide).agg(**w.aggregates)
        case "last":
            return streams[0].groupBy("key").last(w.last).agg(**w.aggregates)
        case "joined-groups":
            pairs = streams[0].join(streams[1], on="key", within=(within, "0 seconds"))
            buckets = pairs.withColumn("bucket", f"A_key % {BUCKETS}").groupBy("bucket")
            return buckets.window(within, slide).agg(**w.aggregates)
        case "band":
            return streams[0].join(streams[1], where=f"abs(A.key - B.key) <= {BAND}", within=within)
        case "theta":
            return streams[0].join(streams[1], where=f"A.v * B.v > {PRODUCT}D", within=within)
    if len(streams) == 2:
        return streams[0].join(streams[1], on="key", within=within)
    return flow.join(streams, on="key", within=within)


def stored(spark: SparkSession, w: Workload, path: str) -> dict[str, int]:
    """What the stored results are checked by."""
    rows = spark.read.parquet(path)
    if w.is_join:
        return {"rows_out": rows.count()}
    (row,) = rows.agg(F.count(F.lit(1)), F.sum("total")).collect()
    return {"rows_out": row[0], "total": row[1]}


@dataclass(frozen=True)
class WholeRun:
    """A query over all rows."""

    batches: list[Batch]
    progress: list[dict[str, Any]]
    found: dict[str, int]
    """What its stored results are checked by."""
    seconds: float
    """When it ended, from before the JVM was launched."""


def take_in_all(spark: SparkSession, w: Workload, args: argparse.Namespace, work: Path, begin: float) -> WholeRun:
    writer = results(spark, w, args.home, args.source).writeStream
    if args.sink == "foreachBatch":
        writer = writer.foreachBatch(lambda rows, epoch: rows.write.format("noop").mode("append").save())
    else:
        writer = writer.format(args.sink)
    if args.sink == "parquet":
        writer = writer.option("path", str(work / "results"))
    writer = writer.option("checkpointLocation", str(work / "checkpoint")).option("sites", args.sites)
    writer = writer.options(**dict(args.option)).policy(args.policy, collect=COLLECT)
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    seconds = time.monotonic() - begin
    progress = list(query.recentProgress)
    found = stored(spark, w, str(work / "results")) if args.sink == "parquet" else {}
    given: Counter[int] = Counter()
    for p in progress:  # several epochs have one batch where input had to wait
        given[p["batchId"]] += p["numOutputRows"]
    with_rows = [p for p in progress if p["numInputRows"]]
    return WholeRun(batches(with_rows, dict(given)), with_rows, found, seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("home", type=Path)
    parser.add_argument("--source", choices=["files", "stream"], default="files")
    parser.add_argument("--sink", choices=["noop", "parquet", "foreachBatch"], default="noop")
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--sites", type=int, default=2)
    parser.add_argument("--policy", default="static", help="static; hybrid shares the one unit of a join without keys")
    parser.add_argument("--option", type=lambda t: t.split("=", 1), action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--conf", action="append", default=[], metavar="KEY=VALUE", help="try a setting of Spark's")
    args = parser.parse_args()
    w = Workload.load(args.home)
    begin = time.monotonic()
    runs: list[WholeRun] = []
    with session(args.master, dict(c.split("=", 1) for c in args.conf)) as spark:

        def run_all() -> list[Batch]:
            with scratch(args.home) as work:
                runs.append(take_in_all(spark, w, args, work, begin))
            return runs[-1].batches

        run = run_warm(run_all, w.fill_rows)
    last = runs[-1]
    counted = [last.progress[i]["phaseSeconds"] for i in warm(run, w.fill_rows)]
    kinds = f"{args.source} source", f"{args.sink} sink"
    report(
        settings=", ".join([args.master, f"{MEMORY} driver heap", f"{args.sites} sites", *kinds, *args.conf]),
        phases={phase: median(epoch[phase] for epoch in counted) for phase in counted[0]},
        late_rows=sum(p["lateRows"] for p in last.progress),
        startup_rate=w.rows_in / runs[0].seconds,
        **(streamed(run, w.fill_rows) | last.found),
    )


if __name__ == "__main__":
    main()
