"""The controller between epochs: rounds in wall time, moves in two epochs, and state that travels alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from direct import DirectQuery
from oracle import multiset
from specs import SECOND, TIME, handle

from sluice.control.controller import Controller, unit_bytes
from sluice.model.epoch import EpochRecord
from sluice.model.plan import plan_of
from sluice.model.routing import Routing
from sluice.model.stream import Stream
from sluice.model.view import ClusterView, Move
from sluice.policies import policy

EVEN = Routing.even(8, 2)


class Once:
    """Asks for one move, and remembers what it saw."""

    name = "once"

    def __init__(self, unit: int = 0, site: int = 1) -> None:
        self.move, self.seen = Move(unit, site, "because"), []

    def decide(self, view: ClusterView) -> tuple[Move, ...]:
        self.seen.append(view)
        return (self.move,) if len(self.seen) == 1 else ()


def record(number: int, routing: Routing = EVEN, busy: tuple[float, float] = (1.0, 1.0)) -> EpochRecord:
    sites = [{"busySeconds": b, "diskBytes": 0} for b in busy]
    figures = {"sites": sites, "unitRows": list(range(8))}
    return EpochRecord(number, (None,), routing, ((), ()), figures=figures)


def test_statistics_are_collected_for_the_least_time_before_the_policy_is_asked():
    chosen = Once()
    controller = Controller(chosen, 1 << 30, minimum=5.0)
    for number, now in enumerate([0.0, 1.0, 4.9]):
        plan = controller.after(record(number, busy=(2.0, 0.5)), now)
        assert plan == replace(plan, routing=EVEN, leaving=(), decisions=())
    plan = controller.after(record(3, busy=(2.0, 0.5)), 5.0)
    view = chosen.seen[0]
    assert view.seconds == 6.0  # three epochs as long as their busiest site; the first began the phase
    assert view.site_idle.tolist() == [0.0, 4.5]
    assert view.unit_rows.tolist() == [3 * u for u in range(8)]
    assert plan.leaving == (0,)


def test_a_move_takes_two_epochs_and_the_next_phase_is_as_long():
    controller = Controller(Once(), 1 << 30, minimum=1.0)
    for number, now in enumerate([0.0, 1.0]):
        controller.after(record(number), now)
    prepared = controller.after(record(2), 2.0)
    assert (prepared.leaving, prepared.routing) == ((0,), EVEN)
    assert prepared.decisions[0]["refused"] is None
    switched = controller.after(record(3), 5.0)
    assert switched.routing.owners[0] == 1
    assert switched.routing.since == 4
    done = controller.after(record(4, switched.routing), 9.0)
    assert (done.leaving, done.routing) == ((), switched.routing)
    assert controller.rounds.collect == 7.0


def test_nothing_moves_under_advice_and_the_decision_says_so():
    controller = Controller(Once(), 1 << 30, minimum=1.0, advise=True)
    plans = [controller.after(record(n), float(n)) for n in range(4)]
    assert all(p.leaving == () and p.routing == EVEN for p in plans)
    assert [d["refused"] for p in plans for d in p.decisions] == ["the policy only advises"]


@pytest.mark.parametrize(
    ("move", "said"), [((0, 0), "at site 0 already"), ((9, 1), "no unit 9"), ((0, 7), "no site 7")]
)
def test_what_cannot_be_is_refused_with_its_reason(move, said):
    controller = Controller(Once(*move), 1 << 30, minimum=1.0)
    plans = [controller.after(record(n), float(n)) for n in range(4)]
    assert said in next(d["refused"] for p in plans for d in p.decisions)
    assert all(p.leaving == () for p in plans)


def test_a_move_by_hand_goes_at_once_under_any_policy():
    controller = Controller(policy("static"), 1 << 30)
    controller.after(record(0), 0.0)
    controller.ask(Move(2, 1, "asked for"))
    assert controller.after(record(1), 0.1).leaving == (2,)


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
                site = query.epochs.record.figures["sites"][1]
                assert query.epochs.record.routing.owners[2] == 1
                assert 0 < site["fetchedBytes"] <= mine[0].segment.length
        sizes = unit_bytes(query.epochs.record)
        held = sum(run.bytes for manifest in query.epochs.record.manifests for run in manifest)
        assert sizes.sum() == pytest.approx(held)
        assert sum(query.epochs.record.figures["unitRows"]) == 120
        answers.append(multiset(query.results()))
        query.close()
    assert answers[0] == answers[1]


def test_load_moves_units_of_a_busy_site_by_itself(tmp_path):
    """One site is slowed for real: its epochs take longer, and the policy takes units from it."""
    relation = handle(STREAM).groupBy("k").last(5).agg(total=("v", "sum")).relation
    query = DirectQuery(plan_of([relation]), tmp_path, partitions=16, wanted="load")
    busy = {0: 4.0, 1: 1.0}
    for epoch in range(12):
        query.run([rows(epoch)])
        for site in query.epochs.record.figures["sites"]:
            units = sum(owner == site["site"] for owner in query.epochs.record.routing.owners)
            site["busySeconds"] = busy[site["site"]] * units
    owners = query.epochs.record.routing.owners
    assert owners.count(0) < owners.count(1)
    moved = [d for r in query.epochs.recent for d in r.decisions if not d["refused"]]
    assert moved and all(d["reason"].startswith("site 0 is 100 % busy") for d in moved)
    query.close()
