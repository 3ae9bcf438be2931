"""A query's bad days, drawn from a seed: what happens to its units, sites, executors and drivers while rows arrive, and
what must hold after every epoch whatever happened.

Runs without Spark. Time passes only when somebody looks at a clock, and names are drawn too, so that a seed means the
same run wherever it is run.
"""

from __future__ import annotations

import re
import shutil
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import is_dataclass, replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from changing_queries import ChangingQuery, History, answers, assert_exact, draw_query, draw_streams
from chaos_flows import NAMES, drawn, rows
from drawn_policies import drawn_policy
from engine_harness import DirectQuery, EpochRows
from holders import next_sharing
from oracle import rounded
from redivisions import next_redivision
from specs import SECOND
from wandering import Wanderer

from sluice.control import copying
from sluice.control.controller import RESTARTED, UNIT_SIZE
from sluice.control.journal import Journal
from sluice.control.loop import USER
from sluice.control.replay import layouts_of, records_of_newest_run, replay
from sluice.engine import checkpoint, site
from sluice.engine.agreement import Exchange
from sluice.engine.checkpoint import PlanOnRecord
from sluice.engine.site_task import SiteTask
from sluice.model.codec import encode
from sluice.model.epoch.attempt import is_left_over
from sluice.model.epoch.decision import Decision
from sluice.model.errors import CheckpointError
from sluice.model.plan.layout import PlanLayout
from sluice.model.routing.routing import Routing
from sluice.model.routing.unit_ranges import intersect, numbers, single_unit
from sluice.policies import Policy, policy
from sluice.policies.planning.freezing import ORDERS, Freezing
from sluice.record.epoch import EpochRecord
from sluice.state import segment
from sluice.state.files import storage
from sluice.state.files.workspace import Places
from sluice.verbs import Action
from sluice.verbs.freeze import CleanUp, Freeze
from sluice.verbs.move import Move
from sluice.verbs.scale import Scale

EXECUTORS, MOST_SITES = 2, 4
CHANGING = 5
"""One of so many flows has queries that come and go."""
TICK = 0.001
"""Seconds that pass with every look at a clock, about."""
OPERATIONS, DURABLE, COMMIT, START = 100, 25, 30, 25
"""File operations of an epoch among which trouble comes; those of them in durable storage; those of its commit and of
showing its results; those of a driver's start."""
PATIENCE = 300
"""Epochs in which all that waits has to have had its turn."""
MEMORY = (0, 3_000, 12_000, 40_000, 1 << 30)
COUNTS = ("moves", "spills", "fetches", "backlog_rows", "catch_up", "late_rows", "copied_rows")
SHARING = ("share", "release", "pass token", "lay out")
FREEZING = ("freeze", "clean up")
TROUBLE = ("task", "speculation", "job", "epoch", "durable", "commit", "report", "full", "takeover")


class Death(Exception):
    """Whoever was at work is no more."""


class JobLost(Death):
    """Spark gives an epoch's job up, and it is run again as a whole."""


class Clock:
    """The clock that sites and drivers are handed."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng, self.now = rng, 1e9

    def time(self) -> float:
        self.now += float(self.rng.exponential(TICK))
        return self.now

    monotonic = process_time = time

    def sleep(self, seconds: float) -> None:
        self.now += max(0.0, seconds)


@contextmanager
def in_its_own_world(rng: np.random.Generator) -> Iterator[Clock]:
    """Clocks and names that are part of the run."""
    clock = Clock(rng)
    names = SimpleNamespace(uuid4=lambda: uuid.UUID(bytes=rng.bytes(16)))
    with pytest.MonkeyPatch.context() as patch:
        for module in (site, checkpoint):
            patch.setattr(module, "uuid", names)
        patch.setattr(copying, "MIN_COPY_BYTES", int(rng.choice([1, 2_000, 1 << 20])))
        patch.setattr(copying, "COPY_BYTES_PER_SECOND", 20_000.0)
        patch.setattr(segment, "BLOCK_BYTES", int(rng.choice([200, 2_000, 1 << 16])))
        yield clock


@contextmanager
def interrupted(
    operation: int, then: Callable[[], object], besides: tuple[str, ...] = (), since: str = ""
) -> Iterator[None]:
    """Have something happen just before a file operation, counted from 0; what it raises, happens too.

    Operations on paths that begin with one of `besides` do not count, nor those before the first one that puts a file
    to a path with `since` in it.
    """
    count, counting = -1, not since

    def watcher(name: str, path: str) -> None:
        nonlocal count, counting
        counting = counting or (name == "put" and since in path)
        count += counting and not path.startswith(besides)
        if count == operation:
            count += 1  # once: what happens has operations of its own
            then()

    with storage.watch(watcher):
        yield


class ChaosQuery(DirectQuery):
    """A query whose sites' tasks run where, as often and as far as the chaos wants."""

    def __init__(self, chaos: Chaos, plan: Any, **options: Any) -> None:
        self.chaos = chaos
        super().__init__(plan, chaos.root, clock=chaos.clock, **options)

    def at_site(self, task: SiteTask, level: int, site_key: int, blobs: pa.Table) -> pa.Table:
        return self.chaos.at_site(task, level, site_key, blobs)

    def _exchange(self, rows: EpochRows, before_commit: Callable[[], object]) -> Exchange:
        exchange = super()._exchange(rows, before_commit)

        def tried_again(*tasks: Any) -> list[dict]:
            try:
                return exchange(*tasks)
            except JobLost:
                return exchange(*tasks)

        return tried_again


