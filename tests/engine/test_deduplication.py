"""Dropped duplicates equal the batch query: random streams with ties, epoch cuts, delays, moves, restarts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from duplicates_oracle import first_rows
from engine_harness import DirectQuery
from group_by_oracle import sessions_of, source, windows_of
from hypothesis import given
from hypothesis import strategies as st
from random_epochs import check
from specs import KEYS, SECOND, TIME, handle

from sluice import testing
from sluice.api.stream import DataStream
from sluice.kernels.spacing import find_spaced
from sluice.model.errors import FlowError
from sluice.model.plan.planning import plan_of
from sluice.model.plan.stream import Stream
from sluice.operators import row_hashing

COUNTED = {"n": ("*", "count")}
delays = st.sampled_from([0, 2, SECOND, 60 * SECOND])


@st.composite
def tied_rows(draw: st.DrawFn, origin: DataStream, values: Any, around: int, spread: int) -> pa.Table:
    """Rows of an epoch, of which many are of one time, and some are equal."""
    count = draw(st.integers(0, 12))

    def column(each: st.SearchStrategy) -> list[Any]:
        return draw(st.lists(each, min_size=count, max_size=count))

    near = st.integers(max(0, around - spread), around + spread)
    times = st.one_of(near, st.sampled_from([max(0, around + offset) for offset in (-1, 0, 1, 2)]))
    floats = st.one_of(st.none(), st.sampled_from([0.5, -2.25, float("nan"), float("inf")]))
    columns = [
        column(st.one_of(st.none(), values, values)),
        column(times),
        column(st.one_of(st.none(), st.integers(-1, 1))),
        column(floats),
    ]
    fields = origin.stream.schema
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, fields, strict=True)], schema=fields)


@given(st.data(), st.sampled_from(sorted(KEYS)), delays)
def test_each_key_once_for_good(data, kind, delay):
    key, values = KEYS[kind]
    a = source("a", key, delay)
    check(data, [a.dropDuplicates(["k"])], [(a, values)], [lambda db, m: first_rows("a", m["a"])], tied_rows)


@given(st.data(), st.sampled_from([0, 1, 3, SECOND, 3600 * SECOND]), delays)
def test_again_after_a_while(data, within, delay):
    a = source("a", pa.string(), delay)
    result = a.dropDuplicates(["k"], within=f"{within} microseconds")
    oracle = lambda db, m: first_rows("a", m["a"], within)  # noqa: E731
    check(data, [result], [(a, KEYS["string"][1])], [oracle], tied_rows)


@given(st.data(), delays)
def test_distinct_rows_and_distinct_values(data, delay):
    """Whole rows come at once; those of some columns when no earlier one can come."""
    a = source("a", pa.string(), delay)
    results = [a.distinct(), a.select("k", "v").distinct(), a.dropDuplicates(["k", "ts"])]
    oracles = [
        lambda db, m: "SELECT DISTINCT k, ts, v, w FROM a",
        lambda db, m: f"SELECT k, v FROM a GROUP BY k, v HAVING epoch_us(min(ts)) < {m['a']}",
        lambda db, m: first_rows("a", m["a"], keys="k, ts"),
    ]
    check(data, results, [(a, KEYS["string"][1])], oracles, tied_rows)


@given(st.data(), st.sampled_from([None, 2 * SECOND]), delays)
def test_windows_of_what_is_left(data, within, delay):
    """A chain on the same key, and one on another."""
    a = source("a", delay=delay)
    first = a.dropDuplicates(["k"], within=None if within is None else f"{within} microseconds")
    some = {"n": ("*", "count"), "total": ("v", "sum")}
    results = [first.groupBy("k").window("5 seconds").agg(**some), first.groupBy("v").window("5 seconds").agg(**some)]
    oracles = [
        lambda db, m: windows_of(f"({first_rows('a', m['a'], within)})", 5 * SECOND, 5 * SECOND, some, m["a"]),
        lambda db, m: windows_of(f"({first_rows('a', m['a'], within)})", 5 * SECOND, 5 * SECOND, some, m["a"], "v, "),
    ]
    check(data, results, [(a, KEYS["long"][1])], oracles, tied_rows)


@given(st.data(), delays, delays)
def test_the_union_of_streams(data, first_delay, second_delay):
    """The slower stream decides when a row is the first."""
    a, b = source("a", delay=first_delay), source("b", delay=second_delay)
    result = a.union(b.filter("v > 0")).dropDuplicates(["k"])
    text = "(SELECT * FROM a UNION ALL SELECT * FROM b WHERE v > 0)"
    values = st.integers(0, 4)
    oracle = lambda db, m: first_rows(text, min(m.values()))  # noqa: E731
    check(data, [result], [(a, values), (b, values)], [oracle], tied_rows)


@given(st.data(), delays)
def test_windows_without_an_aggregate(data, delay):
    """The groups that a window has."""
    a = source("a", pa.string(), delay)
    results = [a.groupBy("k").window("5 seconds", "2 seconds").agg(), a.groupBy("k").session_window("2 seconds").agg()]
    oracles = [
        lambda db, m: f"SELECT * EXCLUDE (n) FROM ({windows_of('a', 5 * SECOND, 2 * SECOND, COUNTED, m['a'])})",
        lambda db, m: f"SELECT * EXCLUDE (n) FROM ({sessions_of('a', 2 * SECOND, COUNTED, m['a'])})",
    ]
    check(data, results, [(a, KEYS["string"][1])], oracles, tied_rows)


@given(st.data(), st.integers(0, 4), delays)
def test_pairs_of_a_join(data, within, delay):
    """The event time is hidden: that of the pair, the greatest of its rows'."""
    a, b = source("a", delay=delay), source("b", delay=delay)
    result = a.join(b, on="k", within=f"{within} seconds").select("a_k AS k", "b_v AS v").distinct()

    def oracle(db: Any, marks: dict[str, int]) -> str:
        return f"""SELECT a.k, b.v FROM a JOIN b ON a.k = b.k
            AND abs(epoch_us(a.ts) - epoch_us(b.ts)) <= {within * SECOND}
            GROUP BY ALL HAVING epoch_us(min(greatest(a.ts, b.ts))) < {min(marks.values())}"""

    values = st.integers(0, 2)
    check(data, [result], [(a, values), (b, values)], [oracle], tied_rows)


