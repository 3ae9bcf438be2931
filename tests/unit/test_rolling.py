"""Aggregates over the newest k rows against each window's own, and that they are sound and cheap."""

from __future__ import annotations

import math
import tracemalloc
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from aggregates import (
    COMPARED_WITH_DUCKDB,
    INF,
    NAN,
    VALUES,
    aggregates_of,
    assert_results,
    columns,
    compared,
    in_duckdb,
    overflows,
    variance,
)
from hypothesis import given
from hypothesis import strategies as st
from oracle import connect_duckdb

from sluice.expressions import EvaluationError
from sluice.kernels import windows
from sluice.kernels.aggregates import moments
from sluice.kernels.aggregation import Aggregation
from sluice.model.plan.aggregate import Aggregate


@st.composite
def stretches(draw: st.DrawFn, column: pa.Array) -> tuple[list[int], list[int], int]:
    """Where groups start and end, which rows are wanted, and k."""
    count = len(column)
    cuts = draw(st.lists(st.integers(0, count), max_size=4))
    starts = sorted({0, count, *cuts})
    wanted = sorted(draw(st.sets(st.integers(0, count - 1)))) if count else []
    return starts, draw(st.sampled_from([wanted, list(range(count))])), draw(st.integers(1, 12) | st.just(10**9))


def contents_of(column: pa.Array, starts: list[int], wanted: list[int], k: int) -> list[list[Any]]:
    values = column.to_pylist()
    return [values[max(max(s for s in starts if s <= p), p - k + 1) : p + 1] for p in wanted]


@given(st.data(), columns(sorted(VALUES)), st.integers(1, 50), st.sampled_from([0, 1, 256]), st.sampled_from([1, 64]))
def test_rolling_aggregates_are_those_of_each_window(data, column, cells, few, alike):
    """Also where windows are taken in small pieces and long runs are cut up."""
    starts, wanted, k = data.draw(stretches(column))
    rows = pa.record_batch({"unused": pa.nulls(len(column)), "v": column})
    aggregation = Aggregation(aggregates_of(column.type), rows.schema)
    contents = contents_of(column, starts, wanted, k)
    with (
        mock.patch.object(windows, "CELLS_AT_ONCE", cells),
        mock.patch.object(windows, "SHORT_ROW_CELLS", few),
        mock.patch.object(windows, "FEW_COLUMNS", alike),
        mock.patch.object(moments, "SHORT_ROW_CELLS", few),
    ):
        try:
            results = aggregation.aggregate_newest(rows, np.array(starts), np.array(wanted, dtype=np.int64), k)
        except EvaluationError:
            assert overflows(contents, aggregation, column.type)
            return
    assert results.schema == aggregation.result_schema
    assert_results(results, contents, column.type)


@given(st.data(), columns(COMPARED_WITH_DUCKDB))
def test_rolling_aggregates_are_those_of_duckdb(data, column):
    starts, wanted, k = data.draw(stretches(column))
    count = len(column)
    group = np.searchsorted(np.array(starts), np.arange(count), side="right")
    rows = pa.record_batch({"k": pa.array(group), "v": column, "t": pa.array(np.arange(count))})
    aggregation = Aggregation(aggregates_of(column.type), rows.schema)
    contents = contents_of(column, starts, wanted, k)
    try:
        results = aggregation.aggregate_newest(rows, np.array(starts), np.array(wanted, dtype=np.int64), k)
    except EvaluationError:
        assert overflows(contents, aggregation, column.type)
        return
    names = results.schema.names
    spelled = {"first": "first_value(v)", "last": "last_value(v)"}
    with connect_duckdb() as db:
        db.register("rows_", pa.table(rows))
        select = ", ".join(f'{spelled.get(n) or in_duckdb(n, column.type)} OVER w AS "{n}"' for n in names)
        frame = f"PARTITION BY k ORDER BY t ROWS BETWEEN {k - 1} PRECEDING AND CURRENT ROW"
        answer = db.sql(f"SELECT t, {select} FROM rows_ WINDOW w AS ({frame}) ORDER BY t").to_arrow_table().to_pylist()
    for position, result, content in zip(wanted, results.to_pylist(), contents, strict=True):
        for name in names:
            compared(name, result[name], answer[position][name], content)


def rolled(function: str, values: np.ndarray, k: int) -> np.ndarray:
    rows = pa.record_batch({"v": pa.array(values)})
    aggregation = Aggregation([Aggregate("x", function, "v")], rows.schema)
    everything = np.arange(len(values))
    return aggregation.aggregate_newest(rows, np.array([0, len(values)]), everything, k)["x"].to_numpy(
        zero_copy_only=False
    )


def test_what_left_the_window_leaves_no_trace():
    values = np.full(1000, 0.1)
    values[:100] = 1e17
    values[100] = NAN
    values[101] = INF
    assert rolled("sum", values, 50)[200:] == pytest.approx(5.0, rel=1e-12)
    assert rolled("variance", values, 50)[200:] == pytest.approx(0.0, abs=1e-30)
    assert rolled("min", values, 50)[200] == 0.1


@pytest.mark.parametrize("k", [10, 1000, 2500])
def test_small_spreads_survive_far_from_zero_and_beside_jumps(k):
    noise = np.random.default_rng(7).normal(size=4000)
    values = noise + np.where(np.arange(4000) < 2000, 0.0, 1e9)
    found = rolled("stddev", values, k)
    for p in [*range(2, 1900, 190), *range(2000 + k, 4000, 250)]:
        window = values[max(0, p - k + 1) : p + 1]
        assert found[p] == pytest.approx(math.sqrt(variance(window.tolist(), len(window) - 1)), rel=1e-6)


def test_memory_follows_the_rows_not_the_width_of_the_windows():
    count = 100_000
    rows = pa.record_batch({"v": pa.array(np.arange(float(count)))})
    aggregation = Aggregation([Aggregate(f, f, "v") for f in ("sum", "max", "stddev")], rows.schema)
    tracemalloc.start()
    try:
        aggregation.aggregate_newest(rows, np.arange(0, count + 1, 2), np.arange(count), 10_000)
        assert tracemalloc.get_traced_memory()[1] < 400 * count
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("kind", sorted(VALUES))
def test_no_rows_have_no_windows(kind):
    rows = pa.record_batch({"v": pa.array([], VALUES[kind][0])})
    aggregation = Aggregation(aggregates_of(VALUES[kind][0]), rows.schema)
    assert aggregation.aggregate_newest(rows, np.array([0]), np.empty(0, np.int64), 3).num_rows == 0
