"""A query's bad days, drawn from a seed: what happens to its units, sites, executors and drivers while rows arrive, and
what must hold after every epoch whatever happened.

Runs without Spark. Time passes only when somebody looks at a clock, and names are drawn too, so that a seed means the
same run wherever it is run.
"""

from __future__ import annotations

import re
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import is_dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from changing_queries import ChangingQuery, History, answers, assert_exact, draw_query, draw_streams
from chaos_flows import NAMES, TestedFlow, drawn, rows
from drawn_policies import drawn_policy
from engine_harness import DirectQuery
from oracle import rounded
from specs import SECOND
from wandering import Wanderer

from sluice.control import copying
from sluice.control.controller import RESTARTED, UNIT_SIZE
from sluice.control.journal import Journal
from sluice.control.loop import USER
from sluice.control.replay import layouts_of, records_of_newest_run, replay
from sluice.engine import checkpoint, site
from sluice.engine.checkpoint import PlanOnRecord
from sluice.model.codec import encode
from sluice.model.epoch.attempt import is_left_over
from sluice.model.epoch.decision import Decision
from sluice.model.errors import CheckpointError
from sluice.model.plan.layout import PlanLayout
from sluice.model.routing.routing import Routing
from sluice.model.routing.unit_ranges import intersect, numbers
from sluice.policies import Policy, policy
from sluice.policies.planning.freezing import ORDERS, Freezing
from sluice.record.epoch import EpochRecord
from sluice.state import segment
from sluice.state.files import storage
from sluice.testing.disturbance import MAX_DRAIN_EPOCHS, MOST_SITES, SITE_MEMORY, Disturbance, DisturbedQuery
from sluice.testing.local_query import EpochRows

CHANGING = 5
"""One of so many flows has queries that come and go; the number of the others is no multiple of it."""
TICK = 0.001
"""Seconds that pass with every look at a clock, about."""
COUNTS = ("moves", "spills", "fetches", "backlog_rows", "catch_up", "late_rows", "copied_rows")
SHARING = ("share", "release", "pass token", "lay out")
FREEZING = ("freeze", "clean up")


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


class ChaosQuery(DisturbedQuery, DirectQuery):
    """A query whose bad days are those of a chaos."""

    def __init__(self, chaos: Chaos, plan: Any, **options: Any) -> None:
        self.disturbance = chaos
        super().__init__(plan, chaos.root, clock=chaos.clock, **options)


