"""Outer, semi and anti joins equal the batch join: random streams, epoch cuts, delays, restarts, sites and moves."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from engine_harness import DirectQuery, limits
from exactness import check_join
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import connect_duckdb, multiset, on_time
from specs import KEYS, SECOND, TIME, handle, join, join_many, rows, self_join, stream
from wandering import Wanderer

from examples import one_in
from sluice.model.durations import LONGEST
from sluice.model.plan.join import JoinSpec
from sluice.model.plan.join_kind import JoinKind
from sluice.model.plan.planning import plan_of
from sluice.sql import translate

KINDS = [kind for kind in JoinKind if kind is not JoinKind.INNER]
kinds = st.sampled_from(KINDS)
delays = st.sampled_from([0, 5 * SECOND, 60 * SECOND])
bounds = st.integers(0, 60)


def of_kind(spec: JoinSpec, kind: JoinKind) -> JoinSpec:
    return replace(spec, kind=kind)


@given(st.data(), kinds, st.sampled_from(sorted(KEYS)), bounds, bounds, delays, delays)
def test_any_kind_any_key_and_bounds_that_differ(data, kind, key, before, after, delay_a, delay_b):
    type_, values = KEYS[key]
    streams = [stream("a", type_, delay_a), stream("b", type_, delay_b)]
    check_join(data, of_kind(join(streams, (before * SECOND, after * SECOND)), kind), [values, values])


@given(st.data(), kinds, bounds, delays)
def test_a_condition_decides_who_is_a_partner(data, kind, within, delay):
    values, where = KEYS["long"][1], "a.v > b.v OR a.k = 1"
    spec = join([stream("a", delay=delay), stream("b", delay=delay)], within * SECOND, where)
    check_join(data, of_kind(spec, kind), [values, values], where)


@given(st.data(), kinds, bounds, bounds, delays)
def test_a_stream_with_itself(data, kind, before, after, delay):
    spec = self_join(stream("a", delay=delay), (before * SECOND, after * SECOND), "x.v > y.v")
    check_join(data, of_kind(spec, kind), [KEYS["long"][1]], "x.v > y.v")


@given(st.data(), kinds, delays)
def test_a_stream_with_itself_on_different_columns(data, kind, delay):
    check_join(data, of_kind(self_join(stream("a", delay=delay), other_key="v"), kind), [st.integers(0, 3)])


@given(st.data(), kinds, bounds, delays)
def test_several_key_columns(data, kind, within, delay):
    streams = [stream("a", pa.string(), delay), stream("b", pa.string(), delay)]
    values = st.sampled_from(["p", "q"])
    check_join(data, of_kind(join(streams, within * SECOND, on=("k", "v")), kind), [values, values])


@given(st.data(), st.sampled_from([JoinKind.LEFT, JoinKind.SEMI, JoinKind.ANTI]), bounds, delays)
def test_partners_of_any_time_before(data, kind, after, delay):
    values = KEYS["long"][1]
    spec = join([stream("a", delay=delay), stream("b", delay=delay)], (LONGEST, after * SECOND))
    check_join(data, of_kind(spec, kind), [values, values])


@given(st.data(), kinds, st.sampled_from([None, 0, 5 * SECOND]))
def test_partners_of_any_time_at_all(data, kind, delay):
    """Rows without a partner appear when all input has ended."""
    values = KEYS["long"][1]
    spec = join([stream("a", delay=delay), stream("b", delay=delay)], LONGEST)
    check_join(data, of_kind(spec, kind), [values, values])


@given(st.data(), st.sampled_from([None, 0, 5 * SECOND]))
def test_a_semi_join_without_a_window(data, delay):
    values = KEYS["long"][1]
    spec = join([stream("a", delay=delay), stream("b", delay=delay)], LONGEST)
    check_join(data, of_kind(spec, JoinKind.SEMI), [values, values])


def table(rows: list[tuple]) -> pa.Table:
    keys, times, values = zip(*rows, strict=True) if rows else ((), (), ())
    seconds = pa.array([t * SECOND for t in times], TIME)
    return pa.table([pa.array(keys, pa.int64()), seconds, pa.array(values, pa.int64())], schema=stream("a").schema)


def shown(query: DirectQuery) -> list[tuple]:
    return sorted((tuple(row.values()) for row in query.results().to_pylist()), key=str)


@pytest.mark.parametrize("kind", [JoinKind.LEFT, JoinKind.ANTI])
def test_a_row_without_partner_appears_when_none_can_come(tmp_path, kind):
    spec = of_kind(join([stream("a"), stream("b")], 10 * SECOND), kind)
    query = DirectQuery(spec, tmp_path)
    query.run([table([(1, 0, 0)]), table([(2, 10, 0)])])
    assert not shown(query), "a partner may have the time 10 still"
    query.run([table([]), table([(2, 11, 0)])])
    assert len(shown(query)) == 1
    query.run([table([]), table([(2, 30, 0)])])
    assert len(shown(query)) == 1, "and only once"
    query.close()


def test_a_row_of_a_semi_join_appears_with_its_first_partner_alone(tmp_path):
    spec = of_kind(join([stream("a", delay=60 * SECOND), stream("b", delay=60 * SECOND)], 10 * SECOND), JoinKind.SEMI)
    query = DirectQuery(spec, tmp_path)
    query.run([table([(1, 0, 7)]), table([])])
    assert not shown(query)
    for time in (1, 2, 3):
        query.run([table([]), table([(1, time, 0)])])
        assert [row[2] for row in shown(query)] == [7]
    query.close()


def test_null_keys_have_no_partner_and_lie_apart(tmp_path):
    spec = of_kind(join([stream("a"), stream("b")], 10 * SECOND), JoinKind.FULL)
    query = DirectQuery(spec, tmp_path, sites=1, partitions=16)
    nulls = table([(None, time, 0) for time in range(100)])
    query.run([nulls, nulls])
    units = query.epochs.record.stats.units.rows
    assert (units > 0).sum() > 8, "they are no hot key"
    query.run([table([(1, 200, 0)]), table([(1, 200, 0)])])
    assert len(shown(query)) == 201
    query.close()


@pytest.mark.parametrize("kind", [JoinKind.LEFT, JoinKind.FULL, JoinKind.ANTI])
def test_a_null_key_is_no_partner_of_a_key_with_its_hash(tmp_path, monkeypatch, kind):
    import numpy as np

    from sluice.operators import row_hashing

    zeros = lambda columns, rows=None: np.zeros(len(columns[0]), dtype=np.uint32)  # noqa: E731
    monkeypatch.setattr(row_hashing, "hash_keys", zeros)
    monkeypatch.setattr(row_hashing, "hash_group_keys", zeros)
    query = DirectQuery(of_kind(join([stream("a"), stream("b")], 10 * SECOND), kind), tmp_path)
    query.run([table([(None, 0, 1), (5, 0, 2), (None, 0, 3)]), table([(5, 0, 7), (None, 0, 8)])])
    query.run([table([(6, 50, 4)]), table([(8, 50, 9)])])
    alone = [("None", 1), ("None", 3)]
    assert [(str(row[0]), row[2]) for row in shown(query) if row[2] in (1, 3)] == alone
    pairs = [] if kind is JoinKind.ANTI else [(2, 7)]
    assert [(row[2], row[5]) for row in shown(query) if len(row) > 3 and None not in (row[2], row[5])] == pairs
    query.close()


def test_equal_hashes_of_different_keys_are_no_partners(tmp_path, monkeypatch):
    import numpy as np

    from sluice.operators import row_hashing

    monkeypatch.setattr(row_hashing, "hash_keys", lambda columns: np.zeros(len(columns[0]), dtype=np.uint32))
    spec = of_kind(join([stream("a"), stream("b")], 10 * SECOND), JoinKind.ANTI)
    query = DirectQuery(spec, tmp_path)
    query.run([table([(key, key, 0) for key in range(9)]), table([(key, key, 0) for key in range(0, 9, 2)])])
    query.run([table([]), table([(99, 50, 0)])])
    assert [row[0] for row in shown(query)] == [1, 3, 5, 7]
    query.close()


NEAR = "b.ts BETWEEN a.ts - INTERVAL 3 SECONDS AND a.ts + INTERVAL 5 SECONDS"
PAIR = "a.k AS ak, a.v AS av, b.k AS bk, b.v AS bv"
C_NEAR_A = "c.ts BETWEEN a.ts - INTERVAL 2 SECONDS AND a.ts + INTERVAL 6 SECONDS"
C_NEAR_B = "c.ts BETWEEN b.ts - INTERVAL 2 SECONDS AND b.ts + INTERVAL 6 SECONDS"
B_AFTER_A = "b.ts BETWEEN a.ts + INTERVAL 2 SECONDS AND a.ts + INTERVAL 5 SECONDS"
TEXTS = {
    "left": f"SELECT {PAIR} FROM a LEFT JOIN b ON a.k = b.k AND {NEAR}",
    "left with conditions": f"SELECT {PAIR} FROM a LEFT JOIN b ON a.k = b.k AND {NEAR} AND a.v > 1 AND b.v < 3",
    "right, then where": f"SELECT {PAIR} FROM a RIGHT JOIN b ON a.k = b.k AND {NEAR} WHERE a.v IS NULL OR b.v > 1",
    "full": f"SELECT {PAIR} FROM a FULL OUTER JOIN b ON a.k = b.k AND {NEAR} AND a.v <= b.v",
    "semi": f"SELECT * FROM a SEMI JOIN b ON a.k = b.k AND {NEAR} WHERE a.v > 0",
    "anti": f"SELECT * FROM a ANTI JOIN b ON a.k = b.k AND {NEAR} AND b.v > a.v",
    "theta, left": f"SELECT {PAIR} FROM a LEFT JOIN b ON a.v > b.v AND {NEAR}",
    "theta, full": f"SELECT {PAIR} FROM a FULL JOIN b ON a.v > b.v AND a.k <> b.k AND {NEAR}",
    "theta, semi": f"SELECT * FROM a SEMI JOIN b ON a.v > b.v AND {NEAR}",
    "theta, anti": f"SELECT * FROM a ANTI JOIN b ON abs(a.v - b.v) <= 1 AND {NEAR}",
    "theta, no order": f"SELECT * FROM a ANTI JOIN b ON (a.v + b.v = 3 OR a.k = 2) AND {NEAR}",
    "two left": f"SELECT {PAIR}, c.v AS cv FROM a LEFT JOIN b ON a.k = b.k AND {NEAR} "
    f"LEFT JOIN c ON a.k = c.k AND {C_NEAR_A}",
    "left by a side that may be null": f"SELECT {PAIR}, c.v AS cv FROM a LEFT JOIN b ON a.k = b.k AND {NEAR} "
    f"LEFT JOIN c ON b.k = c.k AND {C_NEAR_B}",
    "left of what comes later": f"SELECT {PAIR}, c.v AS cv FROM a LEFT JOIN b ON a.k = b.k AND {B_AFTER_A} "
    f"LEFT JOIN c ON a.k = c.k AND {C_NEAR_A}",
    "full over full": f"SELECT {PAIR}, c.v AS cv FROM a FULL JOIN b ON a.k = b.k AND {NEAR} "
    f"FULL JOIN c ON b.k = c.k AND {C_NEAR_B} AND a.v <= c.v",
    "anti, then inner": f"SELECT a.k, a.v AS av, c.v AS cv FROM a ANTI JOIN b ON a.k = b.k AND {NEAR} "
    f"JOIN c ON a.k = c.k AND {C_NEAR_A}",
    "inner, then semi": f"SELECT {PAIR} FROM a JOIN b ON a.k = b.k AND {NEAR} SEMI JOIN c ON a.v = c.v AND {C_NEAR_A}",
    "left using": f"SELECT k, {PAIR} FROM a LEFT JOIN b USING (k, ts)",
    "right using": f"SELECT k, ts, {PAIR} FROM a RIGHT JOIN b USING (k, ts) WHERE k > 0",
    "full using": f"SELECT k + 1 AS next, ts, {PAIR} FROM a FULL JOIN b USING (ts, k) WHERE ts IS NOT NULL OR k = 1",
    "anti using": "SELECT * FROM a ANTI JOIN b USING (k, ts)",
    "full using, then semi": f"SELECT k, ts, {PAIR} FROM a FULL JOIN b USING (k, ts) "
    f"SEMI JOIN c ON c.v = a.v AND {C_NEAR_A}",
    "theta over left": f"SELECT {PAIR}, c.v AS cv FROM a LEFT JOIN b ON a.k = b.k AND {NEAR} "
    f"LEFT JOIN c ON c.v > a.v AND {C_NEAR_A}",
}
LAST = 10**6


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
@settings(max_examples=one_in(4))
@given(st.data(), delays)
def test_sql_is_answered_as_the_batch_query_is(text: str, data: st.DataObject, delay: int) -> None:
    streams = [stream(name, delay=delay) for name in "abc"]
    plan = plan_of([translate(text, {s.name: handle(s) for s in streams}, join_many).relation])
    step, spread = data.draw(st.sampled_from([SECOND, 5 * SECOND])), data.draw(st.sampled_from([SECOND, 20 * SECOND]))
    seen: list[list[pa.Table]] = [[] for _ in plan.sources]
    with tempfile.TemporaryDirectory() as directory:

        def start() -> DirectQuery:
            sites = data.draw(st.integers(1, 3))
            return DirectQuery(plan, Path(directory), sites, 4, wanted=Wanderer(sites, sites), **limits(data))

        query = start()
        for epoch in range(data.draw(st.integers(1, 5))):
            new = [data.draw(rows(s, st.integers(0, 2), epoch * step, spread)) for s in plan.sources]
            for kept, table in zip(seen, new, strict=True):
                kept.append(table)
            query.run(new)
            if data.draw(st.integers(0, 3)) == 0:
                query.close()
                query = start()
        query.drain()
        for _ in range(2):  # nothing has a partner here, and all rows before are settled
            query.run([table_of_nulls(LAST) for _ in plan.sources])
        query.drain()
        with connect_duckdb() as db:
            for source, tables in zip(plan.sources, seen, strict=True):
                db.register(source.name, on_time(tables, source.event_time, source.delay)[0])
            expected = db.sql(text).to_arrow_table()
        assert multiset(query.results()) == multiset(expected)
        query.close()


def table_of_nulls(time: int) -> pa.Table:
    """A row that matches nothing."""
    return table([(None, time, None)])


@pytest.mark.parametrize("kind", [JoinKind.FULL, JoinKind.SEMI])
def test_state_does_not_grow(tmp_path, kind):
    """Partners are kept for the bounds in both directions together, and no longer."""
    spec = of_kind(join([stream("a", delay=SECOND), stream("b", delay=SECOND)], (2 * SECOND, 3 * SECOND)), kind)
    query = DirectQuery(spec, tmp_path, sites=1, partitions=1)
    held = []
    for second in range(60):
        query.run([table([(None, second, 0), *((k, second, 0) for k in range(4))]), table([(1, second, 0)])])
        held.append(sum(site.rows for site in query.epochs.record.stats.sites))
    assert max(held[40:]) <= 1.2 * max(held[20:40])
    assert max(held) <= 2.5 * 7 * (2 * 2 + 3 + 1 + 1), "as many times as a join has of the rows that can be reached"
    query.close()
