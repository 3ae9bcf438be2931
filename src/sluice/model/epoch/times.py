"""How far an epoch has come, by units and streams."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from sluice.model.ids import Level, Site, UnitIndex
from sluice.model.routing.unit_ranges import Ranges, unite_all

Times = tuple[int | None, ...]
"""One event time (microseconds) a stream, None where no row was seen yet or the stream has no watermark."""
ENDED = 1 << 62
"""How far a stream has come that has ended, and its watermark: beyond every event time, also with durations added or
taken off (see `durations.LONGEST`), and far inside 64 bits."""


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
    return tuple(least_time(each) for each in zip(*times, strict=True))


def least_time(times: Iterable[int | None]) -> int | None:
    """The earliest of some times, None if any is not there, or there is none.

    >>> least_time([7, 5]), least_time([7, None]), least_time([])
    (5, None, None)
    """
    least = list(times)
    return None if None in least else min((time for time in least if time is not None), default=None)


def watermarks(newest: Times, delays: tuple[int | None, ...]) -> Times:
    """Below which event time a row of each stream is late; of one that has ended, any row is.

    >>> watermarks((100, None, 100), (30, 30, None))
    (70, None, None)
    >>> watermarks((ENDED, ENDED), (30, None)) == (ENDED, ENDED)
    True
    """
    return tuple(map(_watermark, newest, delays))


def _watermark(newest: int | None, delay: int | None) -> int | None:
    if newest == ENDED:
        return ENDED
    return None if newest is None or delay is None else newest - delay