class Chaos:
    """One run: `go` takes it through its batches, and compares what came out with the batch query."""

    def __init__(self, seed: int, root: Path, clock: Clock, rng: np.random.Generator) -> None:
        self.root, self.clock, self.rng = root, clock, rng
        self.happened: Counter[str] = Counter()
        self.draw_flow(seed)
        self.batches = int(rng.integers(3, 10))
        self.partitions = int(rng.choice([4, 7, 16]))
        self.options = {
            "memory": int(rng.choice(MEMORY)),
            "spill": str(rng.choice(["unit", "unit", "probe"])),
            "seconds": rng.choice([None, None, 10 * TICK, 200 * TICK, 1e9]),
            "backlog": float(rng.choice([0.0, 3_000.0, np.inf, np.inf])),
            "freezing": Freezing(float(rng.choice([0.1, 0.3, 1.0])), str(rng.choice(ORDERS)))
            if rng.random() < 0.25
            else None,
        }
        self.policy = self.draw_policy(rng.spawn(1)[0])
        self.sharing = rng.spawn(1)[0] if rng.random() < 0.6 else None
        """Draws who holds units beside the first, if anybody does."""
        dividing = rng.spawn(1)[0]
        self.dividing = dividing if dividing.random() < 0.5 else None
        """Draws which units are split and merged, if any are."""
        self.scaling = rng.spawn(1)[0]
        """Draws how many sites are asked for."""
        self.scales = bool(self.scaling.random() < 0.6) or getattr(self.policy, "scales", False)
        self.options["most_sites"] = int(self.scaling.integers(2, MOST_SITES + 1)) if self.scales else None
        self.options["least_sites"] = int(self.scaling.integers(1, 3))
        self.turnover = rng.spawn(1)[0]
        """Draws how many executors there are after an epoch that came to nothing."""
        self.trouble = float(rng.uniform(0, 0.6))
        self.step, self.spread = int(rng.choice([SECOND, 8 * SECOND])), int(rng.choice([SECOND, 20 * SECOND]))
        self.keys, self.nulls = int(rng.choice([3, 20])), bool(rng.random() < 0.3)
        self.places = [Places(str(root / f"memory{i}"), str(root / f"disk{i}")) for i in range(EXECUTORS)]
        self.local = tuple(str(root) for places in self.places for root in places.roots())
        self.zombies: list[ChaosQuery] = []
        self.sites, self.at = int(rng.integers(1, MOST_SITES + 1)), [0] * MOST_SITES
        self.seen: list[list[pa.Table]] = [[] for _ in self.sources]
        self.checked: EpochRecord | None = None
        self.checked_before: EpochRecord | None = None
        self.late = 0
        self.layouts: dict[str, PlanLayout] = {}
        """Of the plans that epochs went by."""
        self.hurt: tuple[str, int, int, int] | None = None
        self.first_epochs: set[int] = set()
        """Those with which a driver began."""
        self.scarred = self.doubled = -1
        policy_text = self.policy or "wanderer"
        self.say(f"{self.flow_name}: {self.batches} batches, {self.partitions} units, {policy_text}, {self.options}")
        self.start()

    def draw_flow(self, seed: int) -> None:
        self.flow = drawn(NAMES[seed % len(NAMES)], self.rng)
        self.flow_name, self.sources = self.flow.name, self.flow.plan.sources

    def start_query(self, **options: Any) -> ChaosQuery:
        return ChaosQuery(self, self.flow.plan, **options)

    @property
    def levels(self) -> int:
        return self.query.plan.levels

    def say(self, what: str) -> None:
        print(what)

    def chance(self, probability: float) -> bool:
        return bool(self.rng.random() < probability)

    def draw_policy(self, rng: np.random.Generator) -> Policy | None:
        """A policy, with what it needs to have anything to do; None for one that moves units about all the time. Users
        ask beside it in any case, and in many runs there is nobody else."""
        wanted = None if rng.random() < 0.1 else policy("static") if rng.random() < 0.2 else drawn_policy(rng)
        self.happened[f"policy: {wanted.name if wanted else 'wanderer'}"] += 1
        self.options["unit_size"] = int(rng.choice([300, 3_000, UNIT_SIZE]))
        self.options["advise"] = bool(rng.random() < 0.05)
        freezing = getattr(wanted, "freezing", None)
        if freezing is not None and not self.options["advise"]:
            self.options["freezing"] = freezing
        if getattr(wanted, "scales", False) and self.options["seconds"] is None:
            self.options["seconds"] = float(rng.choice([10 * TICK, 200 * TICK]))
        return wanted

    def new_policy(self) -> Policy:
        """For one driver: what a policy has learned ends with its driver."""
        return replace(self.policy) if is_dataclass(self.policy) else self.policy or Wanderer(*self.wandering)

    def start(self) -> None:
        """A driver, the first or a later one."""
        if self.chance(0.5):
            self.sites = int(self.rng.integers(1, MOST_SITES + 1))
        self.wandering = self.sites, self.sites
        wanted = self.new_policy()
        options = {"sites": self.sites, "partitions": self.partitions, "wanted": wanted, **self.options}
        self.query = self.start_query(**options)
        self.limits = [self.options["memory"]] * MOST_SITES
        self.tidied = False
        self.started_from = self.query.epochs.record.number
        self.first_epochs.add(self.started_from + 1)
        self.say(f"driver with {self.sites} sites from epoch {self.started_from}")

    def go(self) -> None:
        for batch in range(self.batches):
            self.between_epochs()
            new = self.arriving(batch)
            for kept, table in zip(self.seen, new, strict=True):
                kept.append(table)
            self.epoch(f"batch {batch}", lambda **hooks: self.query.run(new, number=batch, **hooks), again=True)  # noqa: B023
            assert self.query.epochs.record.batch == batch
        self.drain()
        self.settle_requests()
        self.check_outcomes()
        self.compare()
        self.replay()
        self.leave()

    def replay(self) -> None:
        """What the last driver decided follows from its journal alone."""
        journal = self.query.epochs.journal
        try:
            records = records_of_newest_run(journal)
        except CheckpointError:  # there were more epochs than the journal keeps
            return
        self.happened["replayed"] += 1
        controller = self.query.new_controller(policy(self.new_policy()))
        difference = next(replay(records, controller, layouts_of(journal, records), self.partitions), None)
        assert difference is None, str(difference)

    def arriving(self, batch: int) -> EpochRows:
        idle = self.chance(0.15)
        counts = [0 if idle or self.chance(0.1) else int(self.rng.integers(1, 40)) for _ in self.sources]
        return [rows(self.rng, n, batch * self.step, self.spread, self.keys, self.nulls) for n in counts]

    def between_epochs(self) -> None:
        """What users, clusters and clocks do while no epoch runs."""
        hand = self.query.epochs.settings.controller
        for _ in range(int(self.rng.poisson(0.5))):
            unit = int(self.rng.integers(0, self.query.epochs.record.routing.units + 1))
            action: Action = Move(unit, int(self.rng.integers(0, 5)), "by hand")
            if self.chance(0.5):
                action = (Freeze if self.chance(0.7) else CleanUp)(unit, "by hand")
            self.say(f"  asks for {action}")
            hand.ask(action)
        self.share_otherwise()
        self.redivide()
        if self.scales and self.scaling.random() < 0.3:
            scale = Scale(self.scaling.integers(1, MOST_SITES + 1), "by hand")
            self.say(f"  asks for {scale}")
            hand.ask(scale)
        if self.chance(0.1):
            self.query.epochs.clean_up()
        if self.chance(0.2):
            of, size = int(self.rng.integers(0, self.sites)), int(self.rng.choice(MEMORY))
            self.say(f"  site {of} gets {size} bytes")
            hand.memory.set(of, size)
            self.limits[of] = size
        if self.chance(0.1):
            self.happened["resize"] += 1
            self.executors_come_and_go(int(self.rng.integers(1, MOST_SITES + 1)))
        if self.chance(self.trouble / 4):
            self.executor_dies(int(self.rng.integers(0, EXECUTORS)))
        if self.chance(self.trouble / 4):
            self.files_vanish()
        if self.chance(self.trouble / 4):
            self.bits_flip()
        if self.zombies and self.chance(0.3):
            self.wake(self.zombies[int(self.rng.integers(0, len(self.zombies)))])
        if self.chance(self.trouble / 2):
            self.reassign_executor(int(self.rng.integers(0, self.sites)))
        if self.chance(self.trouble / 3):
            self.restart()
        if self.chance(0.3):
            self.epoch("catch-up", lambda **hooks: self.query.catch_up(**hooks))

    def share_otherwise(self) -> None:
        """Holders of units of joins come and go, and store in other ways."""
        routing, shareable = self.query.epochs.record.routing, self.query.plan.capabilities.shareable
        for _ in range(int(self.sharing.poisson(2)) if self.sharing is not None and shareable else 0):
            among = routing.directories[int(self.sharing.choice(list(shareable)))].range
            if routing.shared and self.sharing.random() < 0.7:
                shared = routing.shared[int(self.sharing.integers(len(routing.shared)))]
                (among,) = single_unit(routing.index_of(shared.unit))
            action = next_sharing(self.sharing, routing, among)
            self.say(f"  asks for {action}")
            self.query.epochs.settings.controller.ask(action)

    def redivide(self) -> None:
        """Units are split and merged, wherever their state lies."""
        record = self.query.epochs.record
        for _ in range(int(self.dividing.poisson(1)) if self.dividing is not None and record.routing.units else 0):
            action = next_redivision(self.dividing, record)
            self.say(f"  asks for {action}")
            self.query.epochs.settings.controller.ask(action)

    def epoch(self, what: str, run: Callable[..., object], again: bool = False) -> None:
        """One epoch, perhaps with trouble; a batch that failed is asked for again until it is done."""
        if self.scaling.random() < 0.7:  # else executors that were asked for have not come yet
            self.sites = self.query.follow()
        kind = str(self.rng.choice(TROUBLE)) if self.chance(self.trouble) else "calm"
        calm, before = kind == "calm", self.query.epochs.record.number
        if not calm:
            self.scarred = before + 1
        at = int(self.rng.integers(0, OPERATIONS))
        self.say(f"{what}: {kind}" + ("" if calm else f" at {at}"))
        try:
            if kind == "epoch":
                with interrupted(at, self.death_of_the_driver):
                    run()
            elif kind == "durable":
                with interrupted(at % DURABLE, self.death_of_the_driver, besides=self.local):
                    run()
            elif kind == "commit":
                with interrupted(at % COMMIT, self.death_of_the_driver, besides=self.local, since="/journal/"):
                    run()
            elif kind == "takeover":
                self.taken_over(run, at)
            elif kind == "report":
                run(before_commit=self.death_of_the_driver)
            elif kind == "full":
                with storage.watch(self.no_memory_left):
                    run()
            else:
                if not calm:
                    self.hurt = kind, int(self.rng.integers(0, self.sites)), int(self.rng.integers(0, self.levels)), at
                run()
        except Death:
            self.happened[f"death: {kind}"] += 1
            if self.chance(0.5):
                self.restart()
            elif self.turnover.random() < 0.4:
                as_before = self.turnover.random() < 0.5
                sites = self.query.epochs.record.routing.sites if as_before else self.turnover.integers(MOST_SITES) + 1
                self.executors_come_and_go(int(sites))
                self.happened["resize after a failure"] += 1
            if again or self.chance(0.5):
                self.epoch(what, run, again)
                return
            before = self.query.epochs.record.number
        self.hurt = None
        self.check()
        if self.query.epochs.record.number > max(before, self.started_from):
            self.check_limits()

    def taken_over(self, run: Callable[..., object], at: int) -> None:
        """Another driver takes the checkpoint over and does the epoch, while this one is in the midst of it."""
        suspended = self.query

        def take_over() -> None:
            self.say("  another driver takes over")
            self.start()
            self.tidied = True  # what the other one still writes comes on top
            run()

        when = {"besides": self.local, "since": "/journal/"} if self.chance(0.5) else {"besides": self.local}
        try:
            with interrupted(at % COMMIT, take_over, **when):
                run()
        except CheckpointError as refusal:
            assert self.query is not suspended and "taken over" in str(refusal), refusal
            self.happened["refused"] += 1
        if self.query is not suspended:
            self.happened["takeover"] += 1
            self.zombies.append(suspended)

    def wake(self, zombie: ChaosQuery) -> None:
        """A driver that has lost the checkpoint goes on, as if it had not."""
        self.happened["zombie"] += 1
        self.say(f"  the driver that was at epoch {zombie.epochs.record.number} goes on")
        if self.chance(0.2):
            zombie.epochs.close()
        elif not zombie.epochs.closed:
            with pytest.raises(CheckpointError, match="taken over"):
                zombie.run(self.arriving(zombie.next))

    def at_site(self, task: SiteTask, level: int, site_key: int, blobs: pa.Table) -> pa.Table:
        """A site's task, with what happens to it."""
        number = task.site_keys.index(site_key)
        attempt = partial(self.attempt, task, level, site_key, blobs)
        if self.hurt is None or self.hurt[1:3] != (number, level):
            return attempt()
        (kind, _, _, at), self.hurt = self.hurt, None
        if kind == "speculation":
            return self.twice(number, attempt, at)
        try:
            with interrupted(at, partial(self.death_of_a_task, number, kind)):
                return attempt()
        except JobLost:
            raise
        except Death:
            return attempt()

    def attempt(self, task: SiteTask, level: int, site_key: int, blobs: pa.Table, at: int | None = None) -> pa.Table:
        executor = self.at[task.site_keys.index(site_key)] if at is None else at
        return site.run_site(replace(task, places=self.places[executor]), level, site_key, blobs, self.clock)

    def twice(self, number: int, attempt: Callable[..., pa.Table], at: int) -> pa.Table:
        """Two attempts of one task, one in the midst of the other, here or elsewhere; Spark takes either."""
        executor = self.at[number] if self.chance(0.5) else 1 - self.at[number]
        found: list[pa.Table] = []
        with interrupted(at, lambda: found.append(attempt(at=executor))):
            found.append(attempt())
        self.doubled = self.scarred
        self.happened["two attempts"] += len(found) > 1
        taken = int(self.rng.integers(0, len(found)))
        self.say(f"  {len(found)} attempts at site {number}, number {taken} is taken")
        return found[taken]

    def death_of_a_task(self, number: int, kind: str) -> None:
        self.happened[f"death: {kind}"] += 1
        self.say(f"  the task of site {number} dies")
        if self.chance(0.5):
            self.executor_dies(self.at[number])
        if self.chance(0.5):
            self.reassign_executor(number)
        raise JobLost if kind == "job" else Death

    def death_of_the_driver(self) -> None:
        if self.chance(0.5):
            self.executor_dies(int(self.rng.integers(0, EXECUTORS)))
        raise Death

    def no_memory_left(self, operation: str, path: str) -> None:
        """The memory tier's file system is full."""
        if operation == "finish" and path.startswith(tuple(str(p.memory) for p in self.places)):
            raise OSError(28, "No space left on device")

    def executors_come_and_go(self, sites: int) -> None:
        self.sites = sites
        self.say(f"  executors come and go: {sites} sites")
        self.query.site_keys = tuple(range(100, 100 + sites))

    def executor_dies(self, executor: int) -> None:
        self.happened["executor's death"] += 1
        self.say(f"  executor {executor} dies")
        for root in self.places[executor].roots():
            shutil.rmtree(root, ignore_errors=True)

    def reassign_executor(self, number: int) -> None:
        self.at[number] = 1 - self.at[number]
        self.say(f"  site {number} goes to executor {self.at[number]}")

    def files_vanish(self) -> None:
        """Some files of the local tiers are gone; all of them are copies."""
        files = sorted(f for places in self.places for root in places.roots() for f in root.rglob("*.arrow"))
        gone = [f for f in files if self.chance(0.3)]
        self.say(f"  {len(gone)} of {len(files)} local files vanish")
        for file in gone:
            file.unlink()

    def bits_flip(self) -> None:
        """Some files of the local tiers are not what was written any more."""
        files = sorted(f for places in self.places for root in places.roots() for f in root.rglob("*.arrow"))
        hurt = [f for f in files if self.chance(0.3)]
        self.say(f"  bits flip in {len(hurt)} of {len(files)} local files")
        for file in hurt:
            data = bytearray(file.read_bytes())
            data[int(self.rng.integers(0, len(data)))] ^= 1 << int(self.rng.integers(0, 8))
            file.write_bytes(data)
            self.happened["flipped bit"] += 1

    def restart(self) -> None:
        self.happened["restart"] += 1
        if self.chance(0.3):
            self.query.epochs.close()
            self.close_workspaces()
        elif self.chance(0.3):
            self.zombies.append(self.query)
        if self.chance(self.trouble):
            try:
                with interrupted(int(self.rng.integers(0, START)), self.death_of_the_driver, besides=self.local):
                    self.start()
                return
            except Death:
                self.happened["death: start"] += 1
                self.say("  the driver dies while it starts")
        self.start()

    def drain(self) -> None:
        for _ in range(PATIENCE):
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

    def settle_requests(self) -> None:
        """What users ask for ends some time, whatever a policy wants; all that was begun does, if nobody asks for
        more."""
        alone = self.policy is not None and self.policy.name == "static"
        empty = [s.schema.empty_table() for s in self.sources]

        def left() -> list[object]:
            waiting = [one for one in self.query.epochs.outcomes() if one.outcome == "waiting"]
            if alone:
                return [*waiting, *self.query.epochs.settings.controller.loop.moves]
            return [one for one in waiting if one.policy == USER]

        for _ in range(PATIENCE):
            self.epoch("idle", lambda **hooks: self.query.run(empty))
            if not left():
                break
        assert not left(), "something is under way for good"
        self.drain()

    def check_outcomes(self) -> None:
        """What came to nothing has its reason, and a driver abandons only what the one before was at."""
        for one in self.query.epochs.outcomes():
            assert one.ended is None or one.ended >= one.epoch
            assert one.abandoned != RESTARTED or one.ended in self.first_epochs, one
            assert "did not freeze" not in (one.abandoned or ""), one
            self.happened[f"{one.outcome}: {one.action}"] += 1

    def note(self, record: EpochRecord) -> None:
        """Another epoch was committed."""
        if record.plan not in self.layouts:
            self.layouts[record.plan] = self.query.epochs.journal.read_plan(record.plan).layout

    def forget(self, record: EpochRecord) -> None:
        """What was committed is done again."""

    def check(self) -> None:
        """What holds after every epoch."""
        query, record = self.query, self.query.epochs.record
        for committed in query.epochs.journal.epochs():
            if self.checked is not None and committed.number <= self.checked.number:
                if committed.number < self.checked.number or encode(committed) == encode(self.checked):
                    continue
                # committed, though its driver took it that it had failed, and so done again
                self.late -= self.checked.stats.late_rows
                self.forget(self.checked)
                self.checked = self.checked_before
            self.checked_before = before = self.checked
            self.note(committed)
            assert_nothing_lost(self.layouts[committed.plan], before, committed)
            self.late += committed.stats.late_rows
            self.checked = committed
            self.happened.update({name: int(getattr(committed.stats, name)) for name in COUNTS})
            self.happened.update(d.action for d in committed.decisions if d.action in FREEZING and not d.refused)
            self.happened.update(d.action for d in committed.decisions if d.action in SHARING and not d.refused)
            units = 0 if before is None else committed.routing.units - before.routing.units
            self.happened["split" if units > 0 else "merge"] += abs(units)
            self.happened.update(kind for kind in map(scaled, committed.decisions) if kind)
        if record.number < 0:
            return
        there = {f"state/{p.name}" for p in (self.root / "checkpoint" / "state").iterdir()}
        assert record.files() <= there
        if self.options["backlog"] == 0:
            assert record.stats.backlog_rows == 0

    def check_limits(self) -> None:
        """What holds after an epoch that has just been done in good order."""
        record = self.query.epochs.record
        if not self.tidied:  # a driver's first epoch tidies up
            assert {f"state/{p.name}" for p in (self.root / "checkpoint" / "state").iterdir()} == record.files()
            self.tidied = True
        if record.number != self.doubled:  # else another attempt has moved what this one counts
            assert_within_limits(record, self.limits, self.levels, self.options["spill"])
        if record.number != self.scarred:  # else failed attempts have left something
            self.check_memory(record)

    def check_memory(self, record: EpochRecord) -> None:
        """What lies in the memory tiers, by the files that are there."""
        levels, run = self.levels, f"sluice-*-{self.query.epochs.checkpoint.run}-*"
        for number, stats in enumerate(record.stats.sites):
            sizes: list[int] = []
            too_large = 0
            for level in range(levels):
                found = list(self.places[self.at[number]].roots()[0].glob(f"{run}/site-{number:04d}-{level}/*"))
                sizes.append(sum(f.stat().st_size for f in found))
                units = {f.name.partition("@")[2].partition(".")[0] for f in found}
                alone = self.options["spill"] == "unit" and len(units) == 1 and units != {""}
                too_large += sizes[-1] if alone else 0
            assert sum(sizes) <= self.limits[number] + too_large, f"site {number}: {sizes}"
            assert sum(sizes) == stats.memory_bytes

    def compare(self) -> None:
        answers, late = self.flow.expected(self.seen)
        assert self.late == late
        for output, answer in enumerate(answers):
            found = rounded(self.query.results(output))
            assert found == answer, f"output {output}: {found - answer} too many, {answer - found} missing"

    def leave(self) -> None:
        self.query.epochs.close()
        record = self.query.epochs.checkpoint.newest  # its driver may take it that its commit failed
        checkpoint = self.root / "checkpoint"
        names = {f"state/{p.name}" for p in (checkpoint / "state").iterdir()}
        assert record.files() <= names
        # what a driver left that died in the epoch to come stays until that has been run: it might still be at work
        mine = self.query.epochs.checkpoint.run
        assert not [n for n in names - record.files() if is_left_over(n, record.number, mine)]
        assert not list(checkpoint.rglob("*.tmp"))
        for sink in self.query.epochs.flow.sinks:
            assert not sink.storage.files(sink.staging.directory)
        self.close_workspaces()

    def close_workspaces(self) -> None:
        for places in self.places:
            self.query.workspace(places).close()


