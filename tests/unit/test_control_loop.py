"""The control loop by itself: what it asks for, what it refuses, and what it hands to whoever carries it out."""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, get_args

import numpy as np
import pytest
from msgspec import structs

from sluice.control.controller import Controller
from sluice.control.epoch_executor import EpochExecutor
from sluice.control.executor import InstructionExecutor, handles
from sluice.control.loop import USER, ControlLoop
from sluice.model.codec import DecodeError, decode, encode
from sluice.model.epoch.decision import Decision, Ended, Verb
from sluice.model.epoch.segments import RunRef, SegmentRef
from sluice.model.errors import FlowError, ProtocolError, QueryError
from sluice.model.ids import Unit
from sluice.model.plan.plan import Capabilities
from sluice.model.routing.directory import Directory
from sluice.model.routing.routing import Routing
from sluice.model.routing.unit_ranges import single_unit
from sluice.model.view import ClusterView
from sluice.policies import Policy, policy
from sluice.record.epoch import EpochRecord
from sluice.sim.simulation import Simulation, simulate
from sluice.sim.worlds.flux.scenario import FluxScenario
from sluice.verbs import Action
from sluice.verbs.base import InFlight, Instruction, Situation
from sluice.verbs.freeze import CleanUp, CleanUpAll, Freeze, FreezeUnit
from sluice.verbs.move import (
    Acknowledged,
    Extract,
    Extracted,
    Install,
    Installed,
    LetGo,
    Move,
    Pause,
    Phase,
    Released,
    Restart,
    Transfer,
    Transferred,
)
from sluice.verbs.scale import ChangeSites, Scale
from sluice.verbs.share import (
    ApplyGrid,
    ApplySharing,
    LayOut,
    PassToken,
    PrepareSharing,
    Release,
    Share,
    SharingPrepared,
)
from sluice.verbs.split import CountBelow, Divide, HashProfile, Merge, ProfileHashes, RowsBelow, Split, Unite

EVEN = Routing.even(8, 2)

JOIN = Capabilities(freezable=frozenset([0]), shareable={0: (0, 1)})
ALL = replace(JOIN, divisible=frozenset([0]), scalable=True)
SECOND_IS_A_JOIN = Capabilities(freezable=frozenset([1]))


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


class MovesByHand(InstructionExecutor):
    """An executor that notes what it is to do, and can do nothing but moves; the test says when it is done."""

    producers = (3,)

    def __init__(self) -> None:
        self.time = 0.0
        self.instructions: list[Instruction] = []

    def clock(self) -> float:
        return self.time

    @handles(Pause, Extract, Transfer, Install)
    def note(self, loop: ControlLoop, instruction: Instruction, now: float) -> None:
        self.instructions.append(instruction)

    @handles(Restart)
    def restart(self, loop: ControlLoop, instruction: Restart, now: float) -> None:
        self.instructions.append(instruction)
        there = loop.routing.holder(instruction.unit) == instruction.site
        moved = loop.routing if there else loop.routing.with_move(instruction.unit, instruction.site, loop.epoch)
        loop.route(moved, now)

    @handles(LetGo)
    def let_go(self, loop: ControlLoop, instruction: LetGo, now: float) -> None:
        self.instructions.append(instruction)
        loop.report(Released(instruction.unit), now)


class ByHand(MovesByHand):
    """The same, which can do everything; what is to be shared otherwise is so at once."""

    @handles(FreezeUnit, ProfileHashes, CountBelow, Divide, Unite, ChangeSites)
    def note_what_else_is_to_do(self, loop: ControlLoop, instruction: Instruction, now: float) -> None:
        self.instructions.append(instruction)

    @handles(PrepareSharing)
    def prepare(self, loop: ControlLoop, instruction: PrepareSharing, now: float) -> None:
        loop.report(SharingPrepared(instruction.unit), now)

    @handles(ApplySharing, ApplyGrid)
    def apply(self, loop: ControlLoop, instruction: ApplySharing, now: float) -> None:
        loop.routing = instruction.change.apply(loop.routing, loop.capabilities.shareable[0], loop.epoch)
        loop.complete(loop.in_flight.at(instruction.unit)[0], now)


