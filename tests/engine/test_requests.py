"""What becomes of requests: each is done with an epoch, refused or abandoned for a reason, or waits."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from engine_harness import DirectQuery
from oracle import batch_join, multiset
from specs import SECOND, join, stream

from sluice.control import copying
from sluice.control.controller import RESTARTED, RUN_AGAIN
from sluice.control.epoch_executor import SUPERSEDED
from sluice.control.replay import records_of_newest_run, replay
from sluice.model.durations import LONGEST
from sluice.model.epoch.decision import Decision, DecisionOutcome, UnderWay, Verb
from sluice.model.routing.routing import Routing
from sluice.model.routing.unit_ranges import holds
from sluice.model.view import ClusterView
from sluice.policies import Policy
from sluice.record.epoch import EpochRecord
from sluice.record.rebalancing import rebalance
from sluice.testing.drawn_actions import draw_redivision, draw_sharing
from sluice.verbs import Action
from sluice.verbs.base import SiteWork
from sluice.verbs.freeze import CleanUp, CleanUpAll, CleanUpProtocol, Freeze
from sluice.verbs.move import Move
from sluice.verbs.scale import ArrivalProtocol, Scale
from sluice.verbs.share import LayOut, PassToken, Release, Share
from sluice.verbs.split import Merge, Split

FAST = "/dev/shm" if Path("/dev/shm").is_dir() else None
UNITS, SITES, MOST_SITES = 4, 2, 4
PATIENCE = 15
"""Epochs within which every request has come to its end."""


class Asked:
    """A join of two streams, of which things are asked."""

    def __init__(self, root: str, within: int = LONGEST, **options: object) -> None:
        self.rng, self.root, self.options = np.random.default_rng(5), Path(root), options
        self.spec = join([stream("a", delay=None), stream("b", delay=None)], within)
        self.seen: list[list[pa.Table]] = [[], []]
        self.start()

    def start(self, sites: int = SITES) -> None:
        self.query = DirectQuery(self.spec, self.root, sites, UNITS, most_sites=MOST_SITES, **self.options)

    @property
    def record(self) -> EpochRecord:
        return self.query.epochs.record

    def ask(self, *actions: Action) -> None:
        for action in actions:
            self.query.epochs.settings.controller.ask(action)

    def run(self, epochs: int = 1, rows: int = 60) -> EpochRecord:
        for _ in range(epochs):
            for kept in self.seen:
                keys = self.rng.integers(0, 20, rows)
                times = pa.array(self.rng.integers(0, 60 * SECOND, rows), self.spec.streams[0].schema.field(1).type)
                kept.append(pa.table([keys, times, self.rng.integers(0, 5, rows)], self.spec.streams[0].schema))
            self.query.run([kept[-1] for kept in self.seen])
        return self.record

    def outcomes(self, who: str = "you") -> list[DecisionOutcome]:
        return [one for one in self.query.epochs.outcomes() if one.policy == who]

    def fates(self) -> list[tuple[str, str, int | None]]:
        """Of what was asked for: the verb, what has become of it, and with which epoch."""
        return [(one.action, one.outcome, one.ended) for one in self.outcomes()]

    def check(self) -> None:
        self.query.drain()
        both = [pa.concat_tables(tables) for tables in self.seen]
        assert multiset(self.query.results()) == multiset(batch_join(self.spec, both))
        self.query.close()


@pytest.fixture
def asked():
    with tempfile.TemporaryDirectory(dir=FAST) as directory:
        yield Asked(directory)


def interrupt() -> None:
    """An epoch comes to nothing."""
    raise InterruptedError


def is_frozen(record: EpochRecord, unit: int) -> bool:
    return any(holds(cold.units, record.routing.index_of(unit)) for cold in record.frozen)


def test_a_unit_is_frozen_before_it_moves(asked):
    asked.run(2)
    asked.ask(Freeze(0, "to see"), Move(0, 1, "at once"))
    record = asked.run()
    assert is_frozen(record, 0)
    asked.ask(Move(0, 1, "since it is frozen"))
    asked.run(3)
    assert asked.fates() == [("freeze", "done", 2), ("move", "refused", 2), ("move", "done", 4)]
    assert asked.outcomes()[1].refused == "unit 0 is to be frozen"
    assert asked.record.routing.holders[0] == 1 and is_frozen(asked.record, 0)
    asked.check()


def test_a_unit_is_frozen_that_its_site_is_about_to_hand_over(asked):
    asked.run(2)
    asked.ask(Freeze(3, "to see"), Scale(1, "to see"))  # unit 3 is at the site that leaves
    assert is_frozen(asked.run(), 3)
    for _ in range(5):
        asked.query.follow()
        asked.run()
    (freeze, scale) = asked.fates()
    assert freeze == ("freeze", "done", 2) and scale[:2] == ("scale", "done")
    assert asked.query.epochs.history()[scale[2]].routing.sites == 1
    asked.check()


def test_a_unit_is_frozen_that_a_site_gets_which_has_yet_to_join(asked):
    asked.run(2)
    asked.ask(Scale(4, "to see"))
    asked.run()
    (arrival,) = asked.query.epochs.settings.controller.loop.in_flight.of(ArrivalProtocol)
    awaited = [move.unit for move in arrival.moves]
    asked.ask(*(Freeze(unit, "to see") for unit in awaited))
    record = asked.run()
    assert awaited and all(is_frozen(record, unit) for unit in awaited)
    assert asked.fates() == [("scale", "waiting", None), *[("freeze", "done", 3)] * len(awaited)]
    for _ in range(3):
        asked.query.follow()
        asked.run()
    assert asked.fates()[0] == ("scale", "done", 4)
    asked.check()


SHARED = (Share(0, 1, "to see"),)
AT_ONCE: list[tuple[Sequence[Action], Action]] = [
    ((), Freeze(0, "to see")),
    ((), Share(0, 1, "to see")),
    (SHARED, Release(0, 1, "to see")),
    (SHARED, PassToken(0, 0, 1, "to see")),
    (SHARED, LayOut(0, (2, 1), "to see")),
]


@pytest.mark.parametrize(("before", "action"), AT_ONCE, ids=lambda value: getattr(value, "verb", ""))
def test_what_the_next_epoch_does_is_done_with_it(asked, before, action):
    asked.run()
    asked.ask(*before)
    asked.run(2)
    asked.ask(action)
    assert asked.fates()[-1] == (action.verb, "waiting", None)
    asked.run()
    assert asked.fates()[-1] == (action.verb, "done", 3)
    sharing = asked.record.routing.sharing(0)
    match action:
        case Freeze():
            assert is_frozen(asked.record, 0)
        case Release():
            assert sharing is None
        case Share():
            assert sharing.holders == (0, 1)
        case PassToken():
            assert sharing.tokens[0] == 1
        case LayOut():
            assert sharing.grid_shape == (2, 1)
    asked.check()


def test_a_move_is_done_with_the_epoch_from_which_on_the_unit_is_there(asked):
    asked.run(2)
    asked.ask(Move(0, 1, "to see"))
    told = []
    for _ in range(3):
        asked.run()
        told.append((asked.record.routing.holders[0], *asked.fates()[0][1:]))
    assert told == [(0, "waiting", None), (1, "done", 3), (1, "done", 3)]
    assert not asked.record.under_way and not asked.record.ended
    asked.check()


def test_a_move_ends_once_though_there_is_another_number_of_sites_in_the_next_epoch(asked):
    asked.run(2)
    asked.ask(Move(0, 1, "to see"))
    asked.run(2)
    assert asked.fates() == [("move", "done", 3)]
    asked.query.site_keys = tuple(range(100, 101 + SITES))
    asked.run()
    assert asked.record.routing.sites == SITES + 1 and not asked.record.ended
    assert asked.fates() == [("move", "done", 3)]
    asked.check()


def test_a_move_is_not_done_by_an_epoch_that_came_to_nothing(asked):
    """With one site less its unit is to be where it was to go; but then there are as many sites as before."""
    asked.start(3)
    asked.run(2)
    routing = asked.record.routing
    unit = next(unit for unit in range(UNITS) if routing.holder(unit) == 2)
    asked.ask(Move(unit, rebalance(routing, 2, 3).holder(unit), "to see"))
    asked.run()
    asked.query.site_keys = asked.query.site_keys[:2]
    with pytest.raises(InterruptedError):
        asked.query.run([s.schema.empty_table() for s in asked.spec.streams], before_commit=interrupt)
    asked.query.site_keys = (100, 101, 102)
    asked.run()
    assert asked.record.routing.holder(unit) == 2
    assert [(one.outcome, one.abandoned) for one in asked.outcomes()] == [("abandoned", RUN_AGAIN)]
    asked.check()


def test_a_split_and_a_merge_are_done_with_the_epoch_from_which_on_units_are_others(asked):
    asked.run(2)
    asked.ask(Split(0, "to see"))
    asked.run(4)
    ((_, state, done),) = asked.fates()
    history = asked.query.epochs.history()
    assert state == "done" and history[done].routing.units > history[done - 1].routing.units == UNITS
    assert asked.outcomes()[0].new_units == tuple(range(UNITS, asked.record.routing.ids.next_id))
    asked.ask(Merge(UNITS, "to see"))
    asked.run(3)
    *_, (_, state, done) = asked.fates()
    history = asked.query.epochs.history()
    assert state == "done" and history[done].routing.units < history[done - 1].routing.units
    assert asked.outcomes()[1].new_units == (asked.record.routing.ids.next_id - 1,)
    asked.check()


def test_of_requests_that_are_alike_each_is_carried_out_once(asked, monkeypatch):
    """A unit is shared with a site, released by it and shared with it again; another site has much to copy between."""
    monkeypatch.setattr(copying.CopyRate, "allow", lambda rate, stats: 3000.0)
    asked.start(3)
    asked.run(3, rows=400)
    again = Share(0, 1, "to see", evenly=True)
    asked.ask(again, Release(0, 1, "to see"), Share(0, 2, "to see", evenly=True), again)
    ended = []
    for _ in range(PATIENCE):
        asked.run(rows=20)
        ended += [end.decision.action for end in asked.record.ended]
    assert ended == ["share", "release", "share", "share"]
    assert {what for _, what, _ in asked.fates()} == {"done"} and not asked.record.under_way
    assert asked.record.routing.holders_of(0) == (0, 2, 1)
    asked.check()


def test_the_log_tells_of_every_end(asked, caplog):
    caplog.set_level(logging.INFO, logger="sluice.control")
    asked.run(2)
    asked.ask(Move(0, 1, "to see"), Split(1, "to see"))
    asked.run(4)
    done = [message for message in caplog.messages if ": done" in message]
    assert done == [
        "you: move unit 0 of epoch 2: done",
        "you: split unit 1 of epoch 2: done, units 4 and 5 in its place",
    ]
    asked.check()


def test_units_are_cleaned_up_in_the_order_of_their_places_also_when_some_were_split():
    """Neighbours are read together, and parts of a unit that was split have later ids than their neighbours."""
    cleaning = CleanUpProtocol((0, 1, 2, 3))
    cleaning.decision = Decision(4, "you", Verb.CLEAN_UP, None, None, "to see")
    cleaning.replace_units({1: (4, 5)})
    missing = tuple((0, unit) for unit in (0, 4, 5, 2, 3))
    under_way = cleaning.settle(
        5, Routing.even(4, 1).split(1, 5), SiteWork(cleaned=frozenset([(0, 0)]), missing=missing)
    )
    assert under_way == UnderWay(cleaning.decision, (4, 5, 2, 3))


def test_cleaning_up_is_done_when_what_was_missing_is_there_however_much_comes_meanwhile(asked):
    """New rows come in every epoch, and miss what is frozen again where there is no room for it."""
    with tempfile.TemporaryDirectory(dir=FAST) as directory:
        asked = Asked(directory, memory=0)
        asked.run(2)
        asked.ask(Freeze(0, "to see"))
        asked.run(2)
        assert 0 in asked.record.missing_units
        asked.ask(CleanUp(0, "to see"))
        asked.run(2)
        assert 0 in asked.record.missing_units
        assert asked.fates() == [("freeze", "done", 2), ("clean up", "done", 4)]
        asked.check()


def test_what_cannot_be_is_refused_with_a_reason(asked):
    asked.run(2)
    asked.ask(Move(0, 0, "to see"), Release(0, 1, "to see"), Scale(9, "to see"), Merge(0, "to see"))
    asked.run()
    assert [one.outcome for one in asked.outcomes()] == ["refused"] * 4
    assert all(one.refused and one.ended == 2 for one in asked.outcomes())
    asked.check()


def test_more_sites_than_before_take_the_place_of_the_request_before(asked):
    asked.run(2)
    asked.ask(Scale(3, "to see"))
    asked.run()
    asked.ask(Scale(4, "to see"))
    asked.run()
    first, second = asked.outcomes()
    assert first.abandoned == SUPERSEDED and first.ended == 3 and second.outcome == "waiting"
    asked.query.follow()
    asked.run()
    assert asked.outcomes()[1].ended == 4 and asked.record.routing.sites == 4
    asked.check()


def test_what_a_driver_was_at_ends_with_the_first_epoch_of_the_next_one(asked):
    asked.run(2)
    asked.ask(Freeze(1, "to see"))
    asked.run(2)
    asked.ask(CleanUp(1, "to see"), Move(0, 1, "to see"), Scale(3, "to see"), Split(3, "to see"))
    asked.run()
    under_way = {one.decision.action for one in asked.record.under_way}
    assert {"move", "scale", "split"} <= under_way
    asked.start()
    asked.run()
    assert {one.decision.action for one in asked.record.under_way} <= {"clean up"}
    told = {one.action: (one.outcome, one.ended, one.abandoned) for one in asked.outcomes()}
    assert {told[verb] for verb in ("move", "scale", "split")} == {("abandoned", asked.record.number, RESTARTED)}
    asked.run()
    assert {one.action: one.outcome for one in asked.outcomes()}["clean up"] == "done"
    asked.check()


def test_what_a_driver_was_at_ends_without_input(asked):
    asked.run(2)
    asked.ask(Move(0, 1, "to see"))
    asked.run()
    asked.start()
    assert asked.fates() == [("move", "waiting", None)]
    assert asked.query.catch_up() and not asked.query.catch_up()
    assert asked.fates() == [("move", "abandoned", 3)]
    asked.check()


class Lost(Exception):
    """An epoch comes to nothing."""


def lose_an_epoch(asked: Asked) -> None:
    def fail() -> None:
        raise Lost

    empty = [s.schema.empty_table() for s in asked.spec.streams]
    with pytest.raises(Lost):
        asked.query.run(empty, before_commit=fail)


def test_an_epoch_that_is_run_again_does_what_was_decided_for_it(asked):
    asked.run(2)
    asked.ask(Freeze(0, "to see"), Share(1, 1, "to see"), Move(2, 0, "to see"))
    lose_an_epoch(asked)
    assert {one[1] for one in asked.fates()} == {"waiting"}
    asked.run(3)
    assert asked.fates() == [("freeze", "done", 2), ("share", "done", 2), ("move", "done", 3)]
    assert is_frozen(asked.query.epochs.history()[2], 0) and asked.record.routing.sharing(1)
    asked.check()


def test_an_epoch_that_is_run_again_with_other_sites_does_what_it_can_and_tells_what_it_cannot(asked):
    asked.run(2)
    asked.ask(Freeze(0, "to see"), Share(1, 1, "to see"), Move(2, 0, "to see"), Split(3, "to see"))
    lose_an_epoch(asked)
    asked.query.site_keys = (100,)
    asked.run(3)
    told = {one.action: (one.outcome, one.ended, one.abandoned) for one in asked.outcomes()}
    assert told["freeze"] == ("done", 2, None) and is_frozen(asked.query.epochs.history()[2], 0)
    assert told["share"] == told["split"] == ("abandoned", 2, "there is another number of sites: 1")
    assert told["move"][:2] == ("done", 2) and asked.record.routing.holders[2] == 0
    asked.check()


def test_a_unit_is_split_while_others_move_and_are_shared(asked, monkeypatch):
    """A large unit takes many epochs to move. Whatever is done to others is done meanwhile."""
    monkeypatch.setattr(copying, "MIN_COPY_BYTES", 1)
    monkeypatch.setattr(copying, "MAX_EPOCH_SHARE", 0.0)
    asked.run(3, rows=400)
    asked.ask(Move(3, 0, "to see"))
    asked.run(rows=0)
    asked.ask(Split(0, "to see"), Share(1, 1, "to see"), Freeze(2, "to see"))
    moving, done = asked.fates()[0], []
    while len(done) < 3:
        assert asked.run(rows=0).number < 15
        done = [fate for fate in asked.fates()[1:] if fate[1] == "done"]
        moving = asked.fates()[0] if asked.record.routing.holder(3) == 1 else moving
    assert moving == ("move", "waiting", None)
    epochs = {verb: epoch for verb, _, epoch in done}
    assert epochs["freeze"] == epochs["share"] == 4 and epochs["split"] == 6
    asked.run(4, rows=0)
    assert asked.fates()[0][:2] == ("move", "done")
    asked.check()


def test_several_changes_of_one_unit_are_done_in_the_order_in_which_they_were_asked_for(asked, monkeypatch):
    """Much is to be copied for the grid, and what comes after it waits."""
    monkeypatch.setattr(copying, "MIN_COPY_BYTES", 1)
    monkeypatch.setattr(copying, "MAX_EPOCH_SHARE", 0.0)
    asked.run(3, rows=400)
    asked.ask(Share(0, 1, "to see"))
    asked.run(rows=0)
    asked.ask(LayOut(0, (2, 1), "to see"), LayOut(0, (), "to see"), Release(0, 1, "to see"))
    for _ in range(PATIENCE):
        asked.run(rows=0)
    assert {one.outcome for one in asked.outcomes()} == {"done"}
    ended = [one.ended for one in asked.outcomes()]
    assert ended == sorted(ended) and ended[-1] > ended[0] + 1
    assert asked.record.routing.sharing(0) is None
    asked.check()


def test_all_that_is_missing_is_cleaned_up_on_request(asked):
    with tempfile.TemporaryDirectory(dir=FAST) as directory:
        asked = Asked(directory)
        asked.run(2)
        asked.ask(CleanUpAll("nothing is missing yet"), Freeze(0, "to see"), Freeze(3, "to see"))
        asked.run(2)
        assert set(asked.record.missing_units) == {0, 3}
        asked.ask(CleanUpAll("to see"))
        asked.run(2)
        assert not asked.record.missing_units
        assert asked.fates() == [
            ("clean up", "refused", 2),
            ("freeze", "done", 2),
            ("freeze", "done", 2),
            ("clean up", "done", 4),
        ]
        asked.check()


def test_what_a_record_says_of_decisions_does_not_grow_with_the_epochs(asked):
    asked.run(2)
    sizes = []
    for epoch in range(120):
        if epoch % 4 == 0:
            asked.ask(Move(0, 1 - asked.record.routing.holders[0], "to see"), Freeze(2, "to see"))
        record = asked.run(rows=0)
        sizes.append(len(record.decisions) + len(record.ended) + len(record.under_way))
    assert max(sizes[60:]) <= max(sizes[:60])
    assert {one.outcome for one in asked.outcomes()} == {"done"}
    asked.check()


def test_a_decision_that_is_older_than_the_journal_is_still_told_of(asked):
    asked.run(2)
    asked.ask(Scale(4, "to see"))
    asked.run(110, rows=0)
    assert asked.query.epochs.history()[0].number > 2
    assert asked.fates() == [("scale", "waiting", None)]
    asked.query.follow()
    asked.run(rows=0)
    assert asked.fates() == [("scale", "done", asked.record.number)]
    asked.check()


def drawn(rng: np.random.Generator, record: EpochRecord) -> Action:
    """Any verb, about any unit, whether it makes sense or not."""
    routing = record.routing
    unit, site = routing.unit_at(int(rng.integers(routing.units))), int(rng.integers(MOST_SITES))
    match rng.integers(8):
        case 0 | 1:
            return Move(unit, site, "drawn")
        case 2:
            return Freeze(unit, "drawn")
        case 3:
            return CleanUp(unit, "drawn")
        case 4 | 5:
            return draw_sharing(rng, routing)
        case 6:
            return draw_redivision(rng, record)
        case _:
            return Scale(int(rng.integers(1, MOST_SITES + 1)), "drawn")


def assert_done(one: DecisionOutcome, history: dict[int, EpochRecord]) -> None:
    """That what is said to be done with an epoch is so in its record."""
    decision, ended = one, history.get(one.ended or 0)
    if ended is None:
        return
    match decision.action:
        case Move.verb:
            assert ended.routing.holder(decision.unit) == decision.site
        case Split.verb | Merge.verb:
            assert ended.routing.directories != history[ended.number - 1].routing.directories
            assert one.new_units and all(ended.routing.has_unit(unit) for unit in one.new_units)
            assert not ended.routing.has_unit(decision.unit)
        case Scale.verb:
            assert decision.reason.endswith(f"wanted {ended.routing.sites}")
        case Freeze.verb:
            rows = ended.stats.units.memory[ended.routing.index_of(decision.unit)]
            assert is_frozen(ended, decision.unit) or not rows
        case CleanUp.verb:
            assert ended.number >= decision.epoch


@pytest.mark.parametrize("seed", [*range(2), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 60))])
def test_every_request_comes_to_its_end(seed):
    rng = np.random.default_rng(seed)
    with tempfile.TemporaryDirectory(dir=FAST) as directory:
        asked = Asked(directory, memory=int(rng.choice([2_000, 1 << 30])))
        asked.rng = rng
        restarted: set[int] = set()
        for _ in range(30):
            for _ in range(rng.poisson(1.0)):
                asked.ask(drawn(rng, asked.record))
            if rng.random() < 0.7:  # else executors that were asked for have not come
                asked.query.follow()
            if rng.random() < 0.05:
                asked.query.site_keys = tuple(range(100, 100 + int(rng.integers(1, MOST_SITES + 1))))
            if rng.random() < 0.1:
                lose_an_epoch(asked)
            if rng.random() < 0.05:
                asked.start(len(asked.query.site_keys))
                restarted.add(asked.record.number + 1)
            asked.run(rows=int(rng.integers(0, 20)))
        for _ in range(PATIENCE):
            asked.query.follow()
            asked.run(rows=3)
        history = {record.number: record for record in asked.query.epochs.history()}
        told = asked.query.epochs.outcomes()
        verbs = {one.action for one in told if one.outcome == "done"}
        assert len(verbs) > 3, verbs
        for one in told:
            assert one.outcome != "waiting", one
            assert one.ended is not None and one.ended >= one.epoch
            if one.outcome == "abandoned":
                assert one.abandoned and (one.abandoned != RESTARTED or one.ended in restarted), one
                assert "did not" not in one.abandoned
            if one.outcome == "done":
                assert_done(one, history)
        asked.check()


class Stubborn(Policy):
    """Asks again and again for what cannot be, if it is to."""

    name = "stubborn"

    def __init__(self, asking: bool) -> None:
        self.asking = asking

    def decide(self, view: ClusterView) -> tuple[Action, ...]:
        return (Move(0, MOST_SITES, "to see"),) if self.asking else ()


def test_a_replay_notices_what_is_not_decided_any_more_though_it_was_refused():
    with tempfile.TemporaryDirectory(dir=FAST) as directory:
        asked = Asked(directory, wanted=Stubborn(True))
        asked.run(4)
        records = records_of_newest_run(asked.query.epochs.journal)
        alike, other = (
            list(replay(records, asked.query.new_controller(Stubborn(asking)), {}, 0)) for asking in (True, False)
        )
        assert not alike
        assert {one.what for one in other} == {"decisions"} and other[-1].epoch == asked.record.number
        asked.query.close()


def test_a_replay_knows_an_epoch_once_whose_commit_failed_after_its_entry_was_there(monkeypatch):
    with tempfile.TemporaryDirectory(dir=FAST) as directory:
        asked = Asked(directory, wanted=Stubborn(True))
        asked.run(2)
        journal = asked.query.epochs.journal
        with monkeypatch.context() as broken, pytest.raises(OSError, match="the network is down"):
            broken.setattr(journal, "indexes", fail_to_list)
            asked.run()
        asked.query.run([kept[-1] for kept in asked.seen])
        asked.run()
        records = records_of_newest_run(journal)
        assert len(journal.indexes()) == len(records) + 1
        assert not list(replay(records, asked.query.new_controller(Stubborn(True)), {}, 0))
        asked.check()


def fail_to_list() -> list[int]:
    raise OSError("the network is down")
