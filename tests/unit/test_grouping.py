"""Groups of rows with equal keys against a dictionary, whatever their hashes."""

from __future__ import annotations

import math
from collections import defaultdict
from itertools import pairwise
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
from aggregates import NAN
from hypothesis import given
from hypothesis import strategies as st
from specs import KEYS

from sluice.kernels import grouping
from sluice.kernels.grouping import Groups, encode_texts, find_mixed_stretches, group_rows, hash_group_keys
from sluice.kernels.hashing import hash_keys

OTHER_NAN = float(np.array([0xFFF8000000000001], "u8").view("f8")[0])
GROUP_KEYS = KEYS | {
    "odd double": (pa.float64(), st.sampled_from([0.0, -0.0, NAN, OTHER_NAN])),
    "float": (pa.float32(), st.sampled_from([0.0, -0.0, NAN, 1.5])),
    "fixed": (pa.binary(2), st.sampled_from([b"\0\0", b"ab"])),
    "time": (pa.time64("us"), st.sampled_from([0, 1])),
}  # fmt: skip


def key_of(value: Any) -> Any:
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    return value


@st.composite
def keys(draw: st.DrawFn) -> list[pa.Array]:
    """One to three key columns, with nulls, some cut out of longer arrays."""
    count = draw(st.integers(0, 30))
    result = []
    for kind in draw(st.lists(st.sampled_from(sorted(GROUP_KEYS)), min_size=1, max_size=3)):
        type_, values = GROUP_KEYS[kind]
        values = draw(st.sampled_from([values, values | st.none()]))
        result.append(pa.array(draw(st.lists(values, min_size=count + 2, max_size=count + 2)), type_).slice(1, count))
    return result


def assert_groups(groups: Groups, columns_: list[pa.Array]) -> None:
    rows = list(zip(*([key_of(v) for v in column.to_pylist()] for column in columns_), strict=True))
    members = defaultdict(list)
    for row, key in enumerate(rows):
        members[key].append(row)
    assert groups.count == len(members) == len(groups.first) == len(groups.sizes)
    order_ = np.arange(len(rows)) if groups.order is None else groups.order
    found = [order_[a:b].tolist() for a, b in zip(groups.cuts[:-1], groups.cuts[1:], strict=True)]
    assert sorted(found) == sorted(members.values())
    assert groups.first.tolist() == [rows_[0] for rows_ in found]
    assert groups.ids.tolist() == [next(g for g, rows_ in enumerate(found) if row in rows_) for row in range(len(rows))]


@given(keys())
def test_rows_of_equal_keys_are_a_group(key_columns):
    assert_groups(group_rows(key_columns), key_columns)
    assert_groups(group_rows(key_columns, hash_group_keys(key_columns)), key_columns)


@given(keys(), st.integers(1, 3))
def test_groups_are_exact_whatever_keys_share_a_hash(key_columns, distinct):
    hashes = hash_group_keys(key_columns) % np.uint32(distinct)
    assert_groups(group_rows(key_columns, hashes), key_columns)
    with mock.patch.object(grouping, "hash_keys", lambda columns_: np.zeros(len(columns_[0]), np.uint32)):
        assert_groups(group_rows(key_columns, hashes), key_columns)
        assert_groups(group_rows(key_columns), key_columns)


@given(keys())
def test_groups_come_in_the_order_of_their_hashes(key_columns):
    hashes = hash_group_keys(key_columns)
    first = hashes[group_rows(key_columns, hashes).first].astype(np.int64)
    assert np.all(np.diff(first) >= 0)


@given(keys())
def test_encoded_texts_have_the_same_hashes_and_groups(key_columns):
    encoded = encode_texts(key_columns)
    hashes = hash_group_keys(key_columns)
    assert hash_group_keys(encoded).tolist() == hashes.tolist()
    assert group_rows(encoded, hashes).ids.tolist() == group_rows(key_columns, hashes).ids.tolist()


def test_texts_without_nulls_are_looked_at_once():
    texts, numbers = pa.array(["a", "b", "a"]), pa.array([1, 2, 1])
    encoded = encode_texts([texts, numbers, pa.array(["a", None, "a"])])
    assert [pa.types.is_dictionary(column.type) for column in encoded] == [True, False, False]
    assert group_rows(encoded).count == 2


def test_rows_without_key_columns_are_one_group():
    assert group_rows([], rows=3).ids.tolist() == [0, 0, 0]
    assert group_rows([], np.zeros(2, np.uint32)).count == 1
    assert group_rows([], rows=0).count == 0
    assert hash_group_keys([], rows=2).tolist() == [0, 0]


@given(keys())
def test_hashes_of_group_keys_depend_on_the_key_alone(key_columns):
    hashes = hash_group_keys(key_columns)
    assert hashes.dtype == np.uint32
    seen: dict[Any, int] = {}
    for row in range(len(hashes)):
        alone = [column.slice(row, 1) for column in key_columns]
        assert hash_group_keys(alone)[0] == hashes[row]
        if not any(column.null_count for column in alone):
            assert hash_keys(alone)[0] == hashes[row]
        key = tuple(key_of(column[0].as_py()) for column in alone)
        assert seen.setdefault(key, int(hashes[row])) == hashes[row]


def test_hashes_tell_nulls_from_what_stands_in_for_them():
    one, other = pa.array([0, None, 0, None]), pa.array(["", "", None, None])
    assert len(set(hash_group_keys([one, other]).tolist())) == 4


@given(st.data(), keys())
def test_stretches_are_mixed_where_they_hold_more_than_one_key(data, columns_):
    count = len(columns_[0])
    starts = sorted({0, *data.draw(st.lists(st.integers(0, count - 1), max_size=5))} if count else set())
    rows = list(zip(*([key_of(v) for v in column.to_pylist()] for column in columns_), strict=True))
    mixed = [len(set(rows[a:b])) > 1 for a, b in pairwise([*starts, count])]
    assert find_mixed_stretches(columns_, np.array(starts, dtype=np.int64)).tolist() == mixed
