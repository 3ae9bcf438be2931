"""The control loop by itself: what it asks for, what it refuses, and what it hands to whoever carries it out."""

from __future__ import annotations

import logging
import re
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, get_args

import numpy as np
import pytest

from sluice.control import redividing
from sluice.control.controller import Controller
from sluice.control.loop import ControlLoop
from sluice.control.movement import Extract, Install, Instruction, LetGo, Pause, Phase, Restart, Transfer
from sluice.control.moves import MoveInFlight
from sluice.control.resharing import reshared
from sluice.control.vetting import vet
from sluice.model.abilities import Abilities
from sluice.model.actions import (
    Action,
    CleanUp,
    Freeze,
    LayOut,
    Merge,
    Move,
    PassToken,
    Release,
    Scale,
    Share,
    SharingAction,
    Split,
)
from sluice.model.codec import DecodeError, decode, encode
from sluice.model.decision import Decision
from sluice.model.directory import Directory
from sluice.model.epoch import EpochRecord
from sluice.model.errors import FlowError, QueryError
from sluice.model.ids import Unit
from sluice.model.routing import Routing
from sluice.model.verb import Verb
from sluice.model.view import ClusterView
from sluice.policies import Policy, policy
from sluice.sim.simulation import Simulation, simulate
from sluice.sim.worlds.flux.scenario import FluxScenario

EVEN = Routing.even(8, 2)

JOIN = Abilities(freezable=frozenset([0]), shareable={0: (0, 1)})
SECOND_IS_A_JOIN = Abilities(freezable=frozenset([1]))


class Scripted(Policy):
    """Asks for one round's moves after the other."""

    name = "scripted"

    def __init__(self, *rounds: tuple[Move, ...]) -> None:
        self.rounds = list(rounds)

    def decide(self, view: ClusterView) -> tuple[Move, ...]:
        return self.rounds.pop(0) if self.rounds else ()


class Ready:
    """A collector that has everything at once."""

    def __init__(self) -> None:
        self.begun: list[tuple[tuple[int, ...], float, float]] = []

    def begin(self, routing: Routing, now: float, seconds: float) -> None:
        self.begun.append((routing.holders, now, seconds))

    def is_complete(self, now: float, seconds: float) -> bool:
        return True

    def view(self) -> ClusterView:
        return ClusterView.at_rest(EVEN.holders, [0, 0])


class ByHand:
    """A carrier that notes what it is to do; the test says when it is done."""

    producers = (3,)

    def __init__(self) -> None:
        self.time, self.instructions = 0.0, []

    def clock(self) -> float:
        return self.time

    def carry_out(self, loop: ControlLoop, move: MoveInFlight, instruction: Instruction, now: float) -> None:
        self.instructions.append(instruction)
        if isinstance(instruction, Restart):
            loop.route(instruction.unit, instruction.site, now)
        elif isinstance(instruction, LetGo):
            loop.finish(move, now)

    def share_otherwise(self, loop: ControlLoop, action: SharingAction, now: float) -> None:
        loop.reshare(action)


def new_loop(*rounds: tuple[Move, ...], **options: Any) -> ControlLoop:
    return ControlLoop(Scripted(*rounds), Ready(), ByHand(), EVEN, minimum=1.0, **options)


def carry_through(loop: ControlLoop, move: MoveInFlight, now: float) -> None:
    machine = move.machine
    for report in (lambda: machine.acknowledged(3), machine.extracted, machine.transferred, machine.installed):
        loop.follow(move, report(), now)


def test_every_instruction_of_a_move_is_handed_to_the_carrier_in_its_order():
    loop = new_loop((Move(0, 1, "because"),))
    loop.take_turn(5.0)
    carry_through(loop, loop.moves[0], 7.0)
    assert loop.carrier.instructions == [
        Pause(0, (3,)),
        Extract(0, 0),
        Transfer(0, 0, 1),
        Install(0, 1),
        Restart(0, 1, (3,)),
        LetGo(0, 0),
    ]
    assert not loop.moves and loop.routing.holders == (1, 0, 0, 0, 1, 1, 1, 1)


