"""Queries whose state is cut into many pieces, merged range by range: exact, and no larger than it has to be."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from engine_harness import DirectQuery
from oracle import batch_join, connect_duckdb, multiset
from specs import SECOND, TIME, handle, join, stream

from sluice.model.plan.planning import plan_of
from sluice.state import compaction
from sluice.verbs.move import Move

S = stream("s")
KEYS, K = 300, 3


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    """Pieces of a hundred rows or so, in place of a million."""
    for name, size in (("PIECE_BYTES", 4000), ("MERGE_BYTES", 16_000), ("SMALLEST_BYTES", 2000), ("LARGE_BYTES", 1000)):
        monkeypatch.setattr(compaction, name, size)


def ticking(epoch: int, rows: int, hot: float = 0.0) -> pa.Table:
    rng = np.random.default_rng(epoch)
    keys = rng.integers(0, KEYS, rows)
    keys[rng.random(rows) < hot] = KEYS
    times = epoch * SECOND + np.sort(rng.choice(SECOND, rows, replace=False))
    return pa.table([keys, pa.array(times, TIME), rng.integers(0, 1000, rows)], schema=S.schema)


@pytest.mark.parametrize(
    ("memory", "hot", "moves", "epochs"),
    [
        pytest.param(1 << 30, 0.0, False, 80, marks=pytest.mark.slow),
        (1 << 30, 0.5, True, 80),
        (12_000, 0.0, True, 40),
    ],
)
def test_rows_that_are_replaced_leave_large_state(tmp_path, memory, hot, moves, epochs):
    """State far beyond what one merge takes, all of it replaced again and again; units move and wait on disk."""
    plan = plan_of([handle(S).groupBy("k").last(K).agg(total=("v", "sum"), n=("*", "count")).relation])
    query = DirectQuery(plan, tmp_path, sites=2, memory=memory)
    seen = []
    most_rows = most_runs = most_durable = 0.0
    for epoch in range(epochs):
        if epoch == 30:
            query.close()
            query = DirectQuery(plan, tmp_path, sites=2, memory=memory)
        if moves and epoch % 10 == 5:
            query.epochs.settings.controller.ask(Move(epoch % 16, epoch // 10 % 2, "asked for"))
        seen.append(ticking(epoch, 100, hot))
        query.run([seen[-1]])
        record = query.epochs.record
        if epoch >= 20:
            most_rows = max(most_rows, sum(s.rows for s in record.stats.sites))
            most_runs = max(most_runs, *(s.segments for s in record.stats.sites))
            stored = sum(p.stat().st_size for p in (tmp_path / "checkpoint" / "state").iterdir())
            most_durable = max(most_durable, stored / sum(s.durable_bytes for s in record.stats.sites))
    query.drain()
    assert most_rows <= 3 * KEYS * (K - 1) + compaction.FAN_IN * 100  # and what the newest epochs brought
    assert most_runs <= 40
    assert most_durable <= 2
    query.close()
    with connect_duckdb() as db:
        db.register("s", pa.concat_tables(seen))
        frame = f"PARTITION BY k ORDER BY ts ROWS BETWEEN {K - 1} PRECEDING AND CURRENT ROW"
        what = "k, ts, CAST(sum(v) OVER w AS BIGINT) AS total, count(*) OVER w AS n"
        expected = db.sql(f"SELECT {what} FROM s WINDOW w AS ({frame})").to_arrow_table()
    assert multiset(query.results()) == multiset(expected.cast(query.results().schema))


@pytest.mark.parametrize(("memory", "epochs"), [(1 << 30, 30), (12_000, 12)])
def test_a_join_whose_state_is_in_many_pieces(tmp_path, memory, epochs):
    a, b = stream("a", delay=5 * SECOND), stream("b", delay=5 * SECOND)
    spec = join([a, b], 20 * SECOND)
    query = DirectQuery(spec, tmp_path, sites=2, memory=memory)
    rows = [(ticking(epoch, 80, 0.05), ticking(1000 + epoch, 80, 0.05)) for epoch in range(epochs)]
    rows = [(left, right.set_column(1, "ts", left["ts"])) for left, right in rows]
    for new in rows:
        query.run(list(new))
    query.drain()
    assert max(s.segments for s in query.epochs.record.stats.sites) <= 60
    everything = [pa.concat_tables(side) for side in zip(*rows, strict=True)]
    assert multiset(query.results()) == multiset(batch_join(spec, everything))
    query.close()


def test_windows_whose_state_is_in_many_pieces(tmp_path):
    plan = plan_of([handle(S).groupBy("k").window("20 seconds", "5 seconds").agg(total=("v", "sum")).relation])
    query = DirectQuery(plan, tmp_path, sites=2)
    seen = [ticking(epoch, 150) for epoch in range(50)]
    for new in seen:
        query.run([new])
    with connect_duckdb() as db:
        db.register("s", pa.concat_tables(seen))
        last = max(pa.concat_tables(seen)["ts"].cast(pa.int64()).to_pylist())
        expected = db.sql(
            "SELECT k, make_timestamptz(e - 20000000) AS window_start, make_timestamptz(e) AS window_end, "
            "CAST(sum(v) AS BIGINT) AS total FROM s, (SELECT 5000000 * unnest(range(1, 40)) AS e) "
            f"WHERE epoch_us(ts) >= e - 20000000 AND epoch_us(ts) < e AND e <= {last} GROUP BY k, e"
        ).to_arrow_table()
    assert multiset(query.results()) == multiset(expected.cast(query.results().schema))
    query.close()
