"""Times out of text files: which text is a time, and which instant a time without an offset is.

Arrow's own readers would refuse a time without an offset where an instant is wanted (CSV), or quietly drop the
offset where none is (JSON). So they are asked for the text, and the times are made here.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as kind

from sluice.sources.file_options import FileOptions
from sluice.sources.file_types import INSTANT

_LOCAL = pa.timestamp("us")
# An offset follows the time of day; without that, the day of a bare date would look like one.
_OFFSET = r"[T ].*(Z|[+-]\d\d(:?\d\d)?)$"
# What Arrow and Spark both take for a time, and for the same one. Arrow alone would take an offset of a whole day, or
# one after hours and minutes.
_WITHOUT_OFFSET = r"^\d{4}-\d\d-\d\d(?:[T ]\d\d(?::\d\d(?::\d\d(?:\.\d{1,9})?)?)?)?$"
_SPARKS_OFFSET = r"(?:Z|[+-](?:(?:0\d|1[0-7])(?::?[0-5]\d)?|18(?::?00)?))"
_WITH_OFFSET = rf"^\d{{4}}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d{{1,9}})?{_SPARKS_OFFSET}$"


def text_type(t: pa.DataType) -> pa.DataType:
    """The type to ask a text reader for: text in place of times and dates, inside nested types too."""
    if kind.is_timestamp(t) or kind.is_date(t):
        return pa.string()
    if kind.is_struct(t):
        return pa.struct([(field.name, text_type(field.type)) for field in t])
    if kind.is_list(t) or kind.is_large_list(t):
        return pa.list_(text_type(t.value_type))
    return t


def from_text(values: pa.Array, to: pa.DataType, options: FileOptions) -> pa.Array:
    """Values that were read as `text_type(to)`, as `to`; ArrowInvalid where a text is no such time."""
    if values.type == to:
        return values
    if kind.is_timestamp(to):
        return _times(values, to.tz is not None, options).cast(to)
    if kind.is_struct(to):
        children = [from_text(values.field(i), field.type, options) for i, field in enumerate(to)]
        return pa.StructArray.from_arrays(children, fields=list(to), mask=values.is_null())
    if kind.is_list(to) or kind.is_large_list(to):
        items = from_text(values.values, to.value_type, options)
        return pa.ListArray.from_arrays(values.offsets, items, mask=values.is_null()).cast(to)
    return values.cast(to)


def seen_type(values: pa.Array, options: FileOptions) -> pa.DataType:
    """The type of values whose times were left as text: a time if every one of the texts is."""
    t = values.type
    if kind.is_struct(t):
        return pa.struct([(field.name, seen_type(values.field(i), options)) for i, field in enumerate(t)])
    if kind.is_list(t):
        return pa.list_(seen_type(values.values, options))
    if kind.is_string(t) and values.null_count < len(values):
        for instants in (False, True):
            try:
                return _times(values, instants, options).type
            except pa.ArrowInvalid:
                continue
    return t


def _times(text: pa.Array, instants: bool, options: FileOptions) -> pa.Array:
    if options.timestamp_format:
        times = pc.strptime(text, format=options.timestamp_format, unit="us", error_is_null=False)
        if times.type.tz is not None and not instants:
            raise pa.ArrowInvalid(f"timestampFormat {options.timestamp_format!r} reads an offset; declare TIMESTAMP")
        return times if times.type.tz is not None or not instants else _in_zone(times, options)
    _refuse_unless_time(text, instants)
    try:
        return text.cast(INSTANT if instants else _LOCAL)
    except pa.ArrowInvalid:
        if not instants:
            return _to_microseconds(text).cast(_LOCAL)
    try:
        return _in_zone(text.cast(_LOCAL), options)
    except pa.ArrowInvalid:
        return _read_mixed(_to_microseconds(text), options)


def _read_mixed(text: pa.Array, options: FileOptions) -> pa.Array:
    has_offset = pc.match_substring_regex(text, _OFFSET)
    null = pa.scalar(None, text.type)
    local = pc.if_else(has_offset, null, text).cast(_LOCAL)
    return pc.coalesce(pc.if_else(has_offset, text, null).cast(INSTANT), _in_zone(local, options))


def _to_microseconds(text: pa.Array) -> pa.Array:
    return pc.replace_substring_regex(text, r"(\.\d{6})\d+", r"\1")


def _refuse_unless_time(text: pa.Array, instants: bool) -> None:
    fits = pc.match_substring_regex(text, f"{_WITHOUT_OFFSET}|{_WITH_OFFSET}" if instants else _WITHOUT_OFFSET)
    if not pc.all(fits, min_count=0).as_py():
        raise pa.ArrowInvalid(f"{text.filter(pc.invert(fits))[0].as_py()!r}")


def _in_zone(times: pa.Array, options: FileOptions) -> pa.Array:
    """The instants of times in the zone. As in Spark, of an hour that comes twice it is the first, and in an hour that
    is skipped the clock is taken to go on as before."""
    zoned = pc.assume_timezone(times, options.time_zone, ambiguous="earliest", nonexistent="earliest")
    instants = zoned.cast(INSTANT).cast(pa.int64())
    clock = pc.local_timestamp(zoned).cast(pa.int64())
    # In a skipped hour Arrow gives the instant before it, so that the clock is behind the time that was asked for.
    return pc.add(instants, pc.subtract(times.cast(pa.int64()), clock)).cast(_LOCAL).cast(INSTANT)
