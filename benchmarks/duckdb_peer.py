"""DuckDB over all rows at once, the ceiling without streaming or durable state; prints one JSON line.

    python -m benchmarks.duckdb_peer DIRECTORY

Each query runs several times over the Parquet files; the median counts.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from statistics import median
from typing import Any

import duckdb

from benchmarks.duckdb_queries import relation
from benchmarks.measure import report
from benchmarks.workloads import Workload

RUNS = {"join": 5, "band": 3, "theta": 3}
FEWER = 3  # runs of a group-by, which takes longer
WEIGHT = {"string": "strlen({})", "timestamp": "epoch_us({})", "date": "epoch({})", "boolean": "{}::INT"}


def every_column(w: Workload) -> str:
    """A sum over each output column, so that all of them have to be produced."""
    if not w.is_join:
        return ", ".join(["count(*)", "sum(total)", *(f"sum({name})" for name in w.aggregates)])
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


def expected(home: Path, until: int | None) -> tuple[int, int | None]:
    """Number of results that every contender must find over these files, and of a group-by the sum of `total`."""
    w = Workload.load(home)
    checked = "count(*), NULL" if w.is_join else "count(*), sum(total)"
    with connect() as connection:
        _, row = timed(connection, f"SELECT {checked} FROM {relation(w, home, until)}", 1)
    return int(row[0]), None if row[1] is None else int(row[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("home", type=Path)
    args = parser.parse_args()
    w = Workload.load(args.home)
    source = relation(w, args.home)
    runs = RUNS.get(w.operation, FEWER)
    with connect() as connection:
        if w.is_join:
            counting, _ = timed(connection, f"SELECT count(*) FROM {source}", runs)
        took, row = timed(connection, f"SELECT {every_column(w)} FROM {source}", runs)
    report(
        settings=f"2 threads, Parquet, all rows at once, a sum over every output column, median of {runs}",
        rows_in=w.rows_in,
        rows_out=row[0],
        warm_rate=w.rows_in / median(took),
        startup_rate=w.rows_in / took[0],
        **({"count_rate": w.rows_in / median(counting)} if w.is_join else {"total": int(row[1])}),
    )


if __name__ == "__main__":
    main()
