"""What the page knows of a query: the newest epochs of its journal, as few numbers and a few columns each.

It holds as many epochs as a journal keeps, however long the query runs, and of each what the map and the charts show.
The newest records as a whole, which the plan, the queries and advice are made of, are read when somebody asks.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace

from sluice.control.advice import ADVISERS, LATELY, Advice, advise
from sluice.control.journal import KEPT, Journal
from sluice.dashboard.journal_follower import JournalFollower
from sluice.dashboard.page.epoch_point import EpochPoint
from sluice.dashboard.page.frames import SiteFrame, Strip, UnitFrame
from sluice.dashboard.page.hot_units import HotUnits, hot_units
from sluice.dashboard.page.marks import DecidedEpoch, Mark, marks_of
from sluice.dashboard.page.plan_graph import PlanGraph, plan_graph
from sluice.dashboard.page.query_rows import QueryTable, query_table
from sluice.model.epoch.stats import EpochStats
from sluice.model.errors import CheckpointError, FlowError, SluiceError
from sluice.model.plan.recorded_plan import RecordedPlan
from sluice.policies import policy
from sluice.record.epoch import EpochRecord


@dataclass(frozen=True)
class Snapshot:
    """An epoch as the page shows it."""

    point: EpochPoint
    strip: Strip
    sites: SiteFrame
    units: UnitFrame
    decided: DecidedEpoch


@dataclass(frozen=True)
class NewestRecords:
    """The newest epochs as a whole, oldest first, and the plan of the newest."""

    plan: RecordedPlan
    records: tuple[EpochRecord, ...]


class History:
    """The newest epochs of a checkpoint. Threads take turns: one looks, others ask."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self._follower = JournalFollower(journal, KEPT, with_state=False)
        self._beginnings = 0
        self._snapshots: deque[Snapshot] = deque(maxlen=KEPT)
        self._newest_stats: EpochStats | None = None
        self._newest_records: NewestRecords | None = None
        self._lock = threading.RLock()
        self.problem = ""
        """Why the last look failed, in part or as a whole."""

    @property
    def name(self) -> str:
        return self._follower.identity.name

    @property
    def snapshots(self) -> tuple[Snapshot, ...]:
        """Oldest first."""
        with self._lock:
            return tuple(self._snapshots)

    def standing(self) -> tuple[int, str, tuple[Snapshot, ...]]:
        """How often it began anew, why it cannot be read, and its epochs: all of one moment."""
        with self._lock:
            return self._beginnings, self.problem, tuple(self._snapshots)

    def look(self) -> None:
        """Read what is new. If the store cannot be reached, that is told, and the next look goes on from here."""
        with self._lock:
            try:
                self.read_on()
            except SluiceError as unreachable:
                self.problem = f"{unreachable}; trying again"

    def read_on(self) -> None:
        """Read what was committed since the last time. A file that is damaged is passed by, and told of until an epoch
        after it is there."""
        with self._lock:
            problem = ""
            try:
                self._follower.read_on(self._add)
            except CheckpointError as refused:
                problem = str(refused)
            finally:
                self._drop_former()
                self.problem = problem or self._follower.damage

    def snapshot(self, epoch: int) -> Snapshot:
        """The snapshot of an epoch; one that the journal keeps no longer, or not yet, is refused."""
        with self._lock:
            for one in self._snapshots:
                if one.point.epoch == epoch:
                    return one
        raise FlowError(f"epoch {epoch} is not among the newest {KEPT}, which the journal keeps")

    def marks(self) -> list[Mark]:
        """What was decided in these epochs, oldest first."""
        snapshots = self.snapshots
        units = {one.point.epoch: one.units for one in snapshots}
        return marks_of([one.decided for one in snapshots], units)

    def hot_units(self, epoch: int) -> HotUnits:
        """The units that took most time in the epochs up to one."""
        snapshots = [one for one in self.snapshots if one.point.epoch <= epoch]
        return hot_units(epoch, [one.units for one in snapshots[-LATELY:]])

    def plan(self) -> PlanGraph | None:
        """The plan after the newest epoch; None if there is none yet."""
        newest = self._read_newest()
        streams = self._follower.identity.streams
        return plan_graph(newest.plan, newest.records[-1], streams) if newest.records else None

    def queries(self) -> QueryTable | None:
        """The queries after the newest epoch; None if there is none yet."""
        newest = self._read_newest()
        return query_table(newest.plan, newest.records) if newest.records else None

    def advice(self, name: str) -> Advice:
        """What a policy, with its usual settings, would do after the newest epoch."""
        if name not in ADVISERS:
            raise FlowError(f"there is no policy {name!r} to ask; these are: {', '.join(ADVISERS)}")
        newest = self._read_newest()
        return advise(policy(name), newest.plan, newest.records)

    def _read_newest(self) -> NewestRecords:
        """The last epochs with their state, read once for an epoch that several ask about."""
        with self._lock:
            number = self._snapshots[-1].point.epoch if self._snapshots else -1
            kept = self._newest_records
            if kept is None or not kept.records or kept.records[-1].number < number:
                records = self.journal.epochs(LATELY + 1, passed_by=[])  # the last look tells of damage
                kept = NewestRecords(self.journal.plan_after(records), tuple(records))
                self._newest_records = kept
            return kept

    def _add(self, record: EpochRecord) -> None:
        self._drop_former()
        if record.number < 0:
            return
        last = self._snapshots[-1] if self._snapshots else None
        if last is not None and self._newest_stats is not None and last.point.epoch == record.number - 1:
            point = last.point.with_whole_time(record, self._newest_stats)
            last = self._snapshots[-1] = replace(last, point=point)
        sites = SiteFrame.of(record)
        plan = self._follower.plan_of(record)
        self._snapshots.append(
            Snapshot(
                EpochPoint.of(record, self._follower.identity, plan, last.point if last else None),
                Strip.of(record.number, sites),
                sites,
                UnitFrame.of(record),
                DecidedEpoch(record.number, record.decisions, record.under_way, record.ended),
            )
        )
        self._newest_stats = record.stats

    def _drop_former(self) -> None:
        """Forget the epochs of a checkpoint that another one has taken the place of."""
        if self._follower.beginnings > self._beginnings:
            self._beginnings = self._follower.beginnings
            self._snapshots.clear()
            self._newest_stats = self._newest_records = None


def since(snapshots: tuple[Snapshot, ...], epoch: int) -> Iterator[Snapshot]:
    """Those after an epoch, and that one, whose time is known when the next one is there."""
    return (one for one in snapshots if one.point.epoch >= epoch)
