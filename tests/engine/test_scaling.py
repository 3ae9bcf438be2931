"""Another number of sites while a query runs: those that leave are drained, those that join are filled."""

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
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import multiset
from specs import SECOND, TIME, handle
from steps import units_set_apart

from examples import one_in
from sluice.control import site_changes
from sluice.control.arrival_forecast import ArrivalForecast
from sluice.control.collection import EpochCollection
from sluice.control.controller import Controller, NextEpoch
from sluice.control.site_memory import SiteMemory
from sluice.engine.blobs import ReceivedBlob, SentBlob
from sluice.engine.site_task import SiteTask
from sluice.model.epoch.stats import EpochSeconds, EpochStats, ScaleTarget, SiteStats, UnitColumns
from sluice.model.plan.plan import Capabilities
from sluice.model.plan.planning import plan_of
from sluice.model.plan.relation import Relation
from sluice.model.plan.stream import Stream
from sluice.model.routing.routing import Routing
from sluice.model.view import ClusterView
from sluice.policies import Policy, policy
from sluice.record.epoch import EpochRecord
from sluice.record.repartition import successors
from sluice.state import compaction
from sluice.testing.clocks import CountingClock
from sluice.verbs import Action
from sluice.verbs.base import SiteWork
from sluice.verbs.move import Move, SetApart
from sluice.verbs.scale import JOIN_TIMEOUT_S, ArrivalProtocol, Scale
from sluice.verbs.share import Share
from sluice.verbs.split import Merge, Split

FAST = "/dev/shm" if Path("/dev/shm").is_dir() else None
ABLE = Capabilities(shareable={0: (0, 1)}, divisible=frozenset([0]), scalable=True, most_sites=6)
EVEN = Routing.even(8, 4)


def record(number: int, routing: Routing = EVEN, waiting: tuple[int, ...] = (0, 0, 0, 0, 0, 0)) -> EpochRecord:
    """An epoch of a second; unit u took in u rows, and so many bytes wait at the sites."""
    sites = tuple(
        SiteStats(site, "host/1", 2, busy_seconds=1.0, pending_bytes=waiting[site]) for site in range(routing.sites)
    )
    units = replace(UnitColumns.none(routing.units), rows=np.arange(routing.units))
    stats = EpochStats(sites=sites, units=units, seconds=EpochSeconds(job=1.0))
    return EpochRecord(number, (None,), routing, ((),) * routing.sites, stats=stats)


def planned_moves(controller: Controller) -> list[Move]:
    """What sites that join are to get when they are there."""
    return [move for arrival in controller.loop.in_flight.of(ArrivalProtocol) for move in arrival.moves]


class Driver:
    """A controller from epoch to epoch, each of which takes a second and does what was decided."""

    def __init__(self, routing: Routing = EVEN, wanted: object = "static", **options: object) -> None:
        self.controller = Controller(policy(wanted), 1 << 30, capabilities=ABLE, **options)
        self.newest, self.now = record(0, routing), 0.0
        self.controller.after(self.newest, 0.0)

    def ask(self, action: Action) -> None:
        self.controller.ask(action)

    def epoch(self, seconds: float = 1.0) -> NextEpoch:
        self.now += seconds
        sites = self.controller.sites_next(self.newest) or self.newest.routing.sites
        if sites == self.newest.routing.sites:
            step = self.controller.after(self.newest, self.now)
        else:
            step = self.controller.resized(self.newest, sites, "executors", self.now)
        self.commit(step)
        return step

    def commit(self, step: NextEpoch) -> None:
        """Commit an epoch that did what was decided."""
        number = self.newest.number + 1
        settled = self.controller.settle(number, step.routing, SiteWork(), step.ended)
        self.newest = replace(
            record(number, step.routing),
            instructions=step.instructions,
            ended=settled.ended,
            under_way=settled.under_way,
        )

    def wait(self, seconds: float = 1.0) -> NextEpoch:
        """An epoch with as many sites as before, whoever is awaited."""
        self.now += seconds
        step = self.controller.after(self.newest, self.now)
        self.commit(step)
        return step

    @property
    def planned(self) -> list[Move]:
        return planned_moves(self.controller)

    @property
    def moves_in_flight(self) -> int:
        return len(self.controller.loop.moves)

    @property
    def routing(self) -> Routing:
        return self.newest.routing


def said(step: NextEpoch) -> list[tuple[str, str, int | None, int | None, str | None]]:
    return [(d.policy, d.action, d.unit, d.site, d.refused) for d in step.decisions]


