"""Whether a run's results are the batch join's, row for row, and how late each of them was."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import duckdb
import pyarrow.parquet as pq

from benchmarks.adapt.rows import SECOND, Rows


@dataclass(frozen=True)
class Sum:
    """How many results there are, and two checksums over which ones."""

    results: int
    mixed: int
    total: int


def expected(rows: Rows, inputs: Path) -> Sum:
    """The join of all files at once."""
    return summed(joined(rows, inputs), (f"{stream}.id" for stream in rows.streams))


def found(rows: Rows, results: Path) -> Sum:
    """What a run has written."""
    if not any(results.glob("*.parquet")):
        return Sum(0, 0, 0)
    return summed(f"'{results}/*.parquet'", (f"{stream}_id" for stream in rows.streams))


def recompute(rows: Rows, inputs: Path, target: Path) -> float:
    """Have DuckDB join all files at once into one Parquet file, with the columns of a run's results; the seconds."""
    columns = pq.read_schema(next((inputs / rows.streams[0]).glob("*.parquet"))).names
    named = ", ".join(f"{stream}.{name} AS {stream}_{name}" for stream in rows.streams for name in columns)
    with duckdb.connect(config={"threads": 2}) as db:
        begun = time.monotonic()
        query = f"SELECT {named} FROM {joined(rows, inputs)}"
        db.execute(f"COPY ({query}) TO '{target}' (FORMAT parquet, COMPRESSION snappy)")
        return time.monotonic() - begun


def joined(rows: Rows, inputs: Path) -> str:
    """The streams as DuckDB joins them, each under its letter."""
    first, others = rows.streams[0], rows.streams[1:]
    on = [rows.where] if rows.where else [f"{first}.key = {other}.key" for other in others]
    if rows.within is not None:
        reach = rows.within * SECOND
        pairs = combinations(rows.streams, 2)
        on += [f"epoch_us({a}.ts) - epoch_us({b}.ts) BETWEEN -{reach} AND {reach}" for a, b in pairs]
    return ", ".join(f"'{inputs}/{s}/*.parquet' {s}" for s in rows.streams) + f" WHERE {' AND '.join(on)}"


def summed(rows: str, ids: Iterable[str]) -> Sum:
    """Which result it is, in one number; those of all results are put together so that their order does not matter."""
    number = f"hash({', '.join(ids)})"
    query = f"SELECT count(*), coalesce(bit_xor({number}), 0), coalesce(sum({number} % 1000003), 0) FROM {rows}"
    with duckdb.connect(config={"threads": 2}) as db:
        return Sum(*map(int, db.execute(query).fetchall()[0]))


def by_file(rows: Rows, results: Path) -> list[tuple[int, int, int]]:
    """(file of a result's newest row, epoch that gave it, how many such results), from the names of the part files."""
    newest = f"greatest({', '.join(f'{stream}_id' for stream in rows.streams)})"
    query = f"""
        SELECT {newest} // {rows.rows} AS file,
               regexp_extract(filename, 'part-([0-9]+)-', 1)::BIGINT AS epoch, count(*)
        FROM read_parquet('{results}/*.parquet', filename = true) GROUP BY ALL ORDER BY ALL"""
    with duckdb.connect(config={"threads": 2}) as db:
        return [(int(f), int(e), int(n)) for f, e, n in db.execute(query).fetchall()]


def latencies(
    given: list[tuple[int, int, int]], arrived: Mapping[int, float], committed: Mapping[int, float]
) -> list[tuple[float, int]]:
    """Seconds from the arrival of a result's newest row to its epoch's commit, and how many results; files that are
    not in `arrived` are left out."""
    return sorted((committed[epoch] - arrived[file], count) for file, epoch, count in given if file in arrived)


def quantile(weighted: list[tuple[float, int]], share: float) -> float:
    """The value that this share of the weight lies at or below.

    >>> quantile([(1.0, 98), (7.0, 2)], 0.98), quantile([(1.0, 98), (7.0, 2)], 0.99)
    (1.0, 7.0)
    """
    wanted, so_far = share * sum(n for _, n in weighted), 0
    for value, count in weighted:
        so_far += count
        if so_far >= wanted:
            return value
    return float("nan")