@given(st.data(), st.sampled_from([None, 3]), delays)
def test_keys_that_share_a_hash(data, within, delay):
    with pytest.MonkeyPatch.context() as patch:
        same = lambda columns, *, rows=None: np.zeros(rows or len(columns[0]), dtype="uint32")  # noqa: E731
        patch.setattr(row_hashing, "hash_group_keys", same)
        a = source("a", pa.string(), delay)
        result = a.dropDuplicates(["k"], within=None if within is None else f"{within} microseconds")
        oracle = lambda db, m: first_rows("a", m["a"], within)  # noqa: E731
        check(data, [result], [(a, KEYS["string"][1])], [oracle], tied_rows)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 30))), st.integers(0, 9))
def test_times_that_are_apart(rows, apart):
    rows = sorted(set(rows))
    chosen, last = [], {}
    for group, time in rows:
        chosen.append(group not in last or time > last[group] + apart)
        if chosen[-1]:
            last[group] = time
    groups, times = (np.array([row[i] for row in rows], dtype=np.int64) for i in (0, 1))
    assert find_spaced(groups, times, apart).tolist() == chosen


def table_of(a: DataStream, keys: list[int], times: list[int]) -> pa.Table:
    columns = [pa.array(keys), pa.array(times, TIME), pa.array(range(len(keys))), pa.array([0.0] * len(keys))]
    return pa.table(columns, schema=a.stream.schema)


def run_month(tmp_path, result: DataStream, a: DataStream) -> list[int]:
    """The rows of state after each of many epochs, in which each of 50 keys comes four times, 10 of them new ones."""
    query = DirectQuery(plan_of([result.relation]), tmp_path, sites=1)
    rows = []
    for epoch in range(120):
        keys = [10 * epoch + i for i in range(50) for _ in range(4)]
        query.run([table_of(a, keys, [epoch * SECOND + i for i in range(200)])])
        rows.append(query.epochs.record.stats.sites[0].rows)
    query.close()
    return rows


def test_keys_within_a_time_do_not_pile_up(tmp_path):
    a = source("a", delay=2 * SECOND)
    rows = run_month(tmp_path, a.dropDuplicates(["k"], within="5 seconds"), a)
    assert max(rows[60:]) <= 1.5 * max(rows[20:60])