def test_sites_that_leave_hand_their_units_over_and_then_there_are_fewer():
    driver = Driver()
    driver.ask(Scale(2, "little to do"))
    step = driver.epoch()
    assert said(step)[0] == ("you", "scale", None, None, None)
    moves = [d for d in step.decisions if d.action == "move"]
    assert {d.policy for d in moves} == {"sites"}
    assert {d.reason for d in moves} == {"sites: 4, soon 2; little to do"}
    assert sorted((d.unit, d.refused) for d in moves) == [(4, None), (5, None), (6, None), (7, None)]
    assert units_set_apart(step) == (4, 5, 6, 7)
    assert driver.controller.scale_target == ScaleTarget(2, 1, 6)
    step = driver.epoch()
    assert step.routing.sites == 4 and max(step.routing.holders) == 1
    step = driver.epoch()
    assert [d.reason for d in step.decisions] == ["little to do; sites: 4, now 2; 0 units moved"]
    assert step.routing.sites == 2
    driver.epoch()
    assert driver.controller.scale_target == ScaleTarget(None, 1, 6)
    assert not driver.moves_in_flight


def test_units_of_leaving_sites_go_where_least_is_to_do():
    driver = Driver(Routing(3, (0, 0, 1, 2, 2, 2, 2, 2)))
    driver.epoch()
    driver.ask(Scale(2, "to see"))
    while driver.routing.sites == 3:
        driver.epoch()
    load = [sum(unit for unit, holder in enumerate(driver.routing.holders) if holder == site) for site in (0, 1)]
    assert abs(load[0] - load[1]) <= 2


def test_growth_is_seen_from_batch_to_batch_and_by_how_long_sites_took_to_join():
    collection = EpochCollection(SiteMemory(1 << 30), ABLE, backlog=1.0, unit_size=1 << 20)
    for number, (rows_in, catch_up) in enumerate(((100, False), (100, False), (0, True), (400, False), (300, False))):
        seen = record(number)
        stats = replace(seen.stats, rows_in=rows_in, catch_up=catch_up, seconds=EpochSeconds(job=10.0))
        collection.add(replace(seen, stats=stats), now=10.0 * (number + 1))
        collection.forecast.join_seconds = 20.0
        if number == 3:  # 10 rows a second, and 20 in the 20 seconds since: what was taken in at second 30 counts
            assert collection.view().scaling.growth_factor == 1.0
    assert [round(rate) for rate, _ in collection.forecast._batches] == [10, 20, 30]
    ahead = (
        5 + 10 + 20
    )  # from the middle of when the newest batch arrived until it is done, and until sites have joined
    assert collection.view().scaling.growth_factor == pytest.approx(1 + (30 - 10) / (5 + 20 + 5) * ahead / 30)


def test_growth_is_not_taken_to_go_on_for_much_longer_than_it_was_seen():
    forecast = ArrivalForecast()
    for rows_in in (100, 200, 300):
        forecast.add(rows_in, 2.0)
    assert forecast.growth_factor(age=3600.0) == forecast.growth_factor(age=0.0) == pytest.approx(1 + 25 * 8 / 150)


def test_after_a_restart_the_first_epoch_says_nothing_of_how_fast_rows_arrive():
    again = Controller(policy("elastic"), 1 << 30, minimum=1e-9, capabilities=ABLE)
    fewer = again.resized(record(7), 3, "restarted", now=1e9).routing
    for number in range(8, 11):
        again.after(record(number, fewer), 1e9 + 10 * number)
    assert 0 < again.collection.view().period.arrival_seconds <= 30


def test_a_query_to_which_nothing_comes_needs_fewer_sites(tmp_path):
    query = DirectQuery(plan_of([relation()]), tmp_path, sites=3, most_sites=3, wanted="elastic")
    query.run([rows(0)])
    query.run([rows(1)])
    assert query.epochs.record.routing.sites == 3
    idle_epochs = 0
    while query.epochs.may_need_fewer_sites:
        query.run_idle_epoch()
        idle_epochs += 1
        while query.follow() and query.catch_up():
            pass
        assert idle_epochs < 10
    assert query.epochs.record.routing.sites == 1
    for epoch in range(2, EPOCHS):
        query.run([rows(epoch)])
    query.drain()
    query.close()
    assert multiset(query.results()) == undisturbed()


def epochs_over_nothing(query: DirectQuery, joining: bool = True) -> int:
    """How many epochs there are to be before input comes."""
    epochs = 0
    while (not joining or query.follow()) and query.catch_up():
        epochs += 1
        assert epochs < 20
    return epochs


