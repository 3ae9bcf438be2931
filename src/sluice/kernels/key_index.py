"""Finding, for many rows at once, the rows of a table with equal keys."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sluice.kernels.hashing import hash_keys, keys_equal
from sluice.kernels.probe import PAIRS_AT_ONCE, expand

_LAST_HASH = np.uint32((1 << 32) - 1)


class KeyIndex:
    """The rows of a table in the order of their keys' hashes, those with a null in their key left out.

    >>> index = KeyIndex([pa.array(["a", "b", None, "a"])])
    >>> [(rows.tolist(), partners.tolist()) for rows, partners in index.find([pa.array(["a", None, "c"])]).pairs()]
    [([0, 0], [0, 3])]
    """

    def __init__(self, keys: Sequence[pa.Array]) -> None:
        """`keys` are its key columns, of the types in which they are compared."""
        keys, places = _with_keys(keys)
        hashes = hash_keys(keys)
        order = np.argsort(hashes, kind="stable")
        hashes, self.places = hashes[order], places[order].astype(_narrowest(len(order)))
        self.keys = [key.take(pa.array(order)) for key in keys]
        begins = np.flatnonzero(np.diff(hashes, prepend=~hashes[:1]))
        self._hashes = np.append(hashes[begins], _LAST_HASH)
        self._begins = np.append(begins, [len(hashes)] * 2).astype(self.places.dtype)
        """Where the rows of each hash begin, and those of the next one."""
        bits = max(1, len(begins).bit_length())
        self._shift = np.uint32(32 - bits)
        self._heads = np.searchsorted(hashes[begins] >> self._shift, np.arange(1 << bits)).astype(self.places.dtype)
        """For the first bits of a hash, the first hash that has these or greater ones."""

    def find(self, keys: Sequence[pa.Array]) -> Candidates:
        """What may be partners of rows with these keys."""
        return Candidates(self, keys)

    def ranges(self, hashes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Where the rows begin that have these hashes, and how many they are. The first bits of a hash lead to within a
        few places of it; a binary search would miss the processor's cache once for nearly every bit."""
        at = self._heads[hashes >> self._shift]
        behind = np.flatnonzero(self._hashes[at] < hashes)
        while len(behind):
            at[behind] += 1
            behind = behind[self._hashes[at[behind]] < hashes[behind]]
        first = self._begins[at]
        return first, np.where(self._hashes[at] == hashes, self._begins[at + 1] - first, 0)


class Candidates:
    """The rows of a table whose keys have the hashes of some rows' keys; `count` is how many pairs that makes."""

    def __init__(self, index: KeyIndex, keys: Sequence[pa.Array]) -> None:
        self._index = index
        self._keys, self._places = _with_keys(keys)
        first, lengths = index.ranges(hash_keys(self._keys))
        self._rows = np.flatnonzero(lengths)
        self._first, self._lengths = first[self._rows], lengths[self._rows]
        self.count = int(self._lengths.sum(dtype=np.int64))

    def pairs(self, at_once: int = PAIRS_AT_ONCE) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """The places of the rows and of their partners in the table, in the order of the rows and then of the table, in
        chunks of bounded size."""
        if not self.count:
            return
        for which, partners in expand(self._first, self._lengths, at_once):
            rows = self._rows[which]
            equal = np.ones(len(rows), dtype=bool)
            for key, own in zip(self._keys, self._index.keys, strict=True):
                matches = keys_equal(key.take(pa.array(rows)), own.take(pa.array(partners)))
                equal &= matches.to_numpy(zero_copy_only=False)
            yield self._places[rows[equal]], self._index.places[partners[equal]]


def _with_keys(keys: Sequence[pa.Array]) -> tuple[list[pa.Array], np.ndarray]:
    """The keys of the rows that have no null in theirs, and where these rows are."""
    valid = None
    for key in keys:
        if key.null_count:
            valid = pc.is_valid(key) if valid is None else pc.and_(valid, pc.is_valid(key))
    if valid is None:
        return list(keys), np.arange(len(keys[0]))
    return [key.filter(valid) for key in keys], pc.indices_nonzero(valid).to_numpy().astype(np.int64)


def _narrowest(rows: int) -> type[np.signedinteger]:
    """The type of places among so many rows."""
    return np.int32 if rows < (1 << 31) - 1 else np.int64
