"""A workload in Flink SQL, over CSV of the same rows; prints one JSON line.

    python -m benchmarks.flink_peer CSV_DIRECTORY heap|rocksdb      # with the interpreter that has apache-flink

The PyPI package reads Parquet only with a further jar, so Flink gets CSV. What parsing costs is measured beside
it (`read_rate`: the same files straight to the blackhole). The job runs several times in one JVM: the first run is
the rate with start-up, the median of those that begin warm counts.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
import time
from datetime import datetime, timezone
from pathlib import Path
from statistics import median

from benchmarks.flink_queries import checked, results, sql_type, views
from benchmarks.measure import MEMORY, report, time_warm
from benchmarks.workloads import Workload

os.environ.setdefault("JAVA_TOOL_OPTIONS", f"-Xmx{MEMORY}")  # the whole cluster lives in this one JVM

from pyflink.table import EnvironmentSettings, TableEnvironment  # type: ignore[import-not-found]

# Rows of one millisecond come one after the other, so the time is up to just before the newest row's.
WATERMARK = "WATERMARK FOR ts AS ts - INTERVAL '0.001' SECOND"
# State on the heap needs no managed memory; RocksDB lives in it, and windows buffer their rows there.
BACKENDS = {
    "heap": {"state.backend.type": "hashmap", "taskmanager.memory.managed.size": "0"},
    "rocksdb": {
        "state.backend.type": "rocksdb",
        "taskmanager.memory.managed.size": "2g",
        "execution.checkpointing.incremental": "true",
    },
}
BUFFERS = {"taskmanager.memory.managed.size": "1g"}
SETTINGS = {
    "parallelism.default": "2",
    "pipeline.object-reuse": "true",
    "execution.checkpointing.interval": "10s",
    "heartbeat.timeout": "600000",
    "restart-strategy.type": "none",  # a run that fell over and began again must not pass for a slow one
    "taskmanager.memory.network.max": "256m",
    "table.local-time-zone": "UTC",
}


def environment(w: Workload, home: Path, settings: dict[str, str]) -> TableEnvironment:
    env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    for key, value in settings.items():
        env.get_config().set(key, value)
    columns = ", ".join(f"`{name}` {sql_type(kind)}" for name, kind in w.columns)
    for stream in w.streams:
        env.execute_sql(
            f"CREATE TABLE {stream} ({columns}, {WATERMARK}) "
            f"WITH ('connector'='filesystem', 'path'='{home / stream}', 'format'='csv')"
        )
    for view in views(w):
        env.execute_sql(view)
    env.execute_sql(f"CREATE TABLE results ({results(w)[0]}) WITH ('connector'='blackhole')")
    env.execute_sql(f"CREATE TABLE nowhere ({columns}) WITH ('connector'='blackhole')")
    return env


def timed(env: TableEnvironment, statement: str) -> float:
    begin = time.monotonic()
    env.execute_sql(statement).wait()
    return time.monotonic() - begin


def counted(env: TableEnvironment, w: Workload) -> dict[str, int]:
    """What the results are checked by: running sums whose updates are batched so that few of them reach Python."""
    env.get_config().set("table.exec.mini-batch.enabled", "true")
    env.get_config().set("table.exec.mini-batch.allow-latency", "10 s")
    env.get_config().set("table.exec.mini-batch.size", "1000000")
    until = datetime.fromtimestamp(w.newest / 1e6, tz=timezone.utc).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
    with env.execute_sql(checked(w, until)).collect() as updates:
        last = max((list(row) for row in updates), key=lambda row: int(row[0]))
    return dict(zip(("rows_out", "total"), map(int, last)))  # noqa: B905 (a join has no total)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("home", type=Path)
    parser.add_argument("backend", choices=list(BACKENDS))
    parser.add_argument("--runs", type=int, default=2, help="that count")
    parser.add_argument("--count", action="store_true", help="one more run, for the number of results")
    parser.add_argument("--conf", action="append", default=[], metavar="KEY=VALUE", help="try another setting")
    args = parser.parse_args()
    w = Workload.load(args.home)
    buffers = BUFFERS if w.operation in ("sliding", "joined-groups") and args.backend == "heap" else {}
    settings = SETTINGS | BACKENDS[args.backend] | buffers | dict(c.split("=", 1) for c in args.conf)
    checkpoints = tempfile.mkdtemp(prefix="run-", dir=args.home.resolve())
    try:
        begin = time.monotonic()
        env = environment(w, args.home.resolve(), settings | {"execution.checkpointing.dir": f"file://{checkpoints}"})
        insert = f"INSERT INTO results {results(w)[1]}"
        first = timed(env, insert)
        startup = time.monotonic() - begin
        later = time_warm(lambda: timed(env, insert), args.runs, worked=first)
        names = ", ".join(f"`{name}`" for name, _ in w.columns)
        union = " UNION ALL ".join(f"SELECT {names} FROM {stream}" for stream in w.streams)
        reading = timed(env, f"INSERT INTO nowhere {union}")
        found = counted(env, w) if args.count else {}
    finally:
        shutil.rmtree(checkpoints, ignore_errors=True)
    report(
        settings=f"{MEMORY} JVM, reads CSV, blackhole sink, "
        + ", ".join(f"{key}={value}" for key, value in settings.items()),
        rows_in=w.rows_in,
        warm_rate=w.rows_in / median(later),
        startup_rate=w.rows_in / startup,
        read_rate=w.rows_in / reading,
        runs=[round(s, 2) for s in later],
        **found,
    )


if __name__ == "__main__":
    main()
