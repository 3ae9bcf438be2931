"""CSV as Arrow record batches, value for value as Spark reads it under the same options; what is not sure is refused.

Spark's reader cuts a file into lines first and then each line into fields. A field is quoted if it begins with the
quote. In a quoted field the escape character stands for itself, except before a quote or another escape character; in
any other field quotes and escape characters are text. Arrow's reader knows doubled quotes only. So lines with quotes
are first rewritten to have those. Lines whose quotes are out of order (never closed, or followed by more text) are
refused: what Spark makes of them is its own guess.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from sluice.model.errors import StorageError
from sluice.sources.csv_values import from_csv_text
from sluice.sources.file_options import FileOptions
from sluice.sources.file_paths import Place
from sluice.sources.file_types import misfit
from sluice.sources.text_files import BYTE_ORDER_MARK, READ_BY_SPARK, bytes_of, lines_of, text_blocks

_NOT_IN_UTF8 = b"\xff"
_BLANK = r"^[\x00-\x20]*$"


def infer_csv(place: Place, options: FileOptions) -> pa.Schema | None:
    """The schema that the file's first block shows; None if there is nothing in the file."""
    header, blocks = _with_header(place, options)
    block = next(blocks, b"")
    if header is None and not block:
        return None
    names = header if header is not None else [f"_c{i}" for i in range(len(_fields(_first_line(block), options)))]
    if not block:
        return pa.schema([(name, pa.null()) for name in names])
    convert = csv.ConvertOptions(
        timestamp_parsers=[options.timestamp_format or csv.ISO8601],
        null_values=["", options.null_value],
        strings_can_be_null=True,
        quoted_strings_can_be_null=not options.null_value,
    )
    types = _parse(block, [str(i) for i in range(len(names))], options, convert).schema.types
    return pa.schema(list(zip(names, types, strict=True)))


def read_csv(place: Place, schema: pa.Schema, options: FileOptions) -> Iterator[pa.RecordBatch]:
    """The file's rows under `schema`, block by block; columns go by their place."""
    header, blocks = _with_header(place, options)
    if header is not None and not options.enforce_schema:
        _check_header(header, schema, place)
    names = [str(i) for i in range(len(schema))]
    convert = csv.ConvertOptions(
        column_types=dict.fromkeys(names, pa.string()),
        null_values=[""],
        strings_can_be_null=True,
        # where the empty text is what stands for null, it does so in quotes too
        quoted_strings_can_be_null=not options.null_value,
    )
    for block in blocks:
        for batch in _parse(block, names, options, convert).to_batches():
            yield pa.RecordBatch.from_arrays(
                [_convert(c, f, options, place) for c, f in zip(batch.columns, schema, strict=True)], schema=schema
            )


def _with_header(place: Place, options: FileOptions) -> tuple[list[str] | None, Iterator[bytes]]:
    """The names in the file's first line, if it has any and they are asked for, and the blocks of its other lines."""
    blocks = (b for b in (_understood(block, options, place) for block in text_blocks(place)) if b)
    if not options.header:
        return None, blocks
    first = next(blocks, b"")
    if not first:
        return None, blocks
    line = _first_line(first)

    def others() -> Iterator[bytes]:
        if len(first) > len(line):
            yield first[len(line) :]
        yield from blocks

    return _fields(line, options), others()


def _check_header(header: list[str], schema: pa.Schema, place: Place) -> None:
    if [name.lower() for name in header] != [name.lower() for name in schema.names]:
        raise StorageError(
            f"file {place.name!r} has the columns {header} in its header, the schema is {schema.names}; as in "
            "Spark, columns of CSV files go by their place. Give a schema= with all columns in the files' order; check "
            "the options 'header' and 'sep'; with enforceSchema=True names in headers are passed over"
        )


def _convert(values: pa.Array, field: pa.Field, options: FileOptions, place: Place) -> pa.Array:
    if options.null_value:
        is_null = pc.equal(values, options.null_value)
        values = pc.if_else(is_null, pa.scalar(None, values.type), values)
    try:
        return from_csv_text(values, field.type, options)
    except pa.ArrowException as e:
        raise misfit(place.name, field.name, "text", field.type, str(e)) from e


def _first_line(block: bytes) -> bytes:
    return block[: block.index(b"\n") + 1]


def _fields(line: bytes, options: FileOptions) -> list[str]:
    """The fields of one line that has been understood."""
    with_names = csv.ReadOptions(use_threads=False, block_size=2 * len(line) + 9)  # the line's fields are the names
    table = csv.read_csv(
        pa.BufferReader(BYTE_ORDER_MARK + line), read_options=with_names, parse_options=_parse_options(options)
    )
    return [str(name) for name in table.column_names]


def _parse(block: bytes, names: list[str], options: FileOptions, convert: csv.ConvertOptions) -> pa.Table:
    block = BYTE_ORDER_MARK + block  # Arrow takes one away, and a field may begin with another
    return csv.read_csv(
        pa.BufferReader(block),
        read_options=csv.ReadOptions(use_threads=False, block_size=len(block) + 1, column_names=names),
        parse_options=_parse_options(options),
        convert_options=convert,
    )


