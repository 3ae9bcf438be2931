"""Units move, spill and come back in any interleaving, and no row is lost, repeated, overtaken or misplaced."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pytest
from fake_input_queue import Spool
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from sluice.control.rounds import Rounds
from sluice.model.errors import FlowError, ProtocolError, SluiceError
from sluice.sim.producer_routing import ProducerRouting
from sluice.state.paging import Fetch, Paging
from sluice.verbs.base import Event, Instruction
from sluice.verbs.freeze import UnitFrozen
from sluice.verbs.move import (
    Acknowledged,
    Extract,
    Extracted,
    Install,
    Installed,
    LetGo,
    Move,
    MoveProtocol,
    Pause,
    Phase,
    Released,
    Restart,
    Transfer,
    Transferred,
)
from sluice.verbs.share import SharingPrepared

STEPS = st.integers(0, 30)


class Row(NamedTuple):
    producer: int
    unit: int
    number: int


class Acknowledgement(NamedTuple):
    movement: MoveProtocol
    producer: int


@dataclass
class Site:
    """A site's share of the world: the states it holds (as the rows processed), which of them rest, what it keeps."""

    paging: Paging
    spool: Spool[Row] = field(default_factory=Spool)
    states: dict[int, list[Row]] = field(default_factory=dict)
    resting: set[int] = field(default_factory=set)
    carried: dict[int, list[Row]] = field(default_factory=dict)
    received: dict[MoveProtocol, tuple[list[Row], list[Row]]] = field(default_factory=dict)
    orders: deque[tuple[MoveProtocol, Instruction]] = field(default_factory=deque)

    def ready(self, unit: int) -> bool:
        return unit in self.states and unit not in self.resting and self.paging.is_resident(unit)

    def forget(self, unit: int) -> None:
        if unit in self.states:
            self.paging.leave(unit)
            del self.states[unit]
        self.resting.discard(unit)
        self.carried.pop(unit, None)
        self.spool.take_all(unit)


