"""The first rows of groups that never end: what changes add up to, and what is shown as a whole, is the batch query."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from engine_harness import DirectQuery
from epoch_results import EpochByEpoch
from group_by_oracle import source
from hypothesis import given
from hypothesis import strategies as st
from oracle import connect_duckdb, multiset, on_time
from random_epochs import rows, run_and_look
from specs import KEYS, SECOND, TIME

from sluice import Flow, testing
from sluice.api.output_mode import OutputMode, in_mode
from sluice.api.stream import DataStream
from sluice.model.errors import FlowError
from sluice.model.plan.planning import plan_of
from sluice.operators import row_hashing

FAST = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
ORDERS = {
    ("v DESC", "ts", "w"): "v DESC NULLS LAST, ts, w NULLS FIRST",
    ("ts DESC", "v", "w"): "ts DESC, v NULLS FIRST, w NULLS FIRST",
    ("w NULLS LAST", "ts", "v DESC NULLS FIRST"): "w NULLS LAST, ts, v DESC NULLS FIRST",
}


def first_rows(epochs: list[pa.Table], delay: int | None, by: str, order: str, count: int) -> dict[Any, int]:
    """The first rows of each group, of all that were not late."""
    over = f"PARTITION BY {by}" if by else ""
    ranked = f"SELECT *, row_number() OVER ({over} ORDER BY {order})::INT AS row_number FROM a"
    with connect_duckdb() as db:
        db.register("a", on_time(epochs, "ts", delay)[0])
        return multiset(db.sql(f"SELECT * FROM ({ranked}) WHERE row_number <= {count}").to_arrow_table())


def replace_places(epochs: list[pa.Table], keys: int) -> dict[Any, int]:
    """The newest row of each place of each group, of results epoch by epoch; no epoch has two of one."""
    newest: dict[tuple, Any] = {}
    for table in epochs:
        results = list(multiset(table).elements())
        places = [(*row[:keys], row[-1]) for row in results]
        assert len(set(places)) == len(places)
        newest.update(zip(places, results, strict=True))
    return {row: 1 for row in newest.values()}


def check(data: st.DataObject, a: DataStream, by: str, values: Any) -> None:
    """Random epochs, moves, restarts, in little memory and time: no two rows of a stream are equal."""
    order, text = data.draw(st.sampled_from(sorted(ORDERS.items())))
    count, keys = data.draw(st.integers(1, 4)), 1 if by else 0
    top = (a.groupBy(by) if by else a.groupBy()).top(count, *order)
    plan = plan_of([in_mode(top.relation, mode) for mode in (OutputMode.UPDATE, OutputMode.COMPLETE)])
    changes: list[pa.Table] = []

    def look(query: EpochByEpoch) -> None:
        changes.append(query.results_of_epoch(0))
        assert multiset(query.results_of_epoch(1)) == replace_places(changes, keys)

    tables = run_and_look(data, plan, lambda epoch: rows(a, values, epoch * SECOND, 2 * SECOND), look)
    assert replace_places(changes, keys) == first_rows(tables, a.stream.delay, by, text, count)


@given(st.data(), st.sampled_from(sorted(KEYS)), st.sampled_from([None, 0, SECOND, 60 * SECOND]))
def test_the_first_rows_of_each_group(data, kind, delay):
    key, values = KEYS[kind]
    check(data, source("a", key, delay), "k", values)


@given(st.data())
def test_the_first_of_all_rows(data):
    check(data, source("a"), "", KEYS["long"][1])


@given(st.data())
def test_groups_that_share_a_hash(data):
    with pytest.MonkeyPatch.context() as patch:
        same = lambda columns, *, rows=None: np.zeros(rows or len(columns[0]), dtype="uint32")  # noqa: E731
        patch.setattr(row_hashing, "hash_group_keys", same)
        check(data, source("a", pa.string()), "k", KEYS["string"][1])


def test_rows_that_are_equal_in_the_order_keep_their_places(tmp_path):
    """The one that came first is before the others, however runs are merged; so places that were shown stay true."""
    a = source("a")
    top = a.groupBy("k").top(3, "v DESC")
    query = EpochByEpoch(plan_of([in_mode(top.relation, OutputMode.UPDATE)]), tmp_path, sites=1)
    shown: dict[int, float] = {}
    for epoch in range(30):
        value, name = [1, 1, 2][epoch % 3] if epoch < 6 else 1, float(epoch)
        table = [[7], pa.array([epoch * SECOND], TIME), [value], [name]]
        query.run([pa.table([pa.array(c) for c in table], schema=a.stream.schema)])
        shown |= {row["row_number"]: row["w"] for row in query.results_of_epoch(0).to_pylist()}
    assert shown == {1: 2.0, 2: 5.0, 3: 0.0}
    query.close()


def test_state_has_the_first_rows_alone_and_an_epoch_looks_at_its_own_groups(tmp_path):
    a = source("a")
    top = a.groupBy("k").top(2, "v DESC", "w")
    query = DirectQuery(plan_of([in_mode(top.relation, OutputMode.UPDATE)]), tmp_path, sites=1)
    rng = np.random.default_rng(3)
    for epoch in range(60):
        times = [epoch * SECOND + i for i in range(40)]
        table = [[i % 20 for i in range(40)], pa.array(times, TIME), rng.integers(0, 1000, 40), rng.random(40)]
        query.run([pa.table([pa.array(c) for c in table], schema=a.stream.schema)])
    stats = query.epochs.record.stats.sites[0]
    assert stats.rows <= 2 * 20 * stats.segments
    assert stats.segments <= 16
    assert stats.rows < 60 * 40 / 4
    query.close()


@pytest.mark.parametrize("disturb", [None, 1, 2, 3])
def test_in_sql_on_bad_days(disturb):
    """The table of the last epoch is that of the batch query."""
    flow = Flow(name="top")
    flow.readStream("bids", "auction bigint, ts timestamp, price bigint, bidder bigint", eventTime="ts")
    best = flow.sql("""
        SELECT auction, place, price, bidder FROM (
            SELECT *, row_number() OVER (PARTITION BY auction ORDER BY price DESC, bidder) AS place FROM bids
        ) AS ranked WHERE place <= 3""")
    rng, bidders = np.random.default_rng(4), iter(range(10**6))
    epochs = [
        [
            {"auction": auction, "ts": 10**9 + second * SECOND, "price": price, "bidder": next(bidders)}
            for auction, price in zip(rng.geometric(0.3, 20).tolist(), rng.integers(0, 50, 20).tolist(), strict=True)
        ]
        for second in range(8)
    ]
    outcome = testing.run(best.writeStream.outputMode("complete"), {"bids": epochs}, disturb=disturb)
    bids = pa.Table.from_pylist([bid for epoch in epochs for bid in epoch])
    with connect_duckdb() as db:
        db.register("bids", bids)
        expected = db.sql("""SELECT auction, place, price, bidder FROM (
            SELECT *, row_number() OVER (PARTITION BY auction ORDER BY price DESC, bidder)::INT AS place FROM bids
            ) WHERE place <= 3""").to_arrow_table()
    (table,) = outcome.epochs[-1].results.values()
    assert multiset(table) == multiset(expected), outcome.disturbances


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda a: in_mode(a.groupBy("k").top(2, "v").relation, OutputMode.APPEND), "cannot be appended"),
        (lambda a: a.groupBy("k").top(2, "v").groupBy("k").last(2).agg(n=("*", "count")), "no operator can follow"),
        (lambda a: in_mode(a.groupBy("ts").top(2, "v").relation, OutputMode.UPDATE), "these results are final"),
    ],
)
def test_mistakes_are_named_in_the_users_words(build, words):
    with pytest.raises(FlowError, match=words):
        build(source("a"))


@pytest.mark.parametrize(
    ("build", "key"),
    [
        (
            lambda flow, pairs: flow.sql("""SELECT v FROM (
                SELECT a.v, row_number() OVER (PARTITION BY a.ts ORDER BY b.v) AS place
                FROM a JOIN b ON a.k = b.k AND b.ts = a.ts) WHERE place = 1"""),
            "a_ts",
        ),
        (lambda flow, pairs: pairs.groupBy("b_ts").top(2, "a_v"), "b_ts"),
        (lambda flow, pairs: pairs.select("a_k", "a_ts AS time").groupBy("time").agg(n=("*", "count")), "time"),
    ],
)
def test_why_groups_by_a_time_of_a_join_have_no_end(build, key):
    flow = Flow(name="desk")
    a, b = (flow.readStream(name, "k long, v long, ts timestamp", eventTime="ts") for name in "ab")
    grouped = build(flow, a.join(b, on="k", within="1 second"))
    why = f"Groups by '{key}' have no end either: it is not the event time of these rows, .* the latest of its rows'"
    with pytest.raises(FlowError, match=f"cannot be appended: .*{why}.*outputMode.'update'"):
        in_mode(grouped.relation, OutputMode.APPEND)
    with pytest.raises(FlowError) as refusal:
        in_mode(a.groupBy("k").top(2, "v").relation, OutputMode.APPEND)
    assert "no end either" not in str(refusal.value)
