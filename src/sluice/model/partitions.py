"""Directories of a partitioned output, named as Hive and Spark name them: `day=2026-01-01/venue=X`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from urllib.parse import unquote

import pyarrow as pa

NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
"""What stands for null, and for an empty text."""
_ESCAPED = frozenset("\"#%'*/:=?\\\x7f{[]^").union(map(chr, range(32)))


def can_name_partition(type_: pa.DataType) -> bool:
    """Whether directories can be named after the values of a column."""
    kinds = (pa.types.is_string, pa.types.is_large_string, pa.types.is_integer, pa.types.is_decimal, pa.types.is_date)
    return any(is_kind(type_) for is_kind in kinds) or bool(pa.types.is_boolean(type_))


def name_partition(columns: Sequence[str], values: Sequence[str | None]) -> str:
    """The directory of rows with these values.

    >>> name_partition(["day", "at"], ["2026-01-01", "9:30"]), name_partition(["day"], [None])
    ('day=2026-01-01/at=9%3A30', 'day=__HIVE_DEFAULT_PARTITION__')
    """
    steps = zip(columns, values, strict=True)
    return "/".join(f"{_escape(column)}={_escape(value) if value else NO_VALUE}" for column, value in steps)


def read_partition(directory: str) -> Mapping[str, str | None]:
    """The values of a directory's rows, by column.

    >>> read_partition("day=2026-01-01/at=9%3A30"), read_partition("")
    ({'day': '2026-01-01', 'at': '9:30'}, {})
    """
    steps = [step.partition("=") for step in directory.split("/") if step]
    return {unquote(column): None if value == NO_VALUE else unquote(value) for column, _, value in steps}


def _escape(text: str) -> str:
    return "".join(f"%{ord(character):02X}" if character in _ESCAPED else character for character in text)
