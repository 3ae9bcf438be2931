"""The answer equals the batch join: random streams, epoch cuts, delays, restarts, sites, memory and moves."""

from __future__ import annotations

import pyarrow as pa
import pytest
from engine_harness import DirectQuery
from exactness import check_join
from hypothesis import given
from hypothesis import strategies as st
from oracle import batch_join, multiset
from specs import KEYS, SECOND, join, self_join, stream

from sluice.model.durations import LONGEST
from sluice.model.plan.join import JoinSpec, Leg
from sluice.model.plan.stream import Input, Stream

delays = st.sampled_from([0, 5 * SECOND, 60 * SECOND, None])


@given(st.data(), st.sampled_from(sorted(KEYS)), st.integers(0, 60), st.integers(0, 60), delays, delays)
def test_two_streams_any_key_and_bounds_that_differ(data, kind, before, after, delay_a, delay_b):
    key, values = KEYS[kind]
    streams = [stream("a", key, delay_a), stream("b", key, delay_b)]
    check_join(data, join(streams, (before * SECOND, after * SECOND)), [values, values])


@given(st.data(), st.integers(0, 60), delays)
def test_two_streams_with_an_extra_condition(data, within, delay):
    values = KEYS["long"][1]
    where = "a.v > b.v OR a.k = 1"
    spec = join([stream("a", delay=delay), stream("b", delay=delay)], within * SECOND, where)
    check_join(data, spec, [values, values], where)


@given(st.data(), st.integers(2, 4), st.integers(0, 60), delays)
def test_several_streams(data, count, within, delay):
    streams = [stream(name, delay=delay) for name in "abcd"[:count]]
    small = st.integers(0, 1)
    check_join(data, join(streams, within * SECOND), [small] * count, epochs=4)


@given(st.data(), st.integers(2, 4), delays)
def test_streams_without_a_window(data, count, delay):
    streams = [stream(name, delay=delay) for name in "abcd"[:count]]
    check_join(data, join(streams, LONGEST), [st.integers(0, 2)] * count, epochs=4)


@given(st.data(), st.integers(0, 60), st.booleans(), delays)
def test_two_streams_with_a_window_on_one_side(data, within, before, delay):
    pair = (LONGEST, within * SECOND) if before else (within * SECOND, LONGEST)
    values = KEYS["long"][1]
    check_join(data, join([stream("a", delay=delay), stream("b", delay=delay)], pair), [values, values])


@given(st.data(), st.integers(0, 60), st.integers(0, 60), delays)
def test_a_stream_with_itself(data, before, after, delay):
    check_join(data, self_join(stream("a", delay=delay), (before * SECOND, after * SECOND)), [KEYS["long"][1]])


@given(st.data(), delays)
def test_a_stream_with_itself_on_different_columns(data, delay):
    check_join(data, self_join(stream("a", delay=delay), other_key="v"), [st.integers(0, 3)])


@given(st.data(), delays)
def test_several_key_columns(data, delay):
    streams = [stream("a", pa.string(), delay), stream("b", pa.string(), delay)]
    values = st.sampled_from(["p", "q"])
    check_join(data, join(streams, on=("k", "v")), [values, values])


@given(st.data())
def test_keys_of_different_width_are_compared_by_value(data):
    a, b = stream("a", pa.int16()), stream("b", pa.int64())
    spec = join([a, b])
    spec = JoinSpec(spec.streams, spec.inputs, spec.legs, (pa.int64(),), spec.reach)
    check_join(data, spec, [st.integers(-2, 2), st.integers(-2, 2)])


def test_nested_payload_and_nan_keys_survive(tmp_path):
    nested = pa.struct(
        [("city", pa.string()), ("tags", pa.list_(pa.string())), ("m", pa.map_(pa.string(), pa.int32()))]
    )
    schema = pa.schema([("k", pa.float64()), ("ts", pa.timestamp("us")), ("info", nested)])
    a, b = Stream("a", schema, "ts", 0), Stream("b", schema, "ts", 0)
    spec = JoinSpec(
        (a, b), (Input(0, ("k",)), Input(1, ("k",))), (Leg("a", 0), Leg("b", 1)), (pa.float64(),), ((0, 9), (9, 0))
    )
    info = [{"city": "Graz", "tags": ["x", None], "m": [("p", 1)]}, None]
    table = pa.table(
        [[float("nan"), -0.0], pa.array([0, 1], pa.timestamp("us")), pa.array(info, nested)], schema=schema
    )
    query = DirectQuery(spec, tmp_path)
    query.run([table, table.slice(0, 0)])
    query = DirectQuery(spec, tmp_path)
    query.run([table.slice(0, 0), table])
    found = query.results().to_pylist()
    assert sorted(str(r["a_info"]) for r in found) == sorted(str(i) for i in info)
    assert all(r["a_info"] == r["b_info"] for r in found)
    query.close()


def test_equal_hashes_of_different_keys_are_told_apart(tmp_path, monkeypatch):
    import numpy as np

    from sluice.operators import row_hashing

    monkeypatch.setattr(row_hashing, "hash_keys", lambda columns: np.zeros(len(columns[0]), dtype=np.uint32))
    a, b = stream("a", pa.string()), stream("b", pa.string())
    rows_a = pa.table([["x", "y", "z"], pa.array([1, 2, 3], pa.timestamp("us", "UTC")), [1, 2, 3]], schema=a.schema)
    query = DirectQuery(join([a, b]), tmp_path)
    query.run([rows_a, rows_a.slice(1)])
    assert sorted(query.results()["a_k"].to_pylist()) == ["y", "z"]
    query.close()


@pytest.mark.parametrize("hot", [True, False])
def test_state_ten_times_the_memory_is_still_used(tmp_path, hot):
    import numpy as np

    rng = np.random.default_rng(5)
    a, b = stream("a"), stream("b")
    spec = join([a, b], 200 * SECOND)

    def some(epoch: int) -> pa.Table:
        n = 600
        keys = np.where(rng.random(n) < 0.02, 1, rng.integers(0, 100_000, n)) if hot else rng.integers(0, 3000, n)
        times = epoch * 10 * SECOND + np.sort(rng.integers(0, 10 * SECOND, n))
        return pa.table([keys, pa.array(times, pa.timestamp("us", "UTC")), rng.integers(0, 9, n)], schema=a.schema)

    limit = 18_000
    query = DirectQuery(spec, tmp_path, memory=limit, spill="probe")
    seen: list[list[pa.Table]] = [[], []]
    peak = 0
    for epoch in range(30):
        new = [some(epoch), some(epoch)]
        query.run(new)
        for kept, table in zip(seen, new, strict=True):
            kept.append(table)
        sites = query.epochs.record.stats.sites
        assert all(s.memory_bytes <= limit for s in sites)
        peak = max(peak, *(s.memory_bytes + s.disk_bytes for s in sites))
    assert peak >= 10 * limit
    expected = batch_join(spec, [pa.concat_tables(t) for t in seen])
    assert multiset(query.results()) == multiset(expected)
    query.close()