@pytest.mark.parametrize("sites", [1, 4])
def test_what_the_user_asks_an_idle_query_for_is_done_without_input(tmp_path, sites):
    query = DirectQuery(plan_of([relation()]), tmp_path, sites=2, most_sites=4)
    hand = query.epochs.settings.controller
    for epoch in range(2):
        query.run([rows(epoch)])
    assert epochs_over_nothing(query) == 0
    hand.ask(Move(0, 1, "to see"))
    assert 2 <= epochs_over_nothing(query) <= 4
    assert query.epochs.record.routing.holders[0] == 1 and not hand.loop.moves
    hand.ask(Scale(sites, "to see"))
    assert 2 <= epochs_over_nothing(query) <= 8
    assert query.epochs.record.routing.sites == len(set(query.epochs.record.routing.holders)) == sites
    assert not hand.loop.moves and not planned_moves(hand) and not hand.scaling_after(query.epochs.record)
    for epoch in range(2, EPOCHS):
        query.run([rows(epoch)])
    query.drain()
    query.close()
    assert multiset(query.results()) == undisturbed()


def test_an_idle_query_waits_for_executors_without_epochs(tmp_path):
    clock = CountingClock()  # both sites have as much to do, so no unit moves between them
    query = DirectQuery(plan_of([relation()]), tmp_path, sites=2, most_sites=4, clock=clock)
    for epoch in range(2):
        query.run([rows(epoch)])
    query.epochs.settings.controller.ask(Scale(4, "to see"))
    assert epochs_over_nothing(query, joining=False) == 1
    clock.sleep(JOIN_TIMEOUT_S)
    assert epochs_over_nothing(query, joining=False) == 1
    (gave_up,) = query.epochs.record.ended
    assert gave_up.abandoned == "sites: 2; nobody else came within 120 s"
    query.close()


def test_sites_that_are_awaited_get_no_units_of_queries_that_were_dropped_meanwhile(tmp_path):
    queries = {"newest": relation(), "sums": handle(STREAM).groupBy("v").last(2).agg(total=("k", "sum")).relation}
    query = DirectQuery(queries, tmp_path, sites=2, most_sites=4, streams=[STREAM])
    for epoch in range(2):
        query.run([rows(epoch)])
    hand = query.epochs.settings.controller
    hand.ask(Scale(4, "to see"))
    query.run([rows(2)])
    planned = {move.unit for move in planned_moves(hand)}
    query.change(drop=["newest"])
    query.run([rows(3)])
    routing = query.epochs.record.routing
    left = {move.unit for move in planned_moves(hand)}
    assert left == {unit for unit in planned if routing.has_unit(unit)} and 0 < len(left) < len(planned)
    query.change({"more": relation()}, ["sums"])
    query.run([rows(4)])
    assert not planned_moves(hand)
    query.close()


class Restless(Policy):
    """Wants a unit elsewhere whenever it is asked."""

    name = "restless"

    def decide(self, view: ClusterView) -> tuple[Action, ...]:
        return (Move(0, 1 - int(view.units.site[0]), "to see"),)


def test_a_policy_has_nothing_to_say_while_epochs_are_only_for_what_is_under_way(tmp_path):
    """It would keep an idle query from being idle."""
    query = DirectQuery(plan_of([relation()]), tmp_path, sites=2, wanted=Restless())
    for epoch in range(4):
        query.run([rows(epoch)])
    assert query.epochs.settings.controller.loop.moves
    assert epochs_over_nothing(query) <= 4
    assert not query.epochs.settings.controller.loop.moves
    query.close()


def test_what_a_row_costs_is_known_after_an_epoch_without_rows(tmp_path):
    query = Told(plan_of([relation()]), tmp_path, sites=2, seconds=1e9)
    query.run([rows(0)])
    query.run_idle_epoch()
    query.run([rows(1)])
    assert all(cost and cost > 0 for cost in query.told.directives.costs)
    query.close()


def test_how_long_sites_take_to_join_is_measured():
    driver = Driver()
    assert driver.controller.collection.forecast.join_seconds == 15.0
    driver.ask(Scale(6, "to see"))
    driver.epoch()
    driver.epoch(seconds=7.0)
    assert driver.routing.sites == 6 and driver.controller.collection.forecast.join_seconds == 7.0


