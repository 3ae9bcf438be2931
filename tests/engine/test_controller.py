"""The controller between epochs: rounds of collecting and moving, moves in two epochs, and state that travels alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from engine_harness import DirectQuery
from oracle import multiset
from specs import SECOND, TIME, handle
from steps import allowance, segments_copied, units_set_apart

from sluice.control import copying
from sluice.control.collection import RECENT, state_bytes
from sluice.control.controller import Controller
from sluice.control.copying import COPY_BYTES_PER_SECOND, MAX_EPOCH_SHARE, MIN_COPY_BYTES
from sluice.model.epoch.attempt import Attempt
from sluice.model.epoch.segments import Manifest, RunRef, SegmentRef
from sluice.model.epoch.stats import EpochSeconds, EpochStats, SiteStats, UnitColumns
from sluice.model.epoch.times import Queues
from sluice.model.plan.planning import plan_of
from sluice.model.plan.stream import Stream
from sluice.model.routing.routing import Routing
from sluice.model.view import ClusterView
from sluice.policies import Policy, policy
from sluice.record.epoch import EpochRecord
from sluice.verbs.move import Move

EVEN = Routing.even(8, 2)


class Once(Policy):
    """Asks for one move, and remembers what it saw."""

    name = "once"

    def __init__(self, unit: int = 0, site: int = 1) -> None:
        self.move, self.seen = Move(unit, site, "because"), []

    def decide(self, view: ClusterView) -> tuple[Move, ...]:
        self.seen.append(view)
        return (self.move,) if len(self.seen) == 1 else ()


A_SECOND = EpochSeconds(job=1.0)


def record(
    number: int,
    routing: Routing = EVEN,
    busy: tuple[float, float] = (1.0, 1.0),
    manifests: tuple[Manifest, Manifest] = ((), ()),
    copied: tuple[int, float] = (0, 0.0),
    seconds: EpochSeconds = A_SECOND,
    **columns: np.ndarray,
) -> EpochRecord:
    """An epoch of a second; `copied` is bytes and seconds at each site."""
    sites = tuple(
        SiteStats(i, "host/1", 4, busy_seconds=seconds_busy, fetched_bytes=copied[0], fetch_seconds=copied[1])
        for i, seconds_busy in enumerate(busy)
    )
    units = replace(UnitColumns.none(8), **{"rows": np.arange(8), **columns})
    return EpochRecord(number, (None,), routing, manifests, stats=EpochStats(sites=sites, units=units, seconds=seconds))


def piece(name: str, length: int, *units: int, **values: Any) -> RunRef:
    """A segment with ten rows of each of these neighbouring units."""
    held = ((units[0], units[-1] + 1),)
    rows = 10 * len(units)
    ref = SegmentRef(name, "file", 0, length, 0, rows, 0, 0, 0, 0, 0, 0, held, (10,) * len(units), (), **values)
    return RunRef(ref, held)


def test_statistics_are_collected_for_the_least_time_before_the_policy_is_asked():
    """As nearly as whole epochs can: with half an epoch less than the time it is enough."""
    chosen = Once()
    controller = Controller(chosen, 1 << 30, minimum=5.0)
    for number, now in enumerate([0.0, 1.5, 3.0, 4.2]):
        plan = controller.after(record(number, busy=(2.0, 0.5)), now)
        assert plan == replace(plan, routing=EVEN, instructions=(), decisions=())
        assert not chosen.seen
    plan = controller.after(record(4, busy=(2.0, 0.5)), 5.6)
    view = chosen.seen[0]
    assert view.period.working_seconds == 8.0  # four epochs as long as their busiest site; the first began the phase
    assert view.sites.idle.tolist() == [0.0, 6.0]
    assert view.units.rows.tolist() == [4 * u for u in range(8)]
    assert units_set_apart(plan) == (0,)


@pytest.mark.parametrize(("epochs", "seconds"), [(1, 3.4), (2, 4.1), (10, 4.77)])
def test_half_an_epoch_is_not_waited_for(epochs, seconds):
    for late, asked in ((-0.1, False), (0.0, True)):
        chosen = Once()
        controller = Controller(chosen, 1 << 30, minimum=5.0)
        for number in range(epochs + 1):
            controller.after(record(number), (seconds + late) * number / epochs)
        assert bool(chosen.seen) == asked


def test_a_move_takes_two_epochs_and_the_next_phase_is_as_long():
    controller = Controller(Once(), 1 << 30, minimum=1.0)
    controller.after(record(0), 0.0)
    prepared = controller.after(record(1), 2.0)
    assert (units_set_apart(prepared), prepared.routing) == ((0,), EVEN)
    assert prepared.decisions[0].refused is None
    switched = controller.after(record(2, seconds=EpochSeconds(job=2.5, total=3.0)), 5.0)
    assert switched.routing.holders[0] == 1
    assert switched.routing.since == 3
    assert controller.loop.rounds.collect == 3.0
    done = controller.after(record(3, switched.routing), 5.5)
    assert (done.instructions, done.routing) == ((), switched.routing)


def test_a_night_without_input_is_no_part_of_a_move():
    """Nor does the policy then wait for as long again: it is asked once the least time has been collected."""
    chosen, night = Once(), 14 * 3600.0
    controller = Controller(chosen, 1 << 30, minimum=5.0)
    controller.after(record(0), 0.0)
    assert units_set_apart(controller.after(record(1), 6.0)) == (0,)
    switched = controller.after(record(2), 6.0 + night)
    assert switched.routing.holders[0] == 1
    assert controller.loop.rounds.collect == 5.0
    for number in range(3, 8):
        controller.after(record(number, switched.routing), 6.0 + night + number)
    assert len(chosen.seen) == 2


def test_nothing_moves_under_advice_and_the_decision_says_so():
    controller = Controller(Once(), 1 << 30, minimum=1.0, advise=True)
    plans = [controller.after(record(n), float(n)) for n in range(4)]
    assert all(p.instructions == () and p.routing == EVEN for p in plans)
    assert [d.refused for p in plans for d in p.decisions] == ["the policy only advises"]


@pytest.mark.parametrize(
    ("move", "said"), [((0, 0), "at site 0 already"), ((9, 1), "no unit 9"), ((0, 7), "no site 7")]
)
def test_what_cannot_be_is_refused_with_its_reason(move, said):
    controller = Controller(Once(*move), 1 << 30, minimum=1.0)
    plans = [controller.after(record(n), float(n)) for n in range(4)]
    assert said in next(d.refused for p in plans for d in p.decisions)
    assert all(p.instructions == () for p in plans)


def test_a_move_by_hand_goes_at_once_under_any_policy():
    controller = Controller(policy("static"), 1 << 30)
    controller.after(record(0), 0.0)
    controller.ask(Move(2, 1, "asked for"))
    assert units_set_apart(controller.after(record(1), 0.1)) == (2,)


def test_a_unit_on_its_way_is_not_sent_elsewhere():
    controller = Controller(policy("static"), 1 << 30)
    controller.after(record(0), 0.0)
    for _ in range(2):
        controller.ask(Move(2, 1, "asked for"))
    plan = controller.after(record(1), 0.1)
    assert [d.refused for d in plan.decisions] == [None, "unit 2 is on its way to site 1"]


def test_a_site_gets_another_memory_and_the_others_keep_theirs():
    controller = Controller(Once(), 100, minimum=1.0)
    assert controller.memory.limits(3) == (100, 100, 100)
    controller.memory.set(1, 7)
    controller.memory.set(1, 0)
    assert controller.memory.limits(3) == (100, 0, 100)
    for number in range(3):
        controller.after(record(number), float(number))
    assert controller.policy.seen[0].sites.memory.tolist() == [100, 0]


def test_a_unit_is_spilled_if_its_input_waits_on_disk_or_if_disks_are_probed():
    chosen = Once()
    controller = Controller(chosen, 100, minimum=1.0)
    on_disk = np.array([0, 5, 0, 0, 0, 0, 0, 9])
    pending = np.array([0, 10, 20, 0, 40, 50, 60, 70])
    queued = (Queues(0, 0, (0, 1), (2, 3), 0.0), Queues(1, 0, (4, 5, 6), (7,), 0.0))
    for number, queues in enumerate([(), (), queued, queued]):
        seen = replace(record(number, disk=on_disk, pending=pending), queues=queues)
        controller.after(seen, 2.0 * number)
    assert [np.flatnonzero(view.units.spilled).tolist() for view in chosen.seen[:1]] == [[1, 7]]
    view = controller.collection.view()
    assert np.flatnonzero(view.units.spilled).tolist() == [2, 7]
    assert view.units.pending.tolist() == [0, 10, 20, 0, 40, 50, 60, 70]


def test_input_that_waits_is_no_state():
    runs = (piece("state", 800, 0, 1, 2, 3), piece("waits", 4000, 0, 1, 2, 3, pending=True))
    assert state_bytes(record(0, manifests=(runs, ()))).tolist() == [200.0] * 4 + [0.0] * 4


def test_a_unit_counts_as_large_as_it_was_at_its_largest_lately():
    """Rows expire many at a time: what fits just after that would not for long."""
    controller = Controller(policy("static"), 100)
    sizes = [100, 400, 300, *[100] * (RECENT - 2)]
    seen = []
    for number, size in enumerate(sizes):
        last = record(number, manifests=((piece("state", size, 0),), ()))
        controller.after(last, float(number))
        seen.append(controller.collection.view().units.bytes[0])
    assert seen == [100.0, *[400.0] * RECENT]
    controller.after(last, 100.0)
    assert controller.collection.view().units.bytes[0] == 300.0


def test_copying_may_make_an_epoch_a_tenth_longer():
    controller = Controller(policy("static"), 1 << 30)
    together = ((piece("all", 100, 0, 1, 2, 3),), ())
    controller.ask(Move(2, 1, "asked for"))
    first = controller.after(record(0, manifests=together), 0.0)
    assert allowance(first) == pytest.approx(MAX_EPOCH_SHARE * 1.0 * COPY_BYTES_PER_SECOND)
    # five million bytes a second at both sites
    slow = controller.after(record(1, manifests=together, copied=(10_000_000, 2.0)), 1.0)
    assert allowance(slow) == pytest.approx(MAX_EPOCH_SHARE * (COPY_BYTES_PER_SECOND + 5e6) / 2)
    short = controller.after(record(2, manifests=together, seconds=EpochSeconds(job=0.001)), 2.0)
    assert allowance(short) == MIN_COPY_BYTES


def asked_to_move(controller: Controller, unit: int, site: int) -> None:
    controller.after(record(0), 0.0)
    controller.ask(Move(unit, site, "asked for"))
    assert units_set_apart(controller.after(record(1), 1.0)) == (unit,)


def test_a_unit_larger_than_the_allowance_is_copied_in_parts_and_then_switched():
    controller = Controller(policy("static"), 1 << 30)
    asked_to_move(controller, 2, 1)
    size = round(0.6 * MAX_EPOCH_SHARE * COPY_BYTES_PER_SECOND)
    shared, own = piece("all", 9 * size, 0, 1, 2, 3), [piece(f"own{i}", size, 2) for i in range(4)]
    copies = []
    for number, runs in enumerate([(shared, own[0]), tuple(own), tuple(own), tuple(own)], 2):
        plan = controller.after(record(number, manifests=(runs, ())), float(number))
        copies.append(segments_copied(plan, site=1))
        assert (units_set_apart(plan) == (2,)) == (plan.routing.holders[2] == 0)
    assert copies == [["own0"], ["own0", "own1"], ["own0", "own1", "own2"], []]
    assert plan.routing.holders[2] == 1
    assert plan.routing.since == 6


def test_a_single_piece_larger_than_the_allowance_goes_alone():
    controller = Controller(policy("static"), 1 << 30)
    asked_to_move(controller, 2, 1)
    runs = (piece("small", 10, 2), piece("huge", round(COPY_BYTES_PER_SECOND), 2))
    first = controller.after(record(2, manifests=(runs[::-1], ())), 2.0)
    assert segments_copied(first, site=1) == ["huge"]
    assert controller.after(record(3, manifests=(runs[::-1], ())), 3.0).routing.holders[2] == 1


def test_what_changed_since_it_was_copied_is_copied_again():
    controller = Controller(policy("static"), 1 << 30)
    asked_to_move(controller, 2, 1)
    size = round(0.7 * MAX_EPOCH_SHARE * COPY_BYTES_PER_SECOND)
    one = controller.after(record(2, manifests=((piece("a", size, 2), piece("b", size, 2)), ())), 2.0)
    assert segments_copied(one, site=1) == ["a"]
    merged = (piece("c", 3 * size, 2),)
    two = controller.after(record(3, manifests=(merged, ())), 3.0)
    assert segments_copied(two, site=1) == ["c"]
    assert controller.after(record(4, manifests=(merged, ())), 4.0).routing.holders[2] == 1


def test_two_moves_share_the_allowance_of_a_target():
    controller = Controller(policy("static"), 1 << 30)
    controller.after(record(0), 0.0)
    for unit in (2, 3):
        controller.ask(Move(unit, 1, "asked for"))
    assert units_set_apart(controller.after(record(1), 1.0)) == (2, 3)
    size = round(0.7 * MAX_EPOCH_SHARE * COPY_BYTES_PER_SECOND)
    runs = (piece("a", size, 2), piece("b", size, 3))
    plan = controller.after(record(2, manifests=(runs, ())), 2.0)
    assert plan.routing.holders[2:4] == (1, 0)
    plan = controller.after(record(3, plan.routing, manifests=(runs[1:], runs[:1])), 3.0)
    assert plan.routing.holders[2:4] == (1, 1)


def test_an_epoch_that_came_to_nothing_is_tried_again_under_the_new_routing():
    controller = Controller(policy("static"), 1 << 30)
    asked_to_move(controller, 2, 1)
    first, again = (controller.after(record(2), now) for now in (2.0, 3.0))
    assert first.routing == again.routing and again.routing.holders[2] == 1
    assert len(controller.loop.moves) == 1
    controller.after(record(3, again.routing), 4.0)
    assert not controller.loop.moves


def rows(epoch: int, keys: int = 40) -> pa.Table:
    times = np.arange(keys * 3) % 3 + epoch * 3
    columns = [np.arange(keys * 3) % keys, pa.array(times * SECOND).cast(TIME), np.arange(keys * 3)]
    return pa.table([pa.array(c) for c in columns], schema=STREAM.schema)


STREAM = Stream("s", pa.schema([("k", pa.int64()), ("ts", TIME), ("v", pa.int64())]), "ts", 0)


def test_a_unit_that_moves_takes_its_own_state_along_and_nothing_else(tmp_path):
    """The target reads pieces with the unit's rows alone; the answer is as if nothing had moved."""
    relation = handle(STREAM).groupBy("k").last(5).agg(total=("v", "sum")).relation
    answers = []
    for moves in (True, False):
        query = DirectQuery(plan_of([relation]), tmp_path / str(moves), partitions=16)
        for epoch in range(8):
            if moves and epoch == 3:
                query.epochs.settings.controller.ask(Move(2, 1, "asked for"))
            query.run([rows(epoch)])
            if moves and epoch == 3:
                mine = [r for r in query.epochs.record.manifests[0] if r.units == ((2, 3),)]
                assert len(mine) == 1 and mine[0].segment.units == ((2, 3),)
                shared = [r for r in query.epochs.record.manifests[0] if r.units != ((2, 3),)]
                assert all(not low <= 2 < high for r in shared for low, high in r.units)
            if moves and epoch == 4:
                site = query.epochs.record.stats.sites[1]
                assert query.epochs.record.routing.holders[2] == 1
                assert 0 < site.fetched_bytes <= mine[0].segment.length
        sizes = state_bytes(query.epochs.record)
        held = sum(run.bytes for manifest in query.epochs.record.manifests for run in manifest)
        assert sizes.sum() == pytest.approx(held)
        assert query.epochs.record.stats.units.rows.sum() == 120
        answers.append(multiset(query.results()))
        query.close()
    assert answers[0] == answers[1]


