"""A Parquet file of pairs, renamed into place when it is complete, for peers that have no Parquet sink."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

SCHEMA = pa.schema(
    [
        (f"{stream}_{name}", kind)
        for stream in "AB"
        for name, kind in (("key", pa.int64()), ("ts", pa.timestamp("us", tz="UTC")), ("v", pa.float64()))
    ]
)


def write_results(directory: Path, number: int, columns: Sequence[Sequence[float]]) -> None:
    arrays = [pa.array(values, kind) for values, kind in zip(columns, SCHEMA.types, strict=True)]
    draft = directory / f"{number}.draft"
    pq.write_table(pa.table(arrays, schema=SCHEMA), draft)
    os.rename(draft, directory / f"{number:06d}.parquet")