def test_nothing_comes_to_a_site_that_is_leaving_and_no_more_sites_are_asked_for():
    driver = Driver()
    driver.ask(Scale(3, "to see"))
    for action in (Move(0, 3, ""), Share(0, 3, ""), Move(0, 2, ""), Scale(4, ""), Scale(1, "")):
        driver.ask(action)
    refused = [d.refused for d in driver.epoch().decisions if d.policy == "you"]
    assert refused == [None, "site 3 is leaving", "site 3 is leaving", None, "sites are leaving", "sites are leaving"]


@pytest.mark.parametrize(
    ("sites", "why"),
    [
        (0, "at least one site takes part"),
        (7, "there may be 1 to 6 sites"),
        (4, "there are 4 sites already"),
    ],
)
def test_numbers_of_sites_that_cannot_be_are_refused(sites, why):
    driver = Driver()
    driver.ask(Scale(sites, ""))
    assert [d.refused for d in driver.epoch().decisions] == [why]
    assert driver.controller.loop.scaling is None


def test_what_is_on_its_way_to_a_leaving_site_does_not_hold_it_up():
    driver = Driver(Routing(3, (0, 0, 0, 0, 1, 1, 1, 1)))
    driver.ask(Move(0, 2, "asked for"))
    driver.ask(Scale(2, "to see"))
    driver.epoch()
    driver.epoch()
    assert driver.routing.sites == 2
    assert {(end.decision.action, end.abandoned) for end in driver.newest.ended} == {
        ("move", "site 2 is gone"),
        ("scale", None),
    }


def test_shared_units_are_released_by_sites_that_leave():
    routing = EVEN.share(0, 3, (0, 1), since=0).share(6, 2, (0, 1), since=0)
    driver = Driver(routing)
    driver.ask(Scale(2, "to see"))
    step = driver.epoch()
    assert ("sites", "release", 0, 3, None) in said(step)
    assert ("sites", "release", 6, 2, None) in said(step)  # one of two that both leave; the other's moves then
    while driver.routing.sites == 4:
        driver.epoch()
    assert not driver.routing.shared
    assert driver.routing.holders[0] == 0


def test_few_units_at_a_time_are_set_apart(monkeypatch):
    limit_moves(monkeypatch, 3)
    driver = Driver()
    driver.ask(Scale(1, "to see"))
    epochs = 0
    while driver.routing.sites == 4:
        assert len(units_set_apart(driver.epoch())) <= 3
        epochs += 1
        assert epochs < 20


