"""The names of attempts at an epoch, which its files bear."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass

from sluice.model.ids import Site


@dataclass(frozen=True)
class Attempt:
    """One try at a site's epoch, in one run of the query. Its files bear its name, so those of two never meet."""

    number: int
    site: Site
    run: str
    suffix: str

    def __str__(self) -> str:
        return f"{self.prefix(self.number)}{self.site:04d}-{self.run}-{self.suffix}"

    @staticmethod
    def prefix(number: int) -> str:
        """What the names of an epoch's files begin with."""
        return f"{number:012d}-"


def name_attempts(attempts: Iterable[str]) -> str:
    """A short name for some attempts together, the same for the same ones in any order.

    >>> name_attempts(["a", "b"]) == name_attempts(["b", "a"]) != name_attempts(["a"])
    True
    """
    return hashlib.sha256(" ".join(sorted(attempts)).encode()).hexdigest()[:16]


_ATTEMPT = re.compile(r"(?P<number>\d{12})-\d{4}-(?P<run>[0-9a-f]+)-[0-9a-f]+[-.]")


def is_left_over(name: str, over: int, run: str) -> bool:
    """Whether a file of an attempt can be removed, if no record names it: its epoch is over, or its run is ours.

    Files of a later epoch may belong to a driver that is still at work, or that takes over from us.

    >>> is_left_over("state/000000000007-0001-ab-cd.segments", over=7, run="12")
    True
    >>> is_left_over("state/000000000008-0001-ab-cd.segments", over=7, run="12")
    False
    """
    match = _ATTEMPT.search(name)
    return match is None or int(match["number"]) <= over or match["run"] == run


def epoch_of(name: str) -> int:
    """The epoch that a file of an attempt is of, -1 if it is no such file.

    >>> epoch_of("part-000000000007-0001-ab-cd-0.parquet"), epoch_of("part-00000-1f.snappy.parquet")
    (7, -1)
    """
    match = _ATTEMPT.search(name)
    return int(match["number"]) if match else -1
