"""The options of a `readFiles` stream. They have Spark's names and mean what they mean in Spark.

Most of Spark's options for text need Spark's own reader: with one of them, Spark reads the files as rows.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as kind

from sluice.model.errors import FlowError
from sluice.model.option import CHARACTER, FLAG, TEXT, Option, suggest_name

FORMATS = ("parquet", "csv", "json", "arrow")
IGNORE_MISSING = Option(
    "ignoreMissingFiles", FLAG, "any", "files that are gone are skipped and counted", default="false"
)
IGNORE_CORRUPT = Option(
    "ignoreCorruptFiles",
    FLAG,
    "any",
    "files without bytes, or that are none of the format, are skipped and counted",
    default="false",
)
HEADER = Option("header", FLAG, "csv", "whether the first line has the names of the columns", default="true")
SEP = Option("sep", TEXT, "csv", "what stands between values", default=",")
DELIMITER = Option("delimiter", TEXT, "csv", "another name of `sep`", unless_given="`sep`")
QUOTE = Option("quote", CHARACTER, "csv", "what stands around values that have separators in them", default='"')
ESCAPE = Option("escape", CHARACTER, "csv", "what stands before a quote inside a value", default="\\")
NULL_VALUE = Option("nullValue", TEXT, "csv", "what is read as null", default="", unless_given="nothing")
INFER_SCHEMA = Option("inferSchema", FLAG, "csv", "can only be true; else give `schema=`", default="true")
ENFORCE_SCHEMA = Option("enforceSchema", FLAG, "csv", "whether the header is passed over unread", default="false")
TIMESTAMP_FORMAT = Option(
    "timestampFormat",
    TEXT,
    "csv, json",
    "a strptime format; one of Spark's patterns has Spark read the files",
    default="",
    unless_given="ISO 8601",
)
TIME_ZONE = Option(
    "timeZone",
    TEXT,
    "csv, json",
    "where times without an offset were taken",
    default="UTC",
    unless_given="the session's",
)
FILE_OPTIONS: tuple[Option[Any], ...] = (
    HEADER,
    SEP,
    DELIMITER,
    QUOTE,
    ESCAPE,
    NULL_VALUE,
    INFER_SCHEMA,
    ENFORCE_SCHEMA,
    TIMESTAMP_FORMAT,
    TIME_ZONE,
    IGNORE_MISSING,
    IGNORE_CORRUPT,
)
"""What is read as Arrow, too; the options in SPARK_ONLY have Spark read the files."""
_TEXT = ("mode", "encoding", "multiLine", "lineSep", "locale", "dateFormat", "timestampNTZFormat",
         "enableDateTimeParsingFallback", "columnNameOfCorruptRecord")  # fmt: skip
SPARK_ONLY = {
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
    """How files are read.

    Three defaults are stricter than Spark's, so that what is not as declared stops the query: CSV files have a
    `header`, it has to name the schema's columns in their order (`enforceSchema` is false), and what does not parse is
    an error (`mode` is FAILFAST). `timestampFormat` may be a strptime format besides; without it times are ISO 8601.
    `timeZone` is where times without an offset were taken, when the stream's schema makes them instants (TIMESTAMP).
    """

    header: bool
    enforce_schema: bool
    sep: str
    quote: str
    escape: str
    null_value: str
    timestamp_format: str
    time_zone: str
    ignore_missing: bool
    ignore_corrupt: bool
    why_spark: tuple[str, ...]
    """What Arrow cannot read in the way these options ask for, so that Spark has to."""

    @classmethod
    def of(cls, format: str, options: Mapping[str, str]) -> FileOptions:
        """The options as given, names in any case; a wrong one is refused along with those there are.

        >>> FileOptions.of("csv", {"delimiter": ";"}).sep
        ';'
        >>> FileOptions.of("csv", {"multiLine": "true"}).why_spark
        ("the option multiLine='true'",)
        """
        return _read_options(format, tuple((name, str(value)) for name, value in options.items()))

    @classmethod
    def defaults(cls) -> FileOptions:
        """With no option given."""
        return cls._read({}, [])

    @classmethod
    def _read(cls, given: Mapping[str, str], why_spark: list[str]) -> FileOptions:
        if not INFER_SCHEMA.value(given):
            raise FlowError("option 'inferSchema' cannot be false; give a schema= instead")
        sep, delimiter = SEP.value_if_given(given), DELIMITER.value_if_given(given)
        if None not in (sep, delimiter) and sep != delimiter:
            raise FlowError("options 'sep' and 'delimiter' mean the same thing but differ; give one of them")
        characters = {
            "sep": _unescape(SEP.value(given) if delimiter is None else delimiter),
            "quote": QUOTE.value(given),
            "escape": ESCAPE.value(given),
        }
        why_spark = [*why_spark, *_odd_characters(characters)]
        time_format, time_zone = TIMESTAMP_FORMAT.value(given), TIME_ZONE.value(given)
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
            header=HEADER.value(given),
            enforce_schema=ENFORCE_SCHEMA.value(given),
            **characters,
            null_value=NULL_VALUE.value(given),
            timestamp_format=time_format,
            time_zone=time_zone,
            ignore_missing=IGNORE_MISSING.value(given),
            ignore_corrupt=IGNORE_CORRUPT.value(given),
            why_spark=tuple(why_spark),
        )

    def for_columns(self, format: str, schema: pa.Schema) -> FileOptions:
        """The same, with the columns that only Spark can read from text as further reasons."""
        readable = {"csv": _csv_can_hold, "json": _json_can_hold}.get(format, lambda t: True)
        odd = [f"the column {f.name!r}" for f in schema if f.name == _CORRUPT_RECORD or not readable(f.type)]
        return replace(self, why_spark=(*self.why_spark, *odd)) if format in SPARK_ONLY else self


@lru_cache(maxsize=64)
def _read_options(format: str, options: tuple[tuple[str, str], ...]) -> FileOptions:
    """Every file asks for those of its stream."""
    if format not in FORMATS:
        raise FlowError(f"no file format {format!r}; the formats are: {', '.join(FORMATS)}")
    return FileOptions._read(*_separate(format, dict(options)))


def options_for_spark(format: str, options: Mapping[str, str]) -> dict[str, str]:
    """The options with which Spark reads the same rows: where our defaults are stricter than Spark's, ours are said."""
    stricter = {"csv": {"header": "true", "enforceSchema": "false", "mode": "FAILFAST"}, "json": {"mode": "FAILFAST"}}
    lowered = {name.lower() for name in options}
    ours = {name: value for name, value in stricter.get(format, {}).items() if name.lower() not in lowered}
    return {**ours, **{name: value for name, value in options.items() if name.lower() != "inferschema"}}