def test_a_unit_with_much_state_arrives_over_several_epochs(tmp_path, monkeypatch):
    """The target copies at most so many bytes in an epoch, and the last of them in the one that switches."""
    least = 4_000
    monkeypatch.setattr(copying, "MIN_COPY_BYTES", least)
    monkeypatch.setattr(copying, "MAX_EPOCH_SHARE", 0.0)
    relation = handle(STREAM).groupBy("k").last(200).agg(total=("v", "sum")).relation
    query = DirectQuery(plan_of([relation]), tmp_path, partitions=4)
    for epoch in range(12):
        query.run([rows(epoch, keys=200)])
    query.epochs.settings.controller.ask(Move(0, 1, "asked for"))
    fetched, sizes = [], []
    for epoch in range(12, 40):
        query.run([rows(epoch, keys=4)])
        record = query.epochs.record
        fetched.append(record.stats.sites[1].fetched_bytes)
        if record.routing.holders[0] == 1:
            break
        sizes.append(sum(run.segment.length for run in record.manifests[0] if run.units == ((0, 1),)))
    assert record.routing.holders[0] == 1
    assert max(sizes) > 2 * least
    assert fetched[0] == 0 and fetched[-1] <= least < max(fetched), "its large piece was copied before it moved"
    query.close()


def test_a_unit_that_gets_more_than_may_be_copied_moves_nevertheless():
    controller = Controller(policy("static"), 1 << 30)
    asked_to_move(controller, 2, 1)
    size = round(2 * MAX_EPOCH_SHARE * COPY_BYTES_PER_SECOND)
    runs: tuple[RunRef, ...] = ()
    for number in range(2, 5):
        runs = (*runs, piece(f"{Attempt.prefix(number)}new", size, 2))
        plan = controller.after(record(number, manifests=(runs, ())), float(number))
        if plan.routing.holders[2] == 1:
            break
        assert segments_copied(plan, site=1) == [run.segment.id for run in runs]
    assert number == 3


