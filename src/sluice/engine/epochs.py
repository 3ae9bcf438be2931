"""The driver's side of every epoch: hand the tasks out, make the outcome the journal's next record, show the results.

Nothing here needs Spark: the exchange that runs the tasks is handed in.
"""

from __future__ import annotations

import pickle
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Any, Protocol

import numpy as np

from sluice.control.controller import Controller, NextEpoch
from sluice.control.journal import Entry, Journal
from sluice.engine.part_writer import Staging
from sluice.engine.site import SiteDirectives, SiteTask
from sluice.engine.split import Reading, SplitTask
from sluice.model.codec import decode_column, encode_column
from sluice.model.decision import Decision
from sluice.model.epoch import (
    Attempt,
    EpochRecord,
    Lagging,
    Queues,
    Times,
    left_over,
    name_attempts,
    newest_of,
    slowest,
    watermarks,
)
from sluice.model.errors import CheckpointError, SluiceError
from sluice.model.plan import Plan
from sluice.model.results import Listing, Part, Results
from sluice.model.routing import Ranges, Routing, unite
from sluice.model.state import RunRef, reassign
from sluice.state.storage import Storage
from sluice.state.transaction import STATE
from sluice.state.workspace import Places, Workspace

DELIVERED = "delivered"
"""Directory with a file named after the last epoch whose results were shown, of those that Spark's log does not tell
of."""
ATTEMPTS = 4
"""How often an epoch's job is run if its sites have not taken in the same."""
TIDY_EVERY = 100
"""Epochs after which the leavings of failed attempts are looked for again."""
Report = dict[str, Any]
Exchange = Callable[[SplitTask, SiteTask], list[Report]]
"""Runs one epoch's job: every source row through the split, every blob to its site; one report a site and level."""


class Sink(Protocol):
    """Takes the results of a committed epoch to where the user wants them."""

    staging: Staging

    def check(self, query: str | None, newest: Results) -> None:
        """See that results can go there after the newest epoch's, before anything is touched; a query of None has no
        checkpoint yet."""

    def open(self, query: str, newest: Results) -> None:
        """Get ready to take results."""

    def listing_with(self, before: Listing, parts: tuple[Part, ...], committed_at: float) -> Listing:
        """How the output's files will be listed once the epoch with these parts is shown; nothing is done yet."""

    def deliver(self, results: Results) -> None:
        """Show the results of a committed epoch; after a crash it is called again and must not show them twice."""

    def tidy(self, parts: tuple[Part, ...], left_over: Callable[[str], bool]) -> None:
        """Remove waiting parts that are left over, except `parts`, those of the newest committed epoch."""


@dataclass(frozen=True)
class Settings:
    """How a query runs, apart from what it computes."""

    checkpoint: str
    sites: int
    partitions: int
    site_memory: int
    places: Places
    controller: Controller
    seconds: float | None = None
    """How long a site works on an epoch at most; what it did not get to waits."""
    backlog: float = float("inf")
    """Bytes of input that may wait at a site."""
    spill: str = "unit"
    follow: bool = False
    """Whether the number of sites follows the executors' cores; `sites` is what there is at the start."""
    pace: dict[int, float] = field(default_factory=dict)
    """Seconds that a row takes longer at a site, while the query runs: for experiments with slow machines."""


