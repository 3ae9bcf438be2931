"""Joins and streams for tests: specs in one line, random streams for Hypothesis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa
from hypothesis import strategies as st

from sluice.api.joining import Keys, build_join
from sluice.api.relation import Registry, result_of
from sluice.api.stream import DataStream
from sluice.expressions import compile_condition
from sluice.model.durations import LONGEST
from sluice.model.plan.join import JoinSpec, Leg
from sluice.model.plan.relation import Relation
from sluice.model.plan.stream import Input, Stream

SECOND = 1_000_000
TIME = pa.timestamp("us", "UTC")


REGISTRY = Registry(None, "flow")
"""A flow's, without a Spark session."""


def handle(s: Stream) -> DataStream:
    """A stream as users hold it."""
    return DataStream(REGISTRY, s.name, Relation(s, (), s))


def join_many(
    streams: Sequence[DataStream], on: Keys | None = None, within: str | None = None, where: str | None = None
) -> DataStream:
    """As `Flow.join`, without a Spark session."""
    return DataStream(REGISTRY, "", result_of(*build_join(list(streams), on, within, where)))


def stream(name: str, key: pa.DataType | None = None, delay: int | None = 0) -> Stream:
    return Stream(name, pa.schema([("k", key or pa.int64()), ("ts", TIME), ("v", pa.int64())]), "ts", delay)


UNTIL = "until"


def expiring(s: Stream) -> Stream:
    """The stream with a column that says until when its rows have partners."""
    return replace(s, schema=s.schema.append(pa.field(UNTIL, TIME)))


def join_until(
    streams: list[Stream], leg: int = 0, earlier: int = 0, later: int = LONGEST, where: str | None = None
) -> JoinSpec:
    """Two streams of which one, `expiring`, says until when its rows have partners. These are at most so much `earlier`
    and so much `later`."""
    reach = ((0, later), (earlier, 0)) if leg == 0 else ((0, earlier), (later, 0))
    inputs = tuple(Input(streams.index(s), ("k",)) for s in streams)
    names = [s.name if streams.count(s) == 1 else "xy"[place] for place, s in enumerate(streams)]
    legs = tuple(Leg(name, place, UNTIL if place == leg else None) for place, name in enumerate(names))
    kinds = (streams[0].schema.field("k").type,)
    return conditional(JoinSpec(tuple(dict.fromkeys(streams)), inputs, legs, kinds, reach), where)


def join(
    streams: list[Stream], within: object = 30 * SECOND, where: str | None = None, on: tuple[str, ...] = ("k",)
) -> JoinSpec:
    """All streams on the same key columns; `within` is a bound or, for two, a pair (before, after)."""
    count = len(streams)
    if isinstance(within, tuple):
        reach = ((0, within[1]), (within[0], 0))
    else:
        reach = tuple(tuple(0 if i == j else within for j in range(count)) for i in range(count))
    inputs = tuple(Input(i, on) for i in range(count))
    legs = tuple(Leg(s.name, i) for i, s in enumerate(streams))
    kinds = tuple(streams[0].schema.field(k).type for k in on)
    return conditional(JoinSpec(tuple(streams), inputs, legs, kinds, reach), where)


def self_join(s: Stream, within: object = 30 * SECOND, where: str | None = None, other_key: str = "k") -> JoinSpec:
    """A stream with itself as 'x' and 'y'."""
    pair = within if isinstance(within, tuple) else (within, within)
    inputs = (Input(0, ("k",)),) if other_key == "k" else (Input(0, ("k",)), Input(0, (other_key,)))
    legs = (Leg("x", 0), Leg("y", len(inputs) - 1))
    kinds = (s.schema.field("k").type,)
    return conditional(JoinSpec((s,), inputs, legs, kinds, ((0, pair[1]), (pair[0], 0))), where)


def conditional(spec: JoinSpec, where: str | None) -> JoinSpec:
    if where is None:
        return spec
    condition = compile_condition(where, lambda s, c: f"{s}_{c}", spec.output_schema())
    return replace(spec, where=condition)


KEYS: dict[str, tuple[pa.DataType, st.SearchStrategy]] = {
    "long": (pa.int64(), st.integers(-3, 3)),
    "byte": (pa.int8(), st.integers(-3, 3)),
    "string": (pa.string(), st.sampled_from(["", "a", "b", "ab", "é" * 20, "x" * 300, "x" * 299 + "y", "12345678"])),
    "binary": (pa.binary(), st.sampled_from([b"", b"\0", b"\0\0", b"abcdefgh", b"abcdefghi"])),
    "double": (pa.float64(), st.sampled_from([0.0, -0.0, 1.5, float("inf"), -2.0])),
    "bool": (pa.bool_(), st.booleans()),
    "date": (pa.date32(), st.sampled_from([0, 1, 20_000])),
    "decimal": (pa.decimal128(20, 2), st.sampled_from([0, 1, -1, 7])),
    "timestamp": (TIME, st.integers(0, 3)),
}


@st.composite
def rows(draw: st.DrawFn, s: Stream, values: st.SearchStrategy, around: int, spread: int) -> pa.Table:
    """Some rows of a stream near a point in time, out of order, with nulls and duplicates."""
    count = draw(st.integers(0, 12))
    keys = draw(st.lists(st.one_of(st.none(), values, values, values), min_size=count, max_size=count))
    offsets = draw(st.lists(st.one_of(st.integers(-spread, spread), st.none()), min_size=count, max_size=count))
    times = [None if o is None else max(0, around + o) for o in offsets]
    payload = draw(st.lists(st.integers(0, 3), min_size=count, max_size=count))
    columns = [pa.array(keys, s.schema.field(0).type), pa.array(times, TIME), pa.array(payload)]
    if UNTIL in s.schema.names:
        later = draw(st.lists(st.one_of(st.none(), st.integers(-spread, 3 * spread)), min_size=count, max_size=count))
        later = [None if t is None or time is None else time + t for t, time in zip(later, times, strict=True)]
        columns.append(pa.array(later, TIME))
    return pa.table(columns, schema=s.schema)
