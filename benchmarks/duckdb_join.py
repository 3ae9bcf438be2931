"""DuckDB joining all rows at once, the ceiling without streaming or durable state; prints one JSON line.

    python -m benchmarks.duckdb_join DIRECTORY

Each query runs several times over the Parquet files; the median counts.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from statistics import median
from typing import Any

import duckdb

from benchmarks.measure import report
from benchmarks.workloads import Workload

RUNS = 5
WEIGHT = {"string": "strlen({})", "timestamp": "epoch_us({})", "date": "epoch({})", "boolean": "{}::INT"}


def tail(w: Workload, home: Path) -> str:
    """The join after its SELECT list; windows compared as whole microseconds, which DuckDB does fastest."""
    width = w.window_seconds * 1_000_000
    clauses = [f"'{home}/{w.streams[0]}/*.parquet' {w.streams[0]}"]
    for i, stream in enumerate(w.streams[1:], 1):
        near = [f"epoch_us({stream}.ts) - epoch_us({s}.ts) BETWEEN -{width} AND {width}" for s in w.streams[:i]]
        on = " AND ".join([f"{stream}.key = {w.streams[0]}.key", *near])
        clauses.append(f"JOIN '{home}/{stream}/*.parquet' {stream} ON {on}")
    return " ".join(clauses)


def every_column(w: Workload) -> str:
    """A sum over each output column, so that all of them have to be produced."""
    sums = [f"sum({WEIGHT.get(kind, '{}').format(f'{s}.{name}')})" for s in w.streams for name, kind in w.columns]
    return ", ".join(["count(*)", *sums])


def timed(connection: duckdb.DuckDBPyConnection, query: str, runs: int) -> tuple[list[float], Any]:
    took, row = [], None
    for _ in range(runs):
        begin = time.monotonic()
        row = connection.execute(query).fetchall()[0]
        took.append(time.monotonic() - begin)
    return took, row


def connect() -> duckdb.DuckDBPyConnection:
    return duckdb.connect(config={"threads": 2})


def count_results(home: Path) -> int:
    """Number of results that every contender must find over these files."""
    with connect() as connection:
        _, row = timed(connection, f"SELECT count(*) FROM {tail(Workload.load(home), home)}", 1)
    return int(row[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("home", type=Path)
    args = parser.parse_args()
    w = Workload.load(args.home)
    source = tail(w, args.home)
    with connect() as connection:
        counting, _ = timed(connection, f"SELECT count(*) FROM {source}", RUNS)
        took, row = timed(connection, f"SELECT {every_column(w)} FROM {source}", RUNS)
    report(
        settings=f"2 threads, Parquet, all rows at once, a sum over every output column, median of {RUNS}",
        rows_in=w.rows_in,
        rows_out=row[0],
        warm_rate=w.rows_in / median(took),
        startup_rate=w.rows_in / took[0],
        count_rate=w.rows_in / median(counting),
    )


if __name__ == "__main__":
    main()
