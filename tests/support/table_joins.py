"""Joins with tables, and what the batch join of the same rows has."""

from __future__ import annotations

import os
from collections import Counter
from typing import Any

import pyarrow as pa
from engine_harness import DirectQuery
from hypothesis import strategies as st
from oracle import connect_duckdb, multiset
from specs import SECOND, TIME

from sluice import Flow
from sluice.model.plan.stream import Stream

FAST = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
KINDS = ["inner", "left", "semi", "anti"]
kinds = st.sampled_from(KINDS)


@st.composite
def table_rows(draw: st.DrawFn, key: pa.DataType, values: st.SearchStrategy) -> pa.Table:
    """A table with nulls among its keys, and keys that several rows have."""
    keys = draw(st.lists(st.one_of(st.none(), values, values), max_size=8))
    payload = draw(st.lists(st.integers(0, 3), min_size=len(keys), max_size=len(keys)))
    return pa.table({"k": pa.array(keys, key), "p": pa.array(payload, pa.int64())})


def describe(flow: Flow, s: Stream) -> Any:
    return flow.readStream(s.name, s.schema, eventTime=s.event_time, delay="5 seconds")


def expected(kind: str, rows_: pa.Table, table: pa.Table, where: str = "true") -> Counter:
    """The batch join of rows with a table, in DuckDB."""
    shown = "a.k AS a_k, a.ts AS a_ts, a.v AS a_v" + (", t.k AS t_k, t.p AS t_p" if kind in ("inner", "left") else "")
    with connect_duckdb() as db:
        db.register("a", rows_)
        db.register("t", table)
        return multiset(db.sql(f"SELECT {shown} FROM a {kind} JOIN t ON a.k = t.k AND {where}").to_arrow_table())


def table(**partners: int) -> pa.Table:
    """Keys are written k1=..., as names of arguments."""
    return pa.table({"k": pa.array([int(k[1:]) for k in partners], pa.int64()), "p": pa.array(partners.values())})


class TableLookups:
    """A stream `a` joined with a table `t`, epoch by epoch."""

    a: Stream
    query: DirectQuery

    def run(self, *keys: int | None, **hooks: Any) -> None:
        """An epoch over rows with these keys, the number of the epoch in v."""
        epoch = self.query.next
        times = pa.array([epoch * SECOND] * len(keys), TIME)
        columns = [pa.array(keys, pa.int64()), times, pa.array([epoch] * len(keys), pa.int64())]
        self.query.run([pa.table(columns, schema=self.a.schema)], **hooks)

    def partners(self) -> list[tuple]:
        """Of all results so far: the epoch, the key, and what stood beside it in the table."""
        results = self.query.results().to_pylist()
        return sorted(((r["a_v"], r["a_k"], r.get("t_p")) for r in results), key=str)


class Killed(Exception):
    """The driver dies here."""


def die() -> None:
    raise Killed
