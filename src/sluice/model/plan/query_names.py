"""The names of a flow's queries: each writer has one, and no two have the same."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from sluice.model.codec import checksum
from sluice.model.errors import FlowError

LONGEST_DIRECTORY = 120
"""Characters of a directory's name; file systems take 255."""


def name_queries(names: Sequence[str | None], taken: Collection[str] = ()) -> tuple[str, ...]:
    """The names of queries: their own, or a number. That is their place among these; where a query has that name, or
    beside queries with the names that are `taken`, it is the least one that is free.

    >>> name_queries(["alerts", None, None])
    ('alerts', 'query-2', 'query-3')
    >>> name_queries([None, None], taken=["query-1", "query-3"])
    ('query-2', 'query-4')
    """
    in_use = dict.fromkeys((name.lower() for name in taken), "the running query has")
    for name in names:
        if name is not None:
            if name.lower() in in_use:
                raise FlowError(f"{in_use[name.lower()]} the queryName {name!r}; give each writer its own")
            in_use[name.lower()] = "two writers have"
    return tuple(_number(place, in_use, bool(taken)) if name is None else name for place, name in enumerate(names, 1))


def _number(place: int, in_use: dict[str, str], anywhere: bool) -> str:
    """A name of a number that nobody has, which is in use from now on."""
    number = 1 if anywhere or f"query-{place}" in in_use else place
    while f"query-{number}" in in_use:
        number += 1
    in_use[f"query-{number}"] = "two writers have"
    return f"query-{number}"


def directory_of(name: str) -> str:
    """A query's name as that of a directory, on any file system or object store. Names that differ in more
    than case have different ones.

    >>> directory_of("alerts-7"), directory_of("../Δ a")
    ('alerts-7', '~2e~2e~2f~ce~94~20a')
    """
    encoded = name.encode(errors="surrogatepass")
    quoted = re.sub(rb"[^A-Za-z0-9_-]", lambda byte: b"~%02x" % byte[0][0], encoded).decode()
    return quoted if len(quoted) <= LONGEST_DIRECTORY else f"{quoted[:100]}~~{checksum(encoded):016x}"