def limit_moves(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    """Have at most so many units on their way from leaving or to joining sites at a time."""
    monkeypatch.setattr(site_changes, "MAX_CONCURRENT_MOVES", most)


ONE = Routing(1, (0,) * 8)


def loads(routing: Routing) -> list[int]:
    """What each site has to do, as unit u takes u."""
    return [sum(unit for unit, holder in enumerate(routing.holders) if holder == site) for site in range(routing.sites)]


def test_sites_that_join_have_their_share_in_their_first_epoch():
    driver = Driver(ONE)
    driver.ask(Scale(3, "much to do"))
    step = driver.epoch()
    assert step.routing == ONE
    moved = units_set_apart(step)
    assert 4 <= len(moved) <= 6  # set apart before the sites are there
    step = driver.epoch()
    assert step.decisions[0].reason == "much to do; sites: 1, now 3; 0 units moved"
    assert [(d.policy, d.reason, d.refused) for d in step.decisions[1:]] == [
        ("sites", "sites: 1, soon 3; much to do", None)
    ] * len(moved)
    assert all(8 <= load <= 11 for load in loads(step.routing))
    assert tuple(unit for unit, holder in enumerate(step.routing.holders) if holder) == moved
    driver.epoch()
    assert not driver.moves_in_flight and driver.controller.scale_target == ScaleTarget(None, 1, 6)


def test_sites_that_join_a_query_at_rest_get_as_many_units_as_others():
    driver = Driver(Routing(1, (0,) * 9))
    driver.newest = replace(
        driver.newest, stats=EpochStats(sites=(SiteStats(0, "host/1", 2),), units=UnitColumns.none(9))
    )
    driver.ask(Scale(3, "soon"))
    driver.epoch()
    assert np.bincount(driver.epoch().routing.holders).tolist() == [3, 3, 3]


def test_what_sites_that_join_get_comes_some_units_at_a_time(monkeypatch):
    limit_moves(monkeypatch, 2)
    driver = Driver(ONE)
    driver.ask(Scale(2, "much to do"))
    assert len(units_set_apart(driver.epoch())) == 2
    held = [driver.epoch().routing.holders.count(1) for _ in range(6)]
    assert held[0] == 2 and all(later - sooner <= 2 for sooner, later in pairwise(held))
    assert loads(driver.routing) == [14, 14]


def test_while_sites_are_awaited_more_can_be_asked_for():
    driver = Driver(ONE)
    for sites in (2, 4, 3, 1):
        driver.ask(Scale(sites, f"{sites} wanted"))
    refused = [d.refused for d in driver.epoch().decisions]
    assert refused == [None, None, "sites are joining", "sites are joining"]
    step = driver.epoch()
    assert step.routing.sites == 4
    assert max(loads(step.routing)) <= 9


def test_all_parts_of_a_unit_that_is_split_go_to_the_site_that_is_awaited_for_it():
    driver = Driver(ONE)
    driver.ask(Scale(2, "much to do"))
    driver.wait()
    hottest, *others = [move.unit for move in driver.planned]
    driver.ask(Split(hottest, "to see"))
    while driver.routing.has_unit(hottest):
        driver.wait()
    parts = successors(ONE, driver.routing)[hottest]
    assert len(parts) == 2 and [move.unit for move in driver.planned] == [*parts, *others]
    before = driver.routing
    driver.ask(Merge(parts[1], "to see"))
    while driver.routing.has_unit(parts[1]):
        driver.wait()
    whole = successors(before, driver.routing)[parts[0]]
    assert len(whole) == 1 and [move.unit for move in driver.planned] == [*whole, *others]
    assert {move.site for move in driver.planned} == {1}


def test_some_may_join_before_others_and_nobody_is_awaited_for_good():
    driver = Driver()
    driver.ask(Scale(6, "much to do"))
    driver.epoch()
    step = driver.controller.resized(driver.newest, 5, "executors joined: 1", driver.now)
    assert step.decisions[0].reason == "much to do; sites: 4, now 5; 0 units moved"
    assert {d.site for d in step.decisions[1:]} == {4}
    assert {move.site for move in driver.planned} == {5}
    driver.commit(step)
    assert driver.controller.scale_target == ScaleTarget(6, 1, 6)
    step = driver.controller.after(driver.newest, JOIN_TIMEOUT_S - 1)
    driver.commit(step)
    assert not step.decisions and {one.decision.action for one in driver.newest.under_way} == {"scale"}
    waited = driver.controller.after(driver.newest, JOIN_TIMEOUT_S + 2)
    assert [end.abandoned for end in waited.ended] == ["sites: 5; nobody else came within 120 s"]
    assert not waited.instructions and not driver.planned
    assert driver.controller.scale_target == ScaleTarget(None, 1, 6)


def test_those_that_joined_get_their_share_though_others_never_come(monkeypatch):
    limit_moves(monkeypatch, 1)
    driver = Driver(Routing.even(32, 4))
    driver.ask(Scale(6, "much to do"))
    driver.epoch()
    step = driver.controller.resized(driver.newest, 5, "executors joined: 1", driver.now)
    assert {move.site for move in driver.planned} == {4, 5}
    driver.commit(step)
    driver.controller.after(driver.newest, JOIN_TIMEOUT_S + 2)
    assert {move.site for move in driver.planned} == {4}


def test_units_are_set_apart_when_there_are_executors_for_the_sites_they_go_to():
    driver = Driver(ONE)
    driver.controller.slots = 1
    driver.ask(Scale(3, "much to do"))
    driver.epoch()
    planned = {move.unit: move.site for move in driver.planned}
    waiting = driver.controller.after(driver.newest, driver.now)
    assert not waiting.instructions and set(planned.values()) == {1, 2}
    driver.controller.slots = 2
    ready = driver.controller.after(driver.newest, driver.now)
    assert units_set_apart(ready) == tuple(sorted(unit for unit, site in planned.items() if site == 1))


class Greedy(Policy):
    """Wants as many sites as there may be."""

    name = "greedy"
    scales = True

    def decide(self, view: ClusterView) -> tuple[Action, ...]:
        return (
            (Scale(view.scaling.most_sites, "more"),)
            if view.scaling.most_sites > max(len(view.sites), view.scaling.requested_sites)
            else ()
        )


def test_sites_that_do_not_come_are_asked_for_ever_more_seldom_until_something_changes():
    driver = Driver(wanted=Greedy(), minimum=1e-9)
    driver.controller.slots = 4
    asked: list[float] = []
    abandoned: list[str | None] = []

    def pass_hours(hours: int) -> None:
        for _ in range(hours * 120):  # an epoch in half a minute, and nobody joins
            step = driver.wait(seconds=30.0)
            asked.extend(driver.now for d in step.decisions if (d.policy, d.action) == ("greedy", "scale"))
            abandoned.extend(end.abandoned for end in step.ended)

    pass_hours(8)
    pauses = [later - sooner - JOIN_TIMEOUT_S for sooner, later in pairwise(asked)]
    assert pauses[:6] == pytest.approx([120, 240, 480, 960, 1920, 3600], abs=60)
    assert pauses[6:] == pytest.approx([3600] * len(pauses[6:]), abs=60)
    assert len(abandoned) == len(asked) <= 12
    assert abandoned[0] == "sites: 4; nobody else came within 120 s, and greedy waits 120 s before it asks again"
    before = len(asked)
    driver.controller.slots = 5
    pass_hours(1)
    assert [later - sooner - JOIN_TIMEOUT_S for sooner, later in pairwise(asked[before:])][:2] == pytest.approx(
        [120, 240], abs=60
    )


def most_runs(record: EpochRecord) -> tuple[int, float]:
    """The most runs that an input has at a site, and what it may have, beside those of units on their way."""
    runs, few = 0, 0.0
    for manifest in record.manifests:
        by_input = Counter(run.segment.input for run in manifest)
        runs = max([runs, *by_input.values()])
        size = sum(run.bytes for run in manifest)
        few = max(few, compaction.FEW_RUNS + compaction.RUNS_OF_A_PIECE * size / compaction.PIECE_BYTES)
    return runs, few


def test_runs_stay_few_while_sites_are_awaited_and_when_they_come(tmp_path):
    """Also with many units, whose executors are there and take long to be ready, or have never come."""
    query = Told(plan_of([relation()]), tmp_path, sites=2, partitions=128, most_sites=4)
    hand = query.epochs.settings.controller
    entries: list[int] = []

    def run(epochs: int, joining: bool = False) -> None:
        for _ in range(epochs):
            if joining:
                query.follow()
            query.run([rows(query.next, keys=300)])
            leaving = sum(len(one.units) for one in query.told.instructions if isinstance(one, SetApart))
            runs, few = most_runs(query.epochs.record)
            assert runs <= few + compaction.FAN_IN * leaving
            assert leaving <= site_changes.MAX_CONCURRENT_MOVES
            entries.append(max(file.stat().st_size for file in (tmp_path / "checkpoint/journal").iterdir()))

    hand.slots = 2
    run(5)
    hand.ask(Scale(4, "to see"))
    run(12)
    assert max(entries[5:]) <= 1.5 * entries[4], "nothing is set apart for sites that have not come"
    hand.slots = 4
    run(8)
    with_units_apart = max(entries)
    run(8)
    assert entries[-1] <= 1.2 * with_units_apart
    run(8, joining=True)
    assert query.epochs.record.routing.sites == 4 and not hand.loop.moves and not planned_moves(hand)
    assert len(Counter(query.epochs.record.routing.holders)) == 4
    runs, _ = most_runs(query.epochs.record)
    assert runs <= 2 * compaction.FAN_IN
    query.close()
    alone = DirectQuery(plan_of([relation()]), tmp_path / "alone", sites=2, partitions=128)
    for epoch in range(query.next):
        alone.run([rows(epoch, keys=300)])
    alone.close()
    assert multiset(query.results()) == multiset(alone.results())


def test_an_epoch_with_other_sites_that_came_to_nothing_is_tried_again_alike():
    for wanted in (2, 6):
        driver = Driver(Routing(4, (0, 0, 0, 0, 1, 1, 1, 1)))
        driver.ask(Scale(wanted, "to see"))
        driver.epoch()
        first, again = (driver.controller.resized(driver.newest, wanted, "", now) for now in (2.0, 3.0))
        assert first.routing == again.routing
        assert units_set_apart(first) == units_set_apart(again)


@pytest.mark.parametrize("wanted", [2, 5, 6])
def test_an_epoch_with_other_sites_that_came_to_nothing_may_be_followed_by_one_with_as_many_as_before(wanted):
    """Also by one with fewer than were to join: then the others get their share later."""
    for other in {4, min(wanted, 5)}:
        driver = Driver(Routing(4, (0, 0, 0, 0, 1, 1, 1, 1)))
        driver.ask(Scale(wanted, "to see"))
        driver.epoch()
        planned = {move.unit: move.site for move in driver.planned}
        assert {site for site in planned.values() if site >= 4} == set(range(4, wanted))
        lost = driver.controller.resized(driver.newest, wanted, "", 2.0)
        if other == 4:
            step = driver.controller.after(driver.newest, 3.0, "executors gone: 1", lost=lost)
        else:
            step = driver.controller.resized(driver.newest, other, "executors gone: 1", 3.0, lost=lost)
        assert step.routing.sites == other
        assert all(max(move.source, move.target) < other for move in driver.controller.loop.moves)
        begun = {end.decision.unit for end in step.ended if end.abandoned}
        assert begun == {unit for unit, site in planned.items() if site >= other}
        driver.commit(step)
        assert [one.decision.action for one in driver.newest.under_way].count("scale") == (other != wanted)
        for _ in range(3):
            driver.epoch()
        assert driver.routing.sites == wanted and not driver.moves_in_flight and not driver.planned
        assert all(driver.routing.holders[unit] == site for unit, site in planned.items())
        assert not driver.newest.under_way


def test_cores_that_come_and_go_within_an_epoch_that_came_to_nothing_leave_nothing_behind(monkeypatch):
    monkeypatch.setattr("sluice.control.site_changes._is_little", lambda record, routing, allowance: False)
    driver = Driver()
    driver.epoch()
    lost = driver.controller.resized(driver.newest, 6, "executors joined: 2", 2.0)
    assert {move.target for move in driver.controller.loop.moves} == {4, 5}
    step = driver.controller.after(driver.newest, 3.0, "executors gone: 2", lost=lost)
    assert step.routing == driver.routing and not step.instructions
    assert not list(driver.controller.loop.in_flight)
    assert {end.abandoned for end in step.ended} == {"site 4 is gone", "site 5 is gone"}


class Watching(Policy):
    """Asks for nothing, and remembers what it saw."""

    name = "watching"

    def __init__(self) -> None:
        self.seen: list[ClusterView] = []

    def decide(self, view: ClusterView) -> tuple[Action, ...]:
        self.seen.append(view)
        return ()


def test_a_policy_sees_how_full_sites_are_how_long_it_took_and_how_many_sites_there_may_be():
    watching = Watching()
    controller = Controller(watching, 1 << 30, minimum=3.0, capabilities=ABLE, backlog=1000.0)
    for number, waiting in enumerate([(0, 0, 0, 0), (1000, 0, 500, 9000), (500, 0, 0, 9000), (0, 0, 100, 9000)]):
        controller.after(record(number, waiting=waiting), 2.0 + number)
    (view,) = watching.seen
    assert view.sites.occupancy.tolist() == pytest.approx([0.5, 0.0, 0.2, 1.0])
    assert (view.period.elapsed_seconds, view.scaling.least_sites, view.scaling.most_sites) == (3.0, 1, 6)


def test_a_policy_sees_in_how_much_time_rows_arrived():
    """What an epoch takes in has arrived while the one before it ran."""
    watching = Watching()
    controller = Controller(watching, 1 << 30, minimum=9.0, capabilities=ABLE)
    begun = np.cumsum([0.0, 1.0, 2.0, 3.0, 9.0, 3.0, 9.0])  # each epoch
    for number, next_begins in enumerate(begun[1:]):
        controller.after(record(number), next_begins)
    seen = [(view.period.elapsed_seconds, view.period.arrival_seconds) for view in watching.seen]
    assert seen[0] == (begun[4] - begun[1], begun[3] - begun[0])
    assert seen[1] == (begun[6] - begun[4], begun[5] - begun[3])


def test_an_epoch_for_input_that_waits_takes_none_in():
    watching = Watching()
    controller = Controller(watching, 1 << 30, minimum=1e-3, capabilities=ABLE)
    caught_up = replace(record(2), stats=replace(record(2).stats, catch_up=True))
    for number, committed in enumerate([record(0), record(1), caught_up, record(3)], start=1):
        controller.after(committed, 2.0 * number)
    assert [view.period.arrival_seconds for view in watching.seen] == [1.0, 0.0, 4.0]


def test_where_the_number_of_sites_is_fixed_a_policy_sees_no_other():
    watching = Watching()
    controller = Controller(watching, 1 << 30, minimum=1.0)
    for number in range(3):
        controller.after(record(number), float(number))
    view = watching.seen[0]
    assert (view.scaling.least_sites, view.scaling.most_sites, view.sites.occupancy.tolist()) == (4, 4, [0.0] * 4)
    assert controller.scale_target is None


STREAM = Stream("s", pa.schema([("k", pa.int64()), ("ts", TIME), ("v", pa.int64())]), "ts", 0)


def rows(epoch: int, keys: int = 40) -> pa.Table:
    times = np.arange(keys * 3) % 3 + epoch * 3
    columns = [np.arange(keys * 3) % keys, pa.array(times * SECOND).cast(TIME), np.arange(keys * 3)]
    return pa.table([pa.array(c) for c in columns], schema=STREAM.schema)


def relation() -> Relation:
    return handle(STREAM).groupBy("k").last(5).agg(total=("v", "sum")).relation


EPOCHS = 14


def answer(data: st.DataObject | None, wanted: list[int]) -> Counter:
    """What comes out if so many sites are asked for, one number every third epoch."""
    with tempfile.TemporaryDirectory(dir=FAST) as directory:
        chosen = data.draw(st.sampled_from(["static", "load", "hybrid"])) if data else "static"
        options = limits(data) if data else {}
        query = DirectQuery(plan_of([relation()]), Path(directory), sites=3, wanted=chosen, most_sites=6, **options)
        for epoch in range(EPOCHS):
            if wanted and epoch % 3 == 0:
                query.epochs.settings.controller.ask(Scale(wanted[epoch // 3], "to see"))
            query.follow()
            query.run([rows(epoch)])
        query.drain()
        resizes = [d.reason for r in query.epochs.standing.recent for d in r.decisions if d.action == "resize"]
        assert all(reason.endswith("; 0 units moved") for reason in resizes)
        query.close()
        return multiset(query.results())


@cache
def undisturbed() -> Counter:
    return answer(None, [])


@settings(max_examples=one_in(2))
@given(st.data(), st.lists(st.integers(1, 6), min_size=EPOCHS // 3 + 1, max_size=EPOCHS // 3 + 1))
def test_the_answer_is_the_same_however_many_sites_are_asked_for(data, wanted):
    """Also while input waits, units lie on disk and a policy moves others."""
    assert answer(data, wanted) == undisturbed()


class Told(DirectQuery):
    """Remembers what its sites were told last."""

    def at_site(self, task: SiteTask, level: int, site_key: int, blobs: list[ReceivedBlob]) -> list[SentBlob]:
        self.told = task
        return super().at_site(task, level, site_key, blobs)


def test_a_site_that_joins_goes_by_what_rows_cost_the_others(tmp_path):
    query = Told(plan_of([relation()]), tmp_path, sites=2, most_sites=3, seconds=1e9)
    query.run([rows(0)])
    query.epochs.settings.controller.ask(Scale(3, "to see"))
    query.run([rows(1)])
    seen = query.epochs.record.stats.sites
    query.follow()
    query.run([rows(2)])
    mean = sum(site.busy_seconds for site in seen) / sum(site.rows_done for site in seen)
    assert query.told.directives.costs == pytest.approx([*(site.busy_seconds / site.rows_done for site in seen), mean])
    query.close()


def test_an_epoch_for_input_that_waits_leaves_time_for_the_next_batch(tmp_path):
    query = Told(plan_of([relation()]), tmp_path, sites=1, seconds=1e-6)
    for epoch in range(2):
        query.run([rows(epoch, keys=200)])
    assert query.epochs.is_behind
    assert query.catch_up(until=query.clock.time())
    assert query.told.directives.seconds == 0.25e-6
    assert query.catch_up()
    assert query.told.directives.seconds == 1e-6
    query.run([rows(2, keys=200)])
    assert query.catch_up(until=query.clock.time() + 3600)
    assert query.told.directives.seconds == 1e-6
    query.drain()
    query.close()


def test_a_site_that_joins_reads_what_it_will_hold_and_one_that_leaves_is_gone(tmp_path):
    query = DirectQuery(plan_of([relation()]), tmp_path, sites=1, most_sites=3)
    hand = query.epochs.settings.controller
    for epoch in range(30):
        if epoch == 4:
            hand.ask(Scale(3, "to see"))
        if epoch == 20:
            hand.ask(Scale(1, "to see"))
        query.follow()
        query.run([rows(epoch, keys=200)])
        newest = query.epochs.record
        if epoch == 12:
            assert newest.routing.sites == 3
            for site in (1, 2):
                epochs = [r for r in query.epochs.standing.recent if r.routing.sites == 3]
                read = sum(r.stats.sites[site].fetched_bytes for r in epochs)
                held = sum(run.segment.length for run in newest.manifests[site])
                assert newest.routing.holders.count(site) > 1
                assert 0 < read <= 1.5 * held
    assert newest.routing.sites == len(newest.manifests) == len(newest.stats.sites) == 1
    query.close()
