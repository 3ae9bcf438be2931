"""JSON lines as Arrow record batches, value for value as Spark reads them; what Spark would read otherwise is refused.

Spark takes one object from each line; Arrow's parser does not see lines. And some numbers are not the same to both.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from json import dumps as json_text

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import json
from pyarrow import types as kind

from sluice.model.errors import StorageError
from sluice.sources.file_options import FileOptions
from sluice.sources.file_paths import Place
from sluice.sources.file_times import from_text, seen_type, text_type
from sluice.sources.file_types import misfit
from sluice.sources.text_files import READ_BY_SPARK, bytes_of, lines_of, text_blocks

_BLANK, _OBJECT = r"^[ \t]*$", r"^[ \t]*\{.*\}[ \t]*$"
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"')
# A minus before an integer zero is lost in Spark; "Inf" is no number there.
_ODD_NUMBER = re.compile(rb"[:\[,]\s*(?:-0\s*[,}\]]|[-+]?Inf(?!inity))")
_REFUSALS = (pa.ArrowInvalid, pa.ArrowNotImplementedError)


def infer_json(place: Place, options: FileOptions) -> pa.Schema | None:
    """The schema that the file's first block shows; None if there is nothing in the file."""
    for block in text_blocks(place):
        lines = _objects(block, place)
        if lines:
            # Arrow takes "10:00:00Z" for a time without a zone and "10:00:00.5" for text: look at the texts again.
            guessed = _parse(lines, None).schema
            first = _parse(lines, pa.schema([(f.name, text_type(f.type)) for f in guessed]))
            columns = {name: first.column(name).combine_chunks() for name in guessed.names}
            return pa.schema([(name, seen_type(values, options)) for name, values in columns.items()])
    return None


def read_json(place: Place, schema: pa.Schema, options: FileOptions) -> Iterator[pa.RecordBatch]:
    """The file's rows under `schema`, block by block; an absent key is null."""
    as_text = pa.schema([(field.name, text_type(field.type)) for field in schema])
    for block in text_blocks(place):
        lines = _objects(block, place)
        if not lines:
            continue
        try:
            table = _parse(lines, as_text)
        except _REFUSALS:
            lines = _with_bare_numbers(lines, schema)
            try:
                table = _parse(lines, as_text)
            except _REFUSALS as e:
                raise _name_column(lines, schema, place, e) from e
        if table.num_rows != lines.count(b"\n"):
            raise StorageError(f"file {place.name!r} has more than one JSON object on a line; give each a line")
        for batch in table.to_batches():
            if any(_has_odd_number(column) for column in batch.columns) and _ODD_NUMBER.search(_STRING.sub(b"", lines)):
                raise StorageError(
                    f"file {place.name!r} has a number -0 or Inf, which Spark reads as something else; write -0.0 or "
                    f"Infinity, {READ_BY_SPARK}"
                )
            columns = [
                _with_times(values, field, options, place) for values, field in zip(batch.columns, schema, strict=True)
            ]
            yield pa.RecordBatch.from_arrays(columns, schema=schema)


def _objects(block: bytes, place: Place) -> bytes:
    """The block without blank lines, after a look whether every line is one object."""
    data = np.frombuffer(block, np.uint8)
    ends = np.flatnonzero(data == ord("\n"))
    starts = np.concatenate([[0], ends[:-1] + 1])
    if (data[starts] == ord("{")).all() and (data[ends - 1] == ord("}")).all():
        return block
    lines = lines_of(block)
    texts = pc.utf8_rtrim(lines, "\n")
    is_blank = pc.match_substring_regex(texts, _BLANK)
    is_odd = pc.invert(pc.or_(is_blank, pc.match_substring_regex(texts, _OBJECT)))
    if pc.any(is_odd, min_count=0).as_py():
        line = texts.filter(is_odd)[0].as_py()
        raise pa.ArrowInvalid(
            f"the line {line[:200]!r} is not one JSON object; if objects have line breaks, give the option "
            "multiLine=True"
        )
    return bytes_of(lines.filter(pc.invert(is_blank)))


def _parse(lines: bytes, schema: pa.Schema | None) -> pa.Table:
    return json.read_json(
        pa.BufferReader(lines),
        read_options=json.ReadOptions(use_threads=False, block_size=len(lines) + 1),
        parse_options=json.ParseOptions(
            explicit_schema=schema, unexpected_field_behavior="infer" if schema is None else "ignore"
        ),
    )


def _with_bare_numbers(lines: bytes, schema: pa.Schema) -> bytes:
    """The lines with NaN and infinity as numbers in fields that are: Spark writes them as text."""
    fields = list(_fields(pa.struct(list(schema))))
    others = {f.name for f in fields if not kind.is_floating(f.type)}
    names = {f.name for f in fields if kind.is_floating(f.type)} - others
    if not names:
        return lines
    keys = b"|".join(re.escape(json_text(name).encode()) for name in sorted(names))
    return re.sub(rb"(" + keys + rb')(\s*:\s*)"(NaN|-?Infinity)"', rb"\1\2\3", lines)


def _fields(t: pa.DataType) -> Iterator[pa.Field]:
    """The fields of a struct and of what is nested in it."""
    for i in range(t.num_fields):
        yield t.field(i)
        yield from _fields(t.field(i).type)


def _name_column(lines: bytes, schema: pa.Schema, place: Place, error: Exception) -> Exception:
    """The error with the name of its column, which Arrow does not tell: found by reading each column alone."""
    if any(sign in str(error) for sign in ("conver", "Column(/", "JSON parsing of")):
        for field in schema:
            try:
                _parse(lines, pa.schema([(field.name, text_type(field.type))]))
            except _REFUSALS as e:
                return misfit(place.name, field.name, "text", field.type, str(e))
    return error


def _has_odd_number(values: pa.Array) -> bool:
    """Whether there are numbers that may have been written in a way that Spark understands otherwise."""
    t = values.type
    if kind.is_struct(t):
        return any(_has_odd_number(values.field(i)) for i in range(t.num_fields))
    if kind.is_list(t) or kind.is_large_list(t):
        return _has_odd_number(values.values)
    if not kind.is_floating(t) or len(values) == values.null_count:
        return False
    numbers = values.drop_null().to_numpy()
    return bool((~np.isfinite(numbers) | ((numbers == 0) & np.signbit(numbers))).any())


def _with_times(values: pa.Array, field: pa.Field, options: FileOptions, place: Place) -> pa.Array:
    try:
        if "decimal" in str(field.type):  # Arrow lets numbers pass that have too many digits once they have their scale
            values.validate(full=True)
        return from_text(values, field.type, options)
    except pa.ArrowException as e:
        raise misfit(place.name, field.name, "text", field.type, str(e)) from e
