"""Which rows belong together: exact groups of equal keys, as Spark's GROUP BY sees them.

Rows are brought together by a hash of their keys, and neighbours are then compared in full. Only the rows of hashes
that different keys share are ordered once more, by a second hash and at last by the keys themselves. Keys that are
whole numbers close together need neither: a row's group is the place of its key in their range.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cached_property

import numpy as np
import pyarrow as pa

from sluice.expressions.kernels.arrow_numpy import numbers, valid
from sluice.kernels.hashing import hash_keys
from sluice.kernels.int128 import halves
from sluice.kernels.order import changes, sort_by_hash, sorting

_PLACES_A_ROW = 2
"""Into how wide a range, for each row, the numbers of groups may fall: each costs what a row costs."""
_MOST_NUMBERS = 1 << 32


class Groups(ABC):
    """Rows cut into groups, numbered from 0; none is empty."""

    @property
    @abstractmethod
    def order(self) -> np.ndarray | None:
        """Row `order[i]` is the i-th when the rows lie group by group, in their old order inside each; None if they lie
        so already."""

    @property
    @abstractmethod
    def cuts(self) -> np.ndarray:
        """When the rows lie so, group g's are those from `cuts[g]` to `cuts[g + 1]`."""

    @cached_property
    def count(self) -> int:
        return len(self.cuts) - 1

    @cached_property
    def sizes(self) -> np.ndarray:
        """How many rows each group has."""
        return np.diff(self.cuts)

    @cached_property
    def first(self) -> np.ndarray:
        """Each group's first row."""
        return self.rows(self.cuts[:-1])

    @cached_property
    def ids(self) -> np.ndarray:
        """Each row's group."""
        together = self.spread(np.arange(self.count))
        if self.order is None:
            return together
        ids = np.empty(len(together), dtype=np.int64)
        ids[self.order] = together
        return ids

    def rows(self, places: np.ndarray) -> np.ndarray:
        """The rows at these places of the order group by group."""
        return places if self.order is None else self.order[places]

    def gather(self, values: np.ndarray) -> np.ndarray:
        """The rows' values, group by group."""
        return values if self.order is None else values[self.order]

    def spread(self, values: np.ndarray) -> np.ndarray:
        """Each group's value, once for each of its rows, group by group."""
        return np.repeat(values, self.sizes)

    def reduce(self, ufunc: np.ufunc, gathered: np.ndarray) -> np.ndarray:
        """One value a group from values that lie group by group."""
        if self.count == 0:
            return gathered[:0]
        result: np.ndarray = ufunc.reduceat(gathered, self.cuts[:-1])
        return result

    def add_up(self, values: np.ndarray) -> np.ndarray:
        """Each group's sum of its rows' values."""
        return self.reduce(np.add, self.gather(values))

    def find_extreme(self, ufunc: np.ufunc, values: np.ndarray) -> np.ndarray:
        """Each group's least or greatest value, as the function has it of two."""
        return self.reduce(ufunc, self.gather(values))


class SortedGroups(Groups):
    """Groups of which the order is known."""

    def __init__(self, order: np.ndarray | None, cuts: np.ndarray) -> None:
        self._order, self._cuts = order, cuts

    @property
    def order(self) -> np.ndarray | None:
        return self._order

    @property
    def cuts(self) -> np.ndarray:
        return self._cuts


class NumberedGroups(Groups):
    """Groups by a small number of each row. What is added up or compared goes straight to its group's place; the rows
    are put in order if somebody asks for that."""

    def __init__(self, numbers: np.ndarray, limit: int) -> None:
        """The numbers are below the limit; groups are in their order."""
        self._numbers, self._limit = numbers, limit
        in_all = np.bincount(numbers, minlength=limit)
        self._used = np.flatnonzero(in_all)
        self._sizes: np.ndarray = in_all[self._used]

    @cached_property
    def order(self) -> np.ndarray | None:
        return _by_hash(self._numbers.astype(np.uint32))[0]

    @cached_property
    def cuts(self) -> np.ndarray:
        return np.append(0, np.cumsum(self._sizes))

    @cached_property
    def count(self) -> int:
        return len(self._used)

    @cached_property
    def sizes(self) -> np.ndarray:
        return self._sizes

    @cached_property
    def first(self) -> np.ndarray:
        rows: np.ndarray = np.empty(self._limit, dtype=np.int64)
        rows[self._numbers[::-1]] = np.arange(len(self._numbers))[::-1]  # of one number, numpy keeps the last
        return rows[self._used]

    @cached_property
    def ids(self) -> np.ndarray:
        id_of: np.ndarray = np.empty(self._limit, dtype=np.int64)
        id_of[self._used] = np.arange(len(self._used))
        ids: np.ndarray = id_of[self._numbers]
        return ids

    def add_up(self, values: np.ndarray) -> np.ndarray:
        sums = np.zeros(self._limit, dtype=values.dtype)
        np.add.at(sums, self._numbers, values)
        in_use: np.ndarray = sums[self._used]
        return in_use

    def find_extreme(self, ufunc: np.ufunc, values: np.ndarray) -> np.ndarray:
        best: np.ndarray = np.empty(self._limit, dtype=values.dtype)
        best[self._numbers] = values  # any of the group's
        with np.errstate(invalid="ignore"):  # NaN is a value
            ufunc.at(best, self._numbers, values)
        return best[self._used]


