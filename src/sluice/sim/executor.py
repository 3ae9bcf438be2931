"""Instructions by messages: what protocols ask for goes to a world's handlers, and what they report comes back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from sluice.control.executor import InstructionExecutor
from sluice.control.loop import ControlLoop
from sluice.model.errors import ProtocolError
from sluice.model.ids import Fragment, Site, Unit
from sluice.model.plan.plan import Capabilities
from sluice.model.routing.routing import Routing
from sluice.sim.event_queue import EventQueue
from sluice.sim.outcome import TimedMove
from sluice.sim.world import World
from sluice.verbs.base import Instruction, VerbAction
from sluice.verbs.freeze import FreezeUnit
from sluice.verbs.move import (
    Acknowledged,
    Extract,
    Extracted,
    Install,
    Installed,
    LetGo,
    MoveProtocol,
    Pause,
    Released,
    Restart,
    Transfer,
    Transferred,
)
from sluice.verbs.scale import ChangeSites
from sluice.verbs.share import ApplySharing, PrepareSharing, SharingPrepared
from sluice.verbs.split import CountBelow, Counted, Divide, Profiled, ProfileHashes, Unite


class MessageExecutor(InstructionExecutor):
    """The executor of all simulations. The clock is that of the simulation; sites stay, so no move is abandoned.

    What the world has a handler for it can do, and nothing else: `capabilities` are read off its handlers.
    """

    def __init__(self, world: World, events: EventQueue) -> None:
        self.world, self.events, self.handlers = world, events, world.handlers
        self.producers = tuple(world.producers)
        self.moves: list[TimedMove] = []
        """All, in the order in which they were decided."""
        self.moved_bytes = 0.0
        self._last_move: dict[Unit, int] = {}
        """The place of each unit's last move among all."""

    @property
    def capabilities(self) -> Capabilities:
        fragments = frozenset(map(Fragment, range(len(self.world.routing.directories))))
        return Capabilities(
            freezable=fragments if FreezeUnit in self.handlers else frozenset(),
            shareable=self.world.inputs if ApplySharing in self.handlers else {},
            divisible=fragments if Divide in self.handlers else frozenset(),
            scalable=ChangeSites in self.handlers,
        )

    def why_not(self, action: VerbAction, routing: Routing) -> str | None:
        if not all(kind in self.handlers for kind in action.needs):
            return f"a simulated {self.world.name} cannot {action.verb}"
        return self.world.why_not(action)

    def clock(self) -> float:
        return self.events.now

    def finish(self, loop: ControlLoop, now: float) -> None:
        self.world.repartition()

    def execute(self, loop: ControlLoop, instruction: Instruction, now: float) -> None:
        handle = self.handlers.get(type(instruction))
        if handle is None:
            raise ProtocolError(f"what cannot be done was refused: {instruction}")
        match instruction:
            case Pause() | Extract() | Transfer() | Install() | Restart() | LetGo():
                (move,) = (one for one in loop.in_flight.at(instruction.unit) if isinstance(one, MoveProtocol))
                self._move(loop, move, instruction, handle, now)
            case FreezeUnit(unit):
                handle(unit)
                self._complete(loop, unit, now)
            case PrepareSharing(unit):
                loop.report(SharingPrepared(unit), now)
            case ApplySharing(unit, change):
                handle(change)
                self._complete(loop, unit, now)
            case ProfileHashes(unit):
                loop.report(Profiled(unit), now)
            case CountBelow(unit):
                loop.report(Counted(unit), now)
            case Divide() | Unite() | ChangeSites():
                handle(instruction)
        if isinstance(instruction, ChangeSites):  # the world sees to it from here on
            assert loop.scaling is not None
            loop.complete(loop.scaling, now)

    def _complete(self, loop: ControlLoop, unit: Unit, now: float) -> None:
        (protocol,) = loop.in_flight.at(unit)
        loop.complete(protocol, now)

    def _move(
        self,
        loop: ControlLoop,
        move: MoveProtocol,
        instruction: Pause | Extract | Transfer | Install | Restart | LetGo,
        handle: Callable[..., None],
        now: float,
    ) -> None:
        unit = move.unit

        def then(event: Extracted | Transferred | Installed) -> Callable[[], None]:
            return lambda: loop.report(event, self.events.now)

        match instruction:
            case Pause():
                self._last_move[unit] = len(self.moves)
                self.moves.append(TimedMove(now, unit, move.source, move.target, move.action.reason))
                acknowledge = lambda producer: loop.report(Acknowledged(unit, producer), self.events.now)  # noqa: E731
                self.world.send(partial(handle, move, acknowledge))
            case Extract():
                handle(move, then(Extracted(unit)))
            case Transfer():
                size = self.world.state_bytes(unit)
                self.moved_bytes += size
                handle(move, size, then(Transferred(unit)))
            case Install():
                handle(move, then(Installed(unit)))
            case Restart(site=site):
                self.world.send(partial(self._restart, loop, handle, unit, site))
            case LetGo():
                self.world.send(partial(handle, move, partial(self._finish, loop, unit)))

    def _restart(self, loop: ControlLoop, handle: Callable[..., None], unit: Unit, site: Site) -> None:
        handle(unit, site)
        there = loop.routing.holder(unit) == site
        loop.route(loop.routing if there else loop.routing.with_move(unit, site, loop.epoch), self.events.now)

    def _finish(self, loop: ControlLoop, unit: Unit) -> None:
        last = self._last_move[unit]
        self.moves[last] = replace(self.moves[last], done=self.events.now)
        loop.report(Released(unit), self.events.now)
