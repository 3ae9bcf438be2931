"""What the jobs that are killed read, and what they have to answer."""

from __future__ import annotations

import os
from collections import Counter
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from oracle import batch_join, connect_duckdb, multiset
from specs import SECOND, TIME, join, stream

STREAMS = stream("a"), stream("b")
SPEC = join(list(STREAMS), 20 * SECOND)
ROWS, SPAN = 2_000, 5 * SECOND  # of a file; ROWS unless a test wants fewer
OUTPUTS = ("out", "bars")


def write_files(root: Path, files: int, count: int = ROWS) -> None:
    """So many files a stream, of so many rows each."""
    for name, tables in zip(("a", "b"), rows(files, count), strict=True):
        (root / name).mkdir()
        for number, table in enumerate(tables):
            path = root / name / f"{number:03d}.parquet"
            pq.write_table(table, path)
            os.utime(path, (1_700_000_000 + number,) * 2)  # Spark takes files in this order


@cache
def rows(files: int, count: int = ROWS) -> tuple[list[pa.Table], ...]:
    """Files of two streams, in the order of their event times."""
    out = []
    for number, s in enumerate(STREAMS):
        rng = np.random.default_rng(number)
        tables = []
        for file in range(files):
            times = file * SPAN + np.sort(rng.integers(0, SPAN, count))
            keys, values = rng.integers(0, 2 * count, count), rng.integers(0, 1 << 40, count)
            tables.append(pa.table([keys, pa.array(times, TIME), values], schema=s.schema))
        out.append(tables)
    return tuple(out)


@cache
def answers(files: int) -> tuple[Counter, Counter]:
    pairs, bars = answer_tables(files)
    return multiset(pairs), multiset(bars)


@cache
def answer_tables(files: int, count: int = ROWS) -> tuple[pa.Table, pa.Table]:
    """All pairs, and the groups of them whose windows the watermark has passed."""
    tables = [pa.concat_tables(t) for t in rows(files, count)]
    pairs = batch_join(SPEC, tables)
    newest = min(max(t["ts"].cast(pa.int64()).to_pylist()) for t in tables)
    length, slide = 10 * SECOND, 5 * SECOND
    time = "greatest(epoch_us(a_ts), epoch_us(b_ts))"
    with connect_duckdb() as db:
        bars = db.sql(
            f"""SELECT a_k, make_timestamptz(s) AS window_start, make_timestamptz(s + {length}) AS window_end,
                       count(*) AS n, CAST(sum(b_v) AS BIGINT) AS total
                FROM (SELECT *, unnest(range({time} - {time} % {slide}, {time} - {length}, -{slide})) AS s FROM pairs)
                WHERE s + {length} <= {newest} GROUP BY a_k, s"""
        ).to_arrow_table()
    return pairs, bars
