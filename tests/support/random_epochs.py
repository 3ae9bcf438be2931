"""Streams of rows (k, ts, v, w) through random epochs, held against the batch query in DuckDB."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from engine_harness import DirectQuery, limits
from epoch_results import EpochByEpoch
from hypothesis import strategies as st
from oracle import connect_duckdb, multiset, on_time
from specs import SECOND
from wandering import Wanderer

from sluice.api.stream import DataStream
from sluice.model.plan.plan import Plan
from sluice.model.plan.planning import plan_of

FAST = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


@st.composite
def rows(draw: st.DrawFn, origin: DataStream, values: Any, around: int, spread: int) -> pa.Table:
    """Rows of an epoch: no two at one time, so that their order is theirs alone. Later epochs may repeat a time."""
    times = draw(st.lists(st.integers(max(0, around - spread), around + spread), max_size=12, unique=True))
    count = len(times)
    some = st.lists(st.one_of(st.none(), values, values), min_size=count, max_size=count)
    numbers = st.lists(st.one_of(st.none(), st.integers(-3, 3)), min_size=count, max_size=count)
    floats = st.lists(st.one_of(st.none(), st.sampled_from([0.5, 1e9, -2.25])), min_size=count, max_size=count)
    columns = [draw(some), times, draw(numbers), draw(floats)]
    fields = origin.stream.schema
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, fields, strict=True)], schema=fields)


Oracle = Callable[[duckdb.DuckDBPyConnection, dict[str, int]], str]
MakeRows = Callable[[DataStream, Any, int, int], st.SearchStrategy[pa.Table]]


def check(
    data: st.DataObject,
    results: list[DataStream],
    sources: list[tuple[DataStream, Any]],
    oracles: list[Oracle],
    make_rows: MakeRows = rows,
) -> None:
    """Random epochs through the engine, restarted at will; each output equals its SQL over the rows on time.

    The SQL sees the streams by name, with the number of a row's epoch, and gets the final watermarks.
    """
    plan = plan_of([r.relation for r in results])
    step = data.draw(st.sampled_from([1, SECOND, 50 * 60 * SECOND]))
    spread = data.draw(st.sampled_from([3, 2 * SECOND, 100 * 60 * SECOND]))
    partitions, limited = data.draw(st.sampled_from([4, 7])), limits(data)
    wander = data.draw(st.booleans())
    seen: dict[str, list[pa.Table]] = {handle.name: [] for handle, _ in sources}
    with tempfile.TemporaryDirectory(dir=FAST) as directory:

        def start() -> DirectQuery:
            sites = data.draw(st.integers(1, 3))
            return DirectQuery(
                plan,
                Path(directory),
                sites,
                partitions,
                wanted=Wanderer(sites, sites) if wander else "static",
                **limited,
            )

        query = start()
        for epoch in range(data.draw(st.integers(1, 6))):
            new = {h.name: data.draw(make_rows(h, values, epoch * step, spread)) for h, values in sources}
            for name, table in new.items():
                seen[name].append(table)
            query.run([new[s.name] for s in plan.sources])
            if data.draw(st.integers(0, 3)) == 0:
                query.catch_up()
            if data.draw(st.integers(0, 3)) == 0:
                query.close()
                query = start()
        query.drain()
        with connect_duckdb() as db:
            marks = {}
            for handle, _ in sources:
                numbered = [
                    t.append_column("epoch", pa.array([i] * len(t), pa.int64()))
                    for i, t in enumerate(seen[handle.name])
                ]
                good, _late = on_time(numbered, "ts", handle.stream.delay)
                db.register(handle.name, good)
                times = [t for e in seen[handle.name] for t in e["ts"].cast(pa.int64()).to_pylist()]
                marks[handle.name] = max(times, default=-(10**18)) - handle.stream.delay
            for output, oracle in enumerate(oracles):
                expected = db.sql(oracle(db, marks)).to_arrow_table()
                assert_equal(query.results(output), expected)
        query.close()


def assert_equal(found: pa.Table, expected: pa.Table) -> None:
    """The same rows; floats, sums of few numbers in any order, to nine digits."""
    left, right = in_order(found), in_order(expected)
    assert len(left) == len(right)
    for one, other in zip(left, right, strict=True):
        assert one == tuple(pytest.approx(v, rel=1e-9) if isinstance(v, float) else v for v in other)


def in_order(table: pa.Table) -> list[tuple]:
    """All rows, sorted by what is no float before what is one."""

    def place(row: tuple) -> tuple[list[str], list[float]]:
        return [str(v) for v in row if not isinstance(v, float)], [v for v in row if isinstance(v, float)]

    return sorted(multiset(table).elements(), key=place)


def run_and_look(
    data: st.DataObject,
    plan: Plan,
    make_rows: Callable[[int], st.SearchStrategy[pa.Table]],
    look: Callable[[EpochByEpoch], None],
) -> list[pa.Table]:
    """Random epochs of one stream, moves and restarts, in little memory and time, with a look at the query after each;
    the rows of the stream."""
    limited, tables = limits(data), []
    with tempfile.TemporaryDirectory(dir=FAST) as directory:

        def start() -> EpochByEpoch:
            sites = data.draw(st.integers(1, 3))
            policy = Wanderer(sites, sites) if data.draw(st.booleans()) else "static"
            return EpochByEpoch(plan, Path(directory), sites, 4, wanted=policy, **limited)

        query = start()
        for epoch in range(data.draw(st.integers(1, 6))):
            tables.append(data.draw(make_rows(epoch)))
            query.run([tables[-1]])
            look(query)
            if data.draw(st.integers(0, 3)) == 0 and query.catch_up():
                look(query)
            if data.draw(st.integers(0, 3)) == 0:
                query.close()
                query = start()
        while query.catch_up():
            look(query)
        query.close()
    return tables