class Chaos(Disturbance):
    """One run: `go` takes it through its batches, and compares what came out with the batch query."""

    def __init__(self, seed: int, root: Path, clock: Clock, rng: np.random.Generator) -> None:
        super().__init__(root, clock, rng)
        self.draw_flow(seed)
        self.batches = int(rng.integers(3, 10))
        self.partitions = int(rng.choice([4, 7, 16]))
        self.options = {
            "memory": int(rng.choice(SITE_MEMORY)),
            "spill": str(rng.choice(["unit", "unit", "probe"])),
            "seconds": rng.choice([None, None, 10 * TICK, 200 * TICK, 1e9]),
            "backlog": float(rng.choice([0.0, 3_000.0, np.inf, np.inf])),
            "freezing": Freezing(float(rng.choice([0.1, 0.3, 1.0])), str(rng.choice(ORDERS)))
            if rng.random() < 0.25
            else None,
        }
        self.policy = self.draw_policy(rng.spawn(1)[0])
        self.draw_troubles(scales=getattr(self.policy, "scales", False))
        self.options |= {"most_sites": self.most_sites, "least_sites": self.least_sites}
        self.step, self.spread = int(rng.choice([SECOND, 8 * SECOND])), int(rng.choice([SECOND, 20 * SECOND]))
        self.keys, self.nulls = int(rng.choice([3, 20])), bool(rng.random() < 0.3)
        self.sites = int(rng.integers(1, MOST_SITES + 1))
        self.seen: list[list[pa.Table]] = [[] for _ in self.sources]
        self.checked: EpochRecord | None = None
        self.checked_before: EpochRecord | None = None
        self.late = 0
        self.layouts: dict[str, PlanLayout] = {}
        """Of the plans that epochs went by."""
        self.first_epochs: set[int] = set()
        """Those with which a driver began."""
        policy_text = self.policy or "wanderer"
        self.say(f"{self.flow_name}: {self.batches} batches, {self.partitions} units, {policy_text}, {self.options}")
        self.start()

    flow: TestedFlow | None = None

    def draw_flow(self, seed: int) -> None:
        self.flow = drawn(NAMES[seed % len(NAMES)], self.rng, self.root)
        self.flow_name, self.sources = self.flow.name, self.flow.plan.sources

    def start_query(self) -> ChaosQuery:
        self.wandering = self.sites, self.sites
        options = {"sites": self.sites, "partitions": self.partitions, "wanted": self.new_policy(), **self.options}
        return self.new_query_of(options)

    def new_query_of(self, options: dict[str, Any]) -> ChaosQuery:
        return ChaosQuery(self, self.flow.plan, tables=self.flow.tables, **options)

    def say(self, what: str) -> None:
        print(what)

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
        super().start()
        self.first_epochs.add(self.started_from + 1)

    def go(self) -> None:
        for batch in range(self.batches):
            self.between_epochs()
            new = self.rows_of(batch)
            for kept, table in zip(self.seen, new, strict=True):
                kept.append(table)
            self.epoch(f"batch {batch}", lambda **hooks: self.query.run(new, number=batch, **hooks), again=True)  # noqa: B023
            assert self.query.epochs.record.batch == batch
        self.drain()
        self.settle_requests()
        self.check_outcomes()
        self.compare()
        self.replay()
        self.end_input()
        self.leave()

    def end_input(self) -> None:
        """With the end of all streams the answer is that of the batch query over all rows."""
        super().end_input()
        self.happened["ended"] += self.query.epochs.input_has_ended
        self.compare(ended=True)

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

    def between_epochs(self) -> None:
        super().between_epochs()
        if self.flow is not None and self.flow.table is not None and self.chance(0.4):
            self.flow.table.change()

    def rows_of(self, batch: int) -> EpochRows:
        idle = self.chance(0.15)
        counts = [0 if idle or self.chance(0.1) else int(self.rng.integers(1, 40)) for _ in self.sources]
        return [rows(self.rng, n, batch * self.step, self.spread, self.keys, self.nulls) for n in counts]

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

        for _ in range(MAX_DRAIN_EPOCHS):
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
        if self.flow is not None and self.flow.table is not None:
            self.flow.table.note(record)
            self.happened["table read again"] += record.number > 0 and record.tables[0].since == record.number

    def forget(self, record: EpochRecord) -> None:
        """What was committed is done again."""

    def check(self, in_order: bool) -> None:
        self.check_committed()
        if in_order:
            self.check_limits()

    def check_committed(self) -> None:
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
                found = list(self.executors.of(number).roots()[0].glob(f"{run}/site-{number:04d}-{level}/*"))
                sizes.append(sum(f.stat().st_size for f in found))
                units = {f.name.partition("@")[2].partition(".")[0] for f in found}
                alone = self.options["spill"] == "unit" and len(units) == 1 and units != {""}
                too_large += sizes[-1] if alone else 0
            assert sum(sizes) <= self.limits[number] + too_large, f"site {number}: {sizes}"
            assert sum(sizes) == stats.memory_bytes

    def compare(self, ended: bool = False) -> None:
        answers, late = self.flow.expected(self.seen, ended)
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
        for sink in self.query.epochs.standing.flow.sinks:
            assert not sink.storage.files(sink.staging.directory)
        self.close_workspaces()


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

    def new_query_of(self, options: dict[str, Any]) -> ChaosQuery:
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

    def compare(self, ended: bool = False) -> None:
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