def new_loop(
    *rounds: tuple[Move, ...],
    routing: Routing = EVEN,
    executor: InstructionExecutor | None = None,
    **options: Any,
) -> ControlLoop:
    return ControlLoop(Scripted(*rounds), Ready(), executor or ByHand(), routing, minimum=1.0, **options)


def refusal(action: Action, routing: Routing, capabilities: Capabilities | None = None) -> str | None:
    """Why an action is refused where nothing is in flight."""
    return new_loop(routing=routing, capabilities=capabilities).refuse(action)


def carry_through(loop: ControlLoop, unit: int, now: float) -> None:
    """Have a unit's move reported done, step by step."""
    for event in (Acknowledged(unit, 3), Extracted(unit), Transferred(unit), Installed(unit)):
        loop.report(event, now)


def test_every_instruction_of_a_move_is_handed_to_the_executor_in_its_order():
    loop = new_loop((Move(0, 1, "because"),))
    loop.take_turn(5.0)
    carry_through(loop, 0, 7.0)
    assert loop.executor.instructions == [
        Pause(0, (3,)),
        Extract(0, 0),
        Transfer(0, 0, 1),
        Install(0, 1),
        Restart(0, 1, (3,)),
        LetGo(0, 0),
    ]
    assert not list(loop.in_flight) and loop.routing.holders == (1, 0, 0, 0, 1, 1, 1, 1)


def test_a_round_is_collected_as_long_as_the_last_move_of_the_one_before_took():
    loop = new_loop((Move(0, 1, "because"), Move(5, 0, "because")))
    loop.executor.time = 10.0
    loop.take_turn(0.0)
    for time, unit in ((12.0, 0), (14.5, 5)):
        assert loop.rounds.collect == 1.0 and not loop.collector.begun
        loop.executor.time = time
        carry_through(loop, unit, time)
    assert loop.rounds.collect == 4.5
    assert loop.collector.begun == [((1, 0, 0, 0, 1, 0, 1, 1), 14.5, 4.5)]


def test_nobody_is_asked_while_units_move_but_the_user():
    loop = new_loop((Move(0, 1, "because"),), (Move(1, 1, "because"),))
    loop.take_turn(0.0)
    assert loop.take_turn(1.0) == ()
    loop.requests.add(Move(2, 1, "by hand"))
    assert [d.policy for d in loop.take_turn(2.0)] == ["you"]
    assert [move.unit for move in loop.moves] == [0, 2]


def test_an_action_is_vetted_and_begun_without_a_look_at_all_in_flight(monkeypatch):
    """Else many moves cost the square of their number."""
    loop = new_loop(routing=Routing.even(300, 2))
    monkeypatch.setattr(InFlight, "__iter__", None)  # whoever goes through all of them fails
    loop.decide("you", [Move(unit, 1, "because") for unit in range(100)], 0.0)
    assert len(loop.moves) == 100 and loop.scaling is None


def test_a_round_in_which_all_is_refused_is_followed_by_another():
    loop = new_loop((Move(0, 0, "because"),), (Move(9, 1, "because"),))
    refused = [decision.refused for now in (1.0, 2.0) for decision in loop.take_turn(now)]
    assert refused == ["unit 0 is at site 0 already", "there is no unit 9; ids go from 0 to 7"]
    assert [now for _, now, _ in loop.collector.begun] == [1.0, 2.0]


def test_moves_that_are_stopped_go_on_where_they_were_and_say_nothing_about_the_next_round():
    loop = new_loop((Move(0, 1, "because"),))
    loop.take_turn(0.0)
    (move,), loop.executor.time = loop.moves, 99.0
    loop.abandon(move, "its site is gone", 99.0)
    assert move.phase is Phase.ABANDONED and move.decision is not None
    assert loop.executor.instructions[1:] == [Restart(0, 0, (3,)), LetGo(0, 1)]
    assert (loop.moves, loop.routing, loop.rounds.collect) == ([], EVEN, 1.0)
    assert loop.ended == [Ended(move.decision, "its site is gone")]


