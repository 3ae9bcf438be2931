"""What a site does with its results while it finds them: drop them, or write them to a part file nobody sees yet."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import types

from sluice.model.codec import RunningChecksum
from sluice.model.epoch.results import Part
from sluice.model.partitions import name_partition
from sluice.state.files.storage import Storage

ROWS_AT_ONCE = 1 << 18
DICTIONARY_BYTES = 128 << 10
"""Up to which size a column's distinct values in so many rows are worth a dictionary. The default of 1 MB has keys and
measurements looked up row by row for nothing."""
_LOOKED_AT = 4096
"""Rows that tell how a column is encoded."""
OPEN_FILES = 32
"""How many partitions of a site have a file open between two batches of rows; others get a new file with the next."""


@dataclass(frozen=True)
class Staging:
    """Where results wait for their epoch to commit; no place means that they are counted and dropped."""

    uri: str | None
    directory: str = ""
    compression: str = "snappy"
    partition_by: tuple[str, ...] = ()
    """Columns whose values are in the names of directories, and not in the files."""


class PartWriter:
    """Writes the results of one site in one epoch: a file, or one for each partition and, where there are many
    partitions, each batch of rows."""

    def __init__(self, staging: Staging, name: str, schema: pa.Schema) -> None:
        self.staging, self.name, self.schema = staging, name, schema
        self.rows = 0
        self._file_schema = pa.schema([field for field in schema if field.name not in staging.partition_by])
        self._waiting: dict[str, list[pa.RecordBatch]] = {}
        self._waiting_rows = 0
        self._files: dict[str, _PartFile] = {}
        self._parts: list[Part] = []
        self._stack = ExitStack()

    def add(self, batch: pa.RecordBatch) -> None:
        self.rows += batch.num_rows
        if self.staging.uri is None or batch.num_rows == 0:
            return
        for directory, rows in split_by_partition(batch, self.staging.partition_by):
            self._waiting.setdefault(directory, []).append(rows.select(self._file_schema.names))
        self._waiting_rows += batch.num_rows
        if self._waiting_rows >= ROWS_AT_ONCE:
            with self._stack:
                self._write()
                self._stack = self._stack.pop_all()  # files stay open, unless one of them has failed

    def close(self) -> tuple[Part, ...]:
        """Finish the files; no results make none."""
        with self._stack:
            self._write()
            self._parts += [file.close() for file in self._files.values()]
        return tuple(self._parts)

    def _write(self) -> None:
        for directory, batches in self._waiting.items():
            rows = pa.Table.from_batches(batches, self._file_schema)
            if directory in self._files:
                self._files[directory].write(rows)
            elif len(self._files) < OPEN_FILES:
                self._files[directory] = self._open(directory, rows, self._stack)
                self._files[directory].write(rows)
            else:
                with ExitStack() as stack:
                    file = self._open(directory, rows, stack)
                    file.write(rows)
                    self._parts.append(file.close())
        self._waiting, self._waiting_rows = {}, 0

    def _open(self, directory: str, rows: pa.Table, stack: ExitStack) -> _PartFile:
        """A new file of a partition, which begins with these rows."""
        name = self.name
        if self.staging.partition_by:
            name = f"{name.removesuffix('.parquet')}-{len(self._files) + len(self._parts)}.parquet"
        return _PartFile(self.staging, name, rows, directory, stack)


class _PartFile:
    """A file that nobody sees yet. `begin` is what it begins with."""

    def __init__(self, staging: Staging, name: str, begin: pa.Table, directory: str, stack: ExitStack) -> None:
        self._name, self._directory = name, directory
        self._rows = 0
        out = stack.enter_context(Storage(str(staging.uri)).open_writer(f"{staging.directory}/{name}"))
        self._file = _Summed(out)
        self._writer = pq.ParquetWriter(
            self._file,
            begin.schema,
            compression=staging.compression,
            dictionary_pagesize_limit=DICTIONARY_BYTES,
            **_encodings(begin),
        )
        stack.callback(self._abandon)

    def write(self, rows: pa.Table) -> None:
        self._writer.write_table(rows)
        self._rows += rows.num_rows

    def close(self) -> Part:
        self._writer.close()
        return Part(self._name, self._rows, self._file.size, self._file.sum.intdigest(), directory=self._directory)

    def _abandon(self) -> None:
        """After a failure the file under the writer is closed: when Python collects garbage, the writer must not try to
        finish it."""
        self._writer.is_open = False


def _encodings(begin: pa.Table) -> dict[str, Any]:
    """How columns are encoded that begin like this: as differences whole numbers that seldom repeat, which takes half
    the time and two thirds of the bytes; through a dictionary what repeats."""
    if any(types.is_nested(field.type) for field in begin.schema):
        return {}  # Parquet has columns of its own for their parts
    seldom = [field for field in begin.schema if not _repeats(begin[field.name])]
    return {
        "use_dictionary": [name for name in begin.schema.names if name not in {field.name for field in seldom}],
        "column_encoding": {field.name: "DELTA_BINARY_PACKED" for field in seldom if _is_whole_number(field.type)},
    }


def _repeats(column: pa.ChunkedArray) -> bool:
    """Whether values seem to repeat often enough for a dictionary."""
    values = column.slice(0, _LOOKED_AT)
    try:
        return 2 * int(pc.count_distinct(values, mode="all").as_py()) <= len(values)
    except pa.ArrowNotImplementedError:  # of what is a dictionary already, or null throughout
        return True


def _is_whole_number(kind: pa.DataType) -> bool:
    """Whether a file has 4 or 8 bytes of a number for a value."""
    return bool(types.is_integer(kind) or types.is_timestamp(kind) or types.is_date(kind) or types.is_time(kind))


def split_by_partition(batch: pa.RecordBatch, columns: Sequence[str]) -> Iterator[tuple[str, pa.RecordBatch]]:
    """The rows of each partition, with its directory, in the order in which partitions appear.

    >>> rows = pa.RecordBatch.from_pydict({"day": ["b", "a", "b", None], "n": [1, 2, 3, 4]})
    >>> [(directory, part["n"].to_pylist()) for directory, part in split_by_partition(rows, ["day"])]
    [('day=b', [1, 3]), ('day=a', [2]), ('day=__HIVE_DEFAULT_PARTITION__', [4])]
    """
    if not columns:
        yield "", batch
        return
    texts = [_empty_as_null(batch.column(column).cast(pa.string())) for column in columns]
    partition = np.zeros(batch.num_rows, dtype=np.int64)
    for text in texts:
        codes = text.dictionary_encode(null_encoding="encode")
        _, partition = np.unique(
            partition * (len(codes.dictionary) + 1) + codes.indices.to_numpy(), return_inverse=True
        )
    order = np.argsort(partition, kind="stable")
    parts = np.split(order, np.flatnonzero(np.diff(partition[order])) + 1)
    for places in sorted(parts, key=lambda part: int(part[0])):
        values = [text[int(places[0])].as_py() for text in texts]
        yield name_partition(columns, values), batch.take(pa.array(places))


def _empty_as_null(texts: pa.Array) -> pa.Array:
    """Directories do not tell an empty text from none."""
    return pc.if_else(pc.equal(texts, ""), pa.scalar(None, pa.string()), texts)


class _Summed:
    """A file that is being written, with the size and the checksum of what was written so far."""

    closed = False

    def __init__(self, out: Any) -> None:
        self.out = out
        self.size, self.sum = 0, RunningChecksum()

    def write(self, data: Any) -> int:
        self.sum.update(data)
        self.size += len(data)
        self.out.write(data)
        return len(data)

    def flush(self) -> None:
        self.out.flush()

    def close(self) -> None:
        """Whoever opened the file closes it."""

    def writable(self) -> bool:
        return True

    def readable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return False

    def tell(self) -> int:
        return self.size
