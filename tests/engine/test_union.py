"""Unions of streams and results: every row once, by its own stream's event time, and the slowest watermark counts."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import chaos_flows
import numpy as np
import pyarrow as pa
import pytest
from chaos_flows import rows
from engine_harness import DirectQuery, limits
from group_by_oracle import source
from hypothesis import given
from hypothesis import strategies as st
from oracle import multiset, rounded
from specs import SECOND, TIME, handle, join_many

from sluice import Flow, testing
from sluice.api.stream import DataStream
from sluice.model.errors import FlowError
from sluice.model.plan.plan import Plan
from sluice.model.plan.planning import plan_of
from sluice.model.plan.stream import Stream
from sluice.operators import operator

FAST = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
A, B = source("a"), source("b", delay=5 * SECOND)


@given(st.data(), st.sampled_from(["united", "united_results"]), st.integers(0, 10_000))
def test_equals_the_batch_query(data, name, seed):
    """Whatever the epochs, delays, sites, memory and restarts."""
    rng = np.random.default_rng(seed)
    flow = chaos_flows.drawn(name, rng)
    seen: list[list[pa.Table]] = [[] for _ in flow.plan.sources]
    with tempfile.TemporaryDirectory(dir=FAST) as directory:

        def start() -> DirectQuery:
            sites, map_tasks = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 3))
            return DirectQuery(flow.plan, Path(directory), sites, partitions=4, map_tasks=map_tasks, **limits(data))

        query = start()
        for epoch in range(data.draw(st.integers(1, 5))):
            silent = data.draw(st.integers(0, len(seen)))
            counts = [0 if source == silent else int(rng.integers(0, 40)) for source in range(len(seen))]
            new = [rows(rng, count, epoch * 4 * SECOND, 3 * SECOND, 4, nulls=True) for count in counts]
            query.run(new)
            for own, table in zip(seen, new, strict=True):
                own.append(table)
            if data.draw(st.integers(0, 2)) == 0:
                query.close()
                query = start()
        query.drain()
        answers, _ = flow.expected(seen)
        assert [rounded(query.results(i)) for i in range(len(answers))] == answers
        query.close()


def epoch(*times: int, key: int = 1) -> pa.Table:
    """Rows at these seconds, each with its time as its value."""
    columns = [[key] * len(times), [t * SECOND for t in times], list(times), [0.0] * len(times)]
    return pa.table(
        [pa.array(c, f.type) for c, f in zip(columns, A.stream.schema, strict=True)], schema=A.stream.schema
    )


def plan(*results: DataStream) -> Plan:
    return plan_of([result.relation for result in results])


def test_a_stream_that_falls_silent_holds_windows_back_and_says_so(tmp_path):
    windows = A.union(B).groupBy("k").window("10 seconds").agg(n=("*", "count"))
    query = DirectQuery(plan(windows), tmp_path)
    query.run([epoch(1, 30), epoch(2, 9)])
    assert query.results().num_rows == 0, "of b rows of the time 4 may still come"
    query.run([epoch(40), epoch()])
    assert query.results().num_rows == 0
    query.run([epoch(), epoch(17)])
    assert query.results()["n"].to_pylist() == [3]
    query.close()


def test_progress_names_streams_that_are_silent():
    flow = Flow()
    a, b, apart = (flow.readStream(name, "k int, ts timestamp", eventTime="ts", delay="5 seconds") for name in "abc")
    times = [f"2026-01-01 00:00:{second:02d}" for second in (10, 20, 30)]

    def brings(*epochs: int) -> list:
        return [[{"k": 1, "ts": times[number]}] if number in epochs else [] for number in range(3)]

    written = [a.union(b), apart]
    outcome = testing.run(written, {"a": brings(0, 1, 2), "b": brings(1), "c": brings(0)})
    silent = [[(s.stream, s.behind_seconds) for s in epoch.progress.silent_streams] for epoch in outcome.epochs[:3]]
    assert silent == [[("b", None)], [], [("b", 10.0)]], "c meets no other stream"


def test_the_least_watermark_of_nested_unions_counts(tmp_path):
    c = source("c")
    windows = A.union(B.union(c).filter("v > 0")).groupBy("k").window("10 seconds").agg(n=("*", "count"))
    flow = plan(windows)
    assert [len(node.inflows[0]) for node in flow.nodes] == [3] and flow.levels == 1
    query = DirectQuery(flow, tmp_path)
    query.run([epoch(1, 50), epoch(2, 50), epoch(3, 9)])
    assert query.results().num_rows == 0
    query.run([epoch(), epoch(), epoch(10)])
    assert query.results()["n"].to_pylist() == [4]
    query.close()


def test_the_newest_rows_of_two_streams_come_in_the_order_of_time(tmp_path):
    """Neither has a delay, and still rows of the faster one wait."""
    newest = A.union(source("b")).groupBy("k").last(2).agg(total=("v", "sum"))
    query = DirectQuery(plan(newest), tmp_path)
    query.run([epoch(1, 3, 5, 7), epoch(2)])
    assert sorted(query.results()["total"].to_pylist()) == [1, 3]
    query.run([epoch(), epoch(4, 8)])
    assert sorted(query.results()["total"].to_pylist()) == [1, 3, 5, 7, 9, 12]
    waiting = operator(query.plan.nodes[0].spec)
    assert waiting.state_layout(0).time_step, "they are found by time, not by a look at all state"
    query.close()


def test_a_row_of_a_stream_that_is_there_twice_comes_twice(tmp_path):
    both = A.union(A.filter("v > 1"))
    windows = both.groupBy("k").window("10 seconds").agg(n=("*", "count"))
    pairs = both.alias("x").join(A.alias("y"), on="k", within="0 seconds").select("x_v", "y_v")
    query = DirectQuery(plan(both, windows, pairs), tmp_path, sites=2, map_tasks=1)
    query.run([epoch(1, 2, 20)])
    assert sorted(query.results(0)["v"].to_pylist()) == [1, 2, 2, 20, 20]
    assert query.results(1)["n"].to_pylist() == [3]
    assert sorted(query.results(2)["x_v"].to_pylist()) == [1, 2, 2, 20, 20]
    query.close()


def of_types(name: str, event_time: str = "ts", **types: pa.DataType) -> DataStream:
    return handle(Stream(name, pa.schema(list(types.items())), event_time, 0))


@pytest.mark.parametrize(
    ("left", "right", "common"),
    [
        (pa.int32(), pa.int64(), pa.int64()),
        (pa.int64(), pa.float32(), pa.float64()),
        (pa.int32(), pa.decimal128(5, 2), pa.decimal128(12, 2)),
        (pa.date32(), TIME, TIME),
        (pa.string(), pa.int32(), pa.int64()),
        (pa.large_string(), pa.string(), pa.string()),
    ],
)
def test_types_become_one_as_in_spark(left, right, common):
    a, b = of_types("a", ts=TIME, v=left), of_types("b", ts=TIME, v=right)
    for united in (a.union(b), b.union(a), a.unionByName(b)):
        assert united.stream.schema.field("v").type == common
        for relation in united.relation.origin.relations:
            assert relation.stream.schema == united.stream.schema


def test_columns_go_by_place_or_by_name():
    a, b = of_types("a", x=pa.int64(), ts=TIME), of_types("b", "at", y=pa.int64(), at=TIME)
    assert (a.union(b).columns, a.union(b).event_time) == (["x", "ts"], "ts")
    assert (b.unionAll(a).columns, b.unionAll(a).event_time) == (["y", "at"], "at")
    c = of_types("c", "TS", TS=TIME, X=pa.int64(), more=pa.string())
    named = a.unionByName(c, allowMissingColumns=True)
    assert named.columns == ["x", "ts", "more"]
    c_first = of_types("c", ts=TIME, x=pa.int64())
    crossed = a.select("ts", "x").union(c_first.select("ts", "x"))
    assert crossed.event_time == "ts"


def test_event_times_in_different_columns_stay_each_stream_s_own(tmp_path):
    a = of_types("a", ts=TIME, other=TIME)
    b = of_types("b", "other", ts=TIME, other=TIME)
    both = a.union(b)
    assert both.event_time not in both.columns
    query = DirectQuery(plan(both.groupBy().window("10 seconds").agg(n=("*", "count"))), tmp_path)
    times = [pa.array([second * SECOND for second in seconds], TIME) for seconds in ([1, 30], [35, 36])]
    query.run([pa.table(times, ["ts", "other"]), pa.table(times[::-1], ["ts", "other"])])
    assert query.results()["n"].to_pylist() == [2]
    query.close()


def other_flow() -> DataStream:
    return Flow().readStream("a", "k bigint, ts timestamp, v bigint, w double", eventTime="ts")


@pytest.mark.parametrize(
    ("unite", "message"),
    [
        (lambda: A.union(B.select("k", "ts")), "'a' has 4 .k, ts, v, w., stream 'b' 2"),
        (lambda: A.unionByName(B.select("k", "ts", "v")), "stream 'b' has no column 'w'.*allowMissingColumns=True"),
        (lambda: A.select("k", "ts").unionByName(B.select("k", "ts", "v")), "stream 'a' has no column 'v'"),
        (lambda: A.union("b"), "takes a stream of the flow, not str"),
        (lambda: A.union(other_flow()), "belongs to another Flow"),
        (
            lambda: A.select("ts", "k").union(B.select("ts", "ts AS k")),
            "column 'k' would be bigint of stream 'a' and timestamp of stream 'b', and nothing is both; cast",
        ),
        (
            lambda: A.union(of_types("c", k=pa.int64(), ts=pa.timestamp("us"), v=pa.int64(), w=pa.float64())),
            "event time of stream 'a' is TIMESTAMP, that of stream 'c' TIMESTAMP_NTZ",
        ),
        (lambda: A.union(source("c", delay=None)).groupBy("k").window("1 second").agg(), "delay=None"),
    ],
)
def test_what_cannot_be_united_is_refused(unite, message):
    with pytest.raises(FlowError, match=message):
        unite()


def test_explain_names_what_comes_together():
    pairs = A.join(B, on="k", within="5 seconds").select("a_k AS k", "a_ts AS ts")
    both = pairs.union(source("c").filter("v > 2").select("k", "ts"))
    said = plan(both.groupBy("k").window("1 minute").agg(n=("*", "count"))).describe()
    assert "union: union of operator 1; with" in said and "and stream 'c'; where v > 2" in said


def test_many_joined_with_a_union(tmp_path):
    """It is one of three sides, under its alias."""
    both = A.union(source("d")).alias("both")
    triples = join_many([both, B, source("c")], on="k", within="3 seconds").select("both_v", "b_v", "c_v")
    query = DirectQuery(plan(triples), tmp_path)
    by_name = {"a": epoch(1), "d": epoch(2), "b": epoch(3), "c": epoch(4)}
    query.run([by_name[stream.name] for stream in query.plan.sources])
    assert multiset(query.results().select(["both_v"])) == multiset(pa.table({"both_v": [1, 2]}))
    query.close()


@pytest.mark.parametrize("seed", range(4))
def test_disturbed_queries_give_the_same(seed):
    flow = Flow()
    a, b = (flow.readStream(name, "k int, ts timestamp, v int", eventTime="ts", delay="2 seconds") for name in "ab")
    windows = a.union(b).groupBy("k").window("4 seconds").agg(n=("*", "count"), total=("v", "sum"))
    rng = np.random.default_rng(seed)
    given_rows = {
        name: [
            [{"k": int(k), "ts": int((4 * number + k) * SECOND), "v": int(k)} for k in rng.integers(0, 4, 8)]
            for number in range(5)
        ]
        for name in "ab"
    }
    calm = testing.run([windows, a.union(b)], given_rows)
    disturbed = testing.run([windows, a.union(b)], given_rows, disturb=seed)
    for query in ("query-1", "query-2"):
        assert multiset(disturbed.results(query)) == multiset(calm.results(query)), disturbed.disturbances