def test_a_round_is_collected_as_long_as_the_last_move_of_the_one_before_took():
    loop = new_loop((Move(0, 1, "because"), Move(5, 0, "because")))
    loop.carrier.time = 10.0
    loop.take_turn(0.0)
    moves = tuple(loop.moves.values())
    for time, move in zip((12.0, 14.5), moves, strict=True):
        assert loop.rounds.collect == 1.0 and not loop.collector.begun
        loop.carrier.time = time
        carry_through(loop, move, time)
    assert loop.rounds.collect == 4.5
    assert loop.collector.begun == [((1, 0, 0, 0, 1, 0, 1, 1), 14.5, 4.5)]


def test_nobody_is_asked_while_units_move_but_the_user():
    loop = new_loop((Move(0, 1, "because"),), (Move(1, 1, "because"),))
    loop.take_turn(0.0)
    assert loop.take_turn(1.0) == ()
    loop.ask(Move(2, 1, "by hand"))
    assert [d.policy for d in loop.take_turn(2.0)] == ["you"]
    assert sorted(loop.moves) == [0, 2]


def test_a_round_in_which_all_is_refused_is_followed_by_another():
    loop = new_loop((Move(0, 0, "because"),), (Move(9, 1, "because"),))
    refused = [decision.refused for now in (1.0, 2.0) for decision in loop.take_turn(now)]
    assert refused == ["unit 0 is at site 0 already", "there is no unit 9; ids go from 0 to 7"]
    assert [now for _, now, _ in loop.collector.begun] == [1.0, 2.0]


def test_moves_that_are_stopped_go_on_where_they_were_and_say_nothing_about_the_next_round():
    loop = new_loop((Move(0, 1, "because"),))
    loop.take_turn(0.0)
    move, loop.carrier.time = loop.moves[0], 99.0
    loop.stop([move], 99.0)
    assert move.phase is Phase.ABANDONED
    assert loop.carrier.instructions[1:] == [Restart(0, 0, (3,)), LetGo(0, 1)]
    assert (loop.moves, loop.routing, loop.rounds.collect) == ({}, EVEN, 1.0)


def test_a_unit_on_its_way_is_vetted_by_where_it_goes():
    loop = new_loop((Move(0, 1, "because"),))
    loop.take_turn(0.0)
    for site in (0, 1):
        assert vet(Move(0, site, "again"), loop.routing, loop.moves) == "unit 0 is on its way to site 1"
    assert vet(Freeze(0, "so"), loop.routing, loop.moves, abilities=JOIN) == "unit 0 is on its way to site 1"
    assert vet(CleanUp(0, "so"), loop.routing, loop.moves, abilities=JOIN) is None


def test_only_units_of_joins_are_frozen():
    two = Routing.even(4, 2, fragments=2)
    assert vet(Freeze(5, "so"), two, abilities=SECOND_IS_A_JOIN) is None
    assert (
        vet(Freeze(3, "so"), two, abilities=SECOND_IS_A_JOIN)
        == "only joins can do without their state, and unit 3 is of none"
    )
    assert vet(CleanUp(8, "so"), two, abilities=SECOND_IS_A_JOIN) == "there is no unit 8; ids go from 0 to 7"


def test_the_log_has_a_line_for_each_decision(caplog: pytest.LogCaptureFixture):
    loop = new_loop((Move(0, 1, "site 0 is full"), Move(1, 0, "site 0 is full")))
    loop.epoch = 7
    with caplog.at_level(logging.INFO, "sluice"):
        loop.take_turn(0.0)
    assert [(r.name, r.levelname, r.getMessage()) for r in caplog.records] == [
        ("sluice.control.loop", "INFO", "epoch 7: scripted: move unit 0, site 1: site 0 is full: accepted"),
        (
            "sluice.control.loop",
            "INFO",
            "epoch 7: scripted: move unit 1, site 0: site 0 is full: refused, unit 1 is at site 0 already",
        ),
    ]


def test_the_simulator_and_the_driver_run_the_same_loop():
    simulation = Simulation(FluxScenario(sites=2, units_per_site=4, seconds=0.1), policy("load"))
    assert type(simulation.loop) is type(Controller(policy("load"), 1).loop) is ControlLoop


