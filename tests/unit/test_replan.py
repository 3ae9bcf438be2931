"""A record laid out for another plan of its flow: everything that stays is as it was, and no id is given twice."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from specs import handle, stream

from sluice.model.codec import decode, encode
from sluice.model.epoch.decision import Decision, UnderWay, Verb
from sluice.model.epoch.results import Listing
from sluice.model.epoch.segments import RunRef, SegmentRef
from sluice.model.epoch.stats import EpochStats, UnitColumns
from sluice.model.epoch.times import Frozen, Lagging, Queues
from sluice.model.ids import Fragment
from sluice.model.plan.layout import PlanLayout
from sluice.model.plan.plan import Plan
from sluice.model.plan.planning import plan_of
from sluice.model.routing.routing import Routing
from sluice.model.routing.unit_ranges import numbers, to_ranges
from sluice.record.epoch import EpochRecord
from sluice.record.replan import PlanChange, ended_units, replan

A, B, C = (handle(stream(name)) for name in "abc")
PAIRS = A.join(B, on="k", within="5 seconds")
SOURCES = tuple(s.relation.origin for s in (A, B, C))
QUERIES = {
    "pairs": PAIRS,
    "longer": A.join(B, on="k", within="9 seconds"),
    "others": A.join(C, on="k", within="5 seconds"),
    "by value": A.join(B, on="v", within="5 seconds"),
    "compared": A.join(B, within="5 seconds", where="a.v > b.v"),
    "of pairs": PAIRS.groupBy("a_k").window("10 seconds").agg(n=("*", "count")),
    "of pairs by value": PAIRS.groupBy("b_v").last(2).agg(n=("*", "count")),
    "windows": C.groupBy("k").window("10 seconds").agg(n=("*", "count")),
    "longer windows": C.groupBy("k").window("20 seconds", "10 seconds").agg(n=("*", "count")),
    "newest": C.groupBy("k").last(3).agg(n=("*", "count")),
    "some": A.filter("v > 3"),
}
NAMES = sorted(QUERIES)
PARTITIONS = 6


def plan_with(names: list[str], before: Plan | None = None) -> Plan:
    assigned = None if before is None else before.assignment
    return plan_of([QUERIES[name].relation for name in names], names, assigned, SOURCES)


def change_between(before: Plan, now: Plan) -> PlanChange:
    return PlanChange(PlanLayout.of(before), PlanLayout.of(now), PARTITIONS)


@st.composite
def records(draw: st.DrawFn, plan: Plan) -> EpochRecord:
    """One of an epoch that went by a plan, with units that were split and moved, and state of all kinds."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    sites = int(rng.integers(1, 4))
    routing = plan.first_routing(PARTITIONS, sites)
    for _ in range(int(rng.integers(0, 4))):
        divisible = [u for u in routing.ids.array.tolist() if routing.fragment_of(u) in plan.keyed_fragments]
        if divisible:
            routing = routing.split(int(rng.choice(divisible)), since=1)
    for unit in routing.ids.array.tolist():
        routing = routing.with_move(unit, int(rng.integers(0, sites)), since=2)
    manifests = tuple(tuple(runs_at(rng, plan, routing, site)) for site in range(sites))
    columns = {f.name: rng.integers(0, 99, routing.units) for f in fields(UnitColumns)}
    lagging, frozen, queues = [], [], []
    for level in range(plan.levels):
        here = [unit for f in plan.fragments_at(level) for unit in range(*routing.directories[f].range)]
        late, cold = (to_ranges(sorted(u for u in here if rng.random() < 0.3)) for _ in range(2))
        lagging += [Lagging(level, late, (1, 2, 3))] if late else []
        frozen += [Frozen(level, cold, (1, 2, 3), missing=True)] if cold else []
        for site in range(sites):
            held = [unit for unit in here if routing.holders[unit] == site]
            rng.shuffle(held)
            queues += [Queues(site, level, tuple(held[::2]), tuple(held[1::2]), 0.5)] if held else []
    moves = [Decision(3, "you", Verb.MOVE, unit, 0, "") for unit in routing.ids.array.tolist()]
    return EpochRecord(
        number=7,
        newest=(10, 11, 12),
        routing=routing,
        manifests=manifests,
        reached=((8, 9, 10),) * (plan.levels - 1),
        lagging=tuple(lagging),
        frozen=tuple(frozen),
        queues=tuple(queues),
        listings=tuple((Listing(number), Listing(number + 1)) for number in range(len(plan.outputs))),
        stats=EpochStats(units=UnitColumns(**columns)),
        under_way=tuple(UnderWay(decision, (decision.unit,)) for decision in moves),
    )


