"""What a site does with its results while it finds them: drop them, or write them to a part file nobody sees yet."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from sluice.model.codec import RunningChecksum
from sluice.model.epoch.results import Part
from sluice.state.files.storage import Storage

ROWS_AT_ONCE = 1 << 18
DICTIONARY_BYTES = 128 << 10
"""Up to which size a column's distinct values in so many rows are worth a dictionary. The default of 1 MB has keys and
measurements looked up row by row for nothing."""


@dataclass(frozen=True)
class Staging:
    """Where results wait for their epoch to commit; no place means that they are counted and dropped."""

    uri: str | None
    directory: str = ""
    compression: str = "snappy"


class PartWriter:
    """Writes the results of one site in one epoch."""

    def __init__(self, staging: Staging, name: str, schema: pa.Schema) -> None:
        self.staging, self.name, self.schema = staging, name, schema
        self.rows = 0
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_rows = 0
        self._writer: Any = None
        self._file: _Summed | None = None
        self._stack = ExitStack()

    def add(self, batch: pa.RecordBatch) -> None:
        self.rows += batch.num_rows
        if self.staging.uri is None or batch.num_rows == 0:
            return
        self._waiting.append(batch)
        self._waiting_rows += batch.num_rows
        if self._waiting_rows >= ROWS_AT_ONCE:
            self._write()

    def close(self) -> tuple[Part, ...]:
        """Finish the file; no results make no file."""
        with self._stack:
            self._write()
            if self._writer is not None:
                self._writer.close()
        return () if self._file is None else (Part(self.name, self.rows, self._file.size, self._file.sum.intdigest()),)

    def _write(self) -> None:
        if not self._waiting:
            return
        if self._writer is None:
            storage = Storage(str(self.staging.uri))
            out = self._stack.enter_context(storage.open_writer(f"{self.staging.directory}/{self.name}"))
            self._file = _Summed(out)
            self._writer = pq.ParquetWriter(
                self._file,
                self.schema,
                compression=self.staging.compression,
                dictionary_pagesize_limit=DICTIONARY_BYTES,
            )
        self._writer.write_table(pa.Table.from_batches(self._waiting, self.schema))
        self._waiting, self._waiting_rows = [], 0


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
