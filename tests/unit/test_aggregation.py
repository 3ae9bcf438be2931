"""Aggregates of groups: result types, partial states and their merging, null and overflow rules."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from aggregates import (
    COMPARED_WITH_DUCKDB,
    INF,
    VALUES,
    aggregates_of,
    assert_results,
    columns,
    compared,
    in_duckdb,
    overflows,
)
from hypothesis import given
from hypothesis import strategies as st
from oracle import connect_duckdb

from sluice.expressions import EvaluationError
from sluice.kernels.aggregation import Aggregation
from sluice.kernels.grouping import group_rows
from sluice.model.errors import FlowError
from sluice.model.plan.aggregate import FUNCTIONS, Aggregate, canonical, result_type


def test_result_types_are_those_of_spark():
    long, double = pa.int64(), pa.float64()
    for type_ in (pa.int8(), pa.int16(), pa.int32(), pa.int64()):
        assert [result_type(f, type_) for f in ("count", "sum", "avg", "max", "stddev")] == [
            long, long, double, type_, double,
        ]  # fmt: skip
    assert result_type("sum", pa.float32()) == double
    assert result_type("min", pa.float32()) == pa.float32()
    for given_, sum_, avg in (((10, 2), (20, 2), (14, 6)), ((30, 4), (38, 4), (34, 8)), ((38, 36), (38, 36), (38, 38))):
        assert result_type("sum", pa.decimal128(*given_)) == pa.decimal128(*sum_)
        assert result_type("avg", pa.decimal128(*given_)) == pa.decimal128(*avg)
    for function in ("sum", "avg", "stddev", "var_pop"):
        for type_ in (pa.string(), pa.bool_(), pa.date32(), pa.timestamp("us"), pa.list_(long)):
            assert result_type(function, type_) is None
        assert result_type(function, None) is None
    nested = pa.struct({"a": long})
    assert result_type("max", nested) is None
    assert result_type("first", nested) == nested
    assert result_type("count", None) == result_type("count", nested) == long
    assert result_type("max", pa.bool_()) == pa.bool_()


def test_synonyms_have_one_name():
    assert [canonical(f) for f in ("mean", "STD", "stddev_samp", "var_samp")] == ["avg", "stddev", "stddev", "variance"]
    assert all(canonical(f) == f for f in FUNCTIONS)
    assert canonical("median") is None


def test_a_function_that_does_not_take_the_column_is_refused():
    with pytest.raises(FlowError, match=r"sum\(v\) is not possible: sum does not take string"):
        Aggregation([Aggregate("x", "sum", "v")], pa.schema({"v": pa.string()}))


def grouped(ids: list[int], column: list[Any], times: list[int]) -> dict[int, list[Any]]:
    """Each group's values in the order of their times."""
    result = defaultdict(list)
    for row in sorted(range(len(ids)), key=lambda row: times[row]):
        result[ids[row]].append(column[row])
    return result


def one_by_one(
    aggregation: Aggregation, parts: list[tuple[pa.Array, pa.RecordBatch, np.ndarray]], together: int
) -> tuple[pa.Array, pa.RecordBatch]:
    """Partial states of each part, of which the newest few are merged again and again."""
    states = []
    for keys_, rows, times in parts:
        groups = group_rows([keys_])
        states.append((keys_.take(pa.array(groups.first)), aggregation.partial(rows, times, groups)))
    while True:
        some, states = states[:together], states[together:]
        all_keys = pa.concat_arrays([keys_ for keys_, _ in some])
        groups = group_rows([all_keys])
        merged = aggregation.merge(pa.concat_batches([state for _, state in some]), groups)
        assert merged.schema == aggregation.partial_schema
        if not states:
            return all_keys.take(pa.array(groups.first)), merged
        states.insert(0, (all_keys.take(pa.array(groups.first)), merged))


@given(st.data(), columns(sorted(VALUES)), st.integers(2, 4), st.booleans())
def test_partial_states_merged_are_the_aggregate_of_the_whole(data, column, together, shuffled):
    count = len(column)
    ids = data.draw(st.lists(st.integers(0, 3), min_size=count, max_size=count))
    rows = pa.record_batch({"unused": pa.nulls(count), "v": column})
    part = data.draw(st.lists(st.integers(0, 4), min_size=count, max_size=count))
    if shuffled:
        times = data.draw(st.permutations(range(count)))
    else:  # with equal times the order of arrival counts, and merging keeps it
        times, part = data.draw(st.lists(st.integers(0, 3), min_size=count, max_size=count)), sorted(part)
    parts = []
    for number in range(5):
        taken = np.array([row for row in range(count) if part[row] == number], dtype=np.int64)
        at = pa.array(taken)
        parts.append((pa.array(ids, pa.int64()).take(at), rows.take(at), np.array(times, dtype=np.int64)[taken]))
    aggregation = Aggregation(aggregates_of(column.type), rows.schema)
    contents = grouped(ids, column.to_pylist(), times)
    try:
        keys_, merged = one_by_one(aggregation, parts, together)
        results = aggregation.finish(merged)
    except EvaluationError as error:
        # A part of some decimals may need more than 38 digits although all of them together do not.
        assert "overflow" in str(error)
        assert overflows(list(contents.values()), aggregation, column.type) or column.type == pa.decimal128(38, 0)
        return
    assert results.schema == aggregation.result_schema
    assert_results(results, [contents[key] for key in keys_.to_pylist()], column.type)
    assert len(keys_) == len(contents)