class ChangingChaos(Chaos):
    """A flow whose queries come and go, too: asked for while it runs, and by drivers that are started with others."""

    def draw_flow(self, seed: int) -> None:
        self.changing = self.rng.spawn(1)[0]
        self.flow_name, self.streams = "queries that come and go", draw_streams(self.changing)
        self.sources = tuple(stream.relation.origin for stream in self.streams)
        self.queries: dict[str, ChangingQuery] = {}
        self.history = History.of(self.sources)

    def new_query(self) -> str:
        name = f"q{len(self.queries)}"
        self.queries[name] = draw_query(self.changing, self.streams)
        return name

    def start_query(self, **options: Any) -> ChaosQuery:
        """With the queries that the checkpoint has, in any order, or others."""
        on_record = PlanOnRecord.read(Journal(storage.Storage(str(self.root / "checkpoint"))))
        recorded = [query.name for query in on_record.plan.queries] if on_record else []
        names = [*recorded] if recorded else [self.new_query() for _ in range(int(self.changing.integers(1, 4)))]
        if recorded and self.changing.random() < 0.3:
            self.happened["restart with others"] += 1
            names = [*(name for name in names if self.changing.random() < 0.7), self.new_query()]
        self.changing.shuffle(names)
        self.say(f"  queries: {', '.join(names)}")
        relations = {name: self.queries[name].relation for name in names}
        return ChaosQuery(self, relations, streams=self.sources, confirmed=True, **options)

    def between_epochs(self) -> None:
        super().between_epochs()
        if self.changing.random() < 0.5:
            names = [output.name for output in self.query.plan.outputs]
            gone = [name for name in names if self.changing.random() < 0.3][: len(names) - 1]
            new = [self.new_query() for _ in range(int(self.changing.integers(0, 3)))]
            self.say(f"  asks for {new or 'nothing'} to be added, {gone or 'nothing'} to be dropped")
            self.query.change({name: self.queries[name].relation for name in new}, gone)

    def note(self, record: EpochRecord) -> None:
        super().note(record)
        since = len(self.history.since), len(self.history.until)
        self.history.add(record, self.query.epochs.journal.read_plan(record.plan))
        self.happened["added"] += len(self.history.since) - since[0]
        self.happened["dropped"] += len(self.history.until) - since[1]

    def forget(self, record: EpochRecord) -> None:
        self.history.forget(record.number)

    def compare(self) -> None:
        expected, late = answers(self.history, self.queries, self.sources, self.seen)
        assert self.late == late
        self.happened.update(assert_exact(self.history, self.queries, expected, self.query.results_of))


