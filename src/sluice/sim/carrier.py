"""Instructions by messages: what the control loop decides goes to a world's handlers, and their reports come back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from sluice.control.loop import ControlLoop
from sluice.control.movement import Extract, Install, Instruction, LetGo, Pause, Restart, Transfer
from sluice.control.moves import MoveInFlight
from sluice.model.abilities import Abilities
from sluice.model.actions import Action, CleanUp, Freeze, LayOut, Move, Scale, Share, SharingAction, Split
from sluice.model.errors import ProtocolError
from sluice.model.ids import Fragment, Site, Unit
from sluice.sim.event_queue import EventQueue
from sluice.sim.outcome import TimedMove
from sluice.sim.world import World


class MessageCarrier:
    """The carrier of all simulations. The clock is that of the simulation; sites stay, so no move is abandoned.

    What the world has a handler for it can do, and nothing else: `abilities` are read off its handlers.
    """

    def __init__(self, world: World, events: EventQueue) -> None:
        self.world, self.events, self.handlers = world, events, world.handlers
        self.moves: list[TimedMove] = []
        """All, in the order in which they were decided."""
        self.moved_bytes = 0.0
        self._last_move: dict[Unit, int] = {}
        """The place of each unit's last move among all."""

    @property
    def producers(self) -> Sequence[int]:
        return self.world.producers

    @property
    def abilities(self) -> Abilities:
        fragments = frozenset(map(Fragment, range(len(self.world.routing.directories))))
        return Abilities(
            freezable=fragments if Freeze in self.handlers else frozenset(),
            cleanable=CleanUp in self.handlers,
            shareable=self.world.inputs if Share in self.handlers else {},
            grids=LayOut in self.handlers,
            divisible=fragments if Split in self.handlers else frozenset(),
            scalable=Scale in self.handlers,
        )

    def why_not(self, action: Action) -> str | None:
        """Why an action cannot be carried out, beside what its abilities tell."""
        if (Pause if isinstance(action, Move) else type(action)) not in self.handlers:
            return f"a simulated {self.world.name} cannot {action.verb}"
        return self.world.why_not(action)

    def clock(self) -> float:
        return self.events.now

    def tell_holder(self, action: Freeze | CleanUp) -> None:
        self._handler(action)(action)

    def share_otherwise(self, loop: ControlLoop, action: SharingAction, now: float) -> None:
        self._handler(action)(action)

    def scale(self, loop: ControlLoop, action: Scale, now: float) -> None:
        self._handler(action)(action)

    def prepare_redivision(self, loop: ControlLoop, now: float) -> None:
        self._handler(next(iter(loop.redivisions.values())))()

    def carry_out(self, loop: ControlLoop, move: MoveInFlight, instruction: Instruction, now: float) -> None:
        handle, machine = self._handler(instruction), move.machine

        def then(report: Callable[..., list[Instruction]]) -> Callable[..., None]:
            return lambda *what: loop.follow(move, report(*what), self.events.now)

        match instruction:
            case Pause():
                self._last_move[move.unit] = len(self.moves)
                self.moves.append(TimedMove(now, move.unit, move.source, move.target, move.action.reason))
                self.world.send(partial(handle, move, then(machine.acknowledged)))
            case Extract():
                handle(move, then(machine.extracted))
            case Transfer(unit):
                size = self.world.state_bytes(unit)
                self.moved_bytes += size
                handle(move, size, then(machine.transferred))
            case Install():
                handle(move, then(machine.installed))
            case Restart(unit, site):
                self.world.send(partial(self._restart, loop, handle, unit, site))
            case LetGo():
                self.world.send(partial(handle, move, partial(self._finish, loop, move)))

    def _restart(self, loop: ControlLoop, handle: Callable[..., None], unit: Unit, site: Site) -> None:
        handle(unit, site)
        loop.route(unit, site, self.events.now)

    def _finish(self, loop: ControlLoop, move: MoveInFlight) -> None:
        last = self._last_move[move.unit]
        self.moves[last] = replace(self.moves[last], done=self.events.now)
        loop.finish(move, self.events.now)

    def _handler(self, wanted: Action | Instruction) -> Callable[..., None]:
        handler = self.handlers.get(type(wanted))
        if handler is None:
            raise ProtocolError(f"vetting lets nothing through that cannot be done: {wanted}")
        return handler
