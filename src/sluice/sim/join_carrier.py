"""Relocations and spills by messages: how a simulated join carries out what the coordinator wants (lazy/active-disk
paper, section 4.1; `docs/relocation.md` has the steps)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

from sluice.control.loop import ControlLoop
from sluice.control.movement import Extract, Install, Instruction, LetGo, Pause, Restart, Transfer
from sluice.control.moves import MoveInFlight
from sluice.model import ids
from sluice.model.actions import CleanUp, Freeze, Scale, SharingAction
from sluice.model.errors import ProtocolError
from sluice.sim.event_queue import Agenda
from sluice.sim.hardware import Hardware
from sluice.sim.join_core import JoinCosts, JoinWorld, release
from sluice.sim.join_site import JoinSite
from sluice.sim.move_log import MoveLog
from sluice.sim.network import Network
from sluice.sim.producer_routing import ProducerRouting


class JoinCarrier:
    """The coordinator is on a machine of its own and every message takes the network's latency. There is a split for
    each input, which holds back the tuples of units that move; sites send one unit after the other."""

    def __init__(
        self, world: JoinWorld, costs: JoinCosts, agenda: Agenda, hardware: Hardware, sites: Sequence[JoinSite]
    ) -> None:
        self.world, self.costs, self.agenda, self.hardware, self.sites = world, costs, agenda, hardware, sites
        self.network = Network(agenda, len(sites), hardware.link_rate, hardware.cross_rate)
        self.producers = range(len(world.holder))
        self.log = MoveLog()
        self._splits = [ProducerRouting(*rows) for rows in zip(world.holder, world.stalled, strict=True)]
        self._freezes: dict[ids.Site, list[ids.Unit]] = {}
        """What the coordinator is about to tell each site."""
        self._outgoing: dict[ids.Site, deque[Callable[[], None]]] = {}
        """Units that wait for a site's link."""

    def clock(self) -> float:
        return self.agenda.now

    def tell_holder(self, action: Freeze | CleanUp) -> None:
        if isinstance(action, CleanUp):
            raise ProtocolError(f"vetting refuses it: a simulated join cannot {action.verb} unit {action.unit}")
        site = ids.Site(int(self.world.holder[0, action.unit]))
        if site not in self._freezes:
            self._later(lambda: self.sites[site].freeze(self._freezes.pop(site)))
        self._freezes.setdefault(site, []).append(action.unit)

    def share_otherwise(self, loop: ControlLoop, action: SharingAction, now: float) -> None:
        raise ProtocolError(f"vetting refuses it: a simulated m-way join cannot {action.verb} unit {action.unit}")

    def prepare_redivision(self, loop: ControlLoop, now: float) -> None:
        raise ProtocolError("vetting refuses it: the units of this simulation stay as they are")

    def scale(self, loop: ControlLoop, action: Scale, now: float) -> None:
        raise ProtocolError("vetting refuses it: the number of sites of this simulation is fixed")

    def carry_out(self, loop: ControlLoop, move: MoveInFlight, instruction: Instruction, now: float) -> None:
        machine = move.machine

        def then(report: Callable[[], list[Instruction]]) -> Callable[[], None]:
            return lambda: loop.follow(move, report(), self.agenda.now)

        match instruction:
            case Pause(unit):
                self.log.begin(move, now)
                # the source hears first that a unit is to leave; should it be spilling, everything waits for that
                self._later(partial(self.sites[move.source].relocate, unit, partial(self._pause, loop, move)))
            case Extract(unit, site):
                self.sites[site].extract(unit, then(machine.extracted))
            case Transfer(unit, source, target):
                size = int(self.world.unit["stored"][unit]) * self.hardware.tuple_bytes
                self._send(source, target, size, then(machine.transferred))
            case Install(unit, site):
                install = partial(self.sites[site].install, unit, then(machine.installed))
                self.sites[site].relocate(unit, install)
            case Restart(unit, site):
                self._later(partial(self._restart, loop, unit, site))
            case LetGo():
                self._later(partial(self._let_go, loop, move))

    def _pause(self, loop: ControlLoop, move: MoveInFlight) -> None:
        """Ask the splits to hold the unit's tuples back; each acknowledges behind what it has sent."""

        def pause(split: int) -> None:
            self._splits[split].pause(move.unit)
            self._later(lambda: loop.follow(move, move.machine.acknowledged(split), self.agenda.now))

        for split in self.producers:
            self._later(partial(pause, split))

    def _send(self, source: ids.Site, target: ids.Site, size: int, done: Callable[[], None]) -> None:
        """A link carries one unit at a time."""
        waiting = self._outgoing.setdefault(source, deque())

        def arrive() -> None:
            waiting.popleft()
            if waiting:
                waiting[0]()
            done()

        waiting.append(partial(self.network.transfer, source, target, size, arrive))
        if len(waiting) == 1:
            waiting[0]()

    def _restart(self, loop: ControlLoop, unit: ids.Unit, site: ids.Site) -> None:
        for split in self._splits:
            split.restart(unit, site)
        release(self.world, self.costs, unit, site)
        loop.route(unit, site, self.agenda.now)

    def _let_go(self, loop: ControlLoop, move: MoveInFlight) -> None:
        self.log.end(move, self.agenda.now)
        for site in (move.source, move.target):
            self.sites[site].relocated(move.unit)
        loop.finish(move, self.agenda.now)

    def _later(self, call: Callable[[], object]) -> None:
        self.agenda.after(self.hardware.latency, call)
