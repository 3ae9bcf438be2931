"""Flink SQL's interval join over CSV of the same rows; prints one JSON line.

    python -m benchmarks.flink_join CSV_DIRECTORY heap|rocksdb      # with the interpreter that has apache-flink

The PyPI package reads Parquet only with a further jar, so Flink gets CSV. What parsing costs is measured beside the
join (`read_rate`: the same files straight to the blackhole). The job runs several times in one JVM: the first run is
the rate with start-up, the median of the later ones is warm.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
import time
from pathlib import Path
from statistics import median

from benchmarks.measure import MEMORY, report
from benchmarks.workloads import Workload

os.environ.setdefault("JAVA_TOOL_OPTIONS", f"-Xmx{MEMORY}")  # the whole cluster lives in this one JVM

from pyflink.table import EnvironmentSettings, TableEnvironment  # type: ignore[import-not-found]

TYPES = {"long": "BIGINT", "timestamp": "TIMESTAMP(3)"}
# State on the heap needs no managed memory; RocksDB lives in it.
BACKENDS = {
    "heap": {"state.backend.type": "hashmap", "taskmanager.memory.managed.size": "0"},
    "rocksdb": {
        "state.backend.type": "rocksdb",
        "taskmanager.memory.managed.size": "2g",
        "execution.checkpointing.incremental": "true",
    },
}
SETTINGS = {
    "parallelism.default": "2",
    "pipeline.object-reuse": "true",
    "execution.checkpointing.interval": "10s",
    "heartbeat.timeout": "600000",
    "restart-strategy.type": "none",  # a run that fell over and began again must not pass for a slow one
    "taskmanager.memory.network.max": "256m",
    "table.local-time-zone": "UTC",
}


def sql_type(kind: str) -> str:
    return TYPES.get(kind, kind.upper())


def environment(w: Workload, home: Path, settings: dict[str, str]) -> TableEnvironment:
    env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    for key, value in settings.items():
        env.get_config().set(key, value)
    columns = ", ".join(f"`{name}` {sql_type(kind)}" for name, kind in w.columns)
    for stream in w.streams:
        env.execute_sql(
            f"CREATE TABLE {stream} ({columns}, WATERMARK FOR ts AS ts) "
            f"WITH ('connector'='filesystem', 'path'='{home / stream}', 'format'='csv')"
        )
    results = ", ".join(f"{s}_{name} {sql_type(kind)}" for s in w.streams for name, kind in w.columns)
    env.execute_sql(f"CREATE TABLE results ({results}) WITH ('connector'='blackhole')")
    env.execute_sql(f"CREATE TABLE nowhere ({columns}) WITH ('connector'='blackhole')")
    return env


def join(w: Workload) -> str:
    def near(left: str, right: str) -> str:
        width = f"INTERVAL '{w.window_seconds}' SECOND"
        return f"{left} BETWEEN {right} - {width} AND {right} + {width}"

    pairs = f"FROM A JOIN B ON A.`key` = B.`key` AND {near('A.ts', 'B.ts')}"
    if w.streams == "AB":
        return pairs
    return f"{pairs} JOIN C ON A.`key` = C.`key` AND {near('A.ts', 'C.ts')} AND {near('B.ts', 'C.ts')}"


def every_column(w: Workload) -> str:
    """Output columns; a result may hold one row time, so each becomes a plain timestamp."""
    plain = {"timestamp": "CAST({} AS TIMESTAMP(3))"}
    return ", ".join(plain.get(kind, "{}").format(f"{s}.`{name}`") for s in w.streams for name, kind in w.columns)


def timed(env: TableEnvironment, statement: str) -> float:
    begin = time.monotonic()
    env.execute_sql(statement).wait()
    return time.monotonic() - begin


def counted(env: TableEnvironment, w: Workload) -> int:
    """Number of results, by a running count whose updates are batched so that few of them reach Python."""
    env.get_config().set("table.exec.mini-batch.enabled", "true")
    env.get_config().set("table.exec.mini-batch.allow-latency", "10 s")
    env.get_config().set("table.exec.mini-batch.size", "1000000")
    with env.execute_sql(f"SELECT COUNT(*) {join(w)}").collect() as updates:
        return max(int(row[0]) for row in updates)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("home", type=Path)
    parser.add_argument("backend", choices=list(BACKENDS))
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--count", action="store_true", help="one more run, for the number of results")
    parser.add_argument("--conf", action="append", default=[], metavar="KEY=VALUE", help="try another setting")
    args = parser.parse_args()
    w = Workload.load(args.home)
    settings = SETTINGS | BACKENDS[args.backend] | dict(c.split("=", 1) for c in args.conf)
    checkpoints = tempfile.mkdtemp(prefix="run-", dir=args.home)
    try:
        begin = time.monotonic()
        env = environment(w, args.home.resolve(), settings | {"execution.checkpointing.dir": f"file://{checkpoints}"})
        insert = f"INSERT INTO results SELECT {every_column(w)} {join(w)}"
        timed(env, insert)
        startup = time.monotonic() - begin
        later = [timed(env, insert) for _ in range(args.runs - 1)]
        names = ", ".join(f"`{name}`" for name, _ in w.columns)
        union = " UNION ALL ".join(f"SELECT {names} FROM {stream}" for stream in w.streams)
        reading = timed(env, f"INSERT INTO nowhere {union}")
        rows_out = counted(env, w) if args.count else None
    finally:
        shutil.rmtree(checkpoints, ignore_errors=True)
    report(
        settings=f"{MEMORY} JVM, reads CSV, blackhole sink, "
        + ", ".join(f"{key}={value}" for key, value in settings.items()),
        rows_in=w.rows_in,
        rows_out=rows_out,
        warm_rate=w.rows_in / median(later),
        startup_rate=w.rows_in / startup,
        read_rate=w.rows_in / reading,
        runs=[round(s, 2) for s in later],
    )


if __name__ == "__main__":
    main()
