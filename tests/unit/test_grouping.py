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
from sluice.kernels.grouping import (
    Groups,
    NumberedGroups,
    encode_texts,
    find_mixed_stretches,
    group_rows,
    hash_group_keys,
    number_groups,
)
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


NARROW = {
    "int8": (pa.int8(), st.sampled_from([-128, 0, 127])),
    "uint8": (pa.uint8(), st.sampled_from([0, 128, 255])),
    "uint64": (pa.uint64(), st.sampled_from([0, (1 << 63) - 1, 1 << 63, (1 << 64) - 1])),
    "int64": (pa.int64(), st.sampled_from([-(1 << 63), -2, 0, 1, 3, (1 << 63) - 1])),
    "bool": (pa.bool_(), st.booleans()),
    "time": (pa.timestamp("us", "UTC"), st.sampled_from([-1, 0, 2])),
    "day": (pa.date32(), st.sampled_from([-1, 0, 2])),
    "text": (pa.string(), st.sampled_from(["", "a", "bc"])),
}


@st.composite
def narrow_keys(draw: st.DrawFn) -> list[pa.Array]:
    """One to three key columns, some cut out of longer arrays, so long that most ranges are narrow."""
    count = draw(st.sampled_from([1, 5, 200, 2000]))
    result = []
    for kind in draw(st.lists(st.sampled_from(sorted(NARROW)), min_size=1, max_size=3)):
        type_, values = NARROW[kind]
        few = draw(st.lists(values, min_size=1, max_size=12))
        result.append(pa.array((few * (count + 2))[: count + 2], type_).slice(1, count))
    return encode_texts(result)


@given(narrow_keys())
def test_groups_by_number_are_those_by_hash(key_columns):
    by_number, by_hash = number_groups(key_columns), group_rows(key_columns)
    if by_number is None:
        return
    assert_groups(by_number, key_columns)
    same = by_number.ids[by_hash.first]  # the number by which the groups of one go in the other
    values = np.arange(len(key_columns[0])) * 7 % 11
    assert by_number.sizes[same].tolist() == by_hash.sizes.tolist()
    assert by_number.add_up(values)[same].tolist() == by_hash.add_up(values).tolist()
    for least in (np.minimum, np.maximum):
        assert by_number.find_extreme(least, values)[same].tolist() == by_hash.find_extreme(least, values).tolist()


def test_extremes_of_groups_by_number_pass_nan_over_or_keep_it():
    groups, values = number_groups([pa.array([3, 4, 3, 4])]), np.array([NAN, 2.0, 1.0, NAN])
    assert groups is not None
    assert groups.find_extreme(np.fmin, values).tolist() == [1.0, 2.0]
    assert np.isnan(groups.find_extreme(np.maximum, values)).all()


def test_keys_are_numbered_if_their_range_is_narrow_and_nothing_is_null():
    def is_numbered(*columns: pa.Array) -> bool:
        return isinstance(number_groups(list(columns)), NumberedGroups)

    rows = 1000
    wide, narrow = pa.array(range(0, 3 * rows, 3)), pa.array(range(rows))
    assert is_numbered(narrow) and is_numbered(narrow.cast(pa.uint16()), pa.array([True] * rows))
    assert not is_numbered(wide) and not is_numbered(narrow, narrow)
    assert number_groups([wide]) is not None and number_groups([narrow, narrow, pa.array([0, 5000] * 500)]) is None
    assert not is_numbered(pa.array([None, *range(rows - 1)])) and not is_numbered(narrow.cast(pa.float64()))
    assert not is_numbered() and not is_numbered(pa.array([], pa.int64()))
