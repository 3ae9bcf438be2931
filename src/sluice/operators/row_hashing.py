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
    like any other. Else rows with a null in their key match nothing. Without columns all rows have the same hash."""

    keys: tuple[str, ...]
    types: tuple[pa.DataType, ...] | None = None

    def renamed(self, columns: Mapping[str, str]) -> RowHashing:
        """The same where columns go by other names."""
        return replace(self, keys=tuple(columns[key] for key in self.keys))

    def find_valid(self, rows: pa.RecordBatch) -> pa.Array | None:
        """Which rows can match anything; None if all can."""
        if self.types is None:
            return None
        valid = None
        for key in self.keys:
            column = rows.column(key)
            if column.null_count:
                valid = pc.is_valid(column) if valid is None else pc.and_(valid, pc.is_valid(column))
        return valid

    def hash(self, rows: pa.RecordBatch) -> np.ndarray:
        """The hash of each row; none of them has a null that is not a group's."""
        columns = [rows.column(key) for key in self.keys]
        if self.types is None:
            return hash_group_keys(columns, rows=rows.num_rows)
        if not columns:
            return np.zeros(rows.num_rows, dtype=np.uint32)
        return hash_keys([column.cast(type_) for column, type_ in zip(columns, self.types, strict=True)])
