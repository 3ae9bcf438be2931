"""The record of one epoch, as the journal keeps it: everything needed to go on from here, and what happened."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np

from sluice.model.decision import Decision, Ended, UnderWay
from sluice.model.ids import Level, Site, Unit, UnitIndex
from sluice.model.results import Listing, Part, Results
from sluice.model.routing import Routing
from sluice.model.state import Manifest, SegmentRef
from sluice.model.stats import EpochStats
from sluice.model.unit_ranges import Ranges, divide, holds, numbers, unite_all

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


@dataclass(frozen=True)
class SiteShare:
    """What one site alone needs to know: its part of the record, and the segments of units on their way to it."""

    manifest: Manifest
    lagging: tuple[Lagging, ...]
    frozen: tuple[Frozen, ...]
    queues: tuple[Queues, ...]
    arriving: tuple[SegmentRef, ...]


@dataclass(frozen=True)
class EpochRecord:
    """State, routing and watermarks after an epoch, its results, and its statistics.

    `batch` is the newest of Spark's batches that is part of it, `batch_input` what that had in it, as a short hash:
    epochs that only catch up with waiting input take in none. `newest` is what the sources have shown; `reached` is how
    far each level above the lowest has come, which is less while input waits below it.
    """

    number: int
    newest: Times
    routing: Routing
    manifests: tuple[Manifest, ...]
    batch: int = -1
    batch_input: str = ""
    reached: tuple[Times, ...] = ()
    lagging: tuple[Lagging, ...] = ()
    frozen: tuple[Frozen, ...] = ()
    queues: tuple[Queues, ...] = ()
    parts: tuple[Part, ...] = ()
    listings: tuple[tuple[Listing, Listing], ...] = ()
    """Of each output, before this epoch's parts and with them."""
    stats: EpochStats = field(default_factory=EpochStats)
    decisions: tuple[Decision, ...] = ()
    """What was decided for this epoch."""
    ended: tuple[Ended, ...] = ()
    """Decisions of earlier epochs that came to their end with this one, and own ones that were abandoned."""
    under_way: tuple[UnderWay, ...] = ()
    """Decisions, of this epoch and earlier ones, that have not come to their end."""

    @property
    def missing_units(self) -> tuple[Unit, ...]:
        """Frozen units whose results are missing, at whichever level, in the order of their places."""
        missing = unite_all(part for cold in self.frozen if cold.missing for part in cold.units)
        return tuple(self.routing.units_at(numbers(missing)))

    def why_unready(self, unit: Unit) -> str | None:
        """Why a unit cannot be shared otherwise than it is now, if so: its holders would not have come equally far, or
        would meet what they have missed."""
        index = self.routing.index_of(unit)
        if any(holds(late.units, index) for late in self.lagging):
            return "has input that waits"
        return "is frozen" if any(holds(cold.units, index) for cold in self.frozen) else None

    @property
    def unready_units(self) -> Ranges:
        """The units for which there is such a reason, by their places."""
        cohorts = [*(late.units for late in self.lagging), *(cold.units for cold in self.frozen)]
        return unite_all(part for units in cohorts for part in units)

    def files(self) -> set[str]:
        """The durable files that the state lies in."""
        return {run.segment.file for manifest in self.manifests for run in manifest}

    def reached_at(self, level: Level) -> Times:
        """How far a level has come."""
        return self.reached[level - 1] if level and self.reached else self.newest

    def results_of(self, output: int) -> Results:
        parts = tuple(p for p in self.parts if p.output == output)
        before, listing = self.listings[output] if self.listings else (Listing(), Listing())
        return Results(self.number, parts, before, listing, self.stats.committed_at)

    def shares(self, arriving: Sequence[tuple[SegmentRef, ...]] = ()) -> list[SiteShare]:
        """What each site alone needs to know of it."""
        holders, sites = np.array(self.routing.holders), range(self.routing.sites)
        lagging = _by_site(self.lagging, holders, len(sites))
        frozen = _by_site(self.frozen, holders, len(sites))
        queues: list[list[Queues]] = [[] for _ in sites]
        for queue in self.queues:
            if queue.site in sites:
                queues[queue.site].append(queue)
        copies = arriving or [()] * len(sites)
        parts = zip(self.manifests, lagging, frozen, map(tuple, queues), copies, strict=True)
        return [SiteShare(*part) for part in parts]


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


def _by_site(cohorts: Sequence[UnitCohort], holders: np.ndarray, sites: int) -> list[tuple[UnitCohort, ...]]:
    """The part that each site has of some cohorts."""
    found: list[list[UnitCohort]] = [[] for _ in range(sites)]
    for cohort in cohorts:
        for site, units in divide(cohort.units, holders).items():
            found[site].append(replace(cohort, units=units))
    return [tuple(mine) for mine in found]


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