def scaled(decision: Decision) -> str | None:
    """What has become of the number of sites, where somebody asked for another."""
    if decision.action != "resize" or not decision.reason.startswith("by hand"):
        return None
    assert decision.reason.endswith("; 0 units moved")
    before, now = map(int, re.findall(r"sites: (\d+), now (\d+)", decision.reason)[0])
    return "sites joined" if now > before else "sites left"


def assert_nothing_lost(layout: PlanLayout, before: EpochRecord | None, after: EpochRecord) -> None:
    """All rows that came in are done or wait, each at the site of its unit; whoever has some waiting is behind. What
    waits for a query that is dropped goes with it."""
    sites, routing = after.stats.sites, after.routing
    waited = 0 if before is None else before.stats.backlog_rows
    pending = after.stats.units.pending
    same_plan = before is None or before.plan == after.plan
    assert after.stats.backlog_rows == pending.sum() == sum(s.pending_rows for s in sites)
    left = waited + sum(s.rows_in - s.rows_done for s in sites)
    assert pending.sum() == left if same_plan else pending.sum() <= left
    assert after.stats.units.rows.sum() == sum(s.rows_in for s in sites)
    behind = {u for b in after.lagging for u in numbers(b.units).tolist()}
    assert set(np.flatnonzero(pending).tolist()) <= behind
    for i, one in enumerate(after.lagging):
        assert not any(intersect(one.units, other.units) for other in after.lagging[:i] if other.level == one.level)
    for number, manifest in enumerate(after.manifests):
        assert all(number in routing.holders_of(u) for run in manifest for u in routing.units_at(numbers(run.units)))
    assert_stored_once(after)
    if before is not None:
        assert_names_kept(before.routing, routing, same_plan)
    for queue in after.queues:
        fragments = [f for f, fragment in enumerate(layout.fragments) if queue.level in fragment.levels]
        held = after.routing.units_by_site(fragments)[queue.site]
        assert sorted(queue.memory + queue.disk) == held.tolist()


