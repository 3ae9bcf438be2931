"""Files with a few rows, for examples on the pages of docs/ that need some input."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

OPENING = datetime(2026, 1, 2, 9, 30, tzinfo=timezone.utc)


def write_file(stream: str, value: str, number: int = 0, rows: int = 3) -> None:
    """One Parquet file in `in/STREAM`: the symbols A and B in turns, a row a second, going on from the file before.

    Args:
        stream: the directory's name.
        value: the column beside `symbol` and `ts`; it has 1.0, 2.0, ...
        number: how many files came before it.
        rows: how many rows each of the files has.
    """
    directory = Path("in") / stream
    directory.mkdir(parents=True, exist_ok=True)
    table = [
        {"symbol": "AB"[row % 2], "ts": OPENING + timedelta(seconds=number * rows + row), value: row + 1.0}
        for row in range(rows)
    ]
    pq.write_table(pa.Table.from_pylist(table), directory / f"{number}.parquet")