def test_a_simulated_policy_that_asks_for_the_impossible_is_refused_and_asked_again():
    impossible, possible = Move(0, 0, "where it is"), Move(0, 1, "elsewhere")
    scenario = FluxScenario(sites=2, units_per_site=4, seconds=4.0, groups=64, minimum_collection=0.25)
    outcome = simulate(scenario, Scripted((impossible,), (), (impossible, possible)))
    assert [(move.unit, move.target, move.reason) for move in outcome.moves] == [(0, 1, "elsewhere")]
    assert outcome.unit_sites == (1, 0, 0, 0, 1, 1, 1, 1)
    assert outcome.rounds > 3


def test_another_number_of_sites_before_the_first_epoch():
    plan = Controller(policy("load"), 1).resized(EpochRecord(-1, (None,), EVEN, ((), ())), 4, "restarted", 0.0)
    assert plan.routing.sites == 4
    assert [d.action for d in plan.decisions] == ["resize"]


def test_a_decision_is_a_plain_dictionary_for_users_and_itself_in_the_journal():
    move = Decision(3, "load", Verb.MOVE, unit=17, site=1, reason="idle", refused="no")
    resize = Decision(3, "sites", Verb.RESIZE, unit=None, site=None, reason="executors joined: 1")
    assert move.as_dict() == {
        "epoch": 3,
        "policy": "load",
        "action": "move",
        "unit": 17,
        "site": 1,
        "reason": "idle",
        "refused": "no",
    }
    assert (resize.as_dict()["unit"], resize.as_dict()["site"]) == (-1, -1)
    assert type(move.as_dict()["action"]) is str
    for decision in (move, resize, replace(move, unit=0, site=0)):
        back = decode(encode(decision), Decision)
        assert back == decision and back.action is decision.action
    with pytest.raises(DecodeError, match="wander"):
        decode(encode(move).replace(b'"move"', b'"wander"'), Decision)


EVERY_ACTION = {
    Move(3, 1, "so"): "Move(unit=3, site=1, reason='so')",
    Freeze(3, "so"): "Freeze(unit=3, reason='so')",
    CleanUp(3, "so"): "CleanUp(unit=3, reason='so')",
    Share(3, 1, "so", True): "Share(unit=3, site=1, reason='so', evenly=True)",
    Release(3, 1, "so"): "Release(unit=3, site=1, reason='so')",
    PassToken(3, 0, 1, "so"): "PassToken(unit=3, input=0, site=1, reason='so')",
    LayOut(3, [2, 4], "so"): "LayOut(unit=3, lines=(2, 4), reason='so')",
    Split(3, "so", 2): "Split(unit=3, reason='so', bits=2)",
    Merge(3, "so"): "Merge(unit=3, reason='so')",
    Scale(3, "so"): "Scale(sites=3, reason='so')",
}


def test_every_action_is_a_value_with_a_verb_of_its_own():
    assert {repr(action) for action in EVERY_ACTION} == set(EVERY_ACTION.values())
    assert {type(action) for action in EVERY_ACTION} == set(get_args(Action))
    verbs = [action.verb for action in EVERY_ACTION]
    assert len(set(verbs)) == len(verbs) and all(isinstance(verb, Verb) for verb in verbs)
    assert all(replace(action, reason="else") != action for action in EVERY_ACTION)


@pytest.mark.parametrize("wrong", ["3", True, 1.5, None, np.float64(1), np.True_, [1]], ids=repr)
def test_what_is_no_number_is_refused_in_words_wherever_one_is_due(wrong):
    for action in EVERY_ACTION:
        for field in set(vars(action)) & {"unit", "site", "input", "sites", "bits"}:
            with pytest.raises(FlowError, match="^a .* is given by its number, not by " + re.escape(repr(wrong))):
                replace(action, **{field: wrong})
    with pytest.raises(FlowError, match=r"^a number of lines is given by its number"):
        LayOut(3, (2, wrong), "so")


@pytest.mark.parametrize("kind", [np.int64, np.uint8, np.int32], ids=lambda kind: kind.__name__)
def test_numbers_of_numpy_become_plain_ones(kind):
    for action in EVERY_ACTION:
        for field in set(vars(action)) & {"unit", "site", "input", "sites", "bits"}:
            number = vars(replace(action, **{field: kind(7)}))[field]
            assert type(number) is int and number == 7
    assert [type(line) for line in LayOut(3, np.array([2, 4], kind), "so").lines] == [int, int]


