"""The inner loops against what they mean, written as plain Python."""

from __future__ import annotations

from unittest import mock

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from specs import KEYS

from sluice.kernels import probe
from sluice.kernels.hashing import hash_keys
from sluice.kernels.order import TimeScale, hash_part, order_key, sorting
from sluice.kernels.probe import Run, pairs
from sluice.model.routing.directory import Directory

hashes = st.lists(st.sampled_from([0, 1, 65_535, 65_536, 2**31, 2**32 - 1]) | st.integers(0, 2**32 - 1), max_size=50)


def run_of(hash_list: list[int], times: list[int]) -> Run:
    h, t = np.array(hash_list, dtype=np.uint32), np.array(times, dtype=np.int64)
    order = sorting(h, t)
    h, t = h[order], t[order]
    earliest, latest = (int(t.min()), int(t.max())) if len(t) else (0, 0)
    scale = TimeScale.for_span(earliest, latest)
    return Run(order_key(h, t, scale), t, pa.record_batch({"row": pa.array(order)}), scale, earliest, latest)


@given(st.data(), hashes, st.sampled_from([10, 10**9, 10**15]), st.integers(1, 7))
def test_pairs_are_exactly_those_of_a_nested_loop(data, hash_list, span, at_once):
    times = data.draw(st.lists(st.integers(-span, span), min_size=len(hash_list), max_size=len(hash_list)))
    run = run_of(hash_list, times)
    # many of few hashes, too
    probe_hashes = data.draw(st.lists(st.sampled_from([*hash_list, 7, 2**32 - 1]), max_size=60))
    if data.draw(st.booleans()):  # as they should come
        probe_hashes.sort()
    low = data.draw(st.lists(st.integers(-span, span), min_size=len(probe_hashes), max_size=len(probe_hashes)))
    wide = data.draw(st.integers(-1, 2 * span))
    found = []
    for which, at in pairs(
        run,
        np.array(probe_hashes, dtype=np.uint32),
        np.array(low, dtype=np.int64),
        np.array(low, dtype=np.int64) + wide,
        at_once,
    ):
        assert 0 < len(which) <= at_once
        found += [(int(p), int(run.rows.column(0)[int(r)].as_py())) for p, r in zip(which, at, strict=True)]
    expected = [
        (p, r)
        for p, h in enumerate(probe_hashes)
        for r, (g, t) in enumerate(zip(hash_list, times, strict=True))
        if g == h and low[p] <= t <= low[p] + wide
    ]
    assert sorted(found) == sorted(expected)


@given(st.lists(st.integers(0, 9), min_size=1, max_size=30), st.sets(st.integers(0, 9)), st.sampled_from([0, 1, 32]))
def test_rows_of_hashes_are_the_same_looked_up_and_merged(own, asked, long_run):
    scattered = [hash_ * 429_496_729 for hash_ in own]
    run = run_of(scattered, [0] * len(own))
    hashes = np.array(sorted(asked), dtype=np.uint32) * np.uint32(429_496_729)
    with mock.patch.object(probe, "LONG_RUN", long_run):
        of, first, end = run.places_of(hashes)
    found = {int(hashes[o]): (int(a), int(b)) for o, a, b in zip(of, first, end, strict=True) if b > a}
    every = run.hashes.tolist()
    expected = {h: (every.index(h), every.index(h) + every.count(h)) for h in hashes.tolist() if h in every}
    assert found == expected


@given(st.data(), hashes)
def test_sorting_is_by_hash_then_time_and_stable(data, hash_list):
    times = data.draw(st.lists(st.integers(-(10**15), 10**15), min_size=len(hash_list), max_size=len(hash_list)))
    order = sorting(np.array(hash_list, dtype=np.uint32), np.array(times, dtype=np.int64))
    assert sorted(order.tolist()) == list(range(len(hash_list)))
    found = [(hash_list[i], times[i], i) for i in order]
    assert found == sorted(found)


@given(st.data(), st.sampled_from(sorted(KEYS)))
def test_equal_keys_have_equal_hashes_wherever_they_lie_in_an_array(data, kind):
    type_, values = KEYS[kind]
    keys = data.draw(st.lists(values, min_size=1, max_size=20))
    column = pa.array(keys, type_)
    whole = hash_keys([column])
    for i, key in enumerate(keys):
        assert whole[i] == hash_keys([pa.array([key], type_)])[0]
        assert whole[i] == hash_keys([column.slice(i)])[0]


def test_hashes_are_part_of_the_checkpoint_format():
    """A change of these numbers would send the rows of a restarted query to other units than its state."""
    assert hash_keys([pa.array([0, 1, -5])]).tolist() == [3665992598, 0, 3903751862]
    assert hash_keys([pa.array(["", "a", "sluice gate", "x" * 1000])]).tolist() == [
        3665992598,
        2481458276,
        1699895120,
        1788353227,
    ]
    both = hash_keys([pa.array([1]), pa.array(["a"])])
    assert both.tolist() == [4180292658]


def test_a_row_has_the_same_hash_among_few_and_many():
    numbers, texts = np.arange(40_000), [f"key {i % 1000}" for i in range(40_000)]
    columns = [pa.array(numbers), pa.array(texts)]
    pieces = [hash_keys([column.slice(start, 7_000) for column in columns]) for start in range(0, 40_000, 7_000)]
    assert np.array_equal(hash_keys(columns), np.concatenate(pieces))


def test_hashes_spread_evenly_over_units():
    for column in (pa.array(np.arange(100_000)), pa.array([f"user-{i:09d}" for i in range(100_000)])):
        counts = np.bincount(Directory(256).unit_of(hash_keys([column])), minlength=256)
        assert counts.min() > 300 and counts.max() < 500


@given(st.integers(1, 70_000), st.integers(0, 2**32 - 1))
def test_a_unit_is_a_range_of_hashes(units, value):
    unit = int(Directory(units).unit_of(np.array([value], dtype=np.uint32))[0])
    low, high = Directory(units).hashes_of(unit)
    assert low <= value < high


@given(hashes, st.integers(0, 10**15))
def test_the_order_keeps_the_hash(hash_list, base):
    h = np.array(hash_list, dtype=np.uint32)
    times = np.full(len(h), base + 5, dtype=np.int64)
    assert hash_part(order_key(h, times, TimeScale(base, 0))).tolist() == hash_list