class World(RuleBasedStateMachine):
    """Producers, sites and a controller. Everything between them is a queue that the rules empty as they like."""

    @initialize(
        producers=st.integers(0, 3),
        sites=st.integers(2, 3),
        units=st.integers(1, 4),
        limit=st.sampled_from([0, 3, 12, 99]),
    )
    def build(self, producers: int, sites: int, units: int, limit: int) -> None:
        self.now = 0.0
        self.units = range(units)
        self.owner = {unit: unit % sites for unit in self.units}
        owners = np.tile(np.array(list(self.owner.values()), np.int32), (producers, 1))
        stalled = np.zeros((producers, units), np.uint8)
        self.outlets = [ProducerRouting(owners[p], stalled[p]) for p in range(producers)]
        self.holders, self.stalled = owners, stalled
        self.made = {(p, unit): 0 for p in range(producers) for unit in self.units}
        self.buffers: dict[tuple[int, int], deque[Row]] = {key: deque() for key in self.made}
        self.channels: dict[tuple[int, int], deque[Row | Acknowledgement]] = {
            (p, s): deque() for p in range(producers) for s in range(sites)
        }
        self.told: list[deque[tuple[MoveProtocol, Pause | Restart]]] = [deque() for _ in range(producers)]
        self.sites = [Site(Paging(limit)) for _ in range(sites)]
        self.moves: dict[int, MoveProtocol] = {}
        self.wires: list[tuple[MoveProtocol, list[Row], list[Row]]] = []
        self.reports: list[tuple[MoveProtocol, Event]] = []
        self.begun: list[MoveProtocol] = []
        self.released: list[MoveProtocol] = []
        self.history: dict[int, list[Row]] = {unit: [] for unit in self.units}
        for unit, site in self.owner.items():
            self.sites[site].states[unit] = []
            self.sites[site].paging.arrive(unit, 0)

    # What can happen next. These are no rules: where Hypothesis leaves one of them out for a run, no move would end.

    def under_way(self) -> list[tuple[Any, ...]]:
        """What will happen sooner or later: the method to call, and its arguments."""
        outlets, sites = self.outlets, list(enumerate(self.sites))
        ready = [(s, site, u) for s, site in sites for u in site.states if site.ready(u)]
        return [
            *((self.hear, p) for p, messages in enumerate(self.told) if messages),
            *((self.report, at) for at in range(len(self.reports))),
            *((self.receive, at) for at in range(len(self.wires))),
            *((self.obey, s) for s, site in sites if site.orders),
            *((self.send, p, u) for (p, u), rows in self.buffers.items() if rows and not outlets[p].stalled[u]),
            *((self.deliver, p, s) for (p, s), messages in self.channels.items() if messages),
            *((self.process, s, u) for s, site, u in ready if site.spool.pending(u)),
        ]

    def turns(self) -> list[tuple[Any, ...]]:
        """Sites with something to spill or fetch. They are asked here, it is done later: the unit can leave first."""
        asked = [(s, site.paging.step(self.now), site.paging.due) for s, site in enumerate(self.sites)]
        return [(self.spill_or_fetch, s) for s, task, due in asked if task is not None or due is not None]

    def go_on(self, data: st.DataObject, steps: int) -> None:
        for _ in range(steps):
            produced = [(self.produce, *key) for key in self.made]
            if possible := self.under_way() + self.turns() + produced:
                step, *arguments = data.draw(st.sampled_from(possible))
                step(*arguments)

    def produce(self, producer: int, unit: int) -> None:
        self.buffers[producer, unit].append(Row(producer, unit, self.made[producer, unit]))
        self.made[producer, unit] += 1

    def send(self, producer: int, unit: int) -> None:
        site = self.outlets[producer].destination(unit)
        assert site is not None
        self.channels[producer, site].append(self.buffers[producer, unit].popleft())

    def deliver(self, producer: int, s: int) -> None:
        message, site = self.channels[producer, s].popleft(), self.sites[s]
        if isinstance(message, Acknowledgement):
            acknowledged = Acknowledged(message.movement.unit, message.producer)
            self.reports.append((message.movement, acknowledged))
            return
        assert message.unit in site.states, f"{message} came to site {s}, which does not hold its unit"
        if site.spool.offer(message.unit, message, site.ready(message.unit)):
            self.take_in(s, message)

    def process(self, s: int, unit: int) -> None:
        row = self.sites[s].spool.next(unit)
        assert row is not None
        self.take_in(s, row)

    def take_in(self, s: int, row: Row) -> None:
        site, past = self.sites[s], self.history[row.unit]
        assert site.paging.is_resident(row.unit)
        assert row.unit not in site.resting
        assert site.states[row.unit] == past, "the state is not that of all rows processed so far"
        assert row.number == sum(r.producer == row.producer for r in past), "lost, repeated or overtaken"
        past.append(row)
        site.states[row.unit].append(row)
        site.paging.grow(row.unit, len(past))

    def hear(self, p: int) -> None:
        movement, instruction = self.told[p].popleft()
        if isinstance(instruction, Pause):
            self.outlets[p].pause(instruction.unit)
            self.channels[p, movement.source].append(Acknowledgement(movement, p))
        else:
            self.outlets[p].restart(instruction.unit, instruction.site)

    def obey(self, s: int) -> None:
        site = self.sites[s]
        movement, instruction = site.orders.popleft()
        unit = instruction.unit
        match instruction:
            case Extract():
                site.resting.add(unit)
                site.carried[unit] = site.spool.take_all(unit)
                self.reports.append((movement, Extracted(unit)))
            case Transfer():
                self.wires.append((movement, list(site.states[unit]), list(site.carried[unit])))
            case Install():
                assert unit not in site.states
                site.states[unit], site.carried[unit] = site.received.pop(movement)
                site.resting.add(unit)
                site.paging.arrive(unit, len(site.states[unit]), resident=len(site.states[unit]) % 2 == 0)
                self.reports.append((movement, Installed(unit)))
            case Restart():
                assert unit in site.states, "restarted where it is not"
                site.resting.discard(unit)
                site.spool.restore(unit, site.carried.pop(unit, []))
            case LetGo():
                site.received.pop(movement, None)
                site.forget(unit)
                self.reports.append((movement, Released(unit)))

    def spill_or_fetch(self, s: int) -> None:
        paging = self.sites[s].paging
        if paging.due is not None:
            self.now = max(self.now, paging.due)
        if isinstance(task := paging.step(self.now), Fetch):
            self.now += 1.0
            paging.note_fetched(task.unit, self.now, seconds=1.0)
        elif task is not None:
            paging.note_spilled(task.unit)

    def receive(self, at: int) -> None:
        movement, state, waiting = self.wires.pop(at)
        if movement.phase is not Phase.ABANDONED:
            self.sites[movement.target].received[movement] = state, waiting
            self.reports.append((movement, Transferred(movement.unit)))

    def report(self, at: int) -> None:
        movement, event = self.reports.pop(at)
        instructions = movement.handle(event)
        if movement.phase is Phase.ABANDONED:
            assert instructions == []
        if isinstance(event, Installed) and movement.phase is Phase.LETTING_GO:
            self.owner[movement.unit] = movement.target
            del self.moves[movement.unit]
        if isinstance(event, Released):
            self.released.append(movement)
        assert movement.over == (movement in self.released)
        self.give(movement, instructions)

    def give(self, movement: MoveProtocol, instructions: list[Instruction]) -> None:
        for instruction in instructions:
            match instruction:
                case Pause(producers=producers):
                    for p in producers:
                        self.told[p].append((movement, instruction))
                case Restart(site=site, producers=producers):
                    self.sites[site].orders.append((movement, instruction))
                    for p in producers:
                        self.told[p].append((movement, instruction))
                case Transfer(source=site) | Extract(site=site) | Install(site=site) | LetGo(site=site):
                    self.sites[site].orders.append((movement, instruction))

    # What comes from outside, after which the world goes on for a while.

    @precondition(lambda self: len(self.moves) < len(self.units))
    @rule(data=st.data(), steps=STEPS)
    def begin(self, data: st.DataObject, steps: int) -> None:
        unit = data.draw(st.sampled_from([u for u in self.units if u not in self.moves]))
        source = self.owner[unit]
        target = data.draw(st.sampled_from([s for s in range(len(self.sites)) if s != source]))
        self.moves[unit] = MoveProtocol(Move(unit, target, "to see"), source, range(len(self.outlets)))
        self.begun.append(self.moves[unit])
        self.give(self.moves[unit], self.moves[unit].begin())
        self.go_on(data, steps)

    @precondition(lambda self: self.moves)
    @rule(data=st.data(), steps=STEPS)
    def abandon(self, data: st.DataObject, steps: int) -> None:
        movement = self.moves.pop(data.draw(st.sampled_from(sorted(self.moves))))
        self.give(movement, movement.abandon())
        self.go_on(data, steps)

    @rule(data=st.data(), size=st.integers(0, 6), more=st.booleans(), steps=STEPS)
    def change_memory(self, data: st.DataObject, size: int, more: bool, steps: int) -> None:
        paging = self.sites[data.draw(st.integers(0, len(self.sites) - 1))].paging
        if more:
            paging.donate(size)
        else:
            paging.relinquish(min(size, paging.limit))
        self.go_on(data, steps)

    # What always holds.

    @invariant()
    def every_unit_is_processed_at_one_site_at_most(self) -> None:
        for unit in self.units:
            awake = [s for s, site in enumerate(self.sites) if unit in site.states and unit not in site.resting]
            assert len(awake) <= 1

    @invariant()
    def some_site_has_the_whole_state(self) -> None:
        for unit in self.units:
            assert any(site.states.get(unit) == self.history[unit] for site in self.sites)

    def teardown(self) -> None:
        """Let everything come to its end: each row has been processed once, and every site holds only what it owns."""
        if not hasattr(self, "sites"):
            return
        for _ in range(1000 + 50 * sum(self.made.values())):
            if not self.something_happens():
                break
        else:
            raise AssertionError("the world never comes to rest")
        for (producer, unit), count in self.made.items():
            numbers = [r.number for r in self.history[unit] if r.producer == producer]
            assert numbers == list(range(count))
        for s, site in enumerate(self.sites):
            owned = {unit for unit in self.units if self.owner[unit] == s}
            assert set(site.states) == owned == {*site.paging.resident, *site.paging.spilled_units}
            assert not site.resting and not site.carried and not site.received
        assert not self.moves and not self.stalled.any()
        assert all(movement.over for movement in self.begun)
        assert (self.holders == list(self.owner.values())).all()

    def something_happens(self) -> bool:
        waiting = {s for s, site in enumerate(self.sites) if any(site.spool.pending(unit) for unit in site.states)}
        for step, *arguments in self.under_way() or [turn for turn in self.turns() if turn[1] in waiting]:
            step(*arguments)
            return True
        return False


