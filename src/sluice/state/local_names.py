"""The names of the files in the local tiers: whose rows a file has, how many, and what its bytes add up to."""

from __future__ import annotations

import re
from typing import NamedTuple

from sluice.model.ids import Unit

SUFFIX, PAGE = ".arrow", "@"
_NAME = re.compile(
    rf"(?P<segment>[^.{PAGE}]+)({PAGE}(?P<unit>\d+))?\.(?P<rows>\d+)\.(?P<checksum>[0-9a-f]{{16}}){SUFFIX}"
)
WHOLE = Unit(-1)
"""In place of a unit: a segment in one file."""


class LocalFile(NamedTuple):
    """What a file's name says of it, and its size."""

    rows: int
    checksum: int
    size: int


class LocalName(NamedTuple):
    """The segment, the unit, the rows and the checksum of a file; a draft, or whatever else, has no checksum."""

    segment: str
    unit: Unit
    rows: int
    checksum: int | None


def name_file(segment: str, unit: Unit, file: LocalFile) -> str:
    """The name of a file.

    >>> name_file("s", WHOLE, LocalFile(7, 255, 1000)), name_file("s", 3, LocalFile(7, 255, 1000))
    ('s.7.00000000000000ff.arrow', 's@3.7.00000000000000ff.arrow')
    """
    whose = segment if unit == WHOLE else f"{segment}{PAGE}{unit}"
    return f"{whose}.{file.rows}.{file.checksum:016x}{SUFFIX}"


def parse_name(name: str) -> LocalName:
    """What the name of a file says.

    >>> parse_name("s@3.7.00000000000000ff.arrow")
    LocalName(segment='s', unit=3, rows=7, checksum=255)
    >>> parse_name("s@3.7.00000000000000ff.arrow.1f.tmp").checksum
    """
    match = _NAME.fullmatch(name)
    if match is None:
        return LocalName(name.partition(".")[0].partition(PAGE)[0], WHOLE, 0, None)
    unit = Unit(int(match["unit"] or WHOLE))
    return LocalName(match["segment"], unit, int(match["rows"]), int(match["checksum"], 16))