def number_groups(columns: Sequence[pa.Array]) -> Groups | None:
    """Groups by keys that are whole numbers, texts' numbers or times, without nulls, if all keys of their ranges can be
    numbered in 32 bits; else None.

    >>> groups = number_groups([pa.array([7, 5, 7]), pa.array(["b", "a", "b"]).dictionary_encode()])
    >>> groups.first.tolist(), groups.add_up(np.array([1, 10, 100])).tolist()
    ([1, 0], [10, 101])
    >>> number_groups([pa.array([0, 1 << 40])]) is None
    True
    """
    if not columns or not len(columns[0]):
        return None
    numbers_, limit = None, 1
    for column in columns:
        numbered = _number(column, _MOST_NUMBERS // limit)
        if numbered is None:
            return None
        places, width = numbered
        numbers_ = places if numbers_ is None else numbers_ * width + places
        limit *= width
    assert numbers_ is not None
    if limit <= _PLACES_A_ROW * len(numbers_):
        return NumberedGroups(numbers_, limit)
    order, in_order = _by_hash(numbers_.astype(np.uint32))
    return SortedGroups(order, np.append(np.flatnonzero(changes(in_order)), len(in_order)))


def _number(column: pa.Array, most: int) -> tuple[np.ndarray, int] | None:
    """A number for each value, from 0 and below a limit that is not above `most`, and the limit."""
    kind = column.type
    if column.null_count:
        return None
    if pa.types.is_dictionary(kind):
        width = len(column.dictionary)
        return (column.indices.to_numpy().astype(np.intp), width) if width <= most else None
    if pa.types.is_boolean(kind):
        column = column.cast(pa.int8())
    elif not (pa.types.is_integer(kind) or pa.types.is_temporal(kind)) or pa.types.is_interval(kind):
        return None
    values = numbers(column)
    low, high = int(values.min()), int(values.max())
    width = high - low + 1
    return (values.astype(np.intp) - low, width) if width <= most else None


def group_rows(columns: Sequence[pa.Array], hashes: np.ndarray | None = None, *, rows: int | None = None) -> Groups:
    """Groups the rows by the values of the key columns: null is a value, NaN equals NaN, and -0.0 equals 0.0.

    `hashes` (uint32, equal for equal keys) are used for speed, not for the answer; the groups come in their order.
    They may be those of only some of the columns. Without columns, all the `rows` are one group.

    >>> groups = group_rows([pa.array(["b", "a", None, "b", None])])
    >>> sorted(groups.first.tolist()), groups.sizes.sum(), bool(groups.ids[2] == groups.ids[4])
    ([0, 1, 2], np.int64(5), True)
    """
    if not columns:
        count = len(hashes) if hashes is not None else rows or 0
        return SortedGroups(None, np.array([0, count] if count else [0]))
    words = [word for column in columns for word in _words(column)]
    if hashes is None:
        hashes = _hash_words(words)
    order, hashes = _by_hash(hashes)
    words = [_at(word, order) for word in words]
    new_hash = _changes([hashes])
    new_key = new_hash | _changes(words)
    shared = _where_keys_share_a_hash(new_hash, new_key)
    if len(shared):
        order = np.arange(len(hashes)) if order is None else order
        again = _by_key(hashes[shared], [word[shared] for word in words])
        order[shared] = order[shared[again]]
        words = [_rearrange(word, shared, again) for word in words]
        new_key = new_hash | _changes(words)
    return SortedGroups(order, np.append(np.flatnonzero(new_key), len(hashes)))


def encode_texts(columns: Sequence[pa.Array]) -> list[pa.Array]:
    """Key columns of which texts are looked at once, to be hashed and grouped by: each different one has a number, in a
    dictionary. Those with a null stay as they are."""
    return [c.dictionary_encode() if _is_text(c.type) and not c.null_count else c for c in columns]


def hash_group_keys(columns: Sequence[pa.Array], *, rows: int | None = None) -> np.ndarray:
    """`hash_keys` for keys that may hold nulls; a key without nulls has the same hash as there.

    Without columns, each of the `rows` has hash 0.
    """
    if not columns:
        return np.zeros(rows or 0, dtype=np.uint32)
    if not any(column.null_count for column in columns):
        return hash_keys(columns) if len(columns[0]) else np.empty(0, dtype=np.uint32)
    filled = [_fill_nulls(column) for column in columns]
    hashes = hash_keys(filled)
    some_null = np.flatnonzero(~valid(*columns))
    nulls = pa.array(some_null)
    marks = [column.take(nulls).is_null() for column in columns]
    hashes[some_null] = hash_keys([*(column.take(nulls) for column in filled), *marks])
    return hashes


def find_mixed_stretches(columns: Sequence[pa.Array], starts: np.ndarray) -> np.ndarray:
    """Which stretches of neighbouring rows hold more than one key, as groups see them; each goes up to the next one's
    start.

    >>> find_mixed_stretches([pa.array([1, 1, None, 2, 3])], np.array([0, 2, 3])).tolist()
    [False, False, True]
    """
    mixed = np.zeros(len(starts), dtype=bool)
    if not columns:
        return mixed
    differs = _changes([word for column in columns for word in _words(column)])
    differs[starts] = False
    mixed[np.searchsorted(starts, np.flatnonzero(differs), side="right") - 1] = True
    return mixed


def hash_groups(keys: Sequence[pa.Array], groups: Groups) -> np.ndarray:
    """The hash of each group's key; texts may be encoded."""
    first = pa.array(groups.first)
    return hash_group_keys([key.take(first) for key in keys], rows=groups.count)


def find_equal_keys(left: Sequence[pa.Array], right: Sequence[pa.Array]) -> np.ndarray:
    """Whether the i-th key of one list equals the i-th of another, as groups see them.

    >>> find_equal_keys([pa.array([1.0, None, float("nan")])], [pa.array([2.0, None, float("nan")])]).tolist()
    [False, True, True]
    """
    count = len(left[0])
    equal = np.ones(count, dtype=bool)
    for own, other in zip(left, right, strict=True):
        for word in _words(pa.concat_arrays([own, other])):
            equal &= word[:count] == word[count:]
    return equal


def _fill_nulls(column: pa.Array) -> pa.Array:
    """The column with one and the same value in place of each null."""
    if column.null_count == 0:
        return column
    kind, stand_in = column.type, pa.scalar(0, pa.int8())
    if pa.types.is_fixed_size_binary(kind):
        stand_in = pa.scalar(bytes(kind.byte_width), kind)
    elif _is_text(kind):
        stand_in = pa.scalar(b"", pa.binary())
    elif pa.types.is_temporal(kind):
        stand_in = pa.scalar(0, kind)
    return column.fill_null(stand_in.cast(kind))


def _is_text(kind: pa.DataType) -> bool:
    texts = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)
    return any(is_kind(kind) for is_kind in (*texts, pa.types.is_fixed_size_binary))


