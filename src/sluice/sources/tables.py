"""Where the rows of tables come from, as far as Spark is not needed: files, and Arrow tables."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from sluice.model.errors import FlowError, SluiceError, StorageError
from sluice.sources.directory_tree import ListedFile
from sluice.sources.file_search import FileSearch
from sluice.sources.file_types import fit
from sluice.sources.files import read_file
from sluice.sources.table_files import StagingArea, TableFile, TableListing


@dataclass(frozen=True, eq=False)
class ArrowRows:
    """The rows of an Arrow table, which never change."""

    name: str
    rows: pa.Table

    def read(self) -> pa.Table:
        return self.rows

    def fingerprint(self) -> Hashable | None:
        return id(self.rows)

    def list_files(self, schema: pa.Schema, staging: StagingArea) -> TableListing:
        return stage_rows(self.name, self.rows, schema, staging)


@dataclass(frozen=True)
class TableFiles:
    """The rows of all files at a path, a directory, a file or a pattern, found as a stream's files are."""

    name: str
    path: str
    format: str
    schema: pa.Schema
    options: Mapping[str, str] = field(default_factory=dict)
    name_filter: str = "*"

    def read(self) -> pa.Table:
        batches = [batch for file in self._list() for batch in self._read_file(file.path)]
        return pa.Table.from_batches(batches, self.schema)

    def fingerprint(self) -> Hashable | None:
        return tuple(self._list())

    def list_files(self, schema: pa.Schema, staging: StagingArea) -> TableListing:
        files = tuple(TableFile(file.path, file.size) for file in self._list())
        return TableListing(files, self.format, self.options)

    def _read_file(self, path: str) -> Iterator[pa.RecordBatch]:
        try:
            yield from read_file(path, self.format, self.schema, self.options)
        except StorageError as problem:
            raise name_table(self.name, problem) from problem

    def _list(self) -> list[ListedFile]:
        files = FileSearch(self.path, self.name_filter).new_files(lambda _: True)
        if not files:
            raise StorageError(f"table {self.name!r}: there is no {self.format} file at {self.path!r}")
        return sorted(files)


def name_table(name: str, problem: SluiceError) -> SluiceError:
    """What is wrong with one of a table's files, with the table that it is of."""
    return type(problem)(f"table {name!r} cannot be read: {problem}")


def fit_rows(name: str, rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Rows with normal types, whatever form they have; columns go by their places."""
    columns = [
        pa.chunked_array([fit(chunk, one.type, f"table {name}", one.name) for chunk in column.chunks], one.type)
        for one, column in zip(schema, rows.columns, strict=True)
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def stage_rows(name: str, rows: pa.Table, schema: pa.Schema, staging: StagingArea) -> TableListing:
    """Rows of the driver as files for map tasks to read."""
    return TableListing(tuple(staging.write(cast_rows(name, rows, schema).to_batches(), schema)))


def cast_rows(name: str, rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Rows with the columns that a table had when it was registered; what has others is refused."""
    refuse_missing(name, schema, rows.schema.names)
    try:
        return rows.select(schema.names).cast(schema)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError) as problem:
        raise FlowError(f"table {name!r} does not fit its columns any more: {problem}") from problem


def refuse_missing(name: str, schema: pa.Schema, columns: Sequence[str]) -> None:
    """Refuse rows that lack one of the columns that a table had when it was registered."""
    missing = [column for column in schema.names if column not in columns]
    if missing:
        raise FlowError(f"table {name!r} has no column {missing[0]!r} any more; it has {', '.join(columns)}")
