"""Tokens and moves by messages: how a simulated plan carries out what the coordinator wants."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from sluice.control.loop import ControlLoop
from sluice.control.movement import Extract, Install, Instruction, LetGo, Pause, Restart, Transfer
from sluice.control.moves import MoveInFlight
from sluice.control.token_passing import PassInstruction, PassPhase, PutCommand, StartStoring, StopStoring, TokenPassing
from sluice.model import ids
from sluice.model.actions import Action, CleanUp, Freeze, Release, Scale, SharingAction
from sluice.model.errors import ProtocolError
from sluice.model.routing import Routing
from sluice.model.sharing import SharedUnit
from sluice.sim.event_queue import Agenda
from sluice.sim.move_log import MoveLog
from sluice.sim.network import Network
from sluice.sim.plan_world import PlanWorld


class PlanCarrier:
    """The coordinator is on a machine of its own and every message takes the network's latency, so a split hears what
    it is told in its order. A command in the stream reaches a holder when that has taken all places ahead of it."""

    producers = (0,)

    def __init__(self, world: PlanWorld, agenda: Agenda) -> None:
        self.world, self.agenda, self.scenario = world, agenda, world.scenario
        rate = self.scenario.link_rate
        self.network = Network(agenda, self.scenario.sites, rate, rate * self.scenario.sites)
        self.log = MoveLog()
        self.moved_bytes = 0.0
        self.passes = 0
        self.under_way: list[ids.Unit] = []
        """Units with a token on its way, once for each."""
        self._commands: list[tuple[int, TokenPassing, ids.Site]] = []
        """What is in the stream and has not reached a holder: its place, the command, the holder."""

    def clock(self) -> float:
        return self.agenda.now

    def tell_holder(self, action: Freeze | CleanUp) -> None:
        raise ProtocolError(f"vetting refuses it: a simulated plan cannot {action.verb} unit {action.unit}")

    # --- tokens ---

    def why_not(self, action: Action) -> str | None:
        """Why something cannot be done just now: no state is handed over, so a holder leaves with none, and with no
        token on its way."""
        if not isinstance(action, Release):
            return None
        unit, site = action.unit, action.site
        if self._has_state(unit, site) or self.world.storing[unit, :, site].any() or unit in self.under_way:
            return f"site {site} of a simulated plan cannot leave unit {unit}: it stores state"
        return None

    def share_otherwise(self, loop: ControlLoop, action: SharingAction, now: float) -> None:
        """The coordinator counts on it at once, as the split does things in the order in which it is told."""
        before = _sharing(loop.routing, action.unit)
        loop.reshare(action)
        after = _sharing(loop.routing, action.unit)
        self._later(partial(self._change_links, before, after))
        for input_ in after.inputs:
            storing, target = before.stores(input_), after.stores(input_)
            if storing != target:
                receiving = tuple(dict.fromkeys((*after.holders, *before.holders)))
                passing = TokenPassing(action.unit, input_, receiving, storing, target)
                self.under_way.append(action.unit)
                self._follow(passing, passing.begin())

    def meet_commands(self) -> None:
        """Holders that have taken all places ahead of a command do as it says."""
        waiting = self._commands
        self._commands = []
        for place, passing, site in waiting:
            if self.world.next_place[passing.unit, site] < place:
                self._commands.append((place, passing, site))
                continue
            assert self.world.next_place[passing.unit, site] == place, "a holder has gone past a command"
            self._follow(passing, passing.reached(site))
            if passing.phase is PassPhase.PASSED:
                self.under_way.remove(passing.unit)

    def _follow(self, passing: TokenPassing, instructions: list[PassInstruction]) -> None:
        for instruction in instructions:
            match instruction:
                case PutCommand(holders=holders):
                    self._later(partial(self._put, passing, holders))
                case StartStoring(unit, input_, site, _, turns):
                    self.world.storing[unit, input_ % 2, site] = 1 / turns  # in turn: of a portion, as much each
                case StopStoring(unit, input_, site):
                    self.world.storing[unit, input_ % 2, site] = 0.0

    def _put(self, passing: TokenPassing, holders: tuple[ids.Site, ...]) -> None:
        passing.put()
        self.passes += 1
        self._commands += [(self._place, passing, site) for site in holders]

    def _change_links(self, before: SharedUnit, after: SharedUnit) -> None:
        """The split adds and removes holders in its table."""
        for site in after.holders:
            if site not in before.holders:
                self.world.open_link(after.unit, site, self._place)
        for site in before.holders:
            if site not in after.holders:
                assert not self._has_state(after.unit, site), "a holder leaves with state"
                self.world.close_link(after.unit, site, self._place)

    def _has_state(self, unit: ids.Unit, site: ids.Site) -> bool:
        return bool(self.world.stored[unit, :, site].sum() * self.scenario.tuple_bytes >= 1)

    @property
    def _place(self) -> int:
        """Where the splits are in the stream: the step that begins now."""
        return round(self.agenda.now / self.scenario.step)

    # --- moves ---

    def prepare_redivision(self, loop: ControlLoop, now: float) -> None:
        raise ProtocolError("vetting refuses it: the units of this simulation stay as they are")

    def scale(self, loop: ControlLoop, action: Scale, now: float) -> None:
        raise ProtocolError("vetting refuses it: the number of sites of this simulation is fixed")

    def carry_out(self, loop: ControlLoop, move: MoveInFlight, instruction: Instruction, now: float) -> None:
        machine, world = move.machine, self.world

        def then(report: Callable[[], list[Instruction]]) -> Callable[[], None]:
            return lambda: loop.follow(move, report(), self.agenda.now)

        match instruction:
            case Pause(unit):
                self.log.begin(move, now)
                acknowledge = then(partial(machine.acknowledged, self.producers[0]))
                self._later(partial(self._pause, unit, move.source, acknowledge))
            case Extract():
                loop.follow(move, machine.extracted(), now)
            case Transfer(unit, source, target):
                size = float(world.stored[unit].sum()) * self.scenario.tuple_bytes
                self.moved_bytes += size
                self.network.transfer(source, target, int(size), then(machine.transferred))
            case Install(unit, site):
                world.relocate(unit, move.source, site)
                loop.follow(move, machine.installed(), now)
            case Restart(unit, site):
                self._later(partial(self._restart, loop, unit, site))
            case LetGo():
                self._later(partial(self._let_go, loop, move))

    def _pause(self, unit: ids.Unit, source: ids.Site, acknowledge: Callable[[], None]) -> None:
        """The split holds a unit's tuples back, and acknowledges behind those that are on their way to the source."""
        self.world.close_link(unit, source, self._place)
        self._later(acknowledge)

    def _restart(self, loop: ControlLoop, unit: ids.Unit, site: ids.Site) -> None:
        self.world.restart(unit)
        loop.route(unit, site, self.agenda.now)

    def _let_go(self, loop: ControlLoop, move: MoveInFlight) -> None:
        self.log.end(move, self.agenda.now)
        loop.finish(move, self.agenda.now)

    def _later(self, call: Callable[[], object]) -> None:
        self.agenda.after(self.scenario.latency, call)


def _sharing(routing: Routing, unit: ids.Unit) -> SharedUnit:
    join = routing.fragment_of(unit)
    inputs = ids.InputNumber(2 * join), ids.InputNumber(2 * join + 1)
    return routing.sharing(unit) or SharedUnit.alone(unit, routing.holders[unit], inputs)
