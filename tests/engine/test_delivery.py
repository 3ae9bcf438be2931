"""Rows on their way to many states: each goes to a site once; filters and hashes are computed once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest
from engine_harness import DirectQuery
from specs import TIME, handle

from sluice.api.stream import DataStream
from sluice.engine import joint_delivery
from sluice.engine.blobs import put_together
from sluice.engine.compiled_plan import compiled
from sluice.engine.filtered_rows import FilteredRows
from sluice.engine.joint_delivery import JointSender, deal_out
from sluice.engine.senders import Sender, senders
from sluice.model.errors import EvaluationError
from sluice.model.plan.plan import Plan
from sluice.model.plan.planning import plan_of
from sluice.model.plan.stream import Filter, Stream
from sluice.model.routing.routing import Routing
from sluice.operators.row_hashing import RowHashing

COLUMNS = pa.schema([("k", pa.int64()), ("j", pa.int64()), ("ts", TIME), ("v", pa.int64()), ("s", pa.string())])
A, B = (handle(Stream(name, COLUMNS, "ts", 0)) for name in "ab")
SITES = 3
KEYS = tuple(range(SITES))


def rows(count: int, seed: int = 0) -> pa.RecordBatch:
    rng = np.random.default_rng(seed)
    numbers = [pa.array(rng.integers(0, 50, count), mask=rng.random(count) < 0.1) for _ in range(2)]
    times = pa.array(rng.integers(0, 10**6, count), TIME)
    texts = pa.array([f"text {number}" for number in range(count)])
    return pa.RecordBatch.from_arrays([*numbers, times, pa.array(np.arange(count)), texts], schema=COLUMNS)


def joined(left: DataStream, key: str = "k", within: str = "5 seconds") -> DataStream:
    return left.alias("x").join(B, on={"x": key, "b": "k"}, within=within)


def many() -> list[DataStream]:
    """Queries that take rows of one stream in all kinds of ways."""
    return [
        joined(A),
        joined(A.filter("v > 10")),
        joined(A.filter("v > 10").filter("100 / (v - 10) > 3")),
        joined(A.filter("v < 0")),
        joined(A.filter("v = 7")),
        joined(A.filter("j IS NULL"), "k"),
        joined(A, "j"),
        joined(A.filter("v % 3 = 0").select("j AS n", "ts", "v AS w"), "n"),
        joined(A.select("k", "v"), "k"),
        A.groupBy("k").last(3).agg(total=("v", "sum")),
        A.filter("v % 2 = 0").groupBy("j").last(3).agg(newest=("s", "last")),
        A.filter("v > 10").groupBy("k").window("5 seconds").agg(total=("v", "sum")),
        joined(A.select("k", "ts", "v + 1 AS w"), "k"),
        A.alias("x").join(B, within="1 second", where="x.v > b.v"),
        A.filter("v > 10").alias("x").join(B, within="1 second", where="x.v > b.v"),
    ]


def plan_of_all(results: list[DataStream]) -> Plan:
    return plan_of([result.relation for result in results])


def routed(plan: Plan) -> Routing:
    return plan.first_routing(partitions=40, sites=SITES)


def unpacked(plan: Plan, blobs: Iterator[joint_delivery.Blob]) -> Counter[tuple[int, int, str]]:
    """Each row that reaches a state at a site."""
    ways = {way.number: way for ways in compiled(plan).ways.values() for way in ways}
    joint = {way.number: way for ways in compiled(plan).joint_ways.values() for way in ways}
    found: Counter[tuple[int, int, str]] = Counter()
    for site, number, payload in put_together(blobs):
        parts = deal_out(joint[number], payload) if number in joint else [(number, payload)]
        for input_, part in parts:
            if not isinstance(part, pa.RecordBatch):
                part = pa.ipc.read_record_batch(part, ways[input_].schema)
            assert part.schema.equals(ways[input_].schema)
            found.update((site, input_, str(row)) for row in part.to_pylist())
    return found


@pytest.mark.parametrize("count", [1, 40, 3000])
def test_rows_that_go_together_reach_the_states_that_they_would_reach_alone(count: int) -> None:
    plan = plan_of_all(many())
    routing = routed(plan)
    together = senders(plan, 0, routing, KEYS)
    assert sum(isinstance(sender, JointSender) for sender in together) == 1
    holders = routing.holders.array
    alone = [Sender(way, plan, routing, holders, KEYS) for way in compiled(plan).ways[0]]
    batch = rows(count)
    one, other = ((blob for s in ways for blob in s.blobs(FilteredRows(batch))) for ways in (together, alone))
    assert unpacked(plan, one) == unpacked(plan, other)
    assert sum(s.dropped for s in together) == sum(s.dropped for s in alone)


def test_a_row_goes_to_a_site_once_however_many_need_it() -> None:
    """Beside what is made of rows before they are sent."""
    plan = plan_of_all([joined(A.filter(f"v % {n} = 0"), key) for n in range(1, 30) for key in ("k", "j")])
    batch = rows(2000)
    sent: Counter[tuple[int, str]] = Counter()
    for sender in senders(plan, 0, routed(plan), KEYS):
        for site, number, payload in put_together(sender.blobs(FilteredRows(batch))):
            (way,) = (way for way in compiled(plan).joint_ways[0] if way.number == number)
            sent.update((site, text) for text in _texts(way, payload))
    assert set(sent.values()) == {1} and len(sent) <= SITES * batch.num_rows


def _texts(way: joint_delivery.JointWay, payload: pa.Buffer) -> list[str]:
    """The rows of a blob, by a column that tells them apart."""
    seen = []
    read = pa.ipc.read_record_batch
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(joint_delivery.pa.ipc, "read_record_batch", lambda *a: seen.append(read(*a)) or seen[-1])
        list(deal_out(way, payload))
    return seen[0].column("s").to_pylist()


def test_filters_and_hashes_are_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    filters: Counter[str] = Counter()
    hashed: Counter[RowHashing] = Counter()
    evaluate, hash_ = Filter.evaluate, RowHashing.hash
    monkeypatch.setattr(Filter, "evaluate", lambda f, r: filters.update([f.condition.text]) or evaluate(f, r))
    monkeypatch.setattr(RowHashing, "hash", lambda h, r: hashed.update([h]) or hash_(h, r))
    conditions = [f"v % {n} = 0" for n in range(2, 12)]
    some = [joined(A.filter(text), key, within) for text in conditions for key in "kj" for within in ("1 s", "2 s")]
    windows = [A.filter(text).groupBy("k").window("5 seconds").agg(n=("*", "count")) for text in conditions]
    plan = plan_of_all([*some, *windows, *(A.filter(text) for text in conditions)])
    filtered = FilteredRows(rows(100))
    for sender in senders(plan, 0, routed(plan), KEYS):
        list(sender.blobs(filtered))
    assert filters == Counter(conditions)
    assert sorted(h.keys for h in hashed) == [("j",), ("k",)] and set(hashed.values()) == {1}


def test_one_consumer_gets_what_it_always_got() -> None:
    plan = plan_of_all([joined(A.filter("v > 10"))])
    (sender,) = senders(plan, 0, routed(plan), KEYS)
    assert isinstance(sender, Sender)
    numbers = {number for _, number, _ in sender.blobs(FilteredRows(rows(50)))}
    assert numbers == {plan.nodes[0].inputs[0]}


def test_a_query_without_rows_is_not_in_what_is_sent() -> None:
    plan = plan_of_all([joined(A), *(joined(A.filter(f"v = {n}")) for n in range(1000, 1050))])
    (sender,) = senders(plan, 0, routed(plan), KEYS)
    (way,) = compiled(plan).joint_ways[0]
    blobs = put_together(sender.blobs(FilteredRows(rows(50))))
    dealt = {number for _, _, blob in blobs for number, _ in deal_out(way, blob)}
    assert len(dealt) == 1


def test_a_filter_is_not_evaluated_on_rows_that_did_not_get_to_it(tmp_path) -> None:
    """They would divide by zero; where it fails, the message says whose filter."""
    careful = [joined(A.filter("v <> 0").filter(f"{n} / v < 5")) for n in (1, 2)]
    query = DirectQuery(plan_of_all(careful), tmp_path / "careful", sites=2)
    batch = pa.Table.from_batches([rows(30)])
    query.run([batch, batch.slice(0, 0)])
    query.close()
    query = DirectQuery(plan_of_all([*careful, joined(A.filter("1 / v < 5"))]), tmp_path / "careless", sites=2)
    with pytest.raises(EvaluationError, match="stream 'a', filter: division by zero"):
        query.run([batch, batch.slice(0, 0)])
    query.close()
