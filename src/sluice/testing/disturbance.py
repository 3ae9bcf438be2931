"""A query's bad days, drawn from a seed: what happens to its units, sites, executors and drivers while rows arrive."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from sluice.engine.agreement import Exchange
from sluice.engine.blobs import ReceivedBlob, SentBlob, put_together
from sluice.engine.site import run_site
from sluice.engine.site_task import SiteTask
from sluice.engine.split import SplitTask
from sluice.model.clock import Clock
from sluice.model.epoch.times import Times
from sluice.model.errors import CheckpointError
from sluice.model.ids import Level, Site, SiteKey
from sluice.model.routing.unit_ranges import single_unit
from sluice.record.reports import SiteReport
from sluice.state.files import storage
from sluice.testing.drawn_actions import draw_move_or_freeze, draw_redivision, draw_sharing
from sluice.testing.local_query import EpochRows, LocalQuery
from sluice.testing.trouble import EXECUTORS, Death, Executors, JobLost, flip_a_bit, interrupted
from sluice.verbs.scale import Scale

MOST_SITES = 4
SITE_MEMORY = (0, 3_000, 12_000, 40_000, 1 << 30)
"""Bytes that a site may come to have."""
OPERATIONS, DURABLE, COMMIT, START = 100, 25, 30, 25
"""File operations of an epoch among which trouble comes; those of them in durable storage; those of its commit and of
showing its results; those of a driver's start."""
MAX_DRAIN_EPOCHS = 300
"""Epochs in which all that waits has to have had its turn."""
TROUBLE = ("task", "speculation", "job", "epoch", "durable", "commit", "report", "full", "takeover")


class DisturbedQuery(LocalQuery):
    """A query whose sites' tasks run where, as often and as far as its bad days want."""

    disturbance: Disturbance

    def at_site(self, task: SiteTask, level: Level, site_key: SiteKey, blobs: Iterable[ReceivedBlob]) -> list[SentBlob]:
        """A site's task, with what happens to it."""
        return self.disturbance.at_site(task, level, site_key, blobs)

    def _exchange(self, rows: EpochRows, before_commit: Callable[[], object], event_times: Times = ()) -> Exchange:
        exchange = super()._exchange(rows, before_commit, event_times)

        def try_again(split: SplitTask, site: SiteTask) -> list[SiteReport]:
            try:
                return exchange(split, site)
            except JobLost:
                return exchange(split, site)

        return try_again


