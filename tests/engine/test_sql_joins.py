"""Joins of SQL text without a window, or bounded on one side: their answer is that of DuckDB to the very same text,
whatever is frozen meanwhile."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pyarrow as pa
import pytest
from engine_harness import DirectQuery
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import connect_duckdb, multiset, on_time
from specs import SECOND, handle, join_many, rows, stream

from examples import one_in
from sluice.model.plan.planning import plan_of
from sluice.policies.planning.freezing import Freezing
from sluice.sql import translate
from sluice.verbs.freeze import Freeze

PARTITIONS = 4
NEAR = "b.ts BETWEEN a.ts - INTERVAL 5 SECONDS AND a.ts + INTERVAL 2 SECONDS"
PAIR = "SELECT a.k, a.v AS av, b.v AS bv, b.ts FROM a JOIN b ON a.k = b.k"
THREE = "SELECT a.k, a.v AS av, b.v AS bv, c.v AS cv FROM a, b, c WHERE a.k = b.k AND b.k = c.k"
TEXTS = {
    "any times": PAIR,
    "not after": f"{PAIR} AND b.ts <= a.ts",
    "not long before": f"{PAIR} AND b.ts >= a.ts - INTERVAL 5 SECONDS",
    "long before": f"{PAIR} AND a.ts >= b.ts + INTERVAL 7 SECONDS",
    "three, any times": THREE,
    "three as in the paper": f"{THREE} AND a.ts >= b.ts + INTERVAL 3 SECONDS AND a.ts >= c.ts + INTERVAL 3 SECONDS",
    "three, two of them near": f"{THREE} AND c.ts BETWEEN a.ts - INTERVAL 4 SECONDS AND a.ts + INTERVAL 4 SECONDS",
    "three with a condition": f"{THREE} AND b.ts <= c.ts AND a.v + b.v > c.v",
    "union": "SELECT k, v, ts FROM a WHERE v > 1 UNION ALL SELECT k, v * 2, ts FROM b UNION ALL SELECT k, v, ts FROM a",
    "join of a union": """WITH either(k, t, v) AS (SELECT k, ts, v FROM a UNION ALL (SELECT k, ts, v FROM b))
        SELECT c.k, c.v, either.v AS other FROM c JOIN either ON either.k = c.k AND either.t <= c.ts""",
    "union of a join": f"{PAIR} UNION ALL SELECT k, v, 0 AS bv, ts FROM c",
    "in": "SELECT k, v FROM a WHERE v > 0 AND k IN (SELECT k FROM b WHERE v > 1) AND k IN (SELECT k FROM c)",
    "in, near": f"SELECT k, v FROM a WHERE k IN (SELECT k FROM b WHERE {NEAR} AND v > a.v)",
    "exists": f"SELECT k, v, ts FROM a WHERE EXISTS (SELECT 1 FROM b WHERE a.k = b.k AND {NEAR}) AND v + k > 1",
    "using": "SELECT k, a.v AS av, b.v AS bv, a.ts FROM a JOIN b USING (k) WHERE k > 0 AND b.ts <= a.ts",
    "three, using": "SELECT k, c.v, a.ts, b.v AS bv FROM a JOIN b USING (k) JOIN c USING (k) WHERE c.v = a.v",
    "in a join": f"SELECT k, av FROM ({PAIR}) WHERE k IN (SELECT k FROM c)",
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
@settings(max_examples=one_in(4))
@given(st.data(), st.sampled_from([0, 5 * SECOND, None]))
def test_the_answer_is_that_of_the_batch_query(text: str, data: st.DataObject, delay: int | None) -> None:
    streams = [stream(name, delay=delay) for name in "abc"]
    result = translate(text, {s.name: handle(s) for s in streams}, join_many, within="unbounded")
    plan = plan_of([result.relation])
    step, spread = data.draw(st.sampled_from([SECOND, 5 * SECOND])), data.draw(st.sampled_from([SECOND, 20 * SECOND]))
    seen: list[list[pa.Table]] = [[] for _ in plan.sources]
    with tempfile.TemporaryDirectory() as directory:
        freezing = data.draw(st.none() | st.just(Freezing(0.5)))
        memory = 3000 if freezing else 1 << 30
        query = DirectQuery(plan, Path(directory), 2, PARTITIONS, memory=memory, freezing=freezing)
        for epoch in range(data.draw(st.integers(1, 5))):
            new = [data.draw(rows(s, st.integers(0, 2), epoch * step, spread)) for s in plan.sources]
            for kept, table in zip(seen, new, strict=True):
                kept.append(table)
            for unit in data.draw(st.lists(st.integers(0, PARTITIONS - 1), max_size=2)):
                query.epochs.settings.controller.ask(Freeze(unit, "to see"))
            query.run(new)
        query.drain()
        with connect_duckdb() as db:
            for source, tables in zip(plan.sources, seen, strict=True):
                db.register(source.name, on_time(tables, source.event_time, source.delay)[0])
            expected = db.sql(text).to_arrow_table()
        assert multiset(query.results()) == multiset(expected)
        query.close()
