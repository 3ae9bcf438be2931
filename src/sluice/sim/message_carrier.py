"""Moves by messages: how a simulated cluster carries the protocol's instructions out (Flux, section 5.2)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from sluice.control.loop import ControlLoop
from sluice.control.movement import Extract, Install, Instruction, LetGo, Pause, Restart, Transfer
from sluice.control.moves import MoveInFlight
from sluice.model import ids
from sluice.model.actions import CleanUp, Freeze, Scale, SharingAction
from sluice.model.errors import ProtocolError
from sluice.sim import core
from sluice.sim.event_queue import Agenda
from sluice.sim.move_log import MoveLog
from sluice.sim.network import Network
from sluice.sim.producer_routing import ProducerRouting
from sluice.sim.site import Site
from sluice.sim.world import Costs, World


class MessageCarrier:
    """The control loop sits on a machine of its own; every message takes the network's latency, and the clock is that
    of the simulation. Sites stay, so no move is abandoned."""

    def __init__(
        self, world: World, costs: Costs, agenda: Agenda, network: Network, sites: Sequence[Site], unit_bytes: int
    ) -> None:
        self.world, self.costs, self.agenda, self.network = world, costs, agenda, network
        self.sites, self.unit_bytes = sites, unit_bytes
        self.producers = range(len(sites))
        self.log = MoveLog()
        self._routings = [ProducerRouting(row["owner"], row["stalled"]) for row in world.route]

    def clock(self) -> float:
        return self.agenda.now

    def tell_holder(self, action: Freeze | CleanUp) -> None:
        raise ProtocolError(f"an exchange has no join to freeze: cannot {action.verb} unit {action.unit}")

    def share_otherwise(self, loop: ControlLoop, action: SharingAction, now: float) -> None:
        raise ProtocolError(f"an exchange has no join to share: cannot {action.verb} unit {action.unit}")

    def prepare_redivision(self, loop: ControlLoop, now: float) -> None:
        raise ProtocolError("the units of this simulation stay as they are")

    def scale(self, loop: ControlLoop, action: Scale, now: float) -> None:
        raise ProtocolError("the number of sites of this simulation is fixed")

    def carry_out(self, loop: ControlLoop, move: MoveInFlight, instruction: Instruction, now: float) -> None:
        machine = move.machine

        def then(report: Callable[[], list[Instruction]]) -> Callable[[], None]:
            return lambda: loop.follow(move, report(), self.agenda.now)

        match instruction:
            case Pause():
                self.log.begin(move, now)
                source = self.sites[move.source]
                self._later(partial(source.post, partial(self._announce, loop, move)))
            case Extract(unit, site):
                self.sites[site].post(partial(self.sites[site].extract, unit, then(machine.extracted)))
            case Transfer(_, source, target):
                self.network.transfer(source, target, self.unit_bytes, then(machine.transferred))
            case Install(unit, site):
                install = partial(self.sites[site].install, unit, self.unit_bytes, then(machine.installed))
                self.sites[site].post(install)
            case Restart(unit, site):
                self._later(partial(self._restart, loop, unit, site))
            case LetGo():
                self._later(partial(self._let_go, loop, move))

    def _announce(self, loop: ControlLoop, move: MoveInFlight) -> None:
        """The source hears first that a unit is to leave."""
        self.sites[move.source].expect_to_leave(move.unit)
        self._later(partial(self._pause, loop, move))

    def _pause(self, loop: ControlLoop, move: MoveInFlight) -> None:
        """Every producer stops the unit's input and acknowledges behind what it has sent."""
        for producer, routing in enumerate(self._routings):
            routing.pause(move.unit)
            core.stall(self.world, producer, move.unit, move.source)
            behind = int(self.world.pair["sent"][producer, move.source])
            self._later(partial(self._acknowledge, loop, move, producer, behind))

    def _acknowledge(self, loop: ControlLoop, move: MoveInFlight, producer: int, behind: int) -> None:
        def hear() -> None:
            loop.follow(move, move.machine.acknowledged(producer), self.agenda.now)

        self.sites[move.source].when_dry(producer, behind, hear)

    def _restart(self, loop: ControlLoop, unit: ids.Unit, site: ids.Site) -> None:
        for producer, routing in enumerate(self._routings):
            routing.restart(unit, site)
            core.unstall(self.world, self.costs, producer, unit, site)
        loop.route(unit, site, self.agenda.now)

    def _let_go(self, loop: ControlLoop, move: MoveInFlight) -> None:
        self.log.end(move, self.agenda.now)
        loop.finish(move, self.agenda.now)

    def _later(self, call: Callable[[], object]) -> None:
        self.agenda.after(self.costs.latency, call)
