"""The options of a `readFiles` stream. They have Spark's names and mean what they mean in Spark.

Most of Spark's options for text need Spark's own reader: with one of them, Spark reads the files as rows.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as kind

from sluice.model.errors import FlowError

FORMATS = ("parquet", "csv", "json", "arrow")
_ANY = ("ignoreMissingFiles", "ignoreCorruptFiles")
_KNOWN = {
    "csv": ("header", "sep", "delimiter", "quote", "escape", "nullValue", "inferSchema", "enforceSchema",
            "timestampFormat", "timeZone"),
    "json": ("timestampFormat", "timeZone"),
}  # fmt: skip
_TEXT = ("mode", "encoding", "multiLine", "lineSep", "locale", "dateFormat", "timestampNTZFormat",
         "enableDateTimeParsingFallback", "columnNameOfCorruptRecord")  # fmt: skip
_SPARK_ONLY = {
    "csv": (*_TEXT, "charset", "comment", "ignoreLeadingWhiteSpace", "ignoreTrailingWhiteSpace", "emptyValue",
            "nanValue", "positiveInf", "negativeInf", "maxColumns", "maxCharsPerColumn", "charToEscapeQuoteEscaping",
            "unescapedQuoteHandling"),
    "json": (*_TEXT, "allowComments", "allowUnquotedFieldNames", "allowSingleQuotes", "allowNumericLeadingZeros",
             "allowBackslashEscapingAnyCharacter", "allowUnquotedControlChars", "allowNonNumericNumbers"),
}  # fmt: skip
_NO_CHANGE = {"mode": "failfast", "encoding": "utf-8", "charset": "utf-8", "multiline": "false"}
"""Options that are Spark's only, with the value that Arrow's way of reading has anyway."""
_CORRUPT_RECORD = "_corrupt_record"
_OFFSET = re.compile(r"(UTC|GMT|UT)?[+-]\d.*")


@dataclass(frozen=True)
class FileOptions:
    """How files are read; these are the defaults.

    Three are stricter than Spark's, so that what is not as declared stops the query: CSV files have a `header`, it has
    to name the schema's columns in their order (`enforceSchema` is false), and what does not parse is an error (`mode`
    is FAILFAST). `timestampFormat` may be a strptime format besides; without it times are ISO 8601. `timeZone` is where
    times without an offset were taken, when the stream's schema makes them instants (TIMESTAMP).
    """

    header: bool = True
    enforce_schema: bool = False
    sep: str = ","
    quote: str = '"'
    escape: str = "\\"
    null_value: str = ""
    timestamp_format: str = ""
    time_zone: str = "UTC"
    ignore_missing: bool = False
    ignore_corrupt: bool = False
    why_spark: tuple[str, ...] = ()
    """What Arrow cannot read in the way these options ask for, so that Spark has to."""

    @classmethod
    def of(cls, format: str, options: Mapping[str, str]) -> FileOptions:
        """The options as given, names in any case; a wrong one is refused along with those there are.

        >>> FileOptions.of("csv", {"delimiter": ";"}).sep
        ';'
        >>> FileOptions.of("csv", {"multiLine": "true"}).why_spark
        ("the option multiLine='true'",)
        """
        if format not in FORMATS:
            raise FlowError(f"no file format {format!r}; the formats are: {', '.join(FORMATS)}")
        given, why_spark = _sorted_out(format, options)
        if not _flag(given, "inferSchema", True):
            raise FlowError("option 'inferSchema' cannot be false; give the stream a schema= instead")
        if given.get("sep", given.get("delimiter")) != given.get("delimiter", given.get("sep")):
            raise FlowError("options 'sep' and 'delimiter' mean the same thing but differ; give one of them")
        characters = {
            "sep": _unescaped(given.get("delimiter", given.get("sep", ","))),
            "quote": _character(given, "quote", '"'),
            "escape": _character(given, "escape", "\\"),
        }
        why_spark += _odd_characters(characters)
        time_format, time_zone = given.get("timestampFormat", ""), given.get("timeZone", "UTC")
        if time_format and "%" not in time_format:
            why_spark.append(f"the option timestampFormat={time_format!r}")
        elif "%f" in time_format:
            raise FlowError(
                "option 'timestampFormat' cannot read fractions of a second (%f); ISO 8601 times may have them"
            )
        if not _knows_zone(time_zone):
            why_spark.append(f"the time zone {time_zone!r}")
        if why_spark and "%" in time_format:
            raise FlowError(
                f"option 'timestampFormat' must be one of Spark's patterns, not {time_format!r}: Spark has to read the "
                f"files, because of {', '.join(why_spark)}"
            )
        return cls(
            header=_flag(given, "header", True),
            enforce_schema=_flag(given, "enforceSchema", False),
            **characters,
            null_value=given.get("nullValue", ""),
            timestamp_format=time_format,
            time_zone=time_zone,
            ignore_missing=_flag(given, "ignoreMissingFiles", False),
            ignore_corrupt=_flag(given, "ignoreCorruptFiles", False),
            why_spark=tuple(why_spark),
        )

    def for_columns(self, format: str, schema: pa.Schema) -> FileOptions:
        """The same, with the columns that only Spark can read from text as further reasons."""
        readable = {"csv": _csv_can_hold, "json": _json_can_hold}.get(format, lambda t: True)
        odd = [f"the column {f.name!r}" for f in schema if f.name == _CORRUPT_RECORD or not readable(f.type)]
        return replace(self, why_spark=(*self.why_spark, *odd)) if format in _KNOWN else self


def options_for_spark(format: str, options: Mapping[str, str]) -> dict[str, str]:
    """The options with which Spark reads the same rows: where our defaults are stricter than Spark's, ours are said."""
    stricter = {"csv": {"header": "true", "enforceSchema": "false", "mode": "FAILFAST"}, "json": {"mode": "FAILFAST"}}
    lowered = {name.lower() for name in options}
    ours = {name: value for name, value in stricter.get(format, {}).items() if name.lower() not in lowered}
    return {**ours, **{name: value for name, value in options.items() if name.lower() != "inferschema"}}


