"""The names of the files in the local tiers: whose rows a file has, how many, and what its bytes add up to."""

from __future__ import annotations

import re
from typing import NamedTuple

from sluice.model.routing.directory import HashRange

SUFFIX, PAGE = ".arrow", "@"
_NAME = re.compile(
    rf"(?P<segment>[^.{PAGE}]+)({PAGE}(?P<low>[0-9a-f]+)-(?P<high>[0-9a-f]+))?\.(?P<rows>\d+)"
    rf"\.(?P<checksum>[0-9a-f]{{16}}){SUFFIX}"
)


class LocalFile(NamedTuple):
    """What a file's name says of it, and its size. A page has the rows of a range of hashes: units have other places
    when others are split or merged. A segment in one file has None."""

    rows: int
    checksum: int
    size: int
    hashes: HashRange | None = None


class LocalName(NamedTuple):
    """The segment, the hashes, the rows and the checksum of a file; a draft, or whatever else, has no checksum."""

    segment: str
    hashes: HashRange | None
    rows: int
    checksum: int | None


def name_file(segment: str, file: LocalFile) -> str:
    """The name of a file.

    >>> name_file("s", LocalFile(7, 255, 1000)), name_file("s", LocalFile(7, 255, 1000, (16, 32)))
    ('s.7.00000000000000ff.arrow', 's@10-20.7.00000000000000ff.arrow')
    """
    whose = segment if file.hashes is None else f"{segment}{PAGE}{file.hashes[0]:x}-{file.hashes[1]:x}"
    return f"{whose}.{file.rows}.{file.checksum:016x}{SUFFIX}"


def parse_name(name: str) -> LocalName:
    """What the name of a file says.

    >>> parse_name("s@10-20.7.00000000000000ff.arrow")
    LocalName(segment='s', hashes=(16, 32), rows=7, checksum=255)
    >>> parse_name("s@10-20.7.00000000000000ff.arrow.1f.tmp").checksum
    """
    match = _NAME.fullmatch(name)
    if match is None:
        return LocalName(name.partition(".")[0].partition(PAGE)[0], None, 0, None)
    hashes = None if match["low"] is None else (int(match["low"], 16), int(match["high"], 16))
    return LocalName(match["segment"], hashes, int(match["rows"]), int(match["checksum"], 16))
