"""Many queries as Spark's own streaming queries in one session; prints one JSON line.

    python -m benchmarks.many.spark_job DIRECTORY --count 64 --epochs 3

They are started together, take in the first files, and then all at once as many more as are measured.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from benchmarks.many.arrivals import Arrivals
from benchmarks.many.flow_job import FIRST, query_rows
from benchmarks.many.queries import DELAY_SECONDS, SCHEMA, STREAMS, draw_queries
from benchmarks.measure import MEMORY, report
from benchmarks.session import scratch, session
from benchmarks.spark_peer import HEAP


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("home", type=Path)
    parser.add_argument("--count", type=int, required=True)
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    queries = draw_queries(args.count)
    with session("local[2]", HEAP) as spark, scratch(args.home) as work:
        arrivals = Arrivals(args.home, work)
        for stream in STREAMS:
            reader = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
            source = reader.parquet(str(arrivals.directory(stream)))
            source.withWatermark("ts", f"{DELAY_SECONDS} second").createOrReplaceTempView(stream)
        begun = time.monotonic()
        running = []
        for query in queries:
            writer = spark.sql(query.text).writeStream.format("noop").queryName(query.name)
            running.append(writer.option("checkpointLocation", str(work / "checkpoints" / query.name)).start())
        start_seconds = time.monotonic() - begun

        def take_in(files: int) -> tuple[int, float]:
            begun = time.monotonic()
            arrived = arrivals.arrive(files)
            for one in running:
                one.processAllAvailable()
            return arrived, time.monotonic() - begun

        first_seconds = take_in(FIRST)[1]
        rows, seconds = take_in(args.epochs)
        report(
            settings=f"local[2], {MEMORY} heap, noop sinks, heap state, "
            + ", ".join(f"{key.removeprefix('spark.sql.')}={value}" for key, value in HEAP.items()),
            queries=len(queries),
            start_seconds=start_seconds,
            first_seconds=first_seconds,
            epochs=args.epochs,
            rows=rows * len(STREAMS),
            seconds=seconds,
            rate=rows * len(STREAMS) / seconds,
            query_rate=query_rows(queries, rows) / seconds,
        )
        for one in running:
            one.stop()


if __name__ == "__main__":
    main()
