"""Files that arrive for a Spark query, what is left of a query in the local tiers, and a directory's fingerprint."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
from specs import SECOND, TIME

FIRST_ARRIVAL = 1_700_000_000


def arrive(directory: Path, *tables: pa.Table, format: str = "parquet") -> Path:
    """Put each table as one more file into the directory, each newer than those there, so their order is fixed."""
    directory.mkdir(parents=True, exist_ok=True)
    for table in tables:
        number = len(list(directory.iterdir()))
        path = directory / f"{number:04d}.{format}"
        draft = directory.parent / f"{directory.name}-{path.name}"
        write(draft, table, format)
        os.utime(draft, (FIRST_ARRIVAL + number, FIRST_ARRIVAL + number))
        os.rename(draft, path)
    return directory


def write(path: Path, table: pa.Table, format: str) -> None:
    if format == "parquet":
        pq.write_table(table, path)
    elif format == "csv":
        pa_csv.write_csv(table, path)
    elif format == "arrow":
        with pa.ipc.new_file(path, table.schema) as out:
            out.write_table(table)
    else:
        path.write_text("".join(json.dumps(row, default=str) + "\n" for row in table.to_pylist()))


def ticks(keys: list[Any], seconds: list[float | None], values: list[int] | None = None) -> pa.Table:
    """Rows (k, ts, v), the times in seconds."""
    times = [None if s is None else round(s * SECOND) for s in seconds]
    columns = {"k": pa.array(keys), "ts": pa.array(times, TIME), "v": pa.array(values or list(range(len(keys))))}
    return pa.table(columns)


def workspaces(spark: Any) -> set[str]:
    """The directories that queries of this session have in the memory and disk tiers and among temporary files.

    Other sessions on the host have theirs in the same places: only this process and its JVM count.
    """
    owners = {str(os.getpid()), str(spark._jvm.java.lang.ProcessHandle.current().pid())}
    found = (p for root in ("/dev/shm", tempfile.gettempdir()) for p in Path(root).glob("sluice-*"))
    return {str(p) for p in found if p.name.split("-")[2] in owners}


def fingerprint(root: Path) -> dict[str, str]:
    """Every file below a directory with a hash of its content, and every directory."""
    return {
        str(p.relative_to(root)): hashlib.sha256(p.read_bytes()).hexdigest() if p.is_file() else "directory"
        for p in sorted(root.rglob("*"))
    }