def test_what_is_no_action_is_refused_in_words():
    with pytest.raises(QueryError, match="answers with actions such as Move"):
        vet(SimpleNamespace(unit=0, site=1, reason="x"), EVEN)


def test_what_is_shared_and_what_cannot_be() -> None:
    routing = Routing.even(4, 3)
    shared = reshared(Share(0, 1, "so"), routing, JOIN, since=2)
    assert vet(Share(0, 1, "so"), routing) == (
        "only a join of two, with nothing chained to it by its key, can be shared, and unit 0 is of none"
    )
    for action, why in (
        (Share(0, 0, "so"), "site 0 holds unit 0 already"),
        (Share(4, 0, "so"), "there is no unit 4; ids go from 0 to 3"),
        (Share(0, 3, "so"), "there is no site 3; they are numbered from 0 to 2"),
        (Release(0, 0, "so"), "unit 0 is not shared"),
        (PassToken(0, 1, 0, "so"), "unit 0 is not shared"),
        (LayOut(0, (1, 1), "so"), "unit 0 is not shared"),
    ):
        assert vet(action, routing, abilities=JOIN) == why
    for action, why in (
        (Share(0, 1, "so"), "site 1 holds unit 0 already"),
        (Release(0, 2, "so"), "site 2 does not share unit 0 and cannot release it"),
        (PassToken(0, 1, 2, "so"), "site 2 does not share unit 0 and cannot have a token of it"),
        (PassToken(0, 2, 1, "so"), "the join of unit 0 has no input 2"),
        (LayOut(0, (2, 2), "so"), "2 holders of unit 0 cannot be laid out as (2, 2)"),
        (LayOut(0, (-1, -2), "so"), "2 holders of unit 0 cannot be laid out as (-1, -2)"),
        (Move(0, 2, "so"), "unit 0 is shared by sites 0, 1"),
        (Freeze(0, "so"), "unit 0 is shared"),
    ):
        assert vet(action, shared, abilities=JOIN) == why
    waiting = {Unit(0): "has input that waits"}.get
    assert vet(Release(0, 1, "so"), shared, abilities=JOIN, unready=waiting) == "unit 0 has input that waits"
    for action in (Release(0, 1, "so"), PassToken(0, 1, 1, "so"), LayOut(0, (2, 1), "so"), Share(0, 2, "so")):
        assert vet(action, shared, abilities=JOIN) is None


def test_statistics_begin_anew_when_a_unit_is_shared_by_hand() -> None:
    """Rows are sent to others, and as often as those are many: what was counted before would be taken for theirs."""
    loop = new_loop(abilities=JOIN)
    loop.ask(Share(0, 1, "so"))
    loop.take_turn(3.0)
    assert loop.collector.begun == [(EVEN.holders, 3.0, 1.0)]
    loop.ask(Share(0, 1, "refused"))
    loop.take_turn(4.0)
    assert len(loop.collector.begun) == 1


@pytest.mark.parametrize("splits", [1, 16])
def test_however_often_units_are_halved_the_directory_is_made_once(
    splits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A key is set apart in each of so many units of 60,000."""
    routing = Routing.even(30_000, 4, fragments=2)
    loop = ControlLoop(Scripted(), Ready(), ByHand(), routing, minimum=1.0)
    chosen = [1_000 * number for number in range(splits)]
    ranges = {unit: routing.directories[0].hashes_of(unit) for unit in chosen}
    further = {unit: redividing.halved_around(hashes, hashes[0])[1:] for unit, hashes in ranges.items()}
    made: Counter = Counter()
    for kind in (Directory, Routing):
        count_made(monkeypatch, kind, made)
    loop.redivisions = {unit: Split(unit, "to see") for unit in chosen}
    loop.redivide(0.0, further)
    assert loop.routing.units == 60_000 + splits + sum(map(len, further.values())) and len(further[0]) > 15
    assert made == {"Directory": 2, "Routing": 1}


def count_made(monkeypatch: pytest.MonkeyPatch, kind: type, made: Counter) -> None:
    make = kind.__init__

    def counting(self: object, *arguments: object, **named: object) -> None:
        made[kind.__name__] += 1
        make(self, *arguments, **named)

    monkeypatch.setattr(kind, "__init__", counting)
