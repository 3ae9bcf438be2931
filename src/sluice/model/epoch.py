"""How far an epoch has come, by units and streams, and the names of its attempts."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from sluice.model.ids import Level, Site, UnitIndex
from sluice.model.unit_ranges import Ranges, unite_all

Times = tuple[int | None, ...]
"""One event time (microseconds) a stream, None where no row was seen yet or the stream has no watermark."""


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


def left_over(name: str, over: int, run: str) -> bool:
    """Whether a file of an attempt can be removed, if no record names it: its epoch is over, or its run is ours.

    Files of a later epoch may belong to a driver that is still at work, or that takes over from us.

    >>> left_over("state/000000000007-0001-ab-cd.segments", over=7, run="12")
    True
    >>> left_over("state/000000000008-0001-ab-cd.segments", over=7, run="12")
    False
    """
    found = _ATTEMPT.search(name)
    return found is None or int(found["number"]) <= over or found["run"] == run


def epoch_of(name: str) -> int:
    """The epoch that a file of an attempt is of, -1 if it is no such file.

    >>> epoch_of("part-000000000007-0001-ab-cd-0.parquet"), epoch_of("part-00000-1f.snappy.parquet")
    (7, -1)
    """
    found = _ATTEMPT.search(name)
    return int(found["number"]) if found else -1


@dataclass(frozen=True)
class Lagging:
    """Units whose input waits, at one level of operators: `newest` is how far they have come."""

    level: Level
    units: Ranges
    newest: Times


@dataclass(frozen=True)
class Frozen:
    """Frozen units, at one level of operators. Where results are `missing`, each has a row that came after the streams
    were at `newest`."""

    level: Level
    units: Ranges
    newest: Times
    missing: bool


@dataclass(frozen=True)
class Queues:
    """The units in memory and on disk, by their places, each in the order in which they got there, of a site that
    cannot hold all.

    `rest` is for how many seconds more no rotation is due. The site may run on another machine next, so it says nothing
    about any clock; the time between two epochs does not count.
    """

    site: Site
    level: Level
    memory: tuple[UnitIndex, ...]
    disk: tuple[UnitIndex, ...]
    rest: float


UnitCohort = TypeVar("UnitCohort", Lagging, Frozen)


def unite_cohorts(cohorts: Iterable[UnitCohort]) -> tuple[UnitCohort, ...]:
    """Cohorts of units that are alike but for which units they are, as one each.

    >>> unite_cohorts([Lagging(0, ((0, 1),), (5,)), Lagging(0, ((3, 4),), (7,)), Lagging(0, ((1, 2),), (5,))])
    (Lagging(level=0, units=((0, 2),), newest=(5,)), Lagging(level=0, units=((3, 4),), newest=(7,)))
    """
    alike: dict[UnitCohort, list[tuple[UnitIndex, UnitIndex]]] = {}
    for cohort in cohorts:
        alike.setdefault(replace(cohort, units=()), []).extend(cohort.units)
    return tuple(replace(cohort, units=unite_all(units)) for cohort, units in alike.items())


def slowest(times: Sequence[Times]) -> Times:
    """How far all have come that have come at least so far.

    >>> slowest([(5, 9), (7, None), (6, 8)])
    (5, None)
    """
    return tuple(None if None in each else min(t for t in each if t is not None) for each in zip(*times, strict=True))


def watermarks(newest: Times, delays: tuple[int | None, ...]) -> Times:
    """Below which event time a row of each stream is late.

    >>> watermarks((100, None, 100), (30, 30, None))
    (70, None, None)
    """
    return tuple(None if n is None or d is None else n - d for n, d in zip(newest, delays, strict=True))
