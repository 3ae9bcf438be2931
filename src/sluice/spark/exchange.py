"""The sites of a query on a Spark cluster: where they are, and the exchange of an epoch between map tasks and them."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark import SparkContext
from pyspark.serializers import pack_long
from pyspark.sql import DataFrame, SparkSession

from sluice.control.site_assignment import Executor, SiteCount, changes, executors_needed, pack, spread
from sluice.engine.agreement import Exchange
from sluice.engine.blobs import InputUnusable
from sluice.engine.host_delivery import HostDelivery
from sluice.engine.site_task import SiteTask
from sluice.engine.split import SplitTask
from sluice.engine.table_loading import files_to_load
from sluice.model.errors import QueryError
from sluice.model.ids import SiteKey
from sluice.record.reports import SiteReport
from sluice.sources.input_files import InputFile
from sluice.spark.anchors import let_go, place
from sluice.spark.backoff import Backoff
from sluice.spark.epoch_job import EpochInput, EpochJob
from sluice.spark.executors import WarmUp, do_at
from sluice.spark.frames import Frame, as_pairs, collect, parallelize, run_tasks
from sluice.spark.map_tasks import CALL_SITE, BegunMapTasks, MapSide, needs_no_map_tasks, restored
from sluice.spark.pool import pool_of
from sluice.spark.shipping import Shipping
from sluice.state.files.workspace import ANYWHERE, Places, Workspace

log = logging.getLogger(__name__)

_SETTINGS = {
    "spark.sql.adaptive.enabled": "false",  # it would run parts of a batch's plan before the epoch's job
}
# An executor lost in the middle of an epoch takes blobs with it. Spark makes them again, but not for sites that were
# already through: two runs of a split may differ (in their timings, or because the user's stream does). The reports
# tell (`agreement.py`), or Spark gives up the job. An epoch is all or nothing, and can be run again as a whole.
_MAX_JOB_ATTEMPTS = 4
LET_GO_EVERY = 50
"""Epochs after which executors look again for what attempts left there that came to nothing: nobody tells of those."""
LONGEST_MAP_TASKS_S = 1.0
"""Seconds up to which map tasks of the next epoch may stand in the way of sites of higher levels. Spark has their tasks
wait for their own executors for three (`spark.locality.wait`)."""
_GIVEN_UP = ("with indeterminate output was failed and retried", "has failed the maximum allowable number of times")


@dataclass(frozen=True)
class _NextInput:
    """What the next epoch is likely to read, and how its rows are likely to be split."""

    split: SplitTask
    files: Sequence[InputFile]


@dataclass(frozen=True)
class _ReadAhead:
    """The map tasks of the next epoch, begun before it is planned: over what, and how they send it."""

    input: _NextInput
    map_side: MapSide
    begun: BegunMapTasks


class Sites:
    """The sites of a query on a Spark cluster. With a `size` their number follows the executors' cores. If it `scales`
    their number is as asked for, and they use as few executors as have a slot for each: the others go back."""

    def __init__(
        self,
        spark: SparkSession,
        count: int,
        size: SiteCount | None = None,
        scales: bool = False,
        places: Places = ANYWHERE,
    ) -> None:
        self.session = spark.newSession()  # so that nothing of the user's own session is changed
        for key, value in _SETTINGS.items():
            self.session.conf.set(key, value)
        self.context = self.session.sparkContext
        self.pool, self.name = pool_of(self.context), uuid.uuid4().hex
        self.shipping = Shipping(self.context)
        self.size, self.scales, self.arrange, self.places = size, scales, pack if scales else spread, places
        self._jobs = 0
        self._references, self._reading_ahead = Backoff(), Backoff()
        """When blobs go by reference again after some were lost, and when files are read ahead again after that was in
        vain."""
        self._delivery: HostDelivery | None = None
        """The newest job's."""
        self._next: _NextInput | None = None
        self._ahead: _ReadAhead | None = None
        self._map_seconds = 0.0
        """How long the map tasks of the newest epoch took, one behind the other in each slot."""
        # a task that Spark starts twice may be on another host the second time, and the first to end counts
        self._by_reference = self.session.conf.get("spark.speculation", "false") != "true"
        self.executors = self.counted_with = self.pool.look()
        self.warm_up = WarmUp(self.pool.look, partial(rehearse, self.context)) if scales else None
        self.pool.use(self.name, [e.id for e in self.executors])
        try:
            self.anchors = place(self.context, count, self.executors, self.arrange, places)
        except BaseException:
            self.pool.leave(self.name)
            raise
        self.pool.use(self.name, self.anchors.homes)
        self._ran_on = self.anchors.processes
        self._epochs_since = 0

    @cached_property
    def _empty(self) -> DataFrame:
        """No rows, of the session whose settings count. Spark finds that out when it plans, and runs no task for it."""
        return self.session.sql("SELECT CAST(NULL AS BINARY) AS frame WHERE FALSE")

    @property
    def site_keys(self) -> tuple[SiteKey, ...]:
        return self.anchors.site_keys

    @property
    def count(self) -> int:
        return len(self.anchors.site_keys)

    @property
    def slots(self) -> int | None:
        """For how many sites there are executors, those that are not warm yet among them; None where sites do not wait
        for any."""
        return sum(e.slots for e in self.pool.look()) if self.scales and self.pool.can_ask else None

    def can_have(self, target_sites: int | None) -> bool:
        """Whether, if so many sites are wanted, there would be others now than there are."""
        return target_sites is not None and not self.size and self._count(self._ready(), target_sites) != self.count

    def _ready(self) -> tuple[Executor, ...]:
        """The executors that sites can be on."""
        executors = self.pool.look()
        return self.warm_up.ready(executors) if self.warm_up else executors

    def follow(self, workspace: Workspace, ran_on: Sequence[str], target_sites: int | None = None) -> str:
        """Between epochs: spread the sites anew if executors came or went or there are not `target_sites`, and have
        nobody keep the state of sites that are elsewhere. Says what happened to the sites, "" if nothing did.

        In the epoch before they `ran_on` these processes: Spark may run a site's task elsewhere, once or for good.
        """
        before = self.anchors
        what_happened = self._spread(target_sites)
        now = self.anchors.processes if self.anchors is not before else tuple(ran_on) or self._ran_on
        self._epochs_since += 1
        if now != self._ran_on or self._epochs_since == LET_GO_EVERY:
            self._let_go(workspace, now)
            self._ran_on, self._epochs_since = now, 0
        if not self._ask_for_executors(target_sites) and self.scales:
            gone = self.pool.give_back(self.name)  # those without a site: everything on them was let go of
            self.executors = tuple(e for e in self.executors if e not in gone)
        return what_happened

    def _ask_for_executors(self, target_sites: int | None) -> bool:
        """Ask for executors that are missing for so many sites, if any; whether some sites have no slot of their own
        yet. Executors that came since the last spread have slots, but are of use when they are warm."""
        if self.warm_up is None:
            return False
        executors = self.pool.look()
        if not executors:
            return True  # all were lost; others come in their place
        sites = max(self.count, target_sites or 0)
        slots = sum(e.slots for e in executors if e in self.executors)
        short = sites > min(slots, self.count)
        if short:
            self.pool.ask(self.name, executors_needed(sites, executors), f"for {sites} sites")
        self.warm_up.wait_for_more(short and self.pool.can_ask)
        return short

    def _count(self, executors: Sequence[Executor], target_sites: int | None) -> int:
        """How many sites there are from now on. More than there are only join when there are slots for them, as far as
        it can be had that more come."""
        slots = sum(e.slots for e in executors)
        if self.size:
            return self.size.after(slots, time.monotonic())
        if target_sites is None or target_sites <= self.count or not self.pool.can_ask:
            return target_sites or self.count
        return max(self.count, min(target_sites, slots))

    def _spread(self, target_sites: int | None) -> str:
        executors, before = self._ready(), self.anchors
        count = self._count(executors, target_sites)
        if not executors or (executors == self.executors and count == self.count):
            return ""
        self._drop_ahead()  # its map tasks would take the slots in which sites are placed
        try:
            self.anchors = place(self.context, count, executors, self.arrange, self.places, before)
        except Py4JJavaError as failure:
            if not _lost(failure):
                raise
            return ""  # whoever was lost meanwhile is missed at the next look
        executors_before, self.executors = self.executors, executors
        log_changes(executors_before, executors)
        if self.anchors is before:
            return ""
        self.pool.use(self.name, self.anchors.homes)
        before.let_go()
        if count == len(before.site_keys):
            moved = sum(a != b for a, b in zip(before.homes, self.anchors.homes, strict=True))
            return f"{changes(executors_before, executors)}; sites on another one: {moved}"
        executors_before, self.counted_with = self.counted_with, executors
        return changes(executors_before, executors)

    def _let_go(self, workspace: Workspace, processes: Sequence[str]) -> None:
        """Have executors remove what they still have of sites that are on others now; what stays goes the next time."""
        try:
            let_go(self.context, processes, self.executors, workspace)
        except Py4JJavaError as failure:
            if not _lost(failure):
                raise

    def exchange(self, epoch_input: EpochInput, target_sites: Callable[[], int | None] = lambda: None) -> Exchange:
        """The exchange over a micro-batch or files; without any it is for input that waits at the sites. When it begins
        it has been decided how many `target_sites` there are to be, so that executors can start meanwhile."""

        def run(split: SplitTask, site: SiteTask) -> list[SiteReport]:
            self._ask_for_executors(target_sites())
            try:
                reports = self._run_job(split, site, epoch_input)
            except BaseException:
                self._drop_ahead()
                raise
            finally:
                self._next = None
            seconds = sum(split.seconds.total for report in reports for split in report.splits)
            self._map_seconds = seconds / self.context.defaultParallelism
            if len(reports) != self.count * site.plan.levels:
                raise QueryError(f"{len(reports)} of {self.count * site.plan.levels} reports of sites arrived")
            return reports

        return run

    def _run_job(self, split: SplitTask, site: SiteTask, epoch_input: EpochInput) -> list[SiteReport]:
        """The job of an epoch, again if executors were lost, or a site could not use what it was sent."""
        by_reference = self._by_reference and self._references.allows(site.number)
        self._keep_ahead_for(split, site, by_reference, epoch_input)
        shipped_split, shipped_site = self.shipping.ship(split, site)
        ahead, self._ahead = self._ahead, None
        empty, given_up = self._empty if isinstance(epoch_input, DataFrame) else None, 0
        while True:
            if ahead is None:
                self._jobs += 1
                self._delivery = self._deliver(site, by_reference)
                map_side, begun = MapSide(self.context, self.anchors, shipped_split, self._delivery, site.number), None
            else:
                map_side, begun, self._delivery = ahead.map_side, ahead.begun, ahead.map_side.delivery
            job = EpochJob(map_side, shipped_site, site.plan, empty)
            try:
                with self.pool.running(self.name):
                    reports = job.run(epoch_input, files_to_load(split.loads), begun, self._begin_next)
                break
            except InputUnusable as problem:
                if ahead is None and not by_reference:  # there is nothing else that could help
                    raise QueryError(f"epoch {site.number} cannot be run: {problem}") from problem
                if ahead is not None:
                    log.info("epoch %d is run again, and its files are read again: %s", site.number, problem)
                    self._reading_ahead.fail(site.number)
                else:
                    log.info("epoch %d is run again, all blobs through Spark: %s", site.number, problem)
                    by_reference = False
                    self._references.fail(site.number)
            except Py4JJavaError as failure:
                given_up += 1
                if given_up == _MAX_JOB_ATTEMPTS or not _beyond_retries(failure):
                    raise
                log.info("epoch %d is run again: Spark gave its job up, as executors were lost", site.number)
            ahead = None
            self._drop_ahead()  # the sites of another attempt would take its blobs for leavings of an earlier one
        if by_reference:
            self._references.succeed()
        if ahead is not None:
            self._reading_ahead.succeed()
        return reports

    def read_ahead(self, split: SplitTask, files: Sequence[InputFile]) -> None:
        """Have the map tasks of the epoch after the one that is about to run begin over files when those of this one
        are done, while the sites work. `split` is how their rows are split as far as is known by now. The next epoch
        uses what they send if it has the same files, and splits rows in the same way but for watermarks that have moved
        on. The sites refuse rows that are late by these, and then it reads its files again. What goes wrong here goes
        wrong there again, and is told then."""
        self._next = _NextInput(split, files) if self._reading_ahead.allows(split.number) else None

    def _begin_next(self) -> None:
        """Have the map tasks of the next epoch run, if its files are known."""
        next_, self._next = self._next, None
        if next_ is None or needs_no_map_tasks(self.context, next_.split.plan, self.count, next_.files):
            return
        if next_.split.plan.levels > 1 and self._map_seconds > LONGEST_MAP_TASKS_S:
            return
        try:
            self._jobs += 1
            delivery = self._delivery and replace(self._delivery, epoch=next_.split.number, job=self._jobs)
            shipped = self.shipping.ship_split(next_.split)
            map_side = MapSide(self.context, self.anchors, shipped, delivery, next_.split.number)
            with restored(self.context, CALL_SITE):
                begun = map_side.begin(next_.files)
        except Exception as problem:
            log.info("the files of epoch %d are not read ahead: %s", next_.split.number, problem)
            return
        if begun is not None:
            self._ahead = _ReadAhead(next_, map_side, begun)

    def _keep_ahead_for(self, split: SplitTask, site: SiteTask, by_reference: bool, epoch_input: EpochInput) -> None:
        """Drop what was read ahead, unless it is just what this epoch is to read."""
        ahead = self._ahead
        if ahead is None:
            return
        delivery, before = self._deliver(site, by_reference), ahead.input.split
        assumed = {
            "its files": epoch_input == ahead.input.files,
            "the plan": split.plan is before.plan,  # what executors were sent of it is there still
            "how rows are split": replace(split, watermarks=before.watermarks) == before,
            "where sites are": self.anchors is ahead.map_side.anchors,
            "how blobs are sent": delivery is None or delivery.is_like(ahead.map_side.delivery),
        }
        others = [what for what, is_same in assumed.items() if not is_same]
        if others:
            log.info("what was read ahead for epoch %d is dropped: %s changed", site.number, ", ".join(others))
            self._drop_ahead()

    def _drop_ahead(self) -> None:
        """Nobody wants what was read ahead."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            ahead.begun.cancel()

    def _deliver(self, site: SiteTask, by_reference: bool) -> HostDelivery | None:
        """How blobs of the next job reach sites of their sender's host. If they do not go by reference, what earlier
        jobs have left is removed all the same."""
        if not self._by_reference:
            return None
        workspace, limit = Workspace(site.places, site.query, site.run), min(site.directives.limits)
        memories = self.anchors.memories if by_reference else ("",) * self.count
        return HostDelivery(workspace, site.number, self._jobs, memories, limit)

    def close(self, workspace: Workspace) -> None:
        """Unpin the sites and remove the run's local tiers on every executor. Then ask for the number of executors that
        the application started with."""
        try:
            self._drop_ahead()
            if self.warm_up is not None:
                self.warm_up.wait_for_more(False)
            if self.context._jsc is not None:  # else its executors, and with them the tiers, are gone
                self._close_on_executors(workspace)
        finally:
            self.pool.leave(self.name)
            workspace.close()

    def _close_on_executors(self, workspace: Workspace) -> None:
        self.anchors.let_go()
        self.shipping.close()

        def clean() -> tuple[()]:
            workspace.close()
            return ()

        executors = self.pool.look()
        if executors:  # else nobody is there to remove anything
            do_at(self.context, executors, clean)


def rehearse(context: SparkContext, executors: Sequence[Executor]) -> None:
    """Have every slot of some executors do what an epoch's tasks do, over nothing."""
    slots = sum(max(1, executor.slots) for executor in executors)

    def map_side(number: int, frames: Iterable[bytes]) -> list[Frame]:
        return [(frame,) for frame in frames]

    def at_site(number: int, frames: Iterable[bytes]) -> list[Frame]:
        list(frames)
        return []

    anchors = place(context, slots, executors, pack, ANYWHERE)
    try:
        frames = [value for site in anchors.site_keys for value in (pack_long(site), b"")]
        blobs = run_tasks(context, parallelize(context, frames, slots), map_side, "warm-up: split")
        collect(context, run_tasks(context, anchors.pin(as_pairs(context, blobs)), at_site, "warm-up: sites"))
    finally:
        anchors.let_go()


def log_changes(before: Sequence[Executor], now: Sequence[Executor]) -> None:
    """A line for each executor that is lost or has joined."""
    for executor in before:
        if executor not in now:
            log.info("executor %s on %s is lost", executor.id, executor.host)
    for executor in now:
        if executor not in before:
            log.info("executor %s on %s has joined, with %d slots", executor.id, executor.host, executor.slots)


def _beyond_retries(failure: Py4JJavaError) -> bool:
    """Whether the job ended because executors were lost, not because a task failed."""
    return any(reason in str(failure.java_exception) for reason in _GIVEN_UP)


def _lost(failure: Py4JJavaError) -> bool:
    """The same for a job that only places sites, whose tasks cannot fail otherwise."""
    return _beyond_retries(failure) or "ExecutorLostFailure" in str(failure.java_exception)