def _sorted_out(format: str, options: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """The options that are understood here, by their right names, and those that are for Spark."""
    known = {name.lower(): name for name in (*_KNOWN.get(format, ()), *_ANY)}
    for_spark = {name.lower(): name for name in _SPARK_ONLY.get(format, ())}
    given: dict[str, str] = {}
    why_spark = []
    for name, value in options.items():
        if name.lower() in known:
            given[known[name.lower()]] = str(value)
        elif name.lower() not in for_spark:
            there = ", ".join([*known.values(), *for_spark.values()])
            raise FlowError(f"{format} files have no option {name!r}; the options are: {there}")
        elif _NO_CHANGE.get(name.lower()) != str(value).lower():
            why_spark.append(f"the option {for_spark[name.lower()]}={str(value)!r}")
    return given, why_spark


def _odd_characters(characters: Mapping[str, str]) -> list[str]:
    """The characters that Arrow cannot use, or that clash, as reasons for Spark to read."""
    one_byte = [name for name, c in characters.items() if len(c) == 1 and c.isascii() and c not in "\n\r\0"]
    odd = [name for name, c in characters.items() if name not in one_byte and (c or name != "quote")]
    if not odd and characters["sep"] in (characters["quote"], characters["escape"]):
        odd = ["sep"]
    return [f"the option {name}={characters[name]!r}" for name in odd]


def _flag(given: Mapping[str, str], name: str, default: bool) -> bool:
    value = given.get(name, str(default)).lower()
    if value not in ("true", "false"):
        raise FlowError(f"option {name!r} must be true or false, not {given[name]!r}")
    return value == "true"


def _character(given: Mapping[str, str], name: str, default: str) -> str:
    value = given.get(name, default)
    if len(value) > 1:
        raise FlowError(f"option {name!r} must be one character, not {value!r}")
    return value


def _unescaped(value: str) -> str:
    return "\t" if value == "\\t" else "\\" if value == "\\\\" else value


def _knows_zone(value: str) -> bool:
    """Whether Arrow knows the zone; one that Spark does not know either is refused."""
    try:
        pc.assume_timezone(pa.array([0], pa.timestamp("us")), value)
    except pa.ArrowInvalid as e:
        if _OFFSET.fullmatch(value):
            return False
        raise FlowError(f"option 'timeZone' must be a time zone such as 'Europe/Paris', not {value!r}") from e
    return True


def _csv_can_hold(t: pa.DataType) -> bool:
    return not kind.is_nested(t) and not kind.is_duration(t) and not kind.is_interval(t)


def _json_can_hold(t: pa.DataType) -> bool:
    if kind.is_struct(t):
        return all(_json_can_hold(field.type) for field in t)
    if kind.is_list(t) or kind.is_large_list(t):
        return _json_can_hold(t.value_type)
    # binary is base64 in JSON, which Arrow would leave as it is
    return _csv_can_hold(t) and not kind.is_binary(t) and not kind.is_large_binary(t)