World.TestCase.settings = settings(stateful_step_count=30, max_examples=3 * settings().max_examples)
TestWorld = World.TestCase


PRODUCERS = (3, 4)
STEPS_OF_A_MOVE = [*(Acknowledged(7, producer) for producer in PRODUCERS), Extracted(7), Transferred(7), Installed(7)]
"""What is reported of a move of unit 7, in its order, until its source has to let go."""


def new_move(producers: Sequence[int] = PRODUCERS) -> MoveProtocol:
    """A move of unit 7 from site 0 to site 1."""
    return MoveProtocol(Move(7, 1, "to see"), 0, producers)


def moved_to(phase: Phase) -> MoveProtocol:
    """A move that has come this far."""
    movement = new_move()
    if phase is not Phase.NEW:
        movement.begin()
    reports = iter(STEPS_OF_A_MOVE)
    while movement.phase is not phase:
        movement.handle(next(reports))
    return movement


def test_a_move_step_by_step():
    movement = new_move()
    assert movement.begin() == [Pause(7, (3, 4))]
    assert movement.handle(Acknowledged(7, 4)) == []
    assert movement.phase is Phase.QUIESCING
    assert movement.handle(Acknowledged(7, 3)) == [Extract(7, 0)]
    assert movement.handle(Extracted(7)) == [Transfer(7, 0, 1)]
    assert movement.handle(Transferred(7)) == [Install(7, 1)]
    assert movement.handle(Installed(7)) == [Restart(7, 1, (3, 4)), LetGo(7, 0)]
    assert movement.phase is Phase.LETTING_GO and not movement.over
    assert movement.handle(Released(7)) == []
    assert movement.over and movement.failure is None