def _separate(format: str, options: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """The options that are understood here, by their right names, and those that are for Spark."""
    spellings = {
        row.name.lower(): row.name for row in FILE_OPTIONS if row.scope == "any" or format in row.scope.split(", ")
    }
    for_spark = {name.lower(): name for name in SPARK_ONLY.get(format, ())}
    own_options: dict[str, str] = {}
    why_spark = []
    for name, value in options.items():
        if name.lower() in spellings:
            own_options[spellings[name.lower()]] = value
        elif name.lower() not in for_spark:
            names = [*spellings.values(), *for_spark.values()]
            near = suggest_name(name, names)
            raise FlowError(f"{format} files have no option {name!r}{near}; the options are: {', '.join(names)}")
        elif _NO_CHANGE.get(name.lower()) != str(value).lower():
            why_spark.append(f"the option {for_spark[name.lower()]}={str(value)!r}")
    return own_options, why_spark


def _odd_characters(characters: Mapping[str, str]) -> list[str]:
    """The characters that Arrow cannot use, or that clash, as reasons for Spark to read."""
    one_byte = [name for name, c in characters.items() if len(c) == 1 and c.isascii() and c not in "\n\r\0"]
    odd = [name for name, c in characters.items() if name not in one_byte and (c or name != "quote")]
    if not odd and characters["sep"] in (characters["quote"], characters["escape"]):
        odd = ["sep"]
    return [f"the option {name}={characters[name]!r}" for name in odd]


def _unescape(value: str) -> str:
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
