"""Every kind of operator is added to a flow that runs, and dropped again. It has the rows that come from its first
epoch on, with all their columns, also those that nobody has read until then; and nothing of it stays."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from engine_harness import DirectQuery
from oracle import multiset
from specs import SECOND, TIME

from sluice import Flow
from sluice.api.output_mode import OutputMode, in_mode
from sluice.api.stream import DataStream
from sluice.engine.compiled_plan import compiled
from sluice.engine.split import SplitTask
from sluice.model.plan.relation import Relation
from sluice.model.plan.stream import Stream
from sluice.testing.local_query import EpochRows
from sluice.verbs.freeze import Freeze
from sluice.verbs.move import Move
from sluice.verbs.split import Split

FIELDS = [("k", pa.int64()), ("ts", TIME), ("v", pa.int64()), ("w", pa.float64()), ("came", pa.int64()), ("till", TIME)]
STREAMS = tuple(Stream(name, pa.schema(FIELDS), "ts", delay) for name, delay in (("a", 2 * SECOND), ("b", 0)))
FLOW = Flow(name="flow")
TABLE = pa.table({"k": pa.array([0, 1, 1, None]), "p": pa.array([5, 6, 7, 8])})
SMALL, LARGE = FLOW.table("small", TABLE), FLOW.table("large", TABLE, divided=True)
SUMS = {"n": ("*", "count"), "total": ("v", "sum"), "low": ("w", "min")}
NEAR = ("3 seconds", "5 seconds")
EPOCHS, ADDED_AT = 7, 3
Queries = dict[str, Relation]


class ReadingFiles(DirectQuery):
    """A query whose columns that nobody reads are null, as those of files are."""

    def split(self, split: SplitTask, rows: EpochRows) -> Any:
        return super().split(split, [self._as_read(split, number, table) for number, table in enumerate(rows)])

    def _as_read(self, split: SplitTask, source: int, rows: pa.Table) -> pa.Table:
        read = compiled(split.plan).columns_read(source)
        columns = [rows[f.name] if f.name in read else pa.nulls(len(rows), f.type) for f in rows.schema]
        return pa.table(columns, schema=rows.schema)


def queries(a: DataStream, b: DataStream) -> Queries:
    until = a.join(b, on="k", within=("0 seconds", "a.till"))
    windows = a.groupBy("k").window("5 seconds").agg(**SUMS)
    top = a.groupBy("k").top(3, "v DESC", "ts", "w", "came").relation
    running = a.groupBy("k").agg(**SUMS).relation
    joins = {how: a.join(b, on="k", within=NEAR, how=how) for how in ("left", "right", "full", "semi", "anti")}
    appended = {
        **joins,
        "windows of pairs": joins["left"]
        .groupBy("a_k")
        .window("6 seconds")
        .agg(n=("*", "count"), total=("b_v", "sum")),
        "first of windows": windows.groupBy("window_end").top(2, "total DESC", "k"),
        "sessions": a.groupBy("k").session_window("1 second").agg(**SUMS),
        "first ones": a.dropDuplicates(["k", "v"]),
        "first ones for a while": a.dropDuplicates(["k", "v"], within="4 seconds"),
        "late": a.late(),
        "windows of both": a.union(b).groupBy("k").window("5 seconds").agg(**SUMS),
        "small table": a.join(SMALL, on="k", how="left").groupBy("small_p").window("5 seconds").agg(n=("a_v", "sum")),
        "large table": a.join(LARGE, on="k", how="left"),
        "until": until.groupBy("a_k", "a_till").agg(n=("*", "count"), total=("b_v", "sum")),
    }
    changing = {"top": in_mode(top, OutputMode.UPDATE), "running": in_mode(running, OutputMode.UPDATE)}
    return {name: rows.relation for name, rows in appended.items()} | changing


def streams(step: Callable[[DataStream], DataStream] = lambda rows: rows) -> tuple[DataStream, ...]:
    return tuple(step(DataStream(FLOW._registry, s.name, Relation(s, (), s))) for s in STREAMS)


def rows(rng: np.random.Generator, epoch: int) -> pa.Table:
    """Some of them late, some without a key."""
    count = int(rng.integers(6, 14))
    times = rng.choice(np.arange(max(0, 3 * epoch - 4) * 20, (3 * epoch + 3) * 20), count, replace=False) * SECOND // 20
    values = rng.integers(-3, 9, count), rng.choice([0.5, 1e9, -2.25], count), np.full(count, epoch)
    columns = [rng.integers(0, 4, count), times, *values, times + rng.integers(0, 5 * SECOND, count)]
    missing = [rng.random(count) < 0.1, *[None] * 5]
    arrays = [pa.array(c, kind, mask=m) for c, (_, kind), m in zip(columns, FIELDS, missing, strict=True)]
    return pa.table(arrays, schema=pa.schema(FIELDS))


def start(root: Path, running: Mapping[str, Relation]) -> DirectQuery:
    tables = FLOW._registry.tables
    return ReadingFiles(running, root, partitions=4, streams=STREAMS, tables=tables, confirmed=True)


def results(query: DirectQuery, names: Mapping[str, Relation]) -> dict[str, Counter]:
    tables = {name: query.results_of(name) for name in names}
    return {name: multiset(table) if table.num_columns else Counter() for name, table in tables.items()}


def ask(query: DirectQuery, verb: type[Move] | type[Split] | type[Freeze]) -> None:
    """Something is done to some units, where it can be."""
    routing = query.epochs.record.routing
    for unit in routing.ids.array.tolist()[::3]:
        given = (1 - routing.holder(unit),) if verb is Move else ()
        query.epochs.settings.controller.ask(verb(unit, *given, "by hand"))


@pytest.fixture(scope="module")
def batches() -> list[list[pa.Table]]:
    rng = np.random.default_rng(7)
    return [[rows(rng, epoch) for _ in STREAMS] for epoch in range(EPOCHS)]


@pytest.fixture(scope="module")
def expected(batches: list[list[pa.Table]], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Counter]:
    """What those have that were there from the start, and got no row before."""
    from_the_start = queries(*streams(lambda rows: rows.filter(f"came >= {ADDED_AT}")))
    query = start(tmp_path_factory.mktemp("expected"), from_the_start)
    for batch in batches:
        query.run(batch)
    query.close()
    return results(query, from_the_start)


@pytest.mark.parametrize(("verb", "restarts"), [(Move, True), (Split, False), (Freeze, True)])
def test_an_operator_that_is_added_has_whole_rows_from_then_on(
    tmp_path: Path, batches: list[list[pa.Table]], expected: dict[str, Counter], verb: Any, restarts: bool
) -> None:
    running, added = {"keys": streams()[0].select("k").relation}, queries(*streams())
    query = start(tmp_path, running)
    for epoch, batch in enumerate(batches):
        if epoch == ADDED_AT:
            query.change(added)
        elif epoch == ADDED_AT + 1:
            ask(query, verb)
        elif epoch == ADDED_AT + 2 and restarts:
            query.close()
            query = start(tmp_path, running | added)
        query.run(batch)
    query.drain()
    assert results(query, added) == expected and all(expected.values())
    query.change(drop=list(added))
    query.run(batches[-1])
    record = query.epochs.record
    assert (record.routing.units, record.tables, record.files()) == (0, (), set())
    for place in ("checkpoint/state", "checkpoint/tables", "memory", "disk"):
        assert not [path for path in (tmp_path / place).rglob("*") if path.is_file()], place
    query.close()
