"""Rows in an order that was asked for: as DuckDB sorts them, whose order of NaN and texts is Spark's."""

from __future__ import annotations

from itertools import product

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from sluice.kernels.grouping import group_rows
from sluice.kernels.sort_keys import rank_in_groups, sort_by_keys, sort_keys
from sluice.model.plan.sort_order import SortOrder

VALUES = {
    "double": pa.array([1.5, None, float("nan"), -0.0, 0.0, float("-inf"), float("inf"), -2.0]),
    "long": pa.array([3, None, -(2**63), 2**63 - 1, 0, -1, 3, 7]),
    "string": pa.array(["b", None, "", "ab", "é", "z", "a", "b"]),
    "decimal": pa.array([1, None, -1, 0, 7, 3, 2, 1], pa.decimal128(30, 2)),
    "bool": pa.array([True, None, False, True, False, True, None, False]),
    "date": pa.array([1, None, 0, 20_000, -5, 3, 2, 1], pa.int32()).cast(pa.date32()),
}


@pytest.mark.parametrize("kind", VALUES)
@pytest.mark.parametrize(("descending", "nulls"), list(product([False, True], ["first", "last"])))
def test_the_order_is_that_of_sql(kind, descending, nulls):
    values = VALUES[kind]
    rows = pa.record_batch({"k": pa.array(np.arange(8) % 2), "v": values, "id": pa.array(np.arange(8))})
    order = [SortOrder("v", descending, nulls), SortOrder("id")]
    ranks = rank_in_groups(group_rows([rows.column("k")]), sort_keys(rows, order))
    over = f"PARTITION BY k ORDER BY v {'DESC' if descending else 'ASC'} NULLS {nulls.upper()}, id"
    with duckdb.connect() as db:
        db.register("rows", pa.Table.from_batches([rows]))
        expected = db.sql(f"SELECT row_number() OVER ({over}) FROM rows ORDER BY id").fetchall()
    assert ranks.tolist() == [rank for (rank,) in expected]


def test_nulls_go_where_spark_puts_them():
    assert SortOrder("v").nulls_first
    assert not SortOrder("v", descending=True).nulls_first


_KINDS = {
    "few values": lambda rng, count: rng.integers(0, 3, count),
    "all bits": lambda rng, count: rng.integers(-(2**63), 2**63 - 1, count),
    "bounds": lambda rng, count: rng.choice(np.array([-(2**63), 2**63 - 1, 0, 1]), count),
    "bools": lambda rng, count: rng.random(count) < 0.5,
    "unsigned": lambda rng, count: rng.integers(0, 2**64 - 1, count, dtype=np.uint64),
}


@pytest.mark.parametrize("kinds", list(product(_KINDS, repeat=2)), ids=" ".join)
@pytest.mark.parametrize("count", [0, 1, 2, 50])
def test_rows_are_sorted_key_by_key_and_equal_ones_stay_whichever_bits_are_packed(kinds, count):
    rng = np.random.default_rng(count)
    keys = [_KINDS[kind](rng, count) for kind in ("few values", *kinds)]
    assert sort_by_keys(keys).tolist() == np.lexsort(tuple(reversed(keys))).tolist()
