"""The record of one epoch, as the journal keeps it: everything needed to go on from here, and what happened."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from sluice.model.epoch.decision import Decision, Ended, UnderWay
from sluice.model.epoch.results import Listing, Part, Results
from sluice.model.epoch.segments import Manifest, SegmentRef
from sluice.model.epoch.stats import EpochSeconds, EpochStats
from sluice.model.epoch.table_version import TableVersion
from sluice.model.epoch.taken_files import TakenFiles
from sluice.model.epoch.times import Frozen, Lagging, Queues, Times, UnitCohort
from sluice.model.epoch.totals import Totals
from sluice.model.ids import Level, Site, Unit
from sluice.model.plan.recorded_plan import FormerPlan
from sluice.model.routing.routing import Routing
from sluice.model.routing.unit_ranges import Ranges, divide, holds, numbers, unite_all
from sluice.verbs import Action, SiteEvent, SiteInstruction
from sluice.verbs.base import SiteWork
from sluice.verbs.freeze import UnitCleanedUp, UnitFrozen
from sluice.verbs.move import CopyAhead


@dataclass(frozen=True)
class SiteShare:
    """What one site alone needs to know: its part of the record, and the segments of units on their way to it."""

    manifest: Manifest
    lagging: tuple[Lagging, ...]
    frozen: tuple[Frozen, ...]
    queues: tuple[Queues, ...]
    arriving: tuple[SegmentRef, ...]


@dataclass(frozen=True)
class Turn:
    """What an epoch was planned by, beside the record before it: the time, how many sites there were, for how many
    there were executors, how much memory each had, how long the epoch before took in all, why sites were elsewhere,
    whether the policy was to be asked, whether the epoch before was idle, and which of the user's requests were
    answered."""

    now: float
    sites: int
    slots: int | None = None
    memory: tuple[int, ...] = ()
    seconds: EpochSeconds = field(default_factory=EpochSeconds)
    site_changes: str = ""
    asking: bool = True
    after_idle: bool = False
    requests: tuple[Action, ...] = ()


@dataclass(frozen=True)
class EpochRecord:
    """State, routing and watermarks after an epoch, its results, and its statistics.

    `batch` counts the epochs with new input up to this one: others only catch up with input that waits. Where Spark
    plans what they take in it is the newest of its batches that is part of the record, and `batch_input` says what that
    had in it, as a short hash. Where Sluice plans it, `taken` has the files that were taken in. `newest` is what the
    sources have shown; `reached` is how far each level above the lowest has come, which is less while input waits below
    it.
    """

    number: int
    newest: Times
    routing: Routing
    manifests: tuple[Manifest, ...]
    batch: int = -1
    batch_input: str = ""
    taken: TakenFiles = field(default_factory=TakenFiles)
    tables: tuple[TableVersion, ...] = ()
    """What was in the tables that rows were joined with."""
    reached: tuple[Times, ...] = ()
    lagging: tuple[Lagging, ...] = ()
    frozen: tuple[Frozen, ...] = ()
    queues: tuple[Queues, ...] = ()
    parts: tuple[Part, ...] = ()
    listings: tuple[tuple[Listing, Listing], ...] = ()
    """Of each output, before this epoch's parts and with them."""
    stats: EpochStats = field(default_factory=EpochStats)
    turns: tuple[Turn, ...] = ()
    """What it was planned by: more than once, if it was begun and came to nothing."""
    instructions: tuple[SiteInstruction, ...] = ()
    """What its sites were told to do, beside their ordinary work."""
    events: tuple[SiteEvent, ...] = ()
    """What its sites told that has happened to units, but for what they spilled and fetched: that is decided."""
    decisions: tuple[Decision, ...] = ()
    """What was decided for this epoch."""
    ended: tuple[Ended, ...] = ()
    """Decisions of earlier epochs that came to their end with this one, and own ones that were abandoned."""
    under_way: tuple[UnderWay, ...] = ()
    """Decisions, of this epoch and earlier ones, that have not come to their end."""
    plan: str = ""
    """The file of the plan that it went by."""
    former_plans: tuple[FormerPlan, ...] = ()
    """The files of those that earlier epochs went by, as far back as the journal goes."""
    totals: Totals = field(default_factory=Totals)
    """What all epochs up to this one did together."""

    def __deepcopy__(self, memo: object) -> EpochRecord:
        """The same: it never changes, and may be large."""
        return self

    @classmethod
    def before_all(cls, routing: Routing, streams: int) -> EpochRecord:
        """What stands for the newest epoch of a checkpoint as long as there is none."""
        return cls(-1, (None,) * streams, routing, ((),) * routing.sites)

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

    @property
    def plans(self) -> set[str]:
        """The files of the plans that it and the epochs before it went by, as far back as the journal goes."""
        return {self.plan, *(former.file for former in self.former_plans)}

    def files(self) -> set[str]:
        """The durable files that the state lies in."""
        return {run.segment.file for manifest in self.manifests for run in manifest}

    def file_lists(self) -> set[str]:
        """The durable files with the names of files that were taken in."""
        return {one.file for one in self.taken.lists}

    def table_files(self) -> set[str]:
        """The durable files with the contents of tables."""
        return {version.file for version in self.tables if not version.is_divided}

    def reached_at(self, level: Level) -> Times:
        """How far a level has come."""
        return self.reached[level - 1] if level and self.reached else self.newest

    @cached_property
    def _parts_by_output(self) -> dict[int, tuple[Part, ...]]:
        by_output: dict[int, list[Part]] = {}
        for part in self.parts:
            by_output.setdefault(part.output, []).append(part)
        return {output: tuple(parts) for output, parts in by_output.items()}

    def results_of(self, output: int) -> Results:
        parts = self._parts_by_output.get(output, ())
        before, listing = self.listings[output] if self.listings else (Listing(), Listing())
        return Results(self.number, parts, before, listing, self.stats.committed_at)

    def shares(self, instructions: Sequence[SiteInstruction] = ()) -> list[SiteShare]:
        """What each site alone needs to know of it, to do as it is told."""
        holders, sites = self.routing.holders.array, range(self.routing.sites)
        lagging = _by_site(self.lagging, holders, len(sites))
        frozen = _by_site(self.frozen, holders, len(sites))
        queues: list[list[Queues]] = [[] for _ in sites]
        for queue in self.queues:
            if queue.site in sites:
                queues[queue.site].append(queue)
        arriving = self._arriving([one for one in instructions if isinstance(one, CopyAhead)])
        parts = zip(self.manifests, lagging, frozen, map(tuple, queues), arriving, strict=True)
        return [SiteShare(*part) for part in parts]

    def _arriving(self, copies: Sequence[CopyAhead]) -> list[tuple[SegmentRef, ...]]:
        """The segments that each site copies."""
        names = {name for copy in copies for name in copy.segments}
        segments = {run.segment.id: run.segment for m in self.manifests for run in m if run.segment.id in names}
        by_site = {copy.site: tuple(segments[name] for name in copy.segments) for copy in copies}
        return [by_site.get(Site(site), ()) for site in range(self.routing.sites)]


def _by_site(cohorts: Sequence[UnitCohort], holders: np.ndarray, sites: int) -> list[tuple[UnitCohort, ...]]:
    """The part that each site has of some cohorts."""
    by_site: list[list[UnitCohort]] = [[] for _ in range(sites)]
    for cohort in cohorts:
        for site, units in divide(cohort.units, holders).items():
            by_site[site].append(replace(cohort, units=units))
    return [tuple(cohorts_here) for cohorts_here in by_site]


def site_work(before: EpochRecord, events: Iterable[SiteEvent]) -> SiteWork:
    """What the sites did about frozen units in an epoch, and what was missing before it; `before` is the record of the
    last one, under this one's routing."""
    happened = tuple(events)
    missing = [(cold.level, numbers(cold.units)) for cold in before.frozen if cold.missing]
    return SiteWork(
        frozen=frozenset(event.unit for event in happened if isinstance(event, UnitFrozen)),
        cleaned=frozenset((event.level, event.unit) for event in happened if isinstance(event, UnitCleanedUp)),
        missing=tuple((level, unit) for level, places in missing for unit in before.routing.units_at(places)),
    )
