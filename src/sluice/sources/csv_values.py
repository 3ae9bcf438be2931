"""Values of CSV files, from text to their types: what Arrow reads and Spark would not, or not so, is refused."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as kind

from sluice.sources.file_options import FileOptions
from sluice.sources.file_times import from_text
from sluice.sources.text_files import bytes_of

_NUMBER = r"^(?:[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?|NaN|-?Inf|-?Infinity)$"


def from_csv_text(values: pa.Array, to: pa.DataType, options: FileOptions) -> pa.Array:
    """The texts as `to`; ArrowInvalid where one is no such value."""
    if kind.is_boolean(to):
        return _booleans(values)
    if kind.is_integer(to):
        _refuse_unless(values, b"0123456789-")  # not 0x1F
    elif kind.is_floating(to) and _beyond(values, b"0123456789.-"):
        _refuse_unless_matching(values, _NUMBER)  # not nan, or +-1
    elif kind.is_decimal(to):
        _refuse_unless(values, b"0123456789.-+eE")
    elif kind.is_null(to) and values.null_count < len(values):
        raise pa.ArrowInvalid(f"{values.drop_null()[0].as_py()!r}")
    return from_text(values, to, options)


def _booleans(values: pa.Array) -> pa.Array:
    lowered = pc.utf8_lower(values)
    _refuse_unless_matching(lowered, "^(?:true|false)$")
    return pc.equal(lowered, "true")


def _beyond(values: pa.Array, characters: bytes) -> bool:
    return bool(bytes_of(values).translate(None, characters))


def _refuse_unless(values: pa.Array, characters: bytes) -> None:
    if _beyond(values, characters):
        _refuse_unless_matching(values, "^[" + "".join(rf"\x{c:02x}" for c in characters) + "]*$")


def _refuse_unless_matching(values: pa.Array, pattern: str) -> None:
    fits = pc.match_substring_regex(values, pattern)
    if not pc.all(fits, min_count=0).as_py():
        raise pa.ArrowInvalid(f"{values.filter(pc.invert(fits))[0].as_py()!r}")