def test_a_unit_on_its_way_is_vetted_by_where_it_goes():
    loop = new_loop((Move(0, 1, "because"),), executor=EpochExecutor(), capabilities=ALL)
    loop.take_turn(0.0)
    for site in (0, 1):
        assert loop.refuse(Move(0, site, "again")) == "unit 0 is on its way to site 1"
    for action in (Freeze(0, "so"), Share(0, 1, "so"), Split(0, "so")):
        assert loop.refuse(action) == "unit 0 is on its way to site 1"
    assert loop.refuse(CleanUp(0, "so")) is None
    assert loop.refuse(Split(1, "so")) is None


@pytest.mark.parametrize(
    "begun, why",
    [
        (Move(1, 1, "so"), "unit 1 is on its way to site 1"),
        (Split(1, "so"), "unit 1 is to be split or merged"),
        (Freeze(1, "so"), "unit 1 is to be frozen"),
    ],
)
def test_a_unit_has_one_verb_at_a_time_and_its_buddy_is_its_own_matter(begun: Action, why: str) -> None:
    """Unit 8 is the lower half of what unit 9 is the upper half of, and a merge takes both."""
    routing = EVEN.split(2, since=0)
    loop = new_loop(routing=routing, executor=EpochExecutor(), capabilities=ALL)
    loop.decide(USER, [begun], 0.0)
    for action in (Move(1, 1, "so"), Freeze(1, "so"), Split(1, "so"), Share(1, 1, "so")):
        assert loop.refuse(action) == why
    for action in (Move(0, 1, "so"), Freeze(0, "so"), Split(0, "so"), Share(0, 1, "so"), Merge(8, "so")):
        assert loop.refuse(action) is None


def test_a_merge_is_refused_while_something_is_done_to_the_buddy_and_the_other_way_round() -> None:
    loop = new_loop(routing=EVEN.split(2, since=0), executor=EpochExecutor(), capabilities=ALL)
    loop.decide(USER, [Freeze(9, "so")], 0.0)
    assert loop.refuse(Merge(8, "so")) == loop.refuse(Merge(9, "so")) == "unit 9 is to be frozen"
    loop = new_loop(routing=EVEN.split(2, since=0), executor=EpochExecutor(), capabilities=ALL)
    loop.decide(USER, [Merge(8, "so")], 0.0)
    for unit in (8, 9):
        for action in (Move(unit, 1, "so"), Freeze(unit, "so"), Split(unit, "so"), Merge(unit, "so")):
            assert loop.refuse(action) == f"unit {unit} is to be split or merged"


def test_a_unit_that_is_to_be_shared_otherwise_may_be_shared_further_but_stays() -> None:
    """Each change is looked at as if those before it were done."""
    loop = new_loop(routing=Routing.even(4, 3), capabilities=ALL, executor=NothingIsPrepared())
    loop.decide(USER, [Share(0, 1, "so")], 0.0)
    assert loop.routing.shared == ()
    for action in (Move(0, 1, "so"), Freeze(0, "so"), Split(0, "so")):
        assert loop.refuse(action) == "unit 0 is about to be shared otherwise"
    assert loop.refuse(Share(0, 1, "again")) == "site 1 holds unit 0 already"
    assert loop.refuse(Release(0, 2, "so")) == "site 2 does not share unit 0 and cannot release it"
    assert loop.refuse(Release(0, 1, "so")) is loop.refuse(Share(0, 2, "so")) is None


class NothingIsPrepared(ByHand):
    """An executor that is not done with preparing."""

    @handles(PrepareSharing)
    def prepare(self, loop: ControlLoop, instruction: PrepareSharing, now: float) -> None:
        self.instructions.append(instruction)