def test_load_moves_units_of_a_busy_site_by_itself(tmp_path):
    """One site is slowed for real: its epochs take longer, and the policy takes units from it."""
    relation = handle(STREAM).groupBy("k").last(5).agg(total=("v", "sum")).relation
    query = DirectQuery(plan_of([relation]), tmp_path, partitions=16, wanted="load")
    busy = {0: 4.0, 1: 1.0}
    for epoch in range(12):
        query.run([rows(epoch)])
        stats, owners = query.epochs.measured, query.epochs.record.routing.holders
        sites = [replace(s, busy_seconds=busy[s.site] * owners.count(s.site)) for s in stats.sites]
        query.epochs.standing.measured = replace(stats, sites=tuple(sites))
    owners = query.epochs.record.routing.holders
    assert owners.count(0) < owners.count(1)
    moved = [d for r in query.epochs.standing.recent for d in r.decisions if not d.refused]
    assert moved and all(d.reason.startswith("site 0 is 100 % busy") for d in moved)
    query.close()


def test_the_controller_sees_how_long_an_epoch_took_with_its_commit_and_its_results(tmp_path, monkeypatch):
    """A sink that takes long makes moves take long, and so the next statistics are collected for longer."""
    relation = handle(STREAM).groupBy("k").last(5).agg(total=("v", "sum")).relation
    query = DirectQuery(plan_of([relation]), tmp_path, partitions=16)
    seen = []
    after = query.epochs.settings.controller.after
    monkeypatch.setattr(
        query.epochs.settings.controller, "after", lambda record, *a, **k: seen.append(record) or after(record, *a, **k)
    )
    for epoch in range(3):
        query.run([rows(epoch)])
    for record in seen:
        seconds = record.stats.seconds
        assert seconds.total is not None and seconds.elapsed >= seconds.job + seconds.commit + seconds.deliver > 0
    assert [len(r.stats.units.rows) for r in seen] == [16, 16]
    query.close()


@pytest.mark.parametrize("reason", [None, 0.5, np.str_("hot")])
def test_whatever_a_policy_gives_as_its_reason_can_be_read_again(tmp_path, reason):
    class Restless(Policy):
        name = "restless"

        def decide(self, view: ClusterView) -> tuple[Move, ...]:
            return (Move(np.int64(0), 1 - view.units.site[0], reason),)

    relation = handle(STREAM).groupBy("k").last(5).agg(total=("v", "sum")).relation
    query = DirectQuery(plan_of([relation]), tmp_path, partitions=16, wanted=Restless())
    for epoch in range(4):
        query.run([rows(epoch)])
    query.close()
    query = DirectQuery(plan_of([relation]), tmp_path, partitions=16)
    decisions = [d for r in query.epochs.history() for d in r.decisions]
    assert decisions and all(d.reason == str(reason) for d in decisions)
    query.close()
