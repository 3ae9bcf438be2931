"""The files with the rows of a table that is read into state: the user's own, or staged in the checkpoint."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from sluice.model.codec import checksum
from sluice.model.epoch.attempt import Attempt
from sluice.model.errors import CheckpointError, StorageError
from sluice.model.ids import Site
from sluice.state.files.storage import Storage

TABLES = "tables"
"""The directory of a checkpoint with the contents of tables."""
STAGED_BYTES = 64 << 20
"""About how large the files are in which rows wait to be read into state."""


@dataclass(frozen=True)
class TableFile:
    """A file with rows of a table, and its size in bytes. One that was staged has a checksum."""

    path: str
    size: int
    checksum: int | None = None


@dataclass(frozen=True)
class TableListing:
    """All files of a table: of the user's, with how they are read, or staged in the checkpoint."""

    files: tuple[TableFile, ...]
    format: str = ""
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_staged(self) -> bool:
        return not self.format


@dataclass(frozen=True)
class StagingArea:
    """Where rows that are no files wait to be read: in the checkpoint, under names of an epoch to come."""

    checkpoint: str
    epoch: int
    run: str

    def write(self, batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[TableFile]:
        """Write rows as files that are not too large."""
        waiting: list[pa.RecordBatch] = []
        for batch in _cut(batches):
            waiting.append(batch)
            if sum(one.nbytes for one in waiting) >= STAGED_BYTES:
                yield self._write_file(waiting, schema)
                waiting = []
        if waiting:
            yield self._write_file(waiting, schema)

    def _write_file(self, batches: Sequence[pa.RecordBatch], schema: pa.Schema) -> TableFile:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, schema) as writer:
            for batch in batches:
                writer.write_batch(batch)
        data = sink.getvalue()
        name = f"{TABLES}/{Attempt(self.epoch, Site(0), self.run, uuid.uuid4().hex[:16])}.arrow"
        storage = Storage(self.checkpoint)
        storage.make_dir(TABLES)
        storage.put_if_absent(name, data.to_pybytes())
        return TableFile(name, data.size, checksum(data))


def _cut(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Batches of at most as many bytes as a file is to have, about."""
    for batch in batches:
        pieces = max(1, -(-batch.nbytes // STAGED_BYTES))
        each = max(1, -(-batch.num_rows // pieces))
        yield from (batch.slice(start, each) for start in range(0, batch.num_rows, each))


def read_staged(storage: Storage, file: TableFile, table: str) -> list[pa.RecordBatch]:
    """The rows of a file that was staged; one that is gone or damaged is refused."""
    try:
        data = pa.py_buffer(storage.read(file.path))
    except (StorageError, OSError) as problem:
        raise StorageError(f"rows of table {table!r} that were staged are gone: {problem}") from problem
    if checksum(data) != file.checksum:
        raise CheckpointError(f"{storage.path(file.path)} is damaged: its checksum differs")
    reader = pa.ipc.open_file(data)
    return [reader.get_batch(number) for number in range(reader.num_record_batches)]
