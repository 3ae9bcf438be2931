"""Sites come and go: which units move, which executor gets which site, and what the controller forgets."""

from __future__ import annotations

import tempfile
from collections import Counter
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from engine_harness import DirectQuery, limits
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from oracle import multiset
from specs import SECOND, TIME, handle
from steps import units_set_apart

from examples import one_in
from sluice.control import copying
from sluice.control.controller import Controller, NextEpoch
from sluice.control.site_assignment import Executor, SiteCount, pack, spread
from sluice.model.epoch.stats import EpochSeconds, EpochStats, SiteStats, UnitColumns
from sluice.model.plan.planning import plan_of
from sluice.model.plan.relation import Relation
from sluice.model.plan.stream import Stream
from sluice.model.routing.routing import Routing
from sluice.policies import policy
from sluice.record.epoch import EpochRecord
from sluice.record.rebalancing import rebalance
from sluice.verbs.base import SiteWork
from sluice.verbs.move import Move

COUNTS = st.integers(1, 12)
FAST = "/dev/shm" if Path("/dev/shm").is_dir() else None


@st.composite
def routings(draw: st.DrawFn) -> Routing:
    sites = draw(COUNTS)
    owners = draw(st.lists(st.integers(0, sites - 1), min_size=sites, max_size=60))
    return Routing(sites, tuple(owners))


def loads(routing: Routing) -> list[int]:
    return [routing.holders.count(site) for site in range(routing.sites)]


def moved(before: Routing, after: Routing) -> list[tuple[int, int]]:
    """From where to where each unit that moved went."""
    return [(a, b) for a, b in zip(before.holders, after.holders, strict=True) if a != b]


@given(routings(), COUNTS)
def test_every_unit_has_an_owner_and_none_moves_that_need_not(before, sites):
    after = rebalance(before, sites, since=9)
    assert after.units == before.units
    assert all(0 <= owner < sites for owner in after.holders)
    if sites <= before.sites:
        assert all(a >= sites for a, _ in moved(before, after))  # only what has to
    else:
        assert all(b >= before.sites for _, b in moved(before, after))  # only to those that have none
        old, new = loads(after)[: before.sites], loads(after)[before.sites :]
        assert max(old) - min(new) <= 1
        assert all(now >= max(new) for was, now in zip(loads(before), old, strict=True) if now < was)  # no more
    assert (after == before) if sites == before.sites else (after.version, after.since) == (before.version + 1, 9)


@given(st.integers(1, 80), COUNTS, st.lists(COUNTS, min_size=1, max_size=5))
def test_what_was_even_stays_even_with_the_fewest_moves(units, first, sizes):
    assume(units >= max(first, *sizes))
    routing = Routing.even(units, first)
    for sites in sizes:
        before, routing = routing, rebalance(routing, sites, 0)
        assert max(loads(routing)) - min(loads(routing)) <= 1
        share, over = divmod(units, sites)
        staying = sorted(loads(before)[:sites], reverse=True)
        could_stay = sum(min(load, share + (i < over)) for i, load in enumerate(staying))
        assert len(moved(before, routing)) == units - could_stay


@st.composite
def executors(draw: st.DrawFn) -> list[Executor]:
    return [Executor(str(i), "h", draw(st.integers(1, 4))) for i in draw(st.sets(st.integers(0, 9), min_size=1))]


@given(executors(), st.lists(st.none() | st.integers(0, 9).map(str), min_size=1, max_size=30))
def test_sites_are_spread_evenly_and_stay_where_they_can(there, held):
    homes = spread(held, there)
    slots, load = {e.id: e.slots for e in there}, Counter(homes)
    assert set(homes) <= set(slots)
    for one in slots:  # no site would be better off on another
        assert all(load[one] / slots[one] <= (load[other] + 1) / slots[other] for other in slots if load[one])
    living = Counter(home for home in held if home in slots)
    for one in slots:  # either all that were there stay, or nothing else came
        kept = sum(a == b == one for a, b in zip(held, homes, strict=True))
        assert kept == min(living[one], load[one])
    assert spread(homes, there) == homes