def runs_at(rng: np.random.Generator, plan: Plan, routing: Routing, site: int) -> list[RunRef]:
    runs = []
    for number, input_ in enumerate(plan.inputs):
        held = [u for u in range(*routing.directories[input_.fragment].range) if routing.holders[u] == site]
        for n in range(int(rng.integers(0, 3)) if held else 0):
            units = to_ranges(held)
            counts = tuple(rng.integers(0, 9, len(held)).tolist())
            name = f"{site}-{number}-{n}"
            segment = SegmentRef(name, "f", 0, 100, number, sum(counts), 0, 0, 0, 0, 0, 0, units, counts, ())
            part = to_ranges(sorted(rng.choice(held, int(rng.integers(1, len(held) + 1)), replace=False).tolist()))
            runs.append(RunRef(segment, part, int(rng.integers(0, 2))))
    return runs


def by_id(record: EpochRecord, units: Any) -> set[int]:
    return set(record.routing.units_at(numbers(units)))


def state_of(record: EpochRecord, plan: Plan) -> dict[tuple[object, ...], object]:
    """All runs, in words that mean the same in every plan."""
    return {
        (site, run.segment.id, run.generation): (
            plan.states[run.segment.input],
            by_id(record, run.units),
            dict(zip(record.routing.units_at(run.segment.unit_rows[0]), run.segment.counts, strict=True)),
            replace(run.segment, input=0, units=(), counts=()),
        )
        for site, manifest in enumerate(record.manifests)
        for run in manifest
    }


def cohorts_of(record: EpochRecord, plan: Plan, cohorts: Any) -> list[tuple[object, ...]]:
    """Cohorts, as far as their units have operators on that level in a plan."""
    seen = []
    for one in cohorts:
        labels = {plan.labels[f] for f in plan.fragments_at(one.level)} if one.level < plan.levels else set()
        units = {unit for unit in by_id(record, one.units) if label_of(record, plan, unit) in labels}
        seen += [(one.level, one.newest, sorted(units))] if units else []
    return seen


def label_of(record: EpochRecord, plan: Plan, unit: int) -> int | None:
    return plan.labels[record.routing.fragment_of(unit)]


@st.composite
def changes(draw: st.DrawFn) -> tuple[Plan, Plan, EpochRecord]:
    names = st.lists(st.sampled_from(NAMES), min_size=1, max_size=5, unique=True)
    before = plan_with(draw(names))
    now = plan_with(draw(names), before)
    return before, now, draw(records(before))


