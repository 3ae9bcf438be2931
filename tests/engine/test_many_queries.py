"""Many queries in one flow: what they share is there once, and those without rows cost next to nothing."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from engine_harness import DirectQuery
from specs import SECOND, TIME, handle

from sluice.api.stream import DataStream
from sluice.model.plan.plan import Plan
from sluice.model.plan.planning import plan_of
from sluice.model.plan.stream import Stream
from sluice.operators.last_rows import LastRowsGroupBy
from sluice.operators.time_windows import TimeWindowsGroupBy
from sluice.operators.window_join import WindowJoin
from sluice.state.reading import SegmentReader

COLUMNS = pa.schema([("k", pa.int64()), ("ts", TIME), ("v", pa.int64()), ("w", pa.float64())])
A, B = (handle(Stream(name, COLUMNS, "ts", 0)) for name in "ab")


def rows(epoch: int, values: np.ndarray) -> pa.Table:
    """Rows of one second with these values, each of another key."""
    count = len(values)
    keys = np.arange(count)
    times = epoch * SECOND + np.arange(count) * SECOND // max(1, count)
    return pa.table([pa.array(keys), pa.array(times, TIME), pa.array(values), pa.array(values / 2)], schema=COLUMNS)


def started(results: list[DataStream], root: Path, **options: Any) -> tuple[Plan, DirectQuery]:
    plan = plan_of([result.relation for result in results])
    return plan, DirectQuery(plan, root, **options)


def queries_by_value(count: int) -> list[DataStream]:
    """Joins, windows and newest rows, three queries for each value."""
    return [
        query
        for value in range(count)
        for few in [A.filter(f"v = {value}").alias("x")]
        for query in (
            few.join(B.filter(f"v = {value}").alias("y"), on="k", within="20 seconds"),
            few.groupBy("k").window("1 hour").agg(n=("*", "count")),
            few.groupBy("k").last(2).agg(total=("v", "sum")),
        )
    ]


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often operators are run, segments opened and written."""
    counts: Counter[str] = Counter()

    def count(of: type, method: str, name: str) -> None:
        original = getattr(of, method)

        def counting(*args: Any, **kwargs: Any) -> Any:
            counts[name] += 1
            return original(*args, **kwargs)

        monkeypatch.setattr(of, method, counting)

    for operator in (WindowJoin, TimeWindowsGroupBy, LastRowsGroupBy):
        count(operator, "epoch", "operators")
    count(SegmentReader, "read", "segments opened")
    return counts


@pytest.mark.parametrize("queries", [3, 40])
def test_a_row_has_the_same_work_done_however_many_queries_it_is_not_for(tmp_path, counted, queries):
    plan, query = started(queries_by_value(queries), tmp_path, sites=2, partitions=64)
    for epoch in range(3):
        query.run([rows(epoch, np.arange(2 * queries) % queries) for _ in plan.sources])
    counted.clear()
    query.run([rows(3, np.array([1])), rows(3, np.array([], dtype=np.int64))])
    assert counted["operators"] == 3
    assert counted["segments opened"] <= 2 * 3  # runs of the join's other side, and of the newest rows
    query.close()


def test_what_queries_share_takes_as_much_as_for_one(tmp_path):
    """Joins over the same rows with other bounds and conditions, beside the one with the longest bounds alone."""
    sizes = []
    for count in (1, 16):
        results = [A.join(B, on="k", within="60 seconds")]
        results += [A.join(B, on="k", within=f"{n} seconds", where="a.v < b.v") for n in range(1, count)]
        plan, query = started(results, tmp_path / str(count), sites=2, partitions=16)
        assert len(plan.nodes) == count
        for epoch in range(8):
            query.run([rows(epoch, np.arange(400)) for _ in plan.sources])
        memory = sum(site.memory_bytes for site in query.epochs.record.stats.sites)
        sizes.append((memory, sum(run.bytes for manifest in query.epochs.record.manifests for run in manifest)))
        query.close()
    assert all(many <= 1.05 * one for one, many in zip(*sizes, strict=True)), sizes


def test_the_record_of_hundreds_of_queries_is_short(tmp_path):
    """170 values with three queries each; an epoch brings rows for ten of them."""
    plan, query = started(queries_by_value(170), tmp_path, sites=4, partitions=256)
    assert len(plan.outputs) == 510
    query.run([rows(0, np.arange(170)) for _ in plan.sources])
    query.run([rows(1, np.arange(10)) for _ in plan.sources])
    entry = max((tmp_path / "checkpoint" / "journal").iterdir())
    assert entry.stat().st_size <= 200_000
    query.close()