def test_one_site_a_slot_where_sites_follow_the_cores():
    there = [Executor("0", "h", 2), Executor("1", "h", 4)]
    assert Counter(spread([None] * 6, there)) == {"0": 2, "1": 4}


@given(executors(), st.integers(1, 30))
def test_neighbours_are_together_so_that_the_last_sites_leave_executors_free(there, sites):
    for homes in (spread([None] * sites, there), pack([None] * sites, there)):
        assert len([1 for a, b in pairwise(homes) if a != b]) == len(set(homes)) - 1


@given(executors(), st.lists(st.none() | st.integers(0, 9).map(str), min_size=1, max_size=30))
def test_packed_sites_stay_where_they_have_a_slot_and_use_no_more_executors_than_they_need(there, held):
    homes = pack(held, there)
    slots, load = {e.id: e.slots for e in there}, Counter(homes)
    assert set(homes) <= set(slots)
    if len(held) > sum(slots.values()):
        assert homes == spread(held, there)
        return
    living = Counter(home for home in held if home in slots)
    assert all(load[one] <= slots[one] for one in slots)
    for one in slots:
        kept = sum(a == b == one for a, b in zip(held, homes, strict=True))
        assert kept == min(living[one], slots[one])
    joined = [one for one in slots if load[one] and not living[one]]
    full = [one for one in slots if load[one] == slots[one]]
    assert len(set(joined) - set(full)) <= 1  # the next one is begun when those before it are full
    assert not joined or all(one in full for one in living)
    assert pack(homes, there) == homes


def test_nobody_is_there():
    assert spread(["0", None], []) == pack(["0", None], []) == (None, None)


def test_sites_are_given_up_only_when_nobody_came_in_time():
    count = SiteCount(4, most=6, grace=10.0)
    assert count.after(slots=2, now=0.0) == 4
    assert count.after(slots=4, now=9.0) == 4  # replaced
    assert count.after(slots=2, now=20.0) == 4
    assert count.after(slots=3, now=29.9) == 4
    assert count.after(slots=3, now=30.0) == 3
    assert count.after(slots=0, now=31.0) == 3
    assert count.after(slots=64, now=50.0) == 6


EVEN = Routing.even(8, 4)


def record(number: int, routing: Routing = EVEN) -> EpochRecord:
    sites = tuple(SiteStats(site, "host/1", 2, busy_seconds=1.0) for site in range(routing.sites))
    units = replace(UnitColumns.none(8), rows=np.arange(8))
    stats = EpochStats(sites=sites, units=units, seconds=EpochSeconds(job=1.0))
    return EpochRecord(number, (None,), routing, ((),) * routing.sites, stats=stats)


def committed(controller: Controller, number: int, step: NextEpoch) -> EpochRecord:
    """The record of an epoch that did what was decided."""
    settled = controller.settle(number, step.routing, SiteWork(), step.ended)
    return replace(record(number, step.routing), ended=settled.ended, under_way=settled.under_way)


def test_moves_to_a_site_that_is_gone_are_abandoned_and_said_so():
    controller = Controller(policy("static"), 1 << 30)
    controller.after(record(0), 0.0)
    controller.ask(Move(0, 3, "asked for"))
    controller.ask(Move(2, 0, "asked for"))
    step = controller.after(record(1), 1.0)
    assert units_set_apart(step) == (0, 2)
    plan = controller.resized(committed(controller, 2, step), 3, "executors gone: 1", 2.0)
    assert plan.routing.sites == 3
    assert plan.routing.holders[:6] == EVEN.holders[:6]
    said = [(d.policy, d.action, d.unit, d.site, d.reason, d.refused) for d in plan.decisions]
    assert said == [
        ("sites", "resize", None, None, "executors gone: 1; sites: 4, now 3; 2 units moved", None),
    ]
    assert [(end.decision.unit, end.abandoned) for end in plan.ended] == [(0, "site 3 is gone")]
    after = controller.after(record(3, plan.routing), 3.0)
    assert after.routing.holders[2] == 0  # the other move goes on
    assert after.routing.holders[0] == 0


