"""A query of Nexmark on Sluice, over a prepared directory; prints one JSON line.

python -m benchmarks.nexmark.sluice_job DIRECTORY q3
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from benchmarks.measure import MEMORY, Batch, batches, report, run_warm, streamed
from benchmarks.nexmark.generator import SCHEMAS, SIDE_TABLE, make_side_table
from benchmarks.nexmark.queries import BY_NAME, NexmarkQuery
from benchmarks.session import scratch, session
from sluice import Flow

SITES = 2


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("home", type=Path)
    parser.add_argument("query", choices=list(BY_NAME))
    parser.add_argument("--files-per-trigger", type=int, default=1, help="of each stream")
    args = parser.parse_args()
    query = BY_NAME[args.query]
    begin = time.monotonic()
    ended, results = [], []
    with session("local[2]", {}) as spark:

        def run_all() -> list[Batch]:
            with scratch(args.home) as work:
                progress = take_in_all(spark, query, args, work)
            ended.append(time.monotonic() - begin)
            results.append(sum(p["numOutputRows"] for p in progress))
            given: Counter[int] = Counter()
            for p in progress:  # several epochs have one batch where input had to wait
                given[p["batchId"]] += p["numOutputRows"]
            return batches(progress, dict(given))

        figures = streamed(run_warm(run_all, 0), 0) | {"rows_out": results[-1]}
    startup = figures["rows_in"] / ended[0]
    settings = f"local[2], {MEMORY} driver heap, {SITES} sites, files source, noop sink"
    report(settings=settings, startup_rate=startup, **figures)


def take_in_all(spark: SparkSession, query: NexmarkQuery, args: argparse.Namespace, work: Path) -> list[dict[str, Any]]:
    """The progress of the query over all rows."""
    flow = Flow(spark, name="nexmark")
    for stream, columns in SCHEMAS.items():
        path = str(args.home / stream)
        flow.readFiles(stream, path, eventTime="dateTime", schema=columns, maxFilesPerTrigger=args.files_per_trigger)
    flow.table(SIDE_TABLE, make_side_table())
    writer = flow.sql(query.sql, within=query.within).writeStream.format("noop").option("closeAtEnd", True)
    writer = writer.outputMode("update" if query.changes else "append")
    writer = writer.option("checkpointLocation", str(work / "checkpoint")).option("sites", SITES)
    running = writer.trigger(availableNow=True).start()
    running.awaitTermination()
    return list(running.recentProgress)


if __name__ == "__main__":
    main()
