"""Dates and timestamps as text, read and written as Spark's casts do.

Of the many shapes that Spark reads, these are taken; any other raises, never yields another value:
`yyyy[-[m]m[-[d]d]]`, then for timestamps `[ T][h]h:[m]m[:[s]s[.fraction]]` and `Z` or `+hh:mm`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sluice.expressions.kernels import times
from sluice.expressions.kernels.arrow_numpy import demand, numbers, rebuilt, valid
from sluice.expressions.types import DATE, LOCAL_TIME, spark_name
from sluice.model.errors import EvaluationError

# The blanks and control characters that Spark strips from a text before it reads a value in it.
BLANKS = "".join(map(chr, range(0x21))) + "\x7f"
_DAY = r"(?P<year>\d{4})(?:-(?P<month>\d{1,2})(?:-(?P<day>\d{1,2})"
_CLOCK = r"(?P<hour>\d{1,2}):(?P<minute>\d{1,2})(?::(?P<second>\d{1,2})(?:\.(?P<fraction>\d{1,9}))?)?"
_ZONE = r"(?:Z|(?P<sign>[+-])(?P<zone_hours>\d\d):(?P<zone_minutes>\d\d))?"
_DATE_TEXT = rf"(?s)\A{_DAY}(?:[ T].*)?)?)?\z"
_TIME_TEXT = rf"\A{_DAY}(?:[ T]{_CLOCK}(?P<zone>{_ZONE}))?)?)?\z"


def demand_readable(texts: pa.Array, readable: Any, type_: pa.DataType, advice: str = "") -> None:
    """Raises, with the first text that is not readable, unless all are."""
    wrong = texts.filter(pc.and_(pc.invert(readable), pc.is_valid(texts)))
    if len(wrong):
        raise EvaluationError(f"cannot read {wrong[0].as_py()!r} as {spark_name(type_)}{advice}")


def text_to_date(texts: pa.Array) -> pa.Array:
    fields = _fields(texts, _DATE_TEXT, DATE, "; write it as yyyy-MM-dd")
    days, exists = _days(fields)
    demand_readable(texts, pa.array(exists), DATE)
    return rebuilt(days.astype(np.int32), valid(texts), DATE)


def text_to_time(texts: pa.Array, *, type_: pa.DataType) -> pa.Array:
    """Timestamps from text; one without a zone of its own is in the session's."""
    fields = _fields(texts, _TIME_TEXT, type_, "; write it as yyyy-MM-dd HH:mm:ss[.ffffff][+HH:mm]")
    days, exists = _days(fields)
    hour, minute, second = (_number(fields, name) for name in ("hour", "minute", "second"))
    ahead = _number(fields, "zone_hours") * 60 + _number(fields, "zone_minutes")
    exists &= (hour < 24) & (minute < 60) & (second < 60) & (ahead <= 18 * 60) & (_number(fields, "zone_minutes") < 60)
    demand_readable(texts, pa.array(exists), type_)
    fraction = pc.utf8_slice_codeunits(pc.utf8_rpad(fields["fraction"], width=6, padding="0"), start=0, stop=6)
    micros = numbers(fraction.cast(pa.int64()))
    local = days * times.DAY + ((hour * 60 + minute) * 60 + second) * times.SECOND + micros
    present = valid(texts)
    if type_ == LOCAL_TIME:
        return rebuilt(local, present, LOCAL_TIME)
    in_session = numbers(times.instant(rebuilt(local, present, LOCAL_TIME), zone=type_.tz))
    behind = pc.equal(fields["sign"], "-").to_numpy(zero_copy_only=False)
    own = local + np.where(behind, ahead, -ahead) * 60 * times.SECOND
    zoned = pc.not_equal(fields["zone"], "").to_numpy(zero_copy_only=False)
    return rebuilt(np.where(zoned, own, in_session), present, type_)


def _fields(texts: pa.Array, pattern: str, type_: pa.DataType, advice: str) -> dict[str, pa.Array]:
    """The named groups of the pattern, empty where the text is null or leaves them out."""
    groups = pc.extract_regex(pc.utf8_trim(texts, characters=BLANKS), pattern=pattern)
    demand_readable(texts, pc.is_valid(groups), type_, advice)
    return {field.name: pc.fill_null(pc.struct_field(groups, [index]), "") for index, field in enumerate(groups.type)}


def _number(fields: dict[str, pa.Array], name: str, default: int = 0) -> Any:
    texts = fields[name]
    return numbers(pc.if_else(pc.equal(texts, ""), str(default), texts).cast(pa.int64()))


def _days(fields: dict[str, pa.Array]) -> tuple[Any, Any]:
    """Days since 1970, and whether the calendar has the day."""
    year, month, day = _number(fields, "year", 1970), _number(fields, "month", 1), _number(fields, "day", 1)
    months = ((year - 1970) * 12 + month - 1).astype("M8[M]")
    first = months.astype("M8[D]").astype(np.int64)
    length = (months + 1).astype("M8[D]").astype(np.int64) - first
    return first + day - 1, (month >= 1) & (month <= 12) & (day >= 1) & (day <= length)


def time_to_text(moments: pa.Array) -> pa.Array:
    """Dates and timestamps as Spark writes them: local time, without the zeros that end a fraction."""
    local = times.local_time(moments) if getattr(moments.type, "tz", None) else moments
    days = numbers(local) if moments.type == DATE else numbers(local) // times.DAY
    # Outside these years Spark adds a sign.
    demand((days >= -719_528) & (days <= 2_932_896), valid(local), "a year is not between 0000 and 9999")
    texts = local.cast(pa.string())
    return texts if moments.type == DATE else pc.replace_substring_regex(texts, pattern=r"\.?0*\z", replacement="")