class Epochs:
    """A running flow between its checkpoint and its exchange."""

    def __init__(
        self,
        name: str,
        plan: Plan,
        reading: tuple[Reading, ...],
        settings: Settings,
        sinks: Sequence[Sink],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.plan, self.reading, self.settings, self.sinks, self.clock = plan, reading, settings, sinks, clock
        self.storage = Storage(settings.checkpoint)
        self.journal = Journal(self.storage)
        self.identity = {"name": name, "partitions": settings.partitions, "says": plan.describe(), **plan.identity()}
        self.recent: deque[EpochRecord] = deque(maxlen=100)
        self.lock = threading.Lock()
        self.busy = threading.Lock()
        self.closed = self.delivered = False
        self.run_id = uuid.uuid4().hex[:8]
        self.tidy_due = True
        self.record = EpochRecord(-1, (None,) * len(plan.sources), self._even(0, 0), ((),) * settings.sites)

    def recover(self, new_id: str) -> str:
        """Take the checkpoint over, go to its newest epoch, and remove what did not become part of it. Returns its
        id."""
        self.query = self._take_over(new_id)
        with self.telling_of_other_owners():
            self.storage.make_dir(STATE)
            for output, sink in enumerate(self.sinks):
                sink.open(self.query, self.record.results_of(output))
            self.delivered = self._was_delivered()
            if self.record.figures.get("catchUp") and not self.delivered:  # Spark does not ask for its results again
                self._deliver(self.record)
            self.journal.remove_drafts()
            self._tidy()
        return self.query

    def _take_over(self, new_id: str) -> str:
        """Become the owner of the checkpoint, if nothing speaks against it."""
        while True:
            known = (self.journal.identity() or {}).get("id")
            if known is not None:
                self.journal.claim({"id": new_id, **self.identity})
            newest = self.journal.newest()
            record = self.record if newest is None else newest.record
            try:
                for output, sink in enumerate(self.sinks):
                    sink.check(known, record.results_of(output))
                self.storage.make_dir()
                identity = self.journal.claim({"id": new_id, **self.identity})
                if self.journal.take_over(self.run_id, self.clock(), newest, record):
                    self.record = record
                    return str(identity["id"])
            except SluiceError:
                if not self._has_moved_on(newest):  # else its owner was still at work, or there is another one
                    raise

    def _has_moved_on(self, newest: Entry | None) -> bool:
        return self.journal.indexes()[-1:] != ([] if newest is None else [newest.index])

    @property
    def workspace(self) -> Workspace:
        """What this run has in the local tiers."""
        return Workspace(self.settings.places, self.query, self.run_id)

    @property
    def ran_on(self) -> tuple[str, ...]:
        """The executors on which the sites were in the newest epoch of this run, none before there was one."""
        return tuple(site["executor"] for site in self.recent[-1].figures["sites"]) if self.recent else ()

    def end(self) -> None:
        """Let no epoch run any more."""
        with self.busy:
            self.closed = True

    def close(self) -> None:
        """Let no epoch run any more, and remove what failed attempts at the epochs left."""
        self.end()
        with self.busy:
            # a commit can come through although it failed here: then what looks left over is the newest epoch's
            if self.journal.is_at(self.record) and self.journal.is_owned():
                self._tidy()

    def _tidy(self) -> None:
        """Remove what failed attempts left, but nothing that another driver on this checkpoint may be writing."""

        def over(name: str) -> bool:
            return left_over(name, self.record.number, self.run_id)

        self.storage.delete_all(name for name in self._listed(STATE) - self.record.files() if over(name))
        self.storage.delete_all(self._listed(DELIVERED) - {self._delivered_name(self.record)})
        for output, sink in enumerate(self.sinks):
            sink.tidy(self.record.results_of(output).parts, over)

    def run(self, batch: int, tokens: tuple[int, ...], exchange: Exchange, why: str = "") -> None:
        """Process one of Spark's batches exactly once, however often it is asked for. There is a token for each site;
        `why` says what became of the sites since the epoch before."""
        with self.busy, self.telling_of_other_owners():
            if self.closed:
                raise CheckpointError("the query has ended")
            if batch < self.record.batch or batch > self.record.batch + 1:
                raise CheckpointError(
                    f"Spark's part of checkpoint {self.settings.checkpoint} is at batch {batch}, the journal is at "
                    f"{self.record.batch}: part of it was deleted or restored. Use a new checkpointLocation"
                )
            if batch == self.record.batch:
                self._deliver(self.record)
            else:
                if not self.delivered and self.record.figures.get("catchUp"):  # Spark cannot ask for it again
                    self._deliver(self.record)
                self._run(batch, tokens, exchange, why)
            self.journal.refuse_if_taken_over()  # so that Spark's log is left to the new owner, too

    def catch_up(self, tokens: tuple[int, ...], exchange: Exchange, why: str = "") -> bool:
        """Process input that waits, in an epoch that takes in nothing new; whether there was any."""
        with self.busy, self.telling_of_other_owners():
            if self.closed or not self.record.behind:
                return False
            if not self.delivered:  # its results would not be asked for again, once another epoch has followed
                self._deliver(self.record)
            self._run(self.record.batch, tokens, exchange, why)
            return True

    @contextmanager
    def telling_of_other_owners(self) -> Iterator[None]:
        """Where another driver has taken the checkpoint over, that is what went wrong, whatever it looked like."""
        try:
            yield
        except CheckpointError:
            raise
        except Exception as problem:
            self.journal.refuse_if_taken_over(problem)
            raise

    def _run(self, batch: int, tokens: tuple[int, ...], exchange: Exchange, why: str) -> None:
        begun = perf_counter()
        number = self.record.number + 1
        step, before = self._placed(len(tokens), why)
        split, site = self._tasks(number, tokens, before, step, catching_up=batch == self.record.batch)
        reports = _exchanged(exchange, split, site)
        exchanged = perf_counter()
        record = self._record(number, batch, before, reports)
        record.figures["seconds"] = _phases(reports, exchanged - begun)
        record.figures["committedAt"] = self.clock()
        record = replace(record, listings=self._listings(record))
        self.journal.commit(record)
        committed = perf_counter()
        previous, self.record, self.delivered = self.record, record, False
        self.storage.delete_all(previous.files() - record.files())
        self._deliver(record)
        if self.tidy_due or number % TIDY_EVERY == 0:  # the commit has shut out whoever was at this epoch before us
            self._tidy()
            self.tidy_due = False
        record.figures["seconds"]["commit"] = committed - exchanged
        record.figures["seconds"]["deliver"] = perf_counter() - committed
        record.figures["seconds"]["total"] = perf_counter() - begun
        with self.lock:
            self.recent.append(record)

    def history(self) -> list[EpochRecord]:
        """The epochs on record, oldest first: those of earlier runs too, as far back as the journal keeps them."""
        return self.journal.epochs()

    def _listings(self, record: EpochRecord) -> tuple[tuple[Listing, Listing], ...]:
        found = []
        for output, sink in enumerate(self.sinks):
            before, new = self.record.results_of(output).listing, record.results_of(output)
            found.append((before, sink.listing_with(before, new.parts, new.committed_at)))
        return tuple(found)

    def _deliver(self, record: EpochRecord) -> None:
        for output, sink in enumerate(self.sinks):
            sink.deliver(record.results_of(output))
        self.delivered = True
        if record.behind or record.figures["catchUp"]:  # of the others Spark's own commit says it
            self.storage.make_dir(DELIVERED)
            self.storage.write(self._delivered_name(record), [])
            self.storage.delete_all(self._listed(DELIVERED) - {self._delivered_name(record)})

    def _was_delivered(self) -> bool:
        """Whether the newest record's results have been shown, as far as is known."""
        return self._delivered_name(self.record) in self._listed(DELIVERED)

    @staticmethod
    def _delivered_name(record: EpochRecord) -> str:
        return f"{DELIVERED}/{Attempt.prefix(record.number)}shown"

    def _placed(self, sites: int, why: str) -> tuple[NextEpoch, EpochRecord]:
        """What the next epoch does, and the newest record under its routing: the controller's, or one for another
        number of sites."""
        record, controller = self.record, self.settings.controller
        if record.routing.sites != sites:
            step = controller.resized(record, sites, why or "restarted", self.clock())
        elif record.number < 0:
            step = NextEpoch(record.routing)
        else:
            step = controller.after(record, self.clock(), site_changes=why)
        routing = step.routing
        manifests = record.manifests if routing == record.routing else reassign(record.manifests, routing)
        return step, replace(record, routing=routing, manifests=manifests, decisions=step.decisions)

    def _even(self, version: int, since: int) -> Routing:
        return Routing.even(self.settings.partitions, self.settings.sites, version, since)

    def _tasks(
        self, number: int, tokens: tuple[int, ...], before: EpochRecord, step: NextEpoch, catching_up: bool
    ) -> tuple[SplitTask, SiteTask]:
        late_below = watermarks(before.newest, tuple(s.delay for s in self.plan.sources))
        split = SplitTask(self.plan, self.reading, before.routing, tokens, late_below)
        site = SiteTask(
            plan=self.plan,
            number=number,
            before=replace(before, manifests=(), behind=(), queues=(), parts=(), figures={}, decisions=()),
            shares=tuple(pickle.dumps(share) for share in before.shares(step.arriving)),
            tokens=tokens,
            checkpoint=self.settings.checkpoint,
            query=self.query,
            run=self.run_id,
            places=self.settings.places,
            staging=tuple(sink.staging for sink in self.sinks),
            adapting=replace(self._adapting(before, step), patient=catching_up),
        )
        return split, site

    def _adapting(self, before: EpochRecord, step: NextEpoch) -> SiteDirectives:
        settings, sites = self.settings, before.routing.sites
        figures = before.figures.get("sites", [])
        costs = [site["busySeconds"] / site["rowsDone"] if site["rowsDone"] else None for site in figures]
        return SiteDirectives(
            limits=settings.controller.memory.limits(sites),
            spill=settings.spill,
            seconds=settings.seconds,
            backlog=settings.backlog,
            costs=tuple(costs) if len(costs) == sites else (),
            leaving=step.leaving,
            allowance=step.allowance,
            pace=tuple(settings.pace.get(i, 0.0) for i in range(sites)) if settings.pace else (),
        )

    def _record(self, number: int, batch: int, before: EpochRecord, reports: list[Report]) -> EpochRecord:
        splits = [s for r in reports for s in r["splits"]]
        levels = range(self.plan.levels)
        by_site: list[list[Report]] = [[] for _ in range(before.routing.sites)]
        for report in reports:
            by_site[report["site"]].append(report)
        newest = newest_of(before.newest, splits)
        behind = [Lagging(r["level"], _ranges(units), tuple(t)) for r in reports for units, t in r["behind"]]
        record = EpochRecord(
            number=number,
            batch=batch,
            newest=newest,
            reached=tuple(slowest([tuple(r["reached"]) for r in reports if r["level"] == i]) for i in levels[1:]),
            behind=_together(behind),
            queues=tuple(
                Queues(r["site"], r["level"], tuple(q[0]), tuple(q[1]), q[2])
                for r in reports
                if (q := r["queues"]) is not None
            ),
            routing=before.routing,
            manifests=tuple(tuple(RunRef.from_json(run) for r in mine for run in r["runs"]) for mine in by_site),
            parts=tuple(
                Part(p[0], p[1], p[2], p[3], int(output))
                for r in reports
                for output, some in r["parts"].items()
                for p in some
            ),
            decisions=(*before.decisions, *_resided(number, reports)),
        )
        record.figures.update(self._figures(reports, by_site, before.routing, splits))
        moved = np.array(before.routing.owners) != np.array(self.record.routing.owners)
        record.figures["moves"] = int(moved.sum()) if number else 0
        record.figures["catchUp"] = batch == self.record.batch
        return record

    def _figures(
        self, reports: list[Report], by_site: list[list[Report]], routing: Routing, splits: list[dict[str, Any]]
    ) -> dict[str, Any]:
        counts = ("rows", "late", "nulls", "outOfRange", "missing", "corrupt")
        streams = [{"name": s.name, **dict.fromkeys(counts, 0)} for s in self.plan.sources]
        for split in splits:
            for count in counts:
                streams[split["stream"]][count] += split[count]
        sites = [_summed([r["figures"] for r in mine]) for mine in by_site]
        busy = [site["busySeconds"] for site in sites]
        events = [event[0] for r in reports for event in r["events"]]
        return {
            "streams": streams,
            "sites": sites,
            **_by_unit(reports, routing),
            "rowsIn": sum(s["rows"] for s in splits),
            "rowsOut": sum(r["figures"]["rowsOut"] for r in reports),
            "lateRows": sum(s["late"] for s in splits),
            "nullRows": sum(s["nulls"] for s in splits) + sum(r["figures"]["nullRows"] for r in reports),
            "outOfRangeRows": sum(s["outOfRange"] for s in splits),
            "missingFiles": sum(s["missing"] for s in splits),
            "corruptFiles": sum(s["corrupt"] for s in splits),
            "spills": events.count("spill"),
            "fetches": events.count("fetch"),
            "backlogRows": sum(site["pendingRows"] for site in sites),
            "imbalance": max(busy) * len(busy) / sum(busy) if sum(busy) else 1.0,
        }

    def _listed(self, directory: str) -> set[str]:
        return {f"{directory}/{entry.name}".lstrip("/") for entry in self.storage.files(directory)}


def _exchanged(exchange: Exchange, split: SplitTask, site: SiteTask) -> list[Report]:
    """The reports of an epoch whose sites have all taken in the same; the job is run again until they have.

    Spark makes blobs that were lost with an executor again. Two runs of a task may differ, and then sites that were
    through before and sites that come after it have parts of two different epochs.
    """
    for _ in range(ATTEMPTS):
        reports = sorted(exchange(split, site), key=lambda r: (r["site"], r["level"]))
        if all(_agree(reports, level) for level in range(site.plan.levels)):
            return reports
    raise SluiceError(
        f"epoch {site.number} was run {ATTEMPTS} times, and each time sites got what different attempts of the same "
        "tasks had sent: executors are lost while it runs. Nothing of it was committed; see Spark's log for why they "
        "are lost, then start the query again"
    )


def _agree(reports: list[Report], level: int) -> bool:
    """Whether the sites of a level have all taken in what the same attempts sent: of the splits, or of the level below
    those that reported."""
    took = {r["tookIn"] for r in reports if r["level"] == level}
    sent = {name_attempts(r["attempt"] for r in reports if r["level"] == level - 1)} if level else took
    return len(took) == 1 and took == sent


def _by_unit(reports: list[Report], routing: Routing) -> dict[str, str]:
    """The columns of all units, all operators together."""
    found: dict[str, np.ndarray] = {}
    units = routing.held()
    for report in reports:
        held = units[report["site"]]
        for name, text in report["units"].items():
            part = decode_column(text)
            found.setdefault(name, np.zeros(routing.units, dtype=part.dtype))[held] += part
    return {name: encode_column(column) for name, column in found.items()}


def _ranges(doc: list[list[int]]) -> Ranges:
    return tuple((low, high) for low, high in doc)


def _together(behind: list[Lagging]) -> tuple[Lagging, ...]:
    """Units of one level that have come equally far, of all sites, as one."""
    found: dict[tuple[int, Times], list[tuple[int, int]]] = {}
    for some in behind:
        found.setdefault((some.level, some.newest), []).extend(some.units)
    return tuple(Lagging(level, unite(tuple(units), ()), newest) for (level, newest), units in found.items())


def _resided(number: int, reports: list[Report]) -> list[Decision]:
    """What sites spilled and fetched, as decisions."""
    return [
        Decision(number, "rotation", action, unit, report["site"], reason)
        for report in reports
        for action, unit, reason in report["events"]
    ]


def _summed(levels: list[dict[str, Any]]) -> dict[str, Any]:
    """A site's figures over all its levels."""
    out = dict(levels[0])
    for other in levels[1:]:
        for name, value in other.items():
            if name in ("operators", "seconds"):
                mine = out[name]
                out[name] = mine | {k: v + mine.get(k, 0.0) if name == "seconds" else v for k, v in value.items()}
            elif name not in ("site", "units", "executor"):
                out[name] += value
    return out


def _phases(reports: list[Report], wall: float) -> dict[str, float]:
    """Where an epoch's time went, in task seconds by phase. What no phase accounts for is Spark: planning, scheduling,
    launching tasks and the exchange of blobs."""
    out = {"read": 0.0, "crossing": 0.0, "split": 0.0, "open": 0.0, "sort": 0.0, "kernel": 0.0, "sink": 0.0}
    out["durable"] = 0.0
    for report in reports:
        for source in [*report["splits"], report["figures"]]:
            for phase, seconds in source["seconds"].items():
                out[phase] += seconds
    out["job"] = wall
    return out
