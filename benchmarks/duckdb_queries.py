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
            return compared(w, home, f"A.key BETWEEN B.key - {BAND} AND B.key + {BAND}")
        case "theta":
            return compared(w, home, f"A.v * B.v > {PRODUCT}::DOUBLE")
    return join(w, home)


def compared(w: Workload, home: Path, condition: str) -> str:
    """Pairs without an equality: DuckDB searches by comparisons between the sides, of times as well."""
    width = f"INTERVAL {w.window_seconds} SECONDS"
    near = f"B.ts BETWEEN A.ts - {width} AND A.ts + {width}"
    return f"'{home}/A/*.parquet' A JOIN '{home}/B/*.parquet' B ON {condition} AND {near}"


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