class Disturbance(ABC):
    """One run of a query with its trouble: `between_epochs` and `epoch` are called in turns, then `drain`.

    Whoever derives from it says how a driver is started and which rows a batch has, and may look at what was committed
    after every epoch.
    """

    query: DisturbedQuery
    """The driver of the moment."""

    def __init__(self, root: Path, clock: Clock, rng: np.random.Generator) -> None:
        self.root, self.clock, self.rng = root, clock, rng
        self.happened: Counter[str] = Counter()
        """How often what happened."""
        self.executors = Executors(root, MOST_SITES)
        self.zombies: list[DisturbedQuery] = []
        """Drivers that have lost the checkpoint, and may go on as if they had not."""
        self.sites = 1
        self.limits = [SITE_MEMORY[-1]] * MOST_SITES
        """Bytes of memory that sites have."""
        self.started_from = -1
        """The epoch from which the driver of the moment went on."""
        self.tidied = False
        """Whether an epoch of this driver has removed what failed attempts of others left."""
        self._hurt: tuple[str, int, int, int] | None = None
        """What is to happen to a task: the kind of it, of which site and level, and at which file operation."""
        self.scarred = self.doubled = -1
        """The newest epoch with trouble, and that which had two attempts of one task."""

    def draw_troubles(self, scales: bool) -> None:
        """Draw what may happen in this run, and how often; whether the number of sites changes in any case."""
        rng = self.rng
        self.sharing = rng.spawn(1)[0] if rng.random() < 0.6 else None
        """Draws who holds units beside the first, if anybody does."""
        dividing = rng.spawn(1)[0]
        self.dividing = dividing if dividing.random() < 0.5 else None
        """Draws which units are split and merged, if any are."""
        self.scaling = rng.spawn(1)[0]
        """Draws how many sites are asked for."""
        self.scales = bool(self.scaling.random() < 0.6) or scales
        self.most_sites = int(self.scaling.integers(2, MOST_SITES + 1)) if self.scales else None
        self.least_sites = int(self.scaling.integers(1, 3))
        self.turnover = rng.spawn(1)[0]
        """Draws how many executors there are after an epoch that came to nothing."""
        self.trouble = float(rng.uniform(0, 0.6))
        """How likely an epoch has some."""

    @abstractmethod
    def start_query(self) -> DisturbedQuery:
        """A driver on the checkpoint, with as many sites as there are now."""

    @abstractmethod
    def rows_of(self, batch: int) -> EpochRows:
        """Rows with which a driver goes on that has lost the checkpoint."""

    @abstractmethod
    def say(self, what: str) -> None:
        """Tell what happens."""

    @abstractmethod
    def check(self, in_order: bool) -> None:
        """Look at what was committed, after every epoch; whether one has just been done in good order."""

    def chance(self, probability: float) -> bool:
        """Whether something happens now."""
        return bool(self.rng.random() < probability)

    @property
    def levels(self) -> int:
        """Of operators, in the plan that runs."""
        return self.query.plan.levels

    def start(self) -> None:
        """A driver, the first or a later one."""
        if self.chance(0.5):
            self.sites = int(self.rng.integers(1, MOST_SITES + 1))
        self.query = self.start_query()
        self.tidied = False
        self.limits = [self.query.epochs.settings.site_memory] * MOST_SITES
        self.started_from = self.query.epochs.record.number
        self.say(f"driver with {self.sites} sites from epoch {self.started_from}")

    def between_epochs(self) -> None:
        """What users, clusters and clocks do while no epoch runs."""
        controller = self.query.epochs.settings.controller
        for _ in range(int(self.rng.poisson(0.5))):
            action = draw_move_or_freeze(self.rng, self.query.epochs.record.routing, MOST_SITES + 1)
            self.say(f"  asks for {action}")
            controller.ask(action)
        self._share_otherwise()
        self._redivide()
        if self.scales and self.scaling.random() < 0.3:
            scale = Scale(int(self.scaling.integers(1, MOST_SITES + 1)), "by hand")
            self.say(f"  asks for {scale}")
            controller.ask(scale)
        if self.chance(0.1):
            self.query.epochs.clean_up()
        if self.chance(0.2):
            site, size = Site(int(self.rng.integers(0, self.sites))), int(self.rng.choice(SITE_MEMORY))
            self.say(f"  site {site} gets {size} bytes")
            controller.memory.set(site, size)
            self.limits[site] = size
        if self.chance(0.1):
            self.happened["resize"] += 1
            self._resize(int(self.rng.integers(1, MOST_SITES + 1)))
        if self.chance(self.trouble / 4):
            self._kill_executor(int(self.rng.integers(0, EXECUTORS)))
        if self.chance(self.trouble / 4):
            self._lose_files()
        if self.chance(self.trouble / 4):
            self._flip_bits()
        if self.zombies and self.chance(0.3):
            self._wake(self.zombies[int(self.rng.integers(0, len(self.zombies)))])
        if self.chance(self.trouble / 2):
            self._reassign(int(self.rng.integers(0, self.sites)))
        if self.chance(self.trouble / 3):
            self.restart()
        if self.chance(0.3):
            self.epoch("catch-up", lambda **hooks: self.query.catch_up(**hooks))

    def epoch(self, what: str, run: Callable[..., object], again: bool = False) -> None:
        """One epoch, perhaps with trouble; a batch that failed is asked for `again` until it is done."""
        if self.scaling.random() < 0.7:  # else executors that were asked for have not come yet
            self.sites = self.query.follow()
        kind = str(self.rng.choice(TROUBLE)) if self.chance(self.trouble) else "calm"
        calm, before = kind == "calm", self.query.epochs.record.number
        if not calm:
            self.scarred = before + 1
        at = int(self.rng.integers(0, OPERATIONS))
        self.say(f"{what}: {kind}" + ("" if calm else f" at {at}"))
        try:
            self._run_with_trouble(kind, at, run)
        except Death:
            self.happened[f"death: {kind}"] += 1
            if self.chance(0.5):
                self.restart()
            elif self.turnover.random() < 0.4:
                as_before = self.turnover.random() < 0.5
                sites = self.query.epochs.record.routing.sites if as_before else self.turnover.integers(MOST_SITES) + 1
                self._resize(int(sites))
                self.happened["resize after a failure"] += 1
            if again or self.chance(0.5):
                self.epoch(what, run, again)
                return
            before = self.query.epochs.record.number
        self._hurt = None
        self.check(in_order=self.query.epochs.record.number > max(before, self.started_from))

    def _run_with_trouble(self, kind: str, at: int, run: Callable[..., object]) -> None:
        local = self.executors.paths
        match kind:
            case "epoch":
                with interrupted(at, self._kill_driver):
                    run()
            case "durable":
                with interrupted(at % DURABLE, self._kill_driver, besides=local):
                    run()
            case "commit":
                with interrupted(at % COMMIT, self._kill_driver, besides=local, since="/journal/"):
                    run()
            case "takeover":
                self._take_over(run, at)
            case "report":
                run(before_commit=self._kill_driver)
            case "full":
                with storage.watch(self._refuse_memory):
                    run()
            case "calm":
                run()
            case _:
                of = int(self.rng.integers(0, self.sites)), int(self.rng.integers(0, self.levels))
                self._hurt = kind, *of, at
                run()

    def restart(self) -> None:
        """The driver ends, in good order or not, and another one goes on."""
        self.happened["restart"] += 1
        if self.chance(0.3):
            self.query.epochs.close()
            self.close_workspaces()
        elif self.chance(0.3):
            self.zombies.append(self.query)
        if self.chance(self.trouble):
            try:
                operation = int(self.rng.integers(0, START))
                with interrupted(operation, self._kill_driver, besides=self.executors.paths):
                    self.start()
                return
            except Death:
                self.happened["death: start"] += 1
                self.say("  the driver dies while it starts")
        self.start()

    def drain(self) -> None:
        """Epochs until nothing waits and nothing is missing any more."""
        for _ in range(MAX_DRAIN_EPOCHS):
            self.query.epochs.clean_up()  # a driver that was started again does not know that it is to
            if not (self.query.epochs.is_behind or self.query.epochs.has_leaving_sites):
                break
            self.epoch("drain", lambda **hooks: self.query.catch_up(**hooks))
        if not self.query.epochs.delivery.done:  # it died while it showed the last results, and starts again
            self.restart()
        record = self.query.epochs.record
        assert not record.lagging and not record.stats.backlog_rows, "input waits for good"
        assert not record.missing_units, "results are missing for good"
        assert not self.query.epochs.has_leaving_sites, "sites are leaving for good"

    def end_input(self) -> None:
        """All streams end, and what comes of that is done."""
        self.epoch("the end of all input", lambda **hooks: self.query.end_input(**hooks), again=True)
        self.drain()

    def close_workspaces(self) -> None:
        """Remove what the driver of the moment has in local tiers."""
        for places in self.executors.places:
            self.query.workspace(places).close()

    def at_site(self, task: SiteTask, level: Level, site_key: SiteKey, blobs: Iterable[ReceivedBlob]) -> list[SentBlob]:
        """A site's task, with what happens to it."""
        site = task.site_keys.index(site_key)
        attempt = partial(self._attempt, task, level, site_key, blobs)
        if self._hurt is None or self._hurt[1:3] != (site, level):
            return attempt()
        (kind, _, _, at), self._hurt = self._hurt, None
        if kind == "speculation":
            return self._run_twice(site, attempt, at)
        try:
            with interrupted(at, partial(self._kill_task, site, kind)):
                return attempt()
        except JobLost:
            raise
        except Death:
            return attempt()

    def _attempt(
        self, task: SiteTask, level: Level, site_key: SiteKey, blobs: Iterable[ReceivedBlob], at: int | None = None
    ) -> list[SentBlob]:
        site = task.site_keys.index(site_key)
        places = self.executors.of(site) if at is None else self.executors.places[at]
        sent = run_site(replace(task, places=places), level, site_key, blobs, self.clock)
        return list(put_together(sent))

    def _run_twice(self, site: int, attempt: Callable[..., list[SentBlob]], at: int) -> list[SentBlob]:
        """Two attempts of one task, one in the midst of the other, here or elsewhere; Spark takes either."""
        executor = self.executors.at[site] if self.chance(0.5) else 1 - self.executors.at[site]
        outcomes: list[list[SentBlob]] = []
        with interrupted(at, lambda: outcomes.append(attempt(at=executor))):
            outcomes.append(attempt())
        self.doubled = self.scarred
        self.happened["two attempts"] += len(outcomes) > 1
        chosen = int(self.rng.integers(0, len(outcomes)))
        self.say(f"  {len(outcomes)} attempts at site {site}, number {chosen} is taken")
        return outcomes[chosen]

    def _take_over(self, run: Callable[..., object], at: int) -> None:
        """Another driver takes the checkpoint over and does the epoch, while this one is in the midst of it."""
        suspended = self.query

        def take_over() -> None:
            self.say("  another driver takes over")
            self.start()
            self.tidied = True  # what the other one still writes comes on top
            run()

        when: dict[str, Any] = {"besides": self.executors.paths}
        if self.chance(0.5):
            when["since"] = "/journal/"
        try:
            with interrupted(at % COMMIT, take_over, **when):
                run()
        except CheckpointError as refusal:
            if self.query is suspended or not _is_taken_over(refusal):
                raise
            self.happened["refused"] += 1
        if self.query is not suspended:
            self.happened["takeover"] += 1
            self.zombies.append(suspended)

    def _wake(self, zombie: DisturbedQuery) -> None:
        """A driver that has lost the checkpoint goes on, as if it had not."""
        self.happened["zombie"] += 1
        self.say(f"  the driver that was at epoch {zombie.epochs.record.number} goes on")
        if self.chance(0.2):
            zombie.epochs.close()
        elif not zombie.epochs.closed:
            try:
                zombie.run(self.rows_of(zombie.next))
            except CheckpointError as refusal:
                if not _is_taken_over(refusal):
                    raise
            else:
                raise AssertionError("a driver that has lost its checkpoint went on with it")

    def _kill_task(self, site: int, kind: str) -> None:
        self.happened[f"death: {kind}"] += 1
        self.say(f"  the task of site {site} dies")
        if self.chance(0.5):
            self._kill_executor(self.executors.at[site])
        if self.chance(0.5):
            self._reassign(site)
        raise JobLost if kind == "job" else Death

    def _kill_driver(self) -> None:
        if self.chance(0.5):
            self._kill_executor(int(self.rng.integers(0, EXECUTORS)))
        raise Death

    def _refuse_memory(self, operation: str, path: str) -> None:
        """The memory tier's file system is full."""
        if operation == "finish" and self.executors.is_in_memory(path):
            raise OSError(28, "No space left on device")

    def _share_otherwise(self) -> None:
        """Holders of units of joins come and go, and store in other ways."""
        rng, routing = self.sharing, self.query.epochs.record.routing
        shareable = self.query.plan.capabilities.shareable
        if rng is None or not shareable:
            return
        for _ in range(int(rng.poisson(2))):
            among = routing.directories[int(rng.choice(list(shareable)))].range
            if routing.shared and rng.random() < 0.7:
                shared = routing.shared[int(rng.integers(len(routing.shared)))]
                (among,) = single_unit(routing.index_of(shared.unit))
            action = draw_sharing(rng, routing, among)
            self.say(f"  asks for {action}")
            self.query.epochs.settings.controller.ask(action)

    def _redivide(self) -> None:
        """Units are split and merged, wherever their state lies."""
        record = self.query.epochs.record
        if self.dividing is None or not record.routing.units:
            return
        for _ in range(int(self.dividing.poisson(1))):
            action = draw_redivision(self.dividing, record)
            self.say(f"  asks for {action}")
            self.query.epochs.settings.controller.ask(action)

    def _resize(self, sites: int) -> None:
        self.sites = sites
        self.say(f"  executors come and go: {sites} sites")
        self.query.resize(sites)

    def _kill_executor(self, executor: int) -> None:
        self.happened["executor's death"] += 1
        self.say(f"  executor {executor} dies")
        self.executors.kill(executor)

    def _reassign(self, site: int) -> None:
        self.executors.reassign(site)
        self.say(f"  site {site} goes to executor {self.executors.at[site]}")

    def _lose_files(self) -> None:
        """Some files of the local tiers are gone; all of them are copies."""
        files = self.executors.files()
        lost = [file for file in files if self.chance(0.3)]
        self.say(f"  {len(lost)} of {len(files)} local files vanish")
        for file in lost:
            file.unlink()

    def _flip_bits(self) -> None:
        """Some files of the local tiers are not what was written any more."""
        files = self.executors.files()
        damaged = [file for file in files if self.chance(0.3)]
        self.say(f"  bits flip in {len(damaged)} of {len(files)} local files")
        for file in damaged:
            flip_a_bit(file, self.rng)
            self.happened["flipped bit"] += 1


def _is_taken_over(refusal: CheckpointError) -> bool:
    return "taken over" in str(refusal)
