"""Theta joins for tests: streams with values of many types, conditions in the words of both Spark and DuckDB."""

from __future__ import annotations

import math
from decimal import Decimal

import numpy as np
import pyarrow as pa
from specs import TIME, handle

from sluice.api.joining import build_join
from sluice.model.plan.join import JoinSpec
from sluice.model.plan.stream import Stream

SCHEMA = pa.schema(
    [
        ("n", pa.int64()),
        ("ts", TIME),
        ("x", pa.float64()),
        ("s", pa.string()),
        ("d", pa.decimal128(10, 2)),
        ("t", TIME),
        ("day", pa.date32()),
        ("f", pa.float32()),
        ("big", pa.int64()),
    ]
)
VALUES: dict[str, list] = {
    "n": list(range(-4, 5)),
    "x": [0.0, -0.0, 0.1, 0.3, 1.5, -2.0, 3.25, 1e300, math.inf, -math.inf, math.nan],
    "s": ["", "a", "b", "ab", "a\0", "é", "prefix-long-1", "prefix-long-2", "prefix-"],
    "d": [Decimal(cents) / 100 for cents in range(-300, 301, 37)],
    "t": list(range(0, 10_000_000, 499_999)),
    "day": list(range(5)),
    "f": [0.1, 0.25, -1.5, 2.75, math.nan],
    "big": [0, 2**53, 2**53 + 1, 2**53 + 2, 2**62, -(2**62)],
}
CONDITIONS = (
    "a.n > b.n",
    "a.n <= b.n",
    "a.n <> b.n",
    "abs(a.n - b.n) <= 2",
    "2 > abs(b.n - a.n)",
    "a.n - b.n > 1",
    "a.n + 1 < b.n * 2",
    "a.n - 2 <= b.n AND b.n <= a.n + 1",
    "a.x > b.x",
    "a.x >= b.x",
    "a.x - b.x > 1.5",
    "a.x - b.x <= 1",
    "a.x - b.x BETWEEN -0.2 AND 1.5",
    "abs(a.x - b.x) <= 0.2",
    "a.x BETWEEN b.x - 1 AND b.x + 1",
    "a.x + 1e20 <= b.x + 1e20",
    "a.x + 1e20 - 1e20 <= b.x",
    "a.x - 1e308 - 1e308 <= b.x",
    "a.x < b.x AND a.s <> b.s",
    "a.x < b.n",
    "a.x < b.d",
    "a.f > b.x",
    "abs(a.f - b.f) <= 0.2",
    "a.big > b.big",
    "a.big - 1 >= b.big",
    "abs(a.big / 4 - b.big / 4) <= 1",
    "CAST(a.big AS DOUBLE) = CAST(b.big AS DOUBLE)",
    "a.s < b.s",
    "a.s >= b.s AND a.n < b.n + 2",
    "upper(a.s) = b.s",
    "length(a.s) > length(b.s)",
    "a.d < b.d",
    "abs(a.d - b.d) <= 0.5",
    "a.d > b.n",
    "a.d + 1 > b.n AND a.n > b.d",
    "a.t < b.t",
    "a.t BETWEEN b.t - INTERVAL 2 SECONDS AND b.t + INTERVAL 1 SECOND",
    "a.day <= b.day",
    "a.ts < b.ts",
    "a.n = b.n OR a.s = b.s",
    "a.n = b.n AND a.x > b.x",
    "a.n = b.n",
    "a.x = b.x",
    "a.n = b.x",
    "a.s IS NULL AND b.n > a.n",
    "a.n > 1",
    "true",
    "a.n > b.n AND a.x > b.x AND a.d > b.d AND a.day > b.day AND a.s > b.s",
    "NOT (a.n > b.n)",
    "a.n NOT BETWEEN b.n - 1 AND b.n + 1",
    "CASE WHEN a.n > 0 THEN a.x ELSE a.f END < b.x",
    "a.n <> 0 AND 6 / a.n < b.x",
    "(a.n > 0 AND a.d > 0) <= (b.n > 0) AND (a.n > 0 OR a.d > 0) >= (b.n > 0)",
)


def stream(name: str, delay: int | None = 0) -> Stream:
    return Stream(name, SCHEMA, "ts", delay)


def theta_join(streams: list[Stream], within: object, where: str) -> JoinSpec:
    """As users say it; of one stream, with itself as 'a' and 'b'."""
    sides = [handle(s) for s in streams]
    if len(sides) == 1:
        sides = [sides[0].alias("a"), sides[0].alias("b")]
    spec, _ = build_join(sides, None, within, where)
    return spec


def rows(rng: np.random.Generator, count: int, around: int, spread: int) -> pa.Table:
    """Some rows near a point in time, out of order, with nulls and duplicates."""
    times = np.maximum(0, around + rng.integers(-spread, spread + 1, count))
    columns = {"ts": pa.array(times, TIME, mask=rng.random(count) < 0.05)}
    for name, values in VALUES.items():
        drawn = [None if i == len(values) else values[i] for i in rng.integers(0, len(values) + 1, count)]
        columns[name] = pa.array(drawn, SCHEMA.field(name).type)
    return pa.table({field.name: columns[field.name] for field in SCHEMA}, SCHEMA)