@given(changes())
@settings(max_examples=80)
def test_what_stays_is_as_it_was_and_what_is_new_has_nothing(drawn: tuple[Plan, Plan, EpochRecord]) -> None:
    before, now, record = drawn
    after = replan(record, change_between(before, now))
    assert decode(encode(after), EpochRecord).routing == after.routing
    stays = set(before.labels) & set(now.labels)
    for label in now.labels:
        fragment = now.labels.index(label)
        units = after.routing.units_at(np.arange(*after.routing.directories[fragment].range))
        if label in stays:
            was = record.routing.directories[before.labels.index(label)]
            assert units == record.routing.units_at(np.arange(*was.range))
            assert all(after.routing.holders_of(u) == record.routing.holders_of(u) for u in units)
            assert all(after.routing.hashes_of(u) == record.routing.hashes_of(u) for u in units)
        else:
            assert min(units) >= record.routing.ids.next_id
            assert len(units) == (
                max(1, PARTITIONS // len(now.keyed_fragments)) if fragment in now.keyed_fragments else 1
            )
    assert after.routing.ids.next_id >= record.routing.ids.next_id
    gone = set(ended_units(record.routing, after.routing))
    assert gone == {u for u in record.routing.ids.array.tolist() if label_of(record, before, u) not in stays}

    was, now_state = state_of(record, before), state_of(after, now)
    assert now_state == {run: state for run, state in was.items() if state[0] in now.states}
    fields_of = [f.name for f in fields(UnitColumns)]
    for index, unit in enumerate(after.routing.ids.array.tolist()):
        here = {name: getattr(after.stats.units, name)[index] for name in fields_of}
        old = record.routing.index_of(unit) if record.routing.has_unit(unit) else None
        assert here == {n: 0 if old is None else getattr(record.stats.units, n)[old] for n in fields_of}
    shown = dict(zip([o.name for o in before.outputs], record.listings, strict=True))
    nothing = (Listing(), Listing())
    assert after.listings == tuple(shown.get(output.name, nothing) for output in now.outputs)
    assert [one.units for one in after.under_way] == [one.units for one in record.under_way if one.units[0] not in gone]


@given(changes())
@settings(max_examples=80)
def test_who_is_behind_stays_behind(drawn: tuple[Plan, Plan, EpochRecord]) -> None:
    before, now, record = drawn
    after = replan(record, change_between(before, now))
    at_level = {
        level: {now.labels[f] for f in now.fragments_at(level)} if level < now.levels else set()
        for level in range(before.levels)
    }
    for were, are in ((record.lagging, after.lagging), (record.frozen, after.frozen)):
        expected = []
        for one in were:
            units = {u for u in by_id(record, one.units) if label_of(record, before, u) in at_level[one.level]}
            expected += [(one.level, one.newest, sorted(units))] if units else []
        assert [(one.level, one.newest, sorted(by_id(after, one.units))) for one in are] == expected

    def queues_of(it: EpochRecord, plan: Plan) -> list[tuple[int, int, list[int], list[int]]]:
        out = []
        for queue in it.queues:
            memory, disk = (
                [
                    u
                    for u in it.routing.units_at(np.array(places, dtype=int))
                    if label_of(it, plan, u) in at_level[queue.level]
                ]
                for places in (queue.memory, queue.disk)
            )
            out += [(queue.site, queue.level, memory, disk)] if memory or disk else []
        return out

    assert queues_of(after, now) == queues_of(record, before)
    assert len(after.reached) == now.levels - 1
    for level in range(1, now.levels):
        behind = [one.newest for one in (*record.lagging, *record.frozen) if one.level < level]
        expected = record.reached[level - 1] if level < before.levels else (1, 2, 3) if behind else None
        if expected is not None:
            assert after.reached[level - 1] == expected


@given(changes())
@settings(max_examples=30)
def test_the_same_plan_changes_nothing(drawn: tuple[Plan, Plan, EpochRecord]) -> None:
    before, _, record = drawn
    after = replan(record, change_between(before, before))
    unchanged = replace(record.routing, version=after.routing.version, since=after.routing.since)
    assert encode(replace(after, manifests=())) == encode(replace(record, routing=unchanged, manifests=()))
    assert after.manifests == record.manifests


def test_new_units_go_to_the_sites_that_hold_fewest() -> None:
    before, now = plan_with(["pairs"]), plan_with(["pairs", "by value"], plan_with(["pairs"]))
    routing = before.first_routing(PARTITIONS, 3)
    for unit in range(PARTITIONS):
        routing = routing.with_move(unit, 1, since=1)
    after = replan(EpochRecord(7, (1, 2, 3), routing, ((),) * 3), change_between(before, now)).routing
    assert after.holders[PARTITIONS:] == (0, 0, 2) and after.ids.array.tolist()[PARTITIONS:] == [6, 7, 8]


def test_a_single_new_unit_may_begin_at_the_home_of_its_stream() -> None:
    before = plan_with(["pairs"])
    now = plan_with(["pairs", "compared"], before)
    routing = replace(before.first_routing(PARTITIONS, 3), homes=(2, 1, 0))
    change = replace(change_between(before, now), at_home=True)
    after = replan(EpochRecord(7, (1, 2, 3), routing, ((),) * 3), change).routing
    assert after.holders[PARTITIONS:] == (2,) and after.homes == routing.homes


def test_shared_units_stay_shared_by_the_same_rows() -> None:
    before = plan_with(["windows", "by value"])
    now = plan_with(["by value"], before)
    fragment = before.nodes[1].fragment
    unit = before.first_routing(PARTITIONS, 2).unit_at(before.first_routing(PARTITIONS, 2).directories[fragment].first)
    routing = before.first_routing(PARTITIONS, 2).share(unit, 1, before.shareable[fragment], since=3)
    after = replan(EpochRecord(7, (1, 2, 3), routing, ((),) * 2), change_between(before, now)).routing
    (sharing,) = after.shared
    assert sharing.inputs == now.shareable[Fragment(0)] and sharing.holders == routing.shared[0].holders
    assert [now.states[i] for i in sharing.inputs] == [before.states[i] for i in routing.shared[0].inputs]


def test_ids_and_labels_are_given_once_over_a_month_of_changes() -> None:
    """And nothing grows with them."""
    rng = np.random.default_rng(26)
    plan = plan_with(["pairs"])
    record = EpochRecord(7, (1, 2, 3), plan.first_routing(PARTITIONS, 3), ((),) * 3)
    ids, labels = set(record.routing.ids.array.tolist()), set(plan.labels)
    sizes = []
    names = ["pairs"]
    for _ in range(2000):
        names = sorted({"pairs", *rng.choice(NAMES, int(rng.integers(1, 6)), replace=False).tolist()})
        now = plan_with(names, plan)
        after = replan(record, change_between(plan, now))
        new = set(after.routing.ids.array.tolist()) - set(record.routing.ids.array.tolist())
        assert not new & ids and not (set(now.labels) - set(plan.labels)) & labels
        ids |= new
        labels |= set(now.labels)
        assert len(after.routing.ids.runs) <= len(now.labels)
        plan, record = now, after
        sizes.append(len(encode(record)))
    assert len(labels) > 2000 and max(sizes[1000:]) <= max(sizes[:1000]) + 100


def test_what_a_checkpoint_has_of_a_plan_is_read_back() -> None:
    plan = plan_with(NAMES)
    layout = PlanLayout.of(plan)
    assert decode(encode(layout), PlanLayout) == layout
    assert layout.capabilities == plan.capabilities