def test_without_producers_nothing_has_to_be_paused():
    movement = new_move(producers=[])
    assert movement.begin() == [Extract(7, 0)]
    assert movement.phase is Phase.EXTRACTING


def test_a_unit_cannot_move_to_where_it_is():
    with pytest.raises(ProtocolError, match="unit 7 is at site 2 already"):
        MoveProtocol(Move(7, 2, "to see"), 2, [0])


@pytest.mark.parametrize("phase", [p for p in Phase if p not in (Phase.NEW, Phase.LETTING_GO, Phase.ABANDONED)])
def test_an_abandoned_move_restarts_the_unit_where_it_was(phase):
    movement = moved_to(phase)
    assert movement.phase is phase
    assert movement.abandon() == [Restart(7, 0, (3, 4)), LetGo(7, 1)]
    assert movement.phase is Phase.ABANDONED and not movement.over
    assert movement.handle(Released(7)) == []
    assert movement.over


def test_what_was_not_paused_is_not_restarted():
    movement = new_move()
    assert movement.abandon() == [LetGo(7, 1)]
    with pytest.raises(ProtocolError, match=r"begin does not fit the move of unit 7 .* which is abandoned"):
        movement.begin()


def test_after_abandoning_what_was_under_way_is_heard_once():
    movement = new_move()
    movement.begin()
    movement.handle(Acknowledged(7, 3))
    movement.abandon()
    assert movement.handle(Acknowledged(7, 4)) == []
    with pytest.raises(ProtocolError, match="producer 4"):
        movement.handle(Acknowledged(7, 4))
    movement = moved_to(Phase.TRANSFERRING)
    movement.abandon()
    assert movement.handle(Transferred(7)) == []
    with pytest.raises(ProtocolError, match="end of transferring"):
        movement.handle(Transferred(7))


