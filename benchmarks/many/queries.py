"""Random queries over eight streams, each as one SQL text for Sluice and Spark and one for DuckDB.

Which queries there are is a matter of the seed alone. Conditions, windows and pairs of streams are drawn from small
sets, as those of people are: so some queries have states in common, and few are the same.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

STREAMS = tuple(f"s{number}" for number in range(8))
SCHEMA = "k bigint, g int, q int, v double, ts timestamp"
KINDS = {"filter": 0.4, "join": 0.25, "group": 0.25, "chain": 0.1}
DELAY_SECONDS = 1
_WINDOWS = (5, 10, 20)
_LEAST = (0, 200, 500, 800, 950)
"""What `q`, which lies below 1,000, is compared with."""


@dataclass(frozen=True)
class ManyQuery:
    """One query: `text` for Sluice and for Spark; `duckdb` for the batch answer, in which `{until}` is the time, in
    microseconds, up to which windows are final."""

    name: str
    kind: str
    streams: tuple[str, ...]
    text: str
    duckdb: str


def draw_queries(count: int, seed: int = 26) -> tuple[ManyQuery, ...]:
    """So many queries; the first ones are the same however many are drawn."""
    return tuple(_draw(number, np.random.default_rng((seed, number))) for number in range(count))


def sharing_queries(count: int) -> tuple[ManyQuery, ...]:
    """Joins of the same rows that differ in how near these must be and in what else has to hold: one state is enough
    for all of them. The first one needs all of it."""
    first, second = STREAMS[:2]
    windows = [max(_WINDOWS), *(1 + number for number in range(count - 1))]
    return tuple(
        ManyQuery(f"near-{n}", "join", (first, second), *_join(first, second, within, ["b.q > a.q"] if n else []))
        for n, within in enumerate(windows)
    )


def _draw(number: int, rng: np.random.Generator) -> ManyQuery:
    kind = str(rng.choice(list(KINDS), p=list(KINDS.values())))
    first, second = (STREAMS[at] for at in rng.choice(len(STREAMS), 2, replace=False))
    name, within, least = f"{kind}-{number}", int(rng.choice(_WINDOWS)), int(rng.choice(_LEAST))
    match kind:
        case "filter":
            text = f"SELECT k, q, v FROM {first} WHERE q >= {least} AND g < {int(rng.integers(1, 100))}"
            return ManyQuery(name, kind, (first,), text, text)
        case "group":
            return ManyQuery(name, kind, (first,), *_group(f"{first} a", f"a.q >= {least}", "a", within))
        case "join":
            conditions = [f"a.q >= {least}"] + (["b.g < 50"] if rng.random() < 0.3 else [])
            return ManyQuery(name, kind, (first, second), *_join(first, second, within, conditions))
    joined = f"{first} a JOIN {second} b ON {_near(within)}"
    return ManyQuery(name, kind, (first, second), *_group(joined, f"a.q >= {least}", "a", int(rng.choice(_WINDOWS))))


def _near(within: int) -> str:
    return f"a.k = b.k AND b.ts BETWEEN a.ts - INTERVAL {within} SECONDS AND a.ts"


def _join(first: str, second: str, within: int, conditions: list[str]) -> tuple[str, str]:
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    text = f"SELECT a.k, a.v, b.q, a.ts FROM {first} a JOIN {second} b ON {_near(within)}{where}"
    return text, text


def _group(source: str, where: str, table: str, length: int) -> tuple[str, str]:
    amounts = f"count(*) AS n, sum({table}.q) AS total FROM {source} WHERE {where}"
    text = (
        f"SELECT {table}.g, window.start AS start, {amounts} GROUP BY {table}.g, window({table}.ts, '{length} seconds')"
    )
    duckdb = (
        f"SELECT * FROM (SELECT {table}.g, time_bucket(INTERVAL {length} SECONDS, {table}.ts) AS start, {amounts} "
        f"GROUP BY ALL) WHERE epoch_us(start) + {length} * 1000000 <= {{until}}"
    )
    return text, duckdb.replace(f"sum({table}.q)", f"CAST(sum({table}.q) AS BIGINT)")
