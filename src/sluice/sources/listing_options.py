"""The options by which files are found and taken in. They have the names that Spark's file source has for them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sluice.model.errors import FlowError

_AGE = re.compile(r"(-?\d+)\s*(us|ms|s|m|min|h|d)?")
_MS = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_WEEK_MS = 7 * _MS["d"]
CLEAN_SOURCE = "cleanSource"
SPARK_FILE_OPTIONS = (
    "maxFilesPerTrigger",
    "maxBytesPerTrigger",
    "latestFirst",
    "maxFileAge",
    "fileNameOnly",
    "pathGlobFilter",
    "recursiveFileLookup",
    CLEAN_SOURCE,
    "sourceArchiveDir",
)


@dataclass(frozen=True)
class ListingOptions:
    """Which files there are, in which order they are taken in, and how many with an epoch."""

    max_files: int | None = None
    max_bytes: int | None = None
    latest_first: bool = False
    max_age_ms: int | None = _WEEK_MS
    """How much older than the newest file one may be; None if it does not matter."""
    file_name_only: bool = False
    """Whether files of one name are the same file, in whichever directory they are."""
    name_filter: str = "*"
    recursive: bool = False

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> ListingOptions:
        """The options as they were given to `readFiles`.

        >>> ListingOptions.of({"maxFilesPerTrigger": 5, "maxFileAge": "2h"}).max_age_ms
        7200000
        >>> ListingOptions.of({"latestFirst": True, "maxFilesPerTrigger": 5}).max_age_ms is None
        True
        """
        max_files, max_bytes = _limit(options, "maxFilesPerTrigger"), _limit(options, "maxBytesPerTrigger")
        if max_files is not None and max_bytes is not None:
            raise FlowError("options 'maxFilesPerTrigger' and 'maxBytesPerTrigger' cannot both be given")
        latest_first = _flag(options, "latestFirst")
        ageless = latest_first and (max_files is not None or max_bytes is not None)
        return cls(
            max_files,
            max_bytes,
            latest_first,
            None if ageless else _age(options.get("maxFileAge", "7d")),
            _flag(options, "fileNameOnly"),
            str(options.get("pathGlobFilter", "*")),
            _flag(options, "recursiveFileLookup"),
        )

    @property
    def is_limited(self) -> bool:
        """Whether an epoch may leave files for the next one."""
        return self.max_files is not None or self.max_bytes is not None


def needs_sparks_source(options: Mapping[str, Any]) -> bool:
    """Whether only Spark's own file source does what the options ask for: it cleans up after itself."""
    return str(options.get(CLEAN_SOURCE, "off")).lower() != "off"


def _limit(options: Mapping[str, Any], name: str) -> int | None:
    value = options.get(name)
    if value is None:
        return None
    text = str(value).strip()
    if not text.isdecimal() or int(text) < 1:
        raise FlowError(f"option {name!r} must be a whole number above 0, not {value!r}")
    return int(text)


def _flag(options: Mapping[str, Any], name: str) -> bool:
    value = str(options.get(name, "false")).lower()
    if value not in ("true", "false"):
        raise FlowError(f"option {name!r} must be true or false, not {options[name]!r}")
    return value == "true"


def _age(value: Any) -> int:
    """Milliseconds, as Spark reads such a time: a number without a unit is one of them.

    >>> _age("7d"), _age(1500), _age("10 min")
    (604800000, 1500, 600000)
    """
    match = _AGE.fullmatch(str(value).strip().lower())
    if match is None:
        raise FlowError(f"option 'maxFileAge' must be a time such as '7d' or '2h', not {value!r}")
    number, unit = int(match[1]), match[2] or "ms"
    return number // 1000 if unit == "us" else number * _MS[unit]