REPORTS = {
    Phase.EXTRACTING: Extracted(7),
    Phase.TRANSFERRING: Transferred(7),
    Phase.INSTALLING: Installed(7),
    Phase.LETTING_GO: Released(7),
}


@pytest.mark.parametrize("phase", [p for p in Phase if p is not Phase.ABANDONED])
@pytest.mark.parametrize("event", REPORTS.values(), ids=repr)
def test_what_is_reported_out_of_order_is_refused_and_changes_nothing(phase, event):
    movement = moved_to(phase)
    if REPORTS.get(phase) == event:
        return
    with pytest.raises(ProtocolError, match=f"unit 7 from site 0 to site 1, which is {phase.value}"):
        movement.handle(event)
    assert movement.phase is phase and not movement.over


@pytest.mark.parametrize("phase", Phase)
@pytest.mark.parametrize("step", ["begin", "abandon"])
def test_a_move_is_begun_once_and_abandoned_once_and_not_when_it_is_done(phase, step):
    movement = new_move()
    if phase is Phase.ABANDONED:
        movement.abandon()
    else:
        movement = moved_to(phase)
    if phase is Phase.NEW or (step == "abandon" and phase not in (Phase.LETTING_GO, Phase.ABANDONED)):
        return
    with pytest.raises(ProtocolError, match=f"{step} does not fit .* from site 0 to site 1, which is {phase.value}"):
        getattr(movement, step)()
    assert movement.phase is phase


@pytest.mark.parametrize("event", [UnitFrozen(7, 0, "why"), SharingPrepared(7)], ids=repr)
def test_a_move_knows_no_other_events(event):
    with pytest.raises(ProtocolError, match="does not fit the move of unit 7"):
        moved_to(Phase.EXTRACTING).handle(event)


@pytest.mark.parametrize("producer", [3, 5])
def test_acknowledgements_count_once_and_from_those_asked(producer):
    movement = new_move()
    with pytest.raises(ProtocolError, match="which is not begun"):
        movement.handle(Acknowledged(7, 3))
    movement.begin()
    movement.handle(Acknowledged(7, 3))
    with pytest.raises(ProtocolError, match=f"producer {producer}"):
        movement.handle(Acknowledged(7, producer))
    assert movement.handle(Acknowledged(7, 4)) == [Extract(7, 0)]


def test_an_outlet_writes_into_the_arrays_it_was_given():
    owners, stalled = np.zeros((2, 3), np.int32), np.zeros((2, 3), np.uint8)
    outlet = ProducerRouting(owners[1], stalled[1])
    outlet.pause(2)
    assert stalled.tolist() == [[0, 0, 0], [0, 0, 1]]
    assert outlet.destination(2) is None
    outlet.restart(2, site=5)
    assert owners.tolist() == [[0, 0, 0], [0, 0, 5]]
    assert not stalled.any()
    assert outlet.destination(2) == 5


def test_an_outlet_refuses_what_has_no_counterpart():
    outlet = ProducerRouting(np.zeros(3, np.int32), np.zeros(3, bool))
    with pytest.raises(ProtocolError, match="without a pause"):
        outlet.restart(1, site=0)
    outlet.pause(1)
    with pytest.raises(ProtocolError, match="stalled already"):
        outlet.pause(1)
    with pytest.raises(ProtocolError, match="no unit -1"):
        outlet.destination(-1)
    with pytest.raises(ProtocolError, match="one entry a unit"):
        ProducerRouting(np.zeros(3, np.int32), np.zeros(2, bool))


def test_collecting_follows_the_last_move_phase():
    rounds = Rounds(minimum=0.5)
    lengths = []
    for moving in [4.0, None, None, None, None, 0.1, 3.0]:
        rounds = rounds.after(moving)
        lengths.append(rounds.collect)
    assert lengths == [4.0, 2.0, 1.0, 0.5, 0.5, 0.5, 3.0]
    with pytest.raises(FlowError, match="more than 0 seconds"):
        Rounds(minimum=0)


def test_a_protocol_error_is_one_of_ours():
    assert issubclass(ProtocolError, SluiceError)
