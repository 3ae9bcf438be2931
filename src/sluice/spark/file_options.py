"""The options of a `readFiles` stream: Spark's names for how text files are to be read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from sluice.model.errors import FlowError

FORMATS = ("parquet", "csv", "json", "arrow")
_TIMES = ("timestampFormat", "timeZone")
_KNOWN = {"csv": ("header", "sep", "delimiter", "quote", "escape", "nullValue", "inferSchema", *_TIMES), "json": _TIMES}


@dataclass(frozen=True)
class FileOptions:
    """How text is read; these are the defaults, and formats that are not text have no options.

    Two differ from Spark's: CSV files have a `header`, and a backslash escapes nothing unless `escape` is set to it
    (files that Spark wrote need that). A value that equals `nullValue`, or is empty and not quoted, is null.
    `timestampFormat` is a strptime format; without it times are ISO 8601. `timeZone` is where times without an
    offset were taken, when the stream's schema makes them instants (TIMESTAMP).
    """

    header: bool = True
    sep: str = ","
    quote: str = '"'
    escape: str = ""
    null_value: str = ""
    timestamp_format: str = ""
    time_zone: str = "UTC"

    @classmethod
    def of(cls, format: str, options: Mapping[str, str]) -> FileOptions:
        """The options as given, names in any case; a wrong one is refused along with those there are.

        >>> FileOptions.of("csv", {"delimiter": ";"}).sep
        ';'
        """
        if format not in FORMATS:
            raise FlowError(f"no file format {format!r}; the formats are: {', '.join(FORMATS)}")
        known = {name.lower(): name for name in _KNOWN.get(format, ())}
        given: dict[str, str] = {}
        for name, value in options.items():
            if name.lower() not in known:
                there = ", ".join(known.values()) or "none"
                raise FlowError(f"{format} files have no option {name!r}; the options are: {there}")
            given[known[name.lower()]] = str(value)
        if not _flag(given, "inferSchema"):
            raise FlowError("option 'inferSchema' cannot be false; give the stream a schema= instead")
        if given.get("sep", given.get("delimiter")) != given.get("delimiter", given.get("sep")):
            raise FlowError("options 'sep' and 'delimiter' mean the same thing but differ; give one of them")
        return cls(
            header=_flag(given, "header"),
            sep=_character(given, "delimiter" if "delimiter" in given else "sep", ","),
            quote=_character(given, "quote", '"', may_be_empty=True),
            escape=_character(given, "escape", "", may_be_empty=True),
            null_value=given.get("nullValue", ""),
            timestamp_format=_time_format(given.get("timestampFormat", "")),
            time_zone=_time_zone(given.get("timeZone", "UTC")),
        )


def _flag(given: Mapping[str, str], name: str) -> bool:
    value = given.get(name, "true").lower()
    if value not in ("true", "false"):
        raise FlowError(f"option {name!r} must be true or false, not {given[name]!r}")
    return value == "true"


def _character(given: Mapping[str, str], name: str, default: str, may_be_empty: bool = False) -> str:
    value = given.get(name, default).replace("\\t", "\t")
    if len(value) != 1 and not (may_be_empty and value == ""):
        raise FlowError(f"option {name!r} must be one character, not {value!r}")
    return value


def _time_format(value: str) -> str:
    if value and "%" not in value:
        raise FlowError(f"option 'timestampFormat' must be a strptime format such as '%d.%m.%Y %H:%M', not {value!r}")
    if "%f" in value:
        raise FlowError("option 'timestampFormat' cannot read fractions of a second (%f); ISO 8601 times may have them")
    return value


def _time_zone(value: str) -> str:
    try:
        pc.assume_timezone(pa.array([0], pa.timestamp("us")), value)
    except pa.ArrowInvalid as e:
        raise FlowError(f"option 'timeZone' must be a time zone such as 'Europe/Paris', not {value!r}") from e
    return value