def test_what_the_executor_has_no_handler_for_is_refused() -> None:
    loop = new_loop(executor=MovesByHand(), capabilities=ALL)
    for action, why in (
        (Freeze(0, "so"), "units cannot be frozen here"),
        (CleanUp(0, "so"), "frozen units are cleaned up at the end alone here"),
        (Share(0, 1, "so"), "units cannot be shared here"),
        (LayOut(0, (1, 2), "so"), "units cannot be shared here"),
        (Split(0, "so"), "the units stay as they are here"),
        (Merge(0, "so"), "the units stay as they are here"),
        (Scale(3, "so"), "the number of sites is fixed here"),
    ):
        assert loop.refuse(action) == why
    assert loop.refuse(Move(0, 1, "so")) is None
    with pytest.raises(ProtocolError, match=r"MovesByHand has no handler for FreezeUnit\(unit=0\)"):
        loop.executor.execute(loop, FreezeUnit(0), 0.0)


def test_an_event_that_nobody_waits_for_is_an_error() -> None:
    loop = new_loop((Move(0, 1, "because"),))
    loop.take_turn(0.0)
    for event in (Extracted(5), Extracted(0)):
        with pytest.raises(ProtocolError):
            loop.report(event, 1.0)
    assert [move.phase for move in loop.moves] == [Phase.QUIESCING]


def test_only_units_of_joins_are_frozen():
    situation = Situation(Routing.even(4, 2, fragments=2), SECOND_IS_A_JOIN)
    assert Freeze(5, "so").refuse(situation) is None
    for action in (Freeze(3, "so"), CleanUp(3, "so")):
        assert action.refuse(situation) == "only inner joins can do without their state, and unit 3 is of none"
    assert CleanUp(8, "so").refuse(situation) == "there is no unit 8; ids go from 0 to 7"


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
    CleanUpAll("so"): "CleanUpAll(reason='so')",
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
    verbs = [action.verb for action in EVERY_ACTION if not isinstance(action, CleanUpAll)]
    assert len(set(verbs)) == len(verbs) and all(isinstance(verb, Verb) for verb in verbs)
    assert all(structs.replace(action, reason="else") != action for action in EVERY_ACTION)


@pytest.mark.parametrize("wrong", ["3", True, 1.5, None, np.float64(1), np.True_, [1]], ids=repr)
def test_what_is_no_number_is_refused_in_words_wherever_one_is_due(wrong):
    for action in EVERY_ACTION:
        for field in set(action.__struct_fields__) & {"unit", "site", "input", "sites", "bits"}:
            with pytest.raises(FlowError, match="^a .* is given by its number, not by " + re.escape(repr(wrong))):
                structs.replace(action, **{field: wrong})
    with pytest.raises(FlowError, match=r"^a number of lines is given by its number"):
        LayOut(3, (2, wrong), "so")


@pytest.mark.parametrize("kind", [np.int64, np.uint8, np.int32], ids=lambda kind: kind.__name__)
def test_numbers_of_numpy_become_plain_ones(kind):
    for action in EVERY_ACTION:
        for field in set(action.__struct_fields__) & {"unit", "site", "input", "sites", "bits"}:
            number = getattr(structs.replace(action, **{field: kind(7)}), field)
            assert type(number) is int and number == 7
    assert [type(line) for line in LayOut(3, np.array([2, 4], kind), "so").lines] == [int, int]


def test_what_is_no_action_is_refused_in_words():
    with pytest.raises(QueryError, match="answers with actions such as Move"):
        refusal(SimpleNamespace(unit=0, site=1, reason="x"), EVEN)


def test_what_is_shared_and_what_cannot_be() -> None:
    routing = Routing.even(4, 3)
    shared = Share(0, 1, "so").apply(routing, (0, 1), since=2)
    assert refusal(Share(0, 1, "so"), routing) == (
        "only an inner join of two, with nothing chained to it by its key, can be shared; unit 0 is of none"
    )
    for action, why in (
        (Share(0, 0, "so"), "site 0 holds unit 0 already"),
        (Share(4, 0, "so"), "there is no unit 4; ids go from 0 to 3"),
        (Share(0, 3, "so"), "there is no site 3; they are numbered from 0 to 2"),
        (Release(0, 0, "so"), "unit 0 is not shared"),
        (PassToken(0, 1, 0, "so"), "unit 0 is not shared"),
        (LayOut(0, (1, 1), "so"), "unit 0 is not shared"),
    ):
        assert refusal(action, routing, JOIN) == why
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
        assert refusal(action, shared, JOIN) == why
    waiting = new_loop(routing=shared, capabilities=JOIN)
    waiting.conditions = Waiting()
    assert waiting.refuse(Release(0, 1, "so")) == "unit 0 has input that waits"
    for action in (Release(0, 1, "so"), PassToken(0, 1, 1, "so"), LayOut(0, (2, 1), "so"), Share(0, 2, "so")):
        assert refusal(action, shared, JOIN) is None