def _words(column: pa.Array) -> list[np.ndarray]:
    """Arrays of numbers that are all equal for two rows exactly if their keys are."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        return [column.indices.to_numpy()]
    if _is_text(kind):
        return [column.dictionary_encode(null_encoding="encode").indices.to_numpy()]
    marks = [valid(column).view(np.uint8)] if column.null_count else []
    if pa.types.is_floating(kind):
        values = numbers(column).astype(np.float64) + 0.0  # makes a -0.0 a 0.0
        values[np.isnan(values)] = np.nan
        return [values.view(np.int64), *marks]
    if pa.types.is_decimal(kind):
        return [*halves(_fill_nulls(column)), *marks]
    if pa.types.is_boolean(kind):
        column = column.cast(pa.int8())
    return [numbers(column), *marks]


def _hash_words(words: Sequence[np.ndarray]) -> np.ndarray:
    return hash_keys([pa.array(word) for word in words])


def _by_hash(hashes: np.ndarray) -> tuple[np.ndarray | None, np.ndarray]:
    """The stable order by hash, None if the rows are in it, and the hashes in that order."""
    if not np.any(hashes[1:] < hashes[:-1]):
        return None, hashes
    return sort_by_hash(hashes, np.zeros(len(hashes), dtype=np.int8))


def _by_key(hashes: np.ndarray, words: Sequence[np.ndarray]) -> np.ndarray:
    """A stable order by hash in which equal keys are neighbours."""
    second = _hash_words(words)
    none = np.zeros(len(hashes), dtype=np.int8)
    order = sorting(second, none)
    order = order[sorting(hashes[order], none)]
    new_pair = _changes([hashes[order], second[order]])
    new_key = new_pair | _changes([word[order] for word in words])
    if len(_where_keys_share_a_hash(new_pair, new_key)):
        order = np.lexsort((*words, hashes))
    return order


def _at(values: np.ndarray, order: np.ndarray | None) -> np.ndarray:
    return values if order is None else values[order]


def _rearrange(word: np.ndarray, places: np.ndarray, again: np.ndarray) -> np.ndarray:
    word = word.copy()  # it may be a view of the caller's column
    word[places] = word[places[again]]
    return word


def _changes(sorted_words: Sequence[np.ndarray]) -> np.ndarray:
    """Whether each row differs from the one before it in one of the words; the first does."""
    begins = changes(sorted_words[0])
    for word in sorted_words[1:]:
        begins |= changes(word)
    return begins


def _where_keys_share_a_hash(new_hash: np.ndarray, new_key: np.ndarray) -> np.ndarray:
    """The rows, in order of their hashes, of those hashes under which there is more than one key."""
    inside = new_key & ~new_hash
    if not inside.any():
        return np.empty(0, dtype=np.int64)
    run = np.cumsum(new_hash) - 1
    shared = np.zeros(run[-1] + 1, dtype=bool)
    shared[run[inside]] = True
    return np.flatnonzero(shared[run])
