"""Whether a run's results are the batch join's, row for row, and how late each of them was."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import duckdb

from benchmarks.adapt.rows import SECOND, Rows

# Which result it is, in one number; the numbers of all results are put together so that their order does not matter.
SUMMED = "count(*), coalesce(bit_xor(hash({a}, {b})), 0), coalesce(sum(hash({a}, {b}) % 1000003), 0)"


@dataclass(frozen=True)
class Sum:
    """How many results there are, and two checksums over which ones."""

    results: int
    mixed: int
    total: int


def expected(rows: Rows, inputs: Path) -> Sum:
    """The join of all files at once."""
    near = f"epoch_us(A.ts) - epoch_us(B.ts) BETWEEN -{rows.within * SECOND} AND {rows.within * SECOND}"
    joined = f"'{inputs}/A/*.parquet' A JOIN '{inputs}/B/*.parquet' B ON A.key = B.key AND {near}"
    return summed(f"SELECT {SUMMED.format(a='A.id', b='B.id')} FROM {joined}")


def found(results: Path) -> Sum:
    """What a run has written."""
    if not any(results.glob("*.parquet")):
        return Sum(0, 0, 0)
    return summed(f"SELECT {SUMMED.format(a='A_id', b='B_id')} FROM '{results}/*.parquet'")


def summed(query: str) -> Sum:
    with duckdb.connect(config={"threads": 2}) as db:
        return Sum(*map(int, db.execute(query).fetchall()[0]))


def by_file(rows: Rows, results: Path) -> list[tuple[int, int, int]]:
    """(file of a result's newest row, epoch that gave it, how many such results), from the names of the part files."""
    query = f"""
        SELECT greatest(A_id, B_id) // {rows.rows} AS file,
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