def _parse_options(options: FileOptions) -> csv.ParseOptions:
    return csv.ParseOptions(delimiter=options.sep, quote_char=options.quote or False, escape_char=False)


def _understood(block: bytes, options: FileOptions, place: Place) -> bytes:
    """The block's lines as Arrow has to see them to read what Spark would: no blank ones, quotes doubled."""
    data = np.frombuffer(block, np.uint8)
    quotes = options.quote.encode()
    has_quotes = bool(quotes) and quotes in block
    if not quotes and b"\0" in block:
        raise StorageError(
            f"file {place.name!r} has a NUL character, which is a quote to Spark where there is no other"
        )
    maybe_blank = data[0] <= ord(" ") or bool((data[1:][data[:-1] == ord("\n")] <= ord(" ")).any())
    if not has_quotes and not maybe_blank:
        return block
    lines = lines_of(block)
    if maybe_blank:
        lines = lines.filter(pc.invert(pc.match_substring_regex(lines, _BLANK)))
    return _requote(lines, options, place) if has_quotes else bytes_of(lines)


def _requote(lines: pa.Array, options: FileOptions, place: Place) -> bytes:
    grammar = _Grammar.of(options)
    has_quotes = pc.match_substring(lines, options.quote)
    quoted = lines.filter(has_quotes)
    is_clear = pc.match_substring_regex(quoted, grammar.line)
    if not pc.all(is_clear, min_count=0).as_py():
        raise _unclear(quoted.filter(pc.invert(is_clear))[0].as_py().rstrip("\n"), options, place)
    escape = options.escape
    if escape == options.quote and pc.any(pc.match_substring(quoted, "\0"), min_count=0).as_py():
        raise StorageError(
            f"file {place.name!r} has a NUL character in a line with quotes; where the escape character is the quote, "
            f"Spark passes over it in a line's last field: take it out, {READ_BY_SPARK}"
        )
    if escape == options.quote or not pc.any(pc.match_substring(quoted, escape), min_count=0).as_py():
        return bytes_of(lines)
    plain = pc.match_substring_regex(quoted, grammar.line_without_escapes_outside_quotes)
    if pc.all(plain).as_py():
        rewritten = lines_of(_double_quotes(bytes_of(quoted), options))
    else:
        # escapes that count stand beside such that do not: rare, and only these lines are taken one by one
        rewritten = pc.replace_with_mask(
            quoted,
            pc.invert(plain),
            pa.array(
                [grammar.double_quotes_in_line(line, options) for line in quoted.filter(pc.invert(plain)).to_pylist()],
                pa.large_string(),
            ),
        )
        doubled = lines_of(_double_quotes(bytes_of(quoted.filter(plain)), options))
        rewritten = pc.replace_with_mask(rewritten, plain, doubled)
    return bytes_of(pc.replace_with_mask(lines, has_quotes, rewritten))


def _double_quotes(text: bytes, options: FileOptions) -> bytes:
    """Text with its escapes resolved and its quotes doubled in their place."""
    quote, escape = options.quote.encode(), options.escape.encode()
    text = text.replace(escape * 2, _NOT_IN_UTF8).replace(escape + quote, quote * 2)
    return text.replace(_NOT_IN_UTF8, escape)


def _unclear(line: str, options: FileOptions, place: Place) -> StorageError:
    hint = f"if quotes in text are doubled, give the option escape={options.quote!r}; "
    return StorageError(
        f"file {place.name!r}: in the line {line[:200]!r} a quote ({options.quote}) is not closed, or text follows the "
        f"closing one; {hint if options.escape != options.quote else ''}if values have line breaks, the option "
        f"multiLine=True; {READ_BY_SPARK}"
    )


@dataclass(frozen=True)
class _Grammar:
    """Lines that can be read in one way only, as regular expressions."""

    line: str
    line_without_escapes_outside_quotes: str
    quoted_field: re.Pattern[str]

    @classmethod
    def of(cls, options: FileOptions) -> _Grammar:
        q, e, s = (rf"\x{ord(c):02x}" for c in (options.quote, options.escape, options.sep))
        inside = rf"(?:[^{q}\n]|{q}{q})*" if q == e else rf"(?:[^{q}{e}\n]|{e}[^\n])*"
        quoted, other = rf"{q}{inside}{q}", rf"(?:[^{q}{s}\n][^{s}\n]*)?"
        # an escape character that is neither followed by a quote nor by another one means nothing in either place
        alone = rf"{e}[^{q}{e}{s}\n]"
        harmless = rf"(?:(?:[^{q}{e}{s}\n]|{alone})(?:[^{e}{s}\n]|{alone})*)?{e}?"
        line, harmless_line = (rf"^(?:{quoted}|{f})(?:{s}(?:{quoted}|{f}))*\n$" for f in (other, harmless))
        return cls(line, harmless_line, re.compile(rf"(?:^|(?<={s})){q}({inside}){q}(?={s}|\n)"))

    def double_quotes_in_line(self, line: str, options: FileOptions) -> str:
        """The line with the escapes in its quoted fields resolved, and the quotes in them doubled."""
        q = options.quote
        return self.quoted_field.sub(lambda m: f"{q}{_double_quotes(m[1].encode(), options).decode()}{q}", line)
