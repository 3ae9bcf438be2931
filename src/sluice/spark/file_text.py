"""CSV and JSON lines, compressed or not, as Arrow record batches of a given schema."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyarrow import csv, json

from sluice.model.errors import StorageError
from sluice.spark.file_options import FileOptions
from sluice.spark.file_paths import Place
from sluice.spark.file_times import from_text, seen_type, text_type
from sluice.spark.file_types import misfit

# Arrow refuses a line longer than this, and types are inferred from no more than this.
_BLOCK = 16 << 20
_COMPRESSED = (".gz", ".bz2", ".lz4", ".zst")
_REFUSALS = (pa.ArrowInvalid, pa.ArrowNotImplementedError)


def infer_text(place: Place, format: str, options: FileOptions) -> pa.Schema | None:
    """The schema that the file's first block shows; None if there is nothing in the file."""
    try:
        return _infer_csv(place, options) if format == "csv" else _infer_json(place, options)
    except pa.ArrowInvalid as e:
        if _is_empty(place, e):
            return None
        raise


def read_text(place: Place, format: str, schema: pa.Schema, options: FileOptions) -> Iterator[pa.RecordBatch]:
    """The file's rows under `schema`, block by block; an absent column or key is null."""
    try:
        for batch in _open_csv(place, schema, options) if format == "csv" else _open_json(place, schema):
            yield _with_times(batch, schema, options, place)
    except _REFUSALS as e:
        if not _is_empty(place, e):
            raise _blamed(place, format, schema, options, e) from e


def _with_times(batch: pa.RecordBatch, schema: pa.Schema, options: FileOptions, place: Place) -> pa.RecordBatch:
    columns = []
    for values, field in zip(batch.columns, schema, strict=True):
        try:
            columns.append(from_text(values, field.type, options))
        except pa.ArrowException as e:
            raise misfit(place.name, field.name, "text", field.type, str(e)) from e
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _is_empty(place: Place, error: pa.ArrowException) -> bool:
    if not str(error).startswith(("Empty CSV file", "CSV parse error: Empty CSV file", "Empty JSON")):
        return False
    # Even nothing takes some bytes when compressed: without any, the file has lost its content.
    return not place.inner.endswith(_COMPRESSED) or place.filesystem.get_file_info(place.inner).size > 0


def _blamed(
    place: Place, format: str, schema: pa.Schema, options: FileOptions, error: pa.ArrowException
) -> pa.ArrowException | StorageError:
    """The error with the name of its column, which Arrow does not tell: found by reading each column alone."""
    if not any(sign in str(error) for sign in ("conver", "Column(/", "JSON parsing of")):
        return error
    for i, field in enumerate(schema):
        try:
            if format == "csv":
                for _ in _csv_reader(place, options, _asking_for({_csv_name(i, field, options): field.type}, options)):
                    pass
            else:
                for _ in _open_json(place, pa.schema([field])):
                    pass
        except KeyError:
            continue
        except _REFUSALS as e:
            return misfit(place.name, field.name, "text", field.type, str(e))
    return error


def _open_csv(place: Place, schema: pa.Schema, options: FileOptions) -> csv.CSVStreamingReader:
    columns = {_csv_name(i, field, options): field.type for i, field in enumerate(schema)}
    try:
        return _csv_reader(place, options, _asking_for(columns, options))
    except KeyError as e:
        found = _csv_reader(place, options, _guessing(options)).schema.names
        if not set(found) & set(columns):
            raise StorageError(
                f"file {place.name!r} has none of the stream's columns {schema.names}, only {found}; "
                "check the options 'header' and 'sep'"
            ) from e
        return _csv_reader(place, options, _asking_for(columns, options, or_null=True))


def _infer_csv(place: Place, options: FileOptions) -> pa.Schema:
    found = _csv_reader(place, options, _guessing(options)).schema
    return found if options.header else pa.schema([(f"_c{i}", field.type) for i, field in enumerate(found)])


def _csv_name(i: int, field: pa.Field, options: FileOptions) -> str:
    # Without a header columns go by their place, and Arrow calls them f0, f1 and so on.
    return str(field.name) if options.header else f"f{i}"


def _csv_reader(place: Place, options: FileOptions, convert: csv.ConvertOptions) -> csv.CSVStreamingReader:
    escape = options.escape if options.escape != options.quote else ""  # a doubled quote is always understood
    return csv.open_csv(
        place.filesystem.open_input_stream(place.inner),
        read_options=csv.ReadOptions(
            use_threads=False, block_size=_BLOCK, autogenerate_column_names=not options.header
        ),
        parse_options=csv.ParseOptions(
            delimiter=options.sep, quote_char=options.quote or False, escape_char=escape or False
        ),
        convert_options=convert,
    )


def _guessing(options: FileOptions) -> csv.ConvertOptions:
    return csv.ConvertOptions(timestamp_parsers=[options.timestamp_format or csv.ISO8601], **_nulls(options))


def _asking_for(columns: Mapping[str, pa.DataType], options: FileOptions, or_null: bool = False) -> csv.ConvertOptions:
    return csv.ConvertOptions(
        column_types={name: text_type(t) for name, t in columns.items()},
        include_columns=list(columns),
        include_missing_columns=or_null,
        **_nulls(options),
    )


def _nulls(options: FileOptions) -> dict[str, Any]:
    return {
        "null_values": ["", options.null_value],
        "strings_can_be_null": True,
        "quoted_strings_can_be_null": False,
    }


def _open_json(place: Place, schema: pa.Schema | None) -> Any:
    wanted = None if schema is None else pa.schema([(field.name, text_type(field.type)) for field in schema])
    return json.open_json(
        place.filesystem.open_input_stream(place.inner),
        read_options=json.ReadOptions(use_threads=False, block_size=_BLOCK),
        parse_options=json.ParseOptions(
            explicit_schema=wanted, unexpected_field_behavior="infer" if wanted is None else "ignore"
        ),
    )


def _infer_json(place: Place, options: FileOptions) -> pa.Schema:
    # Arrow takes "10:00:00Z" for a time without a zone and "10:00:00.5" for text: look at the texts again.
    found = _open_json(place, None).schema
    first = next(iter(_open_json(place, found)))
    return pa.schema([(field.name, seen_type(first.column(field.name), options)) for field in found])