class Waiting:
    """The condition of units that are behind with their input."""

    missing_units: tuple[Unit, ...] = ()

    def why_unready(self, unit: Unit) -> str:
        return "has input that waits"


def test_statistics_begin_anew_when_a_unit_is_shared_by_hand() -> None:
    """Rows are sent to others, and as often as those are many: what was counted before would be taken for theirs."""
    loop = new_loop(capabilities=JOIN)
    loop.requests.add(Share(0, 1, "so"))
    loop.take_turn(3.0)
    assert loop.collector.begun == [(EVEN.holders, 3.0, 1.0)]
    loop.requests.add(Share(0, 1, "refused"))
    loop.take_turn(4.0)
    assert len(loop.collector.begun) == 1


@pytest.mark.parametrize("splits", [1, 16])
def test_however_often_units_are_halved_the_directory_is_made_as_often(
    splits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A key is set apart in each of so many units of 60,000."""
    routing = Routing.even(30_000, 4, fragments=2)
    loop = new_loop(routing=routing, executor=EpochExecutor(), capabilities=ALL)
    chosen = [1_000 * number for number in range(splits)]
    ranges = {unit: routing.hashes_of(unit) for unit in chosen}
    record = EpochRecord(0, (None,), routing, (tuple(rows_at(unit) for unit in chosen), (), (), ()))
    told = run_epoch(loop, record, [Split(unit, "to see") for unit in chosen])
    # three rows, two of which have the least hash of the unit, and the other one the next
    profiles = [HashProfile(unit, 3, low, low + 1, low, 2) for unit, (low, _) in ranges.items()]
    told = run_epoch(loop, replace(record, number=1, instructions=told, events=tuple(profiles)))
    counts = [
        RowsBelow(order.unit, f"s{order.unit}", edge, 3 if edge > low + 1 else 2)
        for order in told
        for low in [ranges[order.unit][0]]
        for edge in order.hashes
    ]
    made: Counter = Counter()
    for kind in (Directory, Routing):
        count_made(monkeypatch, kind, made)
    run_epoch(loop, replace(record, number=2, instructions=told, events=tuple(counts)))
    halvings = {len(order.hashes) for order in told}
    assert min(halvings) > 15 and loop.routing.units == 60_000 + sum(len(order.hashes) for order in told)
    assert made["Directory"] <= 2 and made["Routing"] <= 1, "one of each, however many units are halved"


def rows_at(unit: int) -> RunRef:
    """Three rows of a unit, in a segment of their own."""
    place = single_unit(unit)
    kept = dict(offset=0, length=1, input=0, rows=3, earliest=0, middle=0, latest=0, base=0, shift=0, level=0)
    return RunRef(SegmentRef(id=f"s{unit}", file="f", units=place, counts=(3,), blocks=(), **kept), place)


def run_epoch(loop: ControlLoop, record: EpochRecord, asked: Sequence[Action] = ()) -> tuple[Any, ...]:
    """What the sites are told to find out after an epoch."""
    assert isinstance(loop.executor, EpochExecutor)
    loop.advance_to_epoch(record.number + 1, record.routing, record)
    loop.executor.advance(loop, record, 1e6, 0.0)
    loop.executor.repartition(loop, record, 0.0)
    loop.decide(USER, asked, 0.0)
    return tuple(loop.executor.copying_instructions(loop, ()))


def count_made(monkeypatch: pytest.MonkeyPatch, kind: type, made: Counter) -> None:
    make = kind.__init__

    def counting(self: object, *arguments: object, **named: object) -> None:
        made[kind.__name__] += 1
        make(self, *arguments, **named)

    monkeypatch.setattr(kind, "__init__", counting)
