"""Moves, splits, merges and sites that come and go: how a simulated window join carries out what its master decides.

Master and sites talk at the ends of distribution epochs, so all is decided there. A site sends or receives one unit at
a time, and joins nothing meanwhile. A unit is held back at the master for as long as its state is on its way; what
waits in its site's buffer goes with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from sluice.control.loop import ControlLoop
from sluice.control.movement import Extract, Install, Instruction, LetGo, Pause, Restart, Transfer
from sluice.control.moves import MoveInFlight
from sluice.control.redividing import halved_into
from sluice.model import ids
from sluice.model.actions import CleanUp, Freeze, Scale, SharingAction, Split
from sluice.model.decision import Decision
from sluice.model.errors import ProtocolError
from sluice.policies.draining import drain
from sluice.sim.event_queue import Agenda
from sluice.sim.move_log import MoveLog
from sluice.sim.window_sites import WindowSites
from sluice.sim.window_streams import FINEST
from sluice.sim.window_world import WindowWorld

DRAINING = "draining"
"""Who decides where the units of a site go that is to leave."""


class WindowCarrier:
    """Messages about units take no time beside the epochs; state takes the link's."""

    producers = (0,)

    def __init__(self, world: WindowWorld, sites: WindowSites, agenda: Agenda) -> None:
        self.world, self.sites, self.agenda, self.scenario = world, sites, agenda, world.scenario
        self.log = MoveLog()
        self.moved_bytes = 0
        self.redivisions = 0
        self.decisions: list[Decision] = []
        """About units of sites that leave."""
        self._leaving: Scale | None = None
        """How many sites stay, while others give their units away."""
        self._redividing = False
        self._waiting: list[MoveInFlight] = []
        """Moves whose sites are busy with others."""
        self._occupied: set[ids.Site] = set()
        """Sites that send or receive a unit."""

    def clock(self) -> float:
        return self.agenda.now

    def tell_holder(self, action: Freeze | CleanUp) -> None:
        raise ProtocolError(f"vetting refuses it: a simulated window join cannot {action.verb} unit {action.unit}")

    def share_otherwise(self, loop: ControlLoop, action: SharingAction, now: float) -> None:
        raise ProtocolError(f"vetting refuses it: a simulated window join cannot {action.verb} unit {action.unit}")

    def prepare_redivision(self, loop: ControlLoop, now: float) -> None:
        """There is nothing to prepare; but a unit on its way keeps its number until it is there."""
        self._redividing = True
        self._redivide_if_calm(loop, now)

    def scale(self, loop: ControlLoop, action: Scale, now: float) -> None:
        """Sites that join have no units; those that leave give theirs away first."""
        routing, sites = loop.routing, min(max(action.sites, self.scenario.least), self.scenario.most)
        if sites >= routing.sites:
            self._leaving = None
            loop.routing = replace(routing, sites=sites, version=routing.version + 1, since=loop.epoch)
        else:
            self._leaving = action
            self._drain(loop, now)

    def carry_out(self, loop: ControlLoop, move: MoveInFlight, instruction: Instruction, now: float) -> None:
        machine, world = move.machine, self.world
        match instruction:
            case Pause():
                self.log.begin(move, now)
                self._waiting.append(move)
                self._begin_waiting(loop)
            case Extract():
                loop.follow(move, machine.extracted(), now)
            case Transfer(unit, source, target):
                size = int(world.stored[world.cells_of(unit)].sum()) * self.scenario.tuple_bytes
                seconds = size / self.scenario.link_rate
                self.moved_bytes += size
                for site in (source, target):
                    self.sites.occupy(site, seconds)
                self.agenda.after(seconds, lambda: loop.follow(move, machine.transferred(), self.agenda.now))
            case Install(unit, site):
                world.site[world.cells_of(unit)] = site
                loop.follow(move, machine.installed(), now)
            case Restart(unit, site):
                world.paused[world.cells_of(unit)] = False
                loop.route(unit, site, now)
            case LetGo():
                self.log.end(move, now)
                self._occupied -= {move.source, move.target}
                self._leave_if_empty(loop, [other for other in loop.moves.values() if other is not move])
                loop.finish(move, now)
                self._begin_waiting(loop)
                self._redivide_if_calm(loop, now)
                self._drain(loop, now)

    def _begin_waiting(self, loop: ControlLoop) -> None:
        """The first moves between sites that are free."""
        for move in list(self._waiting):
            if not self._occupied & {move.source, move.target}:
                self._waiting.remove(move)
                self._occupied |= {move.source, move.target}
                self.world.paused[self.world.cells_of(move.unit)] = True
                loop.follow(move, move.machine.acknowledged(self.producers[0]), self.agenda.now)

    def _drain(self, loop: ControlLoop, now: float) -> None:
        """The units of sites that leave go elsewhere, also those that were on their way there, or could not move."""
        self._leave_if_empty(loop, list(loop.moves.values()))
        if self._leaving is None or loop.moves:
            return
        routing, stay = loop.routing, self._leaving.sites
        staying = [ids.Site(site) for site in range(stay)]
        leaving = [ids.Site(site) for site in range(stay, routing.sites)]
        stored = self.world.by_unit(self.world.stored)
        moves = drain(np.array(routing.holders), stored, stored, leaving, staying, self._leaving.reason)
        self.decisions += loop.decide(DRAINING, moves, now)

    def _leave_if_empty(self, loop: ControlLoop, moves: Sequence[MoveInFlight]) -> None:
        """Sites are gone when they hold nothing, and nothing is on its way to them."""
        if self._leaving is None:
            return
        sites = self._leaving.sites
        if max(*loop.routing.holders, *(move.target for move in moves)) < sites:
            loop.routing = loop.routing.resized(sites, loop.routing.version + 1, loop.epoch)
            self._leaving = None

    def _redivide_if_calm(self, loop: ControlLoop, now: float) -> None:
        if self._redividing and not loop.moves:
            directory, further = loop.routing.directories[0], {}
            for unit, action in loop.redivisions.items():
                if isinstance(action, Split):
                    bits = min(action.bits, FINEST - directory.depth(unit))
                    further[unit] = halved_into(directory.hashes_of(unit), None, bits)[1:]
            self.redivisions += len(loop.redivisions)
            self._redividing = False
            loop.redivide(now, further)
            self.world.divide(loop.routing.directories[0])