def assert_names_kept(before: Routing, after: Routing, same_plan: bool) -> None:
    """A unit with the id of one of before has its hashes; those that are new have ids that nobody has had."""
    kept = np.intersect1d(before.ids.array, after.ids.array).tolist()
    assert all(before.hashes_of(unit) == after.hashes_of(unit) for unit in kept)
    assert not same_plan or all(before.fragment_of(unit) == after.fragment_of(unit) for unit in kept)
    new = np.setdiff1d(after.ids.array, before.ids.array)
    assert before.ids.next_id <= new.min(initial=before.ids.next_id) and after.ids.next_id >= before.ids.next_id


def assert_stored_once(record: EpochRecord) -> None:
    """A token is at one of the holders; no two sites have the same part of a segment, but for those along a line of a
    grid; and nobody who shares a unit is behind with it, or has it frozen."""
    held: Counter[tuple[str, int, int]] = Counter()
    for manifest in record.manifests:
        held.update((run.segment.id, u, run.generation) for run in manifest for u in numbers(run.units).tolist())
    copied = [record.routing.unit_at(index) for (_, index, _), times in held.items() if times > 1]
    assert all(record.routing.sharing(unit).grid_shape for unit in copied)
    for sharing in record.routing.shared:
        assert len(set(sharing.holders)) == len(sharing.holders) > 1
        assert set(sharing.tokens) <= set(sharing.holders) and not record.why_unready(sharing.unit)
        assert record.routing.holder(sharing.unit) == sharing.holders[0]


def assert_within_limits(record: EpochRecord, limits: list[int], levels: int, spill: str) -> None:
    """By their own figures, no site has more in memory than it may, but for a unit that is too large by itself."""
    memory = record.stats.units.memory
    for number, stats in enumerate(record.stats.sites):
        alone = [q.memory for q in record.queues if q.site == number and len(q.memory) == 1]
        too_large = sum(int(memory[units[0]]) for units in alone) if spill == "unit" else 0
        assert limits[number] - levels <= stats.memory_limit <= limits[number]
        assert stats.memory_bytes <= limits[number] + too_large, f"site {number}"


def run(seed: int, root: Path) -> Counter[str]:
    """The whole run of a seed; says how often what happened."""
    rng = np.random.default_rng(seed)
    with in_its_own_world(rng.spawn(1)[0]) as clock:
        chaos = (ChangingChaos if seed % CHANGING == CHANGING - 1 else Chaos)(seed, root, clock, rng)
        chaos.go()
        return chaos.happened
