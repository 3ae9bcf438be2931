"""How rows are hashed by their keys, where they cross the exchange as they are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sluice.kernels.grouping import hash_group_keys
from sluice.kernels.hashing import hash_keys


@dataclass(frozen=True)
class RowHashing:
    """The columns that are hashed, and as which types they are compared. Without types they are groups: null is a value
    like any other. Else rows with a null in their key match nothing. Without columns all rows have the same hash.

    With a column to `spread_by`, rows that match nothing are needed all the same: they are hashed by that one, so that
    they do not all come to lie together."""

    keys: tuple[str, ...]
    types: tuple[pa.DataType, ...] | None = None
    spread_by: str | None = None

    def renamed(self, columns: Mapping[str, str]) -> RowHashing:
        """The same where columns go by other names."""
        spread_by = None if self.spread_by is None else columns[self.spread_by]
        return replace(self, keys=tuple(columns[key] for key in self.keys), spread_by=spread_by)

    def find_valid(self, rows: pa.RecordBatch) -> pa.Array | None:
        """Which rows are needed; None if all are."""
        return None if self.types is None or self.spread_by is not None else self._find_matchable(rows)

    def _find_matchable(self, rows: pa.RecordBatch) -> pa.Array | None:
        """Which rows can match anything; None if all can."""
        valid = None
        for key in self.keys:
            column = rows.column(key)
            if column.null_count:
                valid = pc.is_valid(column) if valid is None else pc.and_(valid, pc.is_valid(column))
        return valid

    def hash(self, rows: pa.RecordBatch) -> np.ndarray:
        """The hash of each row that is needed."""
        if self.spread_by is not None:
            matchable = self._find_matchable(rows)
            if matchable is not None:
                return self._hash_apart(rows, matchable, self.spread_by)
        columns = [rows.column(key) for key in self.keys]
        if self.types is None:
            return hash_group_keys(columns, rows=rows.num_rows)
        if not columns:
            return np.zeros(rows.num_rows, dtype=np.uint32)
        return hash_keys([column.cast(type_) for column, type_ in zip(columns, self.types, strict=True)])

    def _hash_apart(self, rows: pa.RecordBatch, matchable: pa.Array, spread_by: str) -> np.ndarray:
        """The hashes of rows of which some match nothing."""
        hashes = hash_group_keys([rows.column(spread_by)], rows=rows.num_rows)
        hashes[matchable.to_numpy(zero_copy_only=False)] = self.hash(rows.filter(matchable))
        return hashes
