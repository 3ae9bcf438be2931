"""What a reader sees of an output directory: by listing it, or by `_spark_metadata`, read as Spark itself reads it.

Spark's rule: the newest list counts. From the two newest `.compact` lists it takes how many lists lie between two such,
and reads the newest `.compact` one and all that follow it, each of which must be there and begin with its version.
"""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from urllib.parse import unquote, urlparse

import pyarrow as pa
import pyarrow.parquet as pq

USUAL = 10
"""Lists from one `.compact` to the next, where none tells."""


class Unreadable(AssertionError):
    """Spark refuses to read the directory."""


def by_listing(output: Path) -> list[Path]:
    """The part files that are there."""
    return sorted(output.glob("*.parquet"))


def by_metadata(output: Path) -> list[Path]:
    """The part files that Spark's readers see, in their order; one that is listed twice is there twice."""
    directory = output / "_spark_metadata"
    names = [p.name for p in directory.iterdir()] if directory.is_dir() else []
    numbers = [n for n in names if n.removesuffix(".compact").isdecimal()]
    if not numbers:
        return []
    apart = _lists_apart(sorted(int(n.removesuffix(".compact")) for n in numbers if n.endswith(".compact")))
    newest = max(int(n.removesuffix(".compact")) for n in numbers)
    first = max(0, (newest + 1) // apart * apart - 1)
    entries = [e for n in range(first, newest + 1) for e in _entries(directory, n, compact=(n + 1) % apart == 0)]
    return [_part(output, entry) for entry in entries]


def read(parts: list[Path], schema: pa.Schema) -> pa.Table:
    """The rows of part files, of each as often as it is named."""
    try:
        return pa.concat_tables([schema.empty_table(), *(_rows(part.read_bytes(), schema) for part in parts)])
    except (OSError, pa.ArrowException) as problem:
        raise Unreadable(f"a part is damaged: {problem}") from problem


@lru_cache(100_000)
def _rows(content: bytes, schema: pa.Schema) -> pa.Table:
    """By its content: outputs are read again and again while little comes to them."""
    return pq.read_table(pa.BufferReader(content)).cast(schema)


def _lists_apart(compact: list[int]) -> int:
    if len(compact) >= 2:
        return compact[-1] - compact[-2]
    if not compact:
        return USUAL
    length = compact[0] + 1
    return next((n for n in range(USUAL, length // 2 + 1) if length % n == 0), length)


def _entries(directory: Path, number: int, compact: bool) -> list[dict]:
    file = directory / (f"{number}.compact" if compact else str(number))
    if not file.exists():
        raise Unreadable(f"{file} does not exist")
    try:
        version, *lines = file.read_text().split("\n")
        if version != "v1":
            raise Unreadable(f"{file} is incomplete: it begins with {version!r}")
        return [json.loads(line) for line in lines]
    except ValueError as problem:
        raise Unreadable(f"{file}: {problem}") from problem


def _part(output: Path, entry: dict) -> Path:
    if not {"path", "size"} <= entry.keys():
        raise Unreadable(f"{output} has an entry {entry}")
    path = Path(unquote(urlparse(entry["path"]).path))
    if path.parent.name != output.name:
        raise Unreadable(f"{path} is not in {output}")
    path = output / path.name  # a copy of an output lists its files as the original had them
    if not path.exists():
        raise Unreadable(f"{path} is listed and does not exist")
    if path.stat().st_size != entry["size"]:
        raise Unreadable(f"{path} is listed with {entry['size']} bytes and has {path.stat().st_size}")
    return path
