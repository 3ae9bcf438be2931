"""The files of a `readFiles` stream, read as Arrow in the task that got their paths: they never become rows.

Spark only tracks which files there are; a map task opens each one here. Whatever a file looks like, its rows
come out under the stream's schema or the task fails with the file's name: nothing is lost silently.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from itertools import islice

import pyarrow as pa
from pyarrow import types as kind

from sluice.model.errors import CorruptFile, FlowError, MissingFile, StorageError
from sluice.sources.columnar_files import arrow_schema, parquet_schema, read_arrow, read_parquet
from sluice.sources.csv_files import infer_csv, read_csv
from sluice.sources.file_options import FORMATS, FileOptions
from sluice.sources.file_paths import Place, find, is_there, locate
from sluice.sources.file_types import normal_schema, normal_type
from sluice.sources.json_files import infer_json, read_json

__all__ = ["FORMATS", "FileOptions", "infer_schema", "is_there", "normal_schema", "normal_type", "read_file"]

_FILES_TO_INFER_FROM = 16
_TEXT = ("csv", "json")
_READ_BYTES = 16 << 20


def infer_schema(
    name: str,
    path: str,
    format: str,
    options: Mapping[str, str],
    name_filter: str = "*",
    what: str = "stream",
) -> pa.Schema:
    """The normal schema of the first file under a directory, file or glob; `name_filter` is Spark's pathGlobFilter.
    `what` it is that has this name, a stream or a table, is for errors.

    While a column has shown nothing but nulls, the next files are looked at too, and add the columns they have.
    """
    schema = None
    try:
        how = FileOptions.of(format, options)
        for place in islice(find(path, name_filter), _FILES_TO_INFER_FROM):
            file_schema = _schema_of(place, format, how)
            if file_schema is None:
                continue
            schema = (
                file_schema if schema is None else pa.unify_schemas([schema, file_schema], promote_options="permissive")
            )
            if not any(kind.is_null(t) for t in schema.types):
                break
    except (FlowError, StorageError, pa.ArrowException) as e:
        raise FlowError(f"{what} {name!r}: {e}") from e
    if schema is None:
        raise FlowError(f"{what} {name!r}: no {format} file with columns under {path!r}; give schema=")
    return schema


def _schema_of(place: Place, format: str, options: FileOptions) -> pa.Schema | None:
    try:
        if format == "parquet":
            schema = parquet_schema(place)
        elif format == "arrow":
            schema = arrow_schema(place)
        else:
            schema = infer_csv(place, options) if format == "csv" else infer_json(place, options)
    except CorruptFile:
        if format in _TEXT:
            return None  # there are no columns to be seen in it
        raise
    except (pa.ArrowException, OSError) as e:
        raise _unreadable(place, format, e) from e
    if not schema:
        return None
    twice = sorted({name for name in schema.names if schema.names.count(name) > 1})
    if twice:
        raise StorageError(f"file {place.name!r} has more than one column named {twice}")
    return normal_schema(schema)


def read_file(
    path: str,
    format: str,
    schema: pa.Schema,
    options: Mapping[str, str],
    rows_per_chunk: int = 1_000_000,
    columns: Collection[str] | None = None,
) -> Iterator[pa.RecordBatch]:
    """The file's rows as record batches of exactly `schema`, of `rows_per_chunk` rows each but for the last.

    Columns that a Parquet or JSON file lacks are null; columns it has besides are passed over. Where only some
    `columns` are needed, others may be null: of Parquet they are not read. An error names the file: MissingFile if it
    is gone, CorruptFile if its bytes are no such file, StorageError if it cannot be reached, or if one of its columns
    or lines does not fit the schema.
    """
    how = FileOptions.of(format, options)
    place = locate(path)
    if format == "parquet":
        batches = read_parquet(place, schema, rows_per_chunk, columns)
    elif format == "arrow":
        batches = read_arrow(place, schema)
    else:
        batches = read_csv(place, schema, how) if format == "csv" else read_json(place, schema, how)
    return _name_errors(_chunks(batches, rows_per_chunk), place, format)


def _name_errors(batches: Iterator[pa.RecordBatch], place: Place, format: str) -> Iterator[pa.RecordBatch]:
    try:
        yield from batches
    except (pa.ArrowException, OSError) as e:
        raise _unreadable(place, format, e) from e


def _unreadable(place: Place, format: str, error: Exception) -> StorageError:
    message = f"cannot read file {place.name!r} as {format}: {error}"
    if isinstance(error, FileNotFoundError):
        return MissingFile(f"file {place.name!r} is gone, though it has not been read; bring it back under its name")
    if format in _TEXT and not isinstance(error, OSError):
        return StorageError(message)  # a line that is not as it should be is no damage
    return CorruptFile(message) if _can_be_fetched(place) else StorageError(message)


def _can_be_fetched(place: Place) -> bool:
    """Whether the file's bytes can all be had, so that the fault is in them."""
    try:
        with place.filesystem.open_input_stream(place.inner, compression=None) as file:
            while file.read(_READ_BYTES):
                pass
    except OSError:
        return False
    return True


def _chunks(batches: Iterator[pa.RecordBatch], rows: int) -> Iterator[pa.RecordBatch]:
    """The same rows in batches of `rows`: small ones joined, large ones sliced."""
    pieces: list[pa.RecordBatch] = []
    count = 0
    for batch in batches:
        start = 0
        while start < batch.num_rows:
            piece = batch.slice(start, rows - count)
            pieces.append(piece)
            count += piece.num_rows
            start += piece.num_rows
            if count == rows:
                yield from _combine(pieces)
                pieces, count = [], 0
    if pieces:
        yield from _combine(pieces)


def _combine(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    if len(batches) == 1:
        return batches
    # Two or more come back only where text outgrows what one array of its type can hold (2 GB).
    return list(pa.Table.from_batches(batches).combine_chunks().to_batches())
