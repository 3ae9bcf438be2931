"""The workloads as one batch query each, in DuckDB's words; also what every contender's results are checked by."""

from __future__ import annotations

from pathlib import Path

from benchmarks.workloads import BAND, BUCKETS, PRODUCT, Workload

SECOND = 1_000_000


def relation(w: Workload, home: Path, until: int | None = None) -> str:
    """What comes after FROM: the results that can be given once the event time `until` has come."""
    match w.operation:
        case "sliding":
            return windows(w, f"'{home}/A/*.parquet'", "key", "ts", until or w.newest)
        case "last":
            return f"(SELECT key, ts, {newest_rows(w)} FROM '{home}/A/*.parquet')"
        case "joined-groups":
            pairs = f"(SELECT A.key % {BUCKETS} AS bucket, A.ts AS A_ts, A.v AS A_v FROM {join(w, home)})"
            return windows(w, pairs, "bucket", "A_ts", until or w.newest)
        case "band":
            near_keys = f"A.key BETWEEN B.key - {BAND} AND B.key + {BAND}"
            return bucketed(w, home, "key", 2 * BAND, [BAND, 3 * BAND], near_keys)
        case "theta":
            width = w.window_seconds * SECOND
            return bucketed(w, home, "epoch_us(ts)", width, [0, width, 2 * width], f"A.v * B.v > {PRODUCT}::DOUBLE")
    return join(w, home)


def bucketed(w: Workload, home: Path, value: str, width: int, shifts: list[int], condition: str) -> str:
    """Pairs without an equality, each row of B in all buckets of values that its partners can be in: DuckDB's own joins
    by comparisons take many times as long on these rows."""
    near = f"B.at - A.at BETWEEN -{w.window_seconds * SECOND} AND {w.window_seconds * SECOND}"
    a = f"(SELECT *, epoch_us(ts) AS at, ({value} + {width}) // {width} AS bucket FROM '{home}/A/*.parquet') A"
    reached = ", ".join(f"({value} + {shift}) // {width}" for shift in shifts)
    b = f"(SELECT *, epoch_us(ts) AS at, unnest([{reached}]) AS bucket FROM '{home}/B/*.parquet') B"
    return f"{a} JOIN {b} ON A.bucket = B.bucket AND {condition} AND {near}"


def join(w: Workload, home: Path) -> str:
    """Windows are compared as whole microseconds, which DuckDB does fastest."""
    width = w.window_seconds * SECOND
    later = 0 if w.operation == "joined-groups" else width
    clauses = [f"'{home}/{w.streams[0]}/*.parquet' {w.streams[0]}"]
    for i, stream in enumerate(w.streams[1:], 1):
        near = [f"epoch_us({stream}.ts) - epoch_us({s}.ts) BETWEEN -{width} AND {later}" for s in w.streams[:i]]
        on = " AND ".join([f"{stream}.key = {w.streams[0]}.key", *near])
        clauses.append(f"JOIN '{home}/{stream}/*.parquet' {stream} ON {on}")
    return " ".join(clauses)


def newest_rows(w: Workload) -> str:
    frame = f"(PARTITION BY key ORDER BY ts ROWS BETWEEN {w.last - 1} PRECEDING AND CURRENT ROW)"
    return ", ".join(
        f"{function}({column}) OVER {frame} AS {name}" for name, (column, function) in w.aggregates.items()
    )


def windows(w: Workload, rows: str, group: str, time: str, until: int) -> str:
    """Every row once for each window it lies in, then a plain group-by."""
    length, slide = w.window_seconds * SECOND, w.slide_seconds * SECOND
    at = f"epoch_us({time})"
    starts = f"unnest([{at} - {at} % {slide} - i * {slide} FOR i IN range({length // slide})])"
    made = ", ".join(f"{function}({column}) AS {name}" for name, (column, function) in w.aggregates.items())
    return (
        f"(SELECT {group}, start, start + {length} AS till, {made} FROM (SELECT *, {starts} AS start FROM {rows}) "
        f"WHERE start + {length} <= {until} GROUP BY ALL)"
    )
