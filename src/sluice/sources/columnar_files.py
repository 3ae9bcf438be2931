"""Parquet and Arrow files as record batches of a given schema; columns outside the schema are not read."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import ipc
from pyarrow import types as kind

from sluice.model.errors import StorageError
from sluice.sources.file_paths import Place
from sluice.sources.file_types import INSTANT, fit

_ARROW_MAGIC = b"ARROW1"
_END_OF_STREAM = b"\xff\xff\xff\xff\x00\x00\x00\x00"


def read_parquet(
    place: Place, schema: pa.Schema, rows: int, columns: Collection[str] | None = None
) -> Iterator[pa.RecordBatch]:
    """The file's rows under `schema`, small row groups joined up to `rows`; a column the file lacks is null, and so is
    one that is not among the needed `columns` (None: all)."""
    with place.filesystem.open_input_file(place.inner) as file:
        metadata = pq.read_metadata(file)
        parquet = pq.ParquetFile(
            file,
            metadata=metadata,
            read_dictionary=_small_dictionaries(metadata, schema),
            pre_buffer=not place.is_local,
            coerce_int96_timestamp_unit="us",
            page_checksum_verification=True,
        )
        names = _shared_columns(parquet.schema_arrow, schema, place)
        if columns is not None:
            names = [name for name in names if name in columns] or names[:1]  # without a column there are no rows
        instants = _int96_columns(parquet)
        for batch in parquet.iter_batches(rows, columns=names, use_threads=False):
            yield _under(batch, schema, place, instants)


def parquet_schema(place: Place) -> pa.Schema:
    with place.filesystem.open_input_file(place.inner) as file:
        parquet = pq.ParquetFile(file)
        instants = _int96_columns(parquet)
        return pa.schema([(field.name, instants.get(field.name, field.type)) for field in parquet.schema_arrow])


def read_arrow(place: Place, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The batches of an IPC file or stream under `schema`, memory-mapped where the file is local."""
    with place.filesystem.open_input_file(place.inner) as file:
        file_schema = _arrow_schema(file)
        names = _shared_columns(file_schema, schema, place)
        missing = [name for name in schema.names if name not in names]
        if missing:
            raise StorageError(
                f"file {place.name!r} lacks the columns {missing} of the schema; it has {file_schema.names}"
            )
        for batch in _arrow_batches(file, [file_schema.get_field_index(name) for name in names], place.is_local):
            batch.validate()
            yield _under(batch, schema, place, {})


def arrow_schema(place: Place) -> pa.Schema:
    with place.filesystem.open_input_file(place.inner) as file:
        return _arrow_schema(file)


def _arrow_schema(file: pa.NativeFile) -> pa.Schema:
    file_schema = (ipc.open_file(file) if _is_ipc_file(file) else ipc.open_stream(file)).schema
    file.seek(0)
    return file_schema


def _arrow_batches(file: pa.NativeFile, fields: list[int], mapped: bool) -> Iterator[pa.RecordBatch]:
    options = ipc.IpcReadOptions(use_threads=False, included_fields=fields)
    if _is_ipc_file(file):
        # A choice of fields makes Arrow copy them out of an IPC file; mapped, the others are not touched anyway.
        reader = ipc.open_file(file, options=ipc.IpcReadOptions(use_threads=False) if mapped else options)
        yield from (reader.get_batch(i) for i in range(reader.num_record_batches))
        return
    # A stream cut off between two batches would read as a shorter one.
    if file.read_at(len(_END_OF_STREAM), max(0, file.size() - len(_END_OF_STREAM))) != _END_OF_STREAM:
        raise pa.ArrowInvalid("the stream has no end mark: it is truncated, or still being written")
    yield from ipc.open_stream(file, options=options)


def _is_ipc_file(file: pa.NativeFile) -> bool:
    return bool(file.read_at(len(_ARROW_MAGIC), 0) == _ARROW_MAGIC)


def _shared_columns(present: pa.Schema, schema: pa.Schema, place: Place) -> list[str]:
    names = [name for name in schema.names if name in present.names]
    if not names:
        raise StorageError(f"file {place.name!r} has none of the schema's columns {schema.names}, only {present.names}")
    twice = [name for name in names if present.names.count(name) > 1]
    if twice:
        raise StorageError(f"file {place.name!r} has more than one column named {twice}")
    return names


def _under(batch: pa.RecordBatch, schema: pa.Schema, place: Place, instants: dict[str, pa.DataType]) -> pa.RecordBatch:
    columns = []
    for field in schema:
        at = batch.schema.get_field_index(field.name)
        if at < 0:
            columns.append(pa.nulls(batch.num_rows, field.type))
            continue
        values = batch.column(at)
        if field.name in instants:
            values = values.cast(instants[field.name])
        columns.append(fit(values, field.type, place.name, field.name))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _small_dictionaries(metadata: pq.FileMetaData, schema: pa.Schema) -> list[str]:
    """Text columns that are read faster by their dictionaries and decoded after (half the time for few values).

    Where the dictionary is large that takes longer instead: it pays up to about half a byte of it a row.
    """
    if metadata.num_row_groups == 0:
        return []
    group = metadata.row_group(0)
    small = []
    for i in range(metadata.num_columns):
        column = metadata.schema.column(i)
        if column.path in schema.names and column.logical_type.type == "STRING":
            chunk = group.column(i)
            if chunk.has_dictionary_page:
                size = chunk.data_page_offset - (chunk.dictionary_page_offset or 0)
                if size <= chunk.num_values // 2:
                    small.append(column.path)
    return small


def _int96_columns(parquet: pq.ParquetFile) -> dict[str, pa.DataType]:
    """The columns with INT96 times, which Spark writes for TIMESTAMP, and their types with those as instants.

    An INT96 says nothing of a zone, so Arrow reads it without one; by the custom of all its writers it is in UTC.
    """
    physical = [parquet.metadata.schema.column(i).physical_type for i in range(parquet.metadata.num_columns)]
    if "INT96" not in physical:
        return {}
    leaves = iter(physical)
    as_instants = {field.name: _with_instants(field.type, leaves) for field in parquet.schema_arrow}
    return {name: t for name, t in as_instants.items() if t != parquet.schema_arrow.field(name).type}


def _with_instants(t: pa.DataType, leaves: Iterator[str]) -> pa.DataType:
    if kind.is_struct(t):
        return pa.struct([field.with_type(_with_instants(field.type, leaves)) for field in t])
    if kind.is_map(t):
        key = _with_instants(t.key_type, leaves)
        return pa.map_(key, _with_instants(t.item_type, leaves))
    if kind.is_list(t) or kind.is_large_list(t):
        return pa.list_(t.value_field.with_type(_with_instants(t.value_type, leaves)))
    return INSTANT if next(leaves) == "INT96" else t
