"""Finding, for many rows at once, the rows of a table with equal keys."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sluice.kernels.hashing import hash_keys, keys_equal
from sluice.kernels.probe import PAIRS_AT_ONCE, expand


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
        self.hashes, self.places = hashes[order], places[order]
        self.keys = [key.take(pa.array(order)) for key in keys]

    def find(self, keys: Sequence[pa.Array]) -> Candidates:
        """What may be partners of rows with these keys."""
        return Candidates(self, keys)


class Candidates:
    """The rows of a table whose keys have the hashes of some rows' keys; `count` is how many pairs that makes."""

    def __init__(self, index: KeyIndex, keys: Sequence[pa.Array]) -> None:
        self._index = index
        self._keys, self._places = _with_keys(keys)
        hashes = hash_keys(self._keys)
        first = np.searchsorted(index.hashes, hashes)
        lengths = np.searchsorted(index.hashes, hashes, side="right") - first
        self._rows = np.flatnonzero(lengths)
        self._first, self._lengths = first[self._rows], lengths[self._rows]
        self.count = int(self._lengths.sum())

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