def test_a_move_whose_unit_a_new_site_gets_is_abandoned():
    routing = Routing(2, (0,) * 8)
    controller = Controller(policy("static"), 1 << 30)
    controller.after(record(0, routing), 0.0)
    controller.ask(Move(7, 1, "asked for"))
    step = controller.after(record(1, routing), 1.0)
    plan = controller.resized(committed(controller, 2, step), 3, "executors joined: 1", 2.0)
    assert plan.routing.holders[7] == 2
    assert [end.abandoned for end in plan.ended] == ["its unit is needed elsewhere"]
    assert controller.after(record(3, plan.routing), 3.0).routing == plan.routing


STREAM = Stream("s", pa.schema([("k", pa.int64()), ("ts", TIME), ("v", pa.int64())]), "ts", 0)


def rows(epoch: int, keys: int = 40) -> pa.Table:
    times = np.arange(keys * 3) % 3 + epoch * 3
    columns = [np.arange(keys * 3) % keys, pa.array(times * SECOND).cast(TIME), np.arange(keys * 3)]
    return pa.table([pa.array(c) for c in columns], schema=STREAM.schema)


def relation() -> Relation:
    return handle(STREAM).groupBy("k").last(5).agg(total=("v", "sum")).relation


def test_a_site_that_comes_reads_little_in_an_epoch(tmp_path, monkeypatch):
    """Where nobody asked for it, too: its units come by moves, if there is much to read."""
    least = 4_000
    monkeypatch.setattr(copying, "MIN_COPY_BYTES", least)
    monkeypatch.setattr(copying, "MAX_EPOCH_SHARE", 0.0)
    query = DirectQuery(plan_of([relation()]), tmp_path, sites=2)
    for epoch in range(6):
        query.run([rows(epoch, keys=400)])
    query.site_keys = tuple(range(100, 103))
    held, largest = [], 0
    while query.next < 30:
        runs = [run for manifest in query.epochs.record.manifests for run in manifest]
        largest = max([run.segment.length for run in runs if len(range(*run.units[0])) == 1], default=0)
        query.run([rows(query.next, keys=8)])
        assert query.epochs.record.stats.sites[2].fetched_bytes <= least + largest
        held.append(query.epochs.record.routing.holders.count(2))
    assert held[0] == 0 and held[-1] == 5 and held == sorted(held) and len(set(held)) > 2
    query.close()


@cache
def undisturbed() -> Counter:
    with tempfile.TemporaryDirectory(dir=FAST) as directory:
        query = DirectQuery(plan_of([relation()]), Path(directory))
        for epoch in range(10):
            query.run([rows(epoch)])
        query.close()
        return multiset(query.results())


@settings(max_examples=one_in(2))
@given(st.data(), st.lists(st.integers(1, 8), min_size=10, max_size=10))
def test_the_answer_is_the_same_however_often_the_number_of_sites_changes(data, sizes):
    """Also while input waits, units lie on disk and a policy moves others, and where much is copied ahead."""
    with tempfile.TemporaryDirectory(dir=FAST) as directory, pytest.MonkeyPatch.context() as patched:
        patched.setattr(copying, "MAX_EPOCH_SHARE", 0.0)
        patched.setattr(copying, "MIN_COPY_BYTES", data.draw(st.sampled_from([1, 2_000, copying.MIN_COPY_BYTES])))
        wanted = data.draw(st.sampled_from(["static", "load", "hybrid"]))
        query = DirectQuery(plan_of([relation()]), Path(directory), sites=sizes[0], wanted=wanted, **limits(data))
        for epoch, sites in enumerate(sizes):
            query.site_keys = tuple(range(100, 100 + sites))
            query.run([rows(epoch)])
            found = query.epochs.record
            assert found.routing.sites == len(found.manifests) == len(found.stats.sites) == sites
        query.drain()
        said = [d.reason for r in query.epochs.standing.recent for d in r.decisions if d.action == "resize"]
        assert len(said) == sum(a != b for a, b in pairwise(sizes))
        query.close()
        assert multiset(query.results()) == undisturbed()