def test_whole_rows_are_forgotten_with_the_watermark(tmp_path):
    a = source("a", delay=2 * SECOND)
    rows = run_month(tmp_path, a.distinct(), a)
    assert max(rows[60:]) <= 1.5 * max(rows[20:60])


def test_what_is_kept_for_good_is_the_keys_alone(tmp_path):
    """Wide rows do not stay: of those that were shown the key and the time do, once for each key."""
    a = source("a", delay=0)
    wide = handle(Stream("a", a.stream.schema.append(pa.field("text", pa.string())), "ts", 0))
    query = DirectQuery(plan_of([wide.dropDuplicates(["k"]).relation]), tmp_path, sites=1)
    for epoch in range(100):
        keys = [epoch, 0, 1]
        rows = table_of(a, keys, [epoch * SECOND + i for i in range(3)])
        query.run([rows.append_column(wide.stream.schema.field("text"), pa.array(["x" * 1000] * 3))])
    stats = query.epochs.record.stats.sites[0]
    assert query.results().num_rows == 100
    assert stats.rows <= 100 + 3 * stats.segments
    assert stats.durable_bytes < 30_000
    query.close()


def test_rows_come_when_the_watermark_has_passed_them(tmp_path):
    a = source("a", delay=10 * SECOND)
    query = DirectQuery(plan_of([a.dropDuplicates(["k"]).relation]), tmp_path, sites=1)
    query.run([table_of(a, [1, 2], [20 * SECOND, 30 * SECOND])])
    assert query.results().num_rows == 0
    query.run([table_of(a, [1], [25 * SECOND])])
    query.run([table_of(a, [2, 3], [22 * SECOND, 31 * SECOND])])
    assert query.results()["k"].to_pylist() == [1]
    query.run([table_of(a, [3], [40 * SECOND])])
    assert query.results()["ts"].cast(pa.int64()).to_pylist() == [20 * SECOND, 22 * SECOND]
    query.close()


@pytest.mark.parametrize("seed", [None, 1, 2])
def test_the_end_of_input_shows_the_last_rows(seed):
    a = source("a", delay=60 * SECOND)
    rows = [{"k": k, "ts": f"2026-01-02 09:30:{second:02}", "v": 0, "w": 0.0} for k, second in ((1, 5), (1, 3), (2, 9))]
    for result, seconds in ((a.dropDuplicates(["k"]), [3, 9]), (a.dropDuplicates(["k"], within="1 second"), [3, 5, 9])):
        writer = result.writeStream.option("closeAtEnd", True).trigger(availableNow=True)
        outcome = testing.run(writer, {"a": [rows[:1], rows[1:]]}, disturb=seed)
        assert sorted(row["ts"].second for row in outcome.rows()) == seconds


def test_what_is_refused():
    a, unordered = source("a"), source("b", delay=None)
    nested = handle(Stream("n", a.stream.schema.append(pa.field("s", pa.struct([("x", pa.int64())]))), "ts", 0))
    for refused, message in [
        (lambda: a.dropDuplicates("k"), r"dropDuplicates takes a list of columns, such as \['id'\].*not 'k'"),
        (lambda: a.dropDuplicates([]), "takes a list of columns"),
        (lambda: a.dropDuplicates(["nope"]), "no column 'nope' to tell duplicates by; it has k, ts, v, w"),
        (lambda: a.dropDuplicates(["k", "K"]), "dropDuplicates names 'k' twice"),
        (lambda: a.dropDuplicates([1]), "dropDuplicates takes names of columns"),
        (lambda: a.dropDuplicates(["k"], within="soon"), "dropDuplicates's within"),
        (lambda: unordered.dropDuplicates(["k"]), "delay=None.*dropDuplicates would never give a result"),
        (lambda: nested.distinct(), "column 's' of stream 'n' has type struct.*cannot be told apart by"),
    ]:
        with pytest.raises(FlowError, match=message):
            refused()


def test_spark_s_names():
    a = source("a", delay=7 * SECOND)
    assert a.dropDuplicatesWithinWatermark(["k"]).relation.origin.spec == (
        a.drop_duplicates(["k"], within="7 seconds").relation.origin.spec
    )
    assert a.dropDuplicates(["k"]).columns == a.columns
    assert "kept for good" in plan_of([a.dropDuplicates(["k"]).relation]).describe()