@given(st.data(), columns(COMPARED_WITH_DUCKDB))
def test_aggregates_of_groups_are_those_of_duckdb(data, column):
    count = len(column)
    ids = data.draw(st.lists(st.integers(0, 3) | st.none(), min_size=count, max_size=count))
    times = data.draw(st.permutations(range(count)))
    rows = pa.record_batch({"k": pa.array(ids, pa.int64()), "v": column, "t": pa.array(times, pa.int64())})
    groups = group_rows([rows["k"]])
    aggregation = Aggregation(aggregates_of(column.type), rows.schema)
    contents = grouped(ids, column.to_pylist(), times)
    try:
        results = aggregation.finish(aggregation.partial(rows, np.array(times, dtype=np.int64), groups))
    except EvaluationError:
        assert overflows(list(contents.values()), aggregation, column.type)
        return
    names = results.schema.names
    with connect_duckdb() as db:
        db.register("rows_", pa.table(rows))
        select = ", ".join(f'{in_duckdb(name, column.type)} AS "{name}"' for name in names)
        answer = db.sql(f"SELECT k, {select} FROM rows_ GROUP BY k").to_arrow_table().to_pylist()
    by_key = {row["k"]: row for row in answer}
    found_keys = rows["k"].take(pa.array(groups.first)).to_pylist()
    assert len(by_key) == len(found_keys)
    for key, result in zip(found_keys, results.to_pylist(), strict=True):
        for name in names:
            compared(name, result[name], by_key[key][name], contents[key])


def finished(function: str, column: pa.Array, ids: list[int] | None = None) -> list[Any]:
    rows = pa.record_batch({"v": column})
    groups = group_rows([] if ids is None else [pa.array(ids)], rows=len(column))
    aggregation = Aggregation([Aggregate("x", function, "v")], rows.schema)
    return aggregation.finish(aggregation.partial(rows, np.zeros(len(column), np.int64), groups))["x"].to_pylist()


def test_overflow_is_decided_on_the_whole_sum():
    longs = pa.array([2**63 - 1, 1, -5])
    assert finished("sum", longs) == [2**63 - 5]
    with pytest.raises(EvaluationError, match=r"overflow, in sum\(v\)"):
        finished("sum", longs.slice(0, 2))
    assert finished("avg", longs.slice(0, 2)) == [2.0**62]
    assert finished("sum", pa.array([-(2**63)])) == [-(2**63)]


def test_a_mean_is_found_where_the_sum_is_too_large_for_a_double():
    assert finished("var_pop", pa.array([1.5e308, 1.5e308, 1.5e308])) == [0.0]
    assert finished("sum", pa.array([1.5e308, 1.5e308])) == [INF]


def test_one_value_has_a_variance_but_not_as_a_sample():
    one = pa.array([5.0, None])
    assert finished("var_pop", one) == finished("stddev_pop", one) == [0.0]
    assert finished("variance", one) == finished("stddev", one) == [None]


def test_of_equal_times_the_earlier_row_is_the_earlier():
    column = pa.array([None, "b", "c", "d"])
    assert finished("first", column) == [None]
    assert finished("last", column) == ["d"]
    assert finished("first", column, [1, 0, 0, 1]) in (["b", None], [None, "b"])


def test_aggregates_share_what_they_are_computed_from():
    schema = pa.schema({"v": pa.float64(), "w": pa.string()})
    named = [Aggregate(f"{i}", f, "v") for i, f in enumerate(("avg", "sum", "stddev", "variance", "count", "first"))]
    aggregation = Aggregation([*named, Aggregate("w", "first", "w")], schema)
    assert aggregation.partial_schema.names == [
        "count(v)", "sum(v)", "mean(v)", "m2(v)", "first time", "first(v)", "first(w)",
    ]  # fmt: skip


@pytest.mark.parametrize("kind", sorted(VALUES))
def test_nothing_has_no_groups(kind):
    rows = pa.record_batch({"v": pa.array([], VALUES[kind][0])})
    aggregation = Aggregation(aggregates_of(VALUES[kind][0]), rows.schema)
    none = np.empty(0, np.int64)
    partial = aggregation.partial(rows, none, group_rows([rows["v"]] if kind not in ("struct", "list") else []))
    merged = aggregation.merge(partial, group_rows([]))
    assert aggregation.finish(merged).num_rows == 0
