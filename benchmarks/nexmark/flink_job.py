"""A query of Nexmark in Flink SQL, over CSV of the same rows; prints one JSON line.

    python -m benchmarks.nexmark.flink_job CSV_DIRECTORY q3 heap|rocksdb --rows 1000

It needs the interpreter that has apache-flink. The query runs several times in one JVM, as in `benchmarks.flink_peer`,
whose settings these are.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import time
from itertools import count
from pathlib import Path
from statistics import median

from benchmarks.flink_peer import BACKENDS, BUFFERS, SETTINGS, timed
from benchmarks.measure import MEMORY, report, time_warm
from benchmarks.nexmark.flink_queries import QUERIES, TABLES

from pyflink.table import EnvironmentSettings, TableEnvironment  # type: ignore[import-not-found]  # isort: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("home", type=Path)
    parser.add_argument("query", choices=list(QUERIES))
    parser.add_argument("backend", choices=list(BACKENDS))
    parser.add_argument("--rows", type=int, required=True, help="how many rows the query reads")
    parser.add_argument("--runs", type=int, default=1, help="that count")
    args = parser.parse_args()
    settings = SETTINGS | BACKENDS[args.backend] | (BUFFERS if args.backend == "heap" else {})
    checkpoints = tempfile.mkdtemp(prefix="run-", dir=args.home.resolve())
    try:
        begin = time.monotonic()
        env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
        for key, value in (settings | {"execution.checkpointing.dir": f"file://{checkpoints}"}).items():
            env.get_config().set(key, value)
        for stream, columns in TABLES.items():
            place = f"'connector'='filesystem', 'path'='{args.home.resolve() / stream}', 'format'='csv'"
            env.execute_sql(f"CREATE TABLE {stream} ({columns}) WITH ({place})")
        numbers = count()

        def run() -> float:
            sink = f"CREATE TABLE results{next(numbers)} WITH ('connector'='blackhole') AS {QUERIES[args.query]}"
            return timed(env, sink)

        first = run()
        startup = time.monotonic() - begin
        seconds = time_warm(run, args.runs, worked=first)
    finally:
        shutil.rmtree(checkpoints, ignore_errors=True)
    report(
        settings=f"{MEMORY} JVM, reads CSV, blackhole sink, {json.dumps(settings)}",
        rows_in=args.rows,
        warm_rate=args.rows / median(seconds),
        startup_rate=args.rows / startup,
        runs=[round(s, 2) for s in seconds],
    )


if __name__ == "__main__":
    main()
