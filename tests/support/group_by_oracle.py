"""The batch answer of group-bys: streams of rows (k, ts, v, w), and their groups as SQL for DuckDB."""

from __future__ import annotations

import pyarrow as pa
from specs import TIME, handle

from sluice.api.stream import DataStream
from sluice.model.plan.stream import Stream

FUNCTIONS = {"variance": "var_samp", "stddev": "stddev_samp"}


def source(name: str, key: pa.DataType | None = None, delay: int | None = 0) -> DataStream:
    schema = pa.schema([("k", key or pa.int64()), ("ts", TIME), ("v", pa.int64()), ("w", pa.float64())])
    return handle(Stream(name, schema, "ts", delay))


def last_of(name: str, count: int, aggregates: dict[str, tuple[str, str]], mark: int, keys: str = "k") -> str:
    over = f"OVER (PARTITION BY {keys} ORDER BY ts, epoch ROWS BETWEEN {count - 1} PRECEDING AND CURRENT ROW)"
    inner = f"SELECT {keys}, ts, {sql(aggregates, over)} FROM {name}"
    return f"SELECT * FROM ({inner}) WHERE epoch_us(ts) <= {mark}"


def windows_of(
    name: str, length: int, slide: int, aggregates: dict[str, tuple[str, str]], mark: int, keys: str = "k, "
) -> str:
    """Every row once for each window it lies in, then a plain group-by."""
    first = f"epoch_us(ts) - (epoch_us(ts) % {slide} + {slide}) % {slide}"  # also of times before 1970
    starts = f"unnest(range({first}, epoch_us(ts) - {length}, -{slide}))"
    exploded = f"SELECT *, {starts} AS s FROM {name}"
    times = f"make_timestamptz(s) AS window_start, make_timestamptz(s + {length}) AS window_end"
    return f"SELECT {keys}{times}, {sql(aggregates)} FROM ({exploded}) WHERE s + {length} <= {mark} GROUP BY {keys} s"


def sessions_of(name: str, gap: int, aggregates: dict[str, tuple[str, str]], mark: int, keys: str = "k, ") -> str:
    """A session begins where the row before is further away than the gap; those that have ended."""
    by = f"PARTITION BY {keys.removesuffix(', ')}" if keys else ""
    apart = f"epoch_us(ts) - lag(epoch_us(ts)) OVER ({by} ORDER BY ts)"
    begun = f"SELECT *, coalesce({apart} > {gap}, true)::INT AS begins FROM {name}"
    numbered = f"SELECT *, sum(begins) OVER ({by} ORDER BY ts RANGE UNBOUNDED PRECEDING) AS s FROM ({begun})"
    end = f"max(epoch_us(ts)) + {gap}"
    times = f"min(ts) AS window_start, make_timestamptz({end}) AS window_end"
    return f"SELECT {keys}{times}, {sql(aggregates)} FROM ({numbered}) GROUP BY {keys} s HAVING {end} < {mark}"


def sql(aggregates: dict[str, tuple[str, str]], over: str = "", order: str = "ORDER BY ts, epoch") -> str:
    """Aggregates in DuckDB's words; its sum of integers has another type, its avg is a double as here."""
    out = []
    for name, (column, function) in aggregates.items():
        inside = f"{column} {order}" if function in ("first", "last") and not over else column
        called = {"first": "first_value", "last": "last_value"}.get(function, function) if over else function
        call = f"{FUNCTIONS.get(called, called)}({inside}) {over}"
        out.append(f"CAST({call} AS BIGINT) AS {name}" if (column, function) == ("v", "sum") else f"{call} AS {name}")
    return ", ".join(out)
