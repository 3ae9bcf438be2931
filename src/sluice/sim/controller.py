"""The controller of a simulated cluster: rounds of collecting, deciding and moving (Flux, sections 5.2 and 5.3)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from sluice.control.movement import Extract, Install, Instruction, LetGo, Movement, Pause, Restart, Transfer
from sluice.control.rounds import Rounds
from sluice.model.actions import Move
from sluice.model.view import ClusterView
from sluice.policies import Policy
from sluice.sim import core
from sluice.sim.event_queue import Agenda
from sluice.sim.network import Network
from sluice.sim.producer_routing import ProducerRouting
from sluice.sim.site import Site
from sluice.sim.world import Costs, World


@dataclass(frozen=True)
class Decision:
    """A move: when it was decided and why, and when it was done (None: the simulation ended before)."""

    time: float
    unit: int
    source: int
    target: int
    reason: str
    done: float | None = None


@dataclass(frozen=True)
class _Base:
    """Where a site's statistics stood when the collection began."""

    idle: float
    rows: np.ndarray


class Controller:
    """It sits on a machine of its own; every message takes the network's latency."""

    def __init__(
        self,
        world: World,
        costs: Costs,
        agenda: Agenda,
        network: Network,
        sites: Sequence[Site],
        policy: Policy,
        owners: np.ndarray,
        unit_bytes: int,
        rounds: Rounds,
    ) -> None:
        self.world, self.costs, self.agenda, self.network = world, costs, agenda, network
        self.sites, self.policy, self.rounds = sites, policy, rounds
        self.owners, self.unit_bytes = owners.copy(), unit_bytes
        self.outlets = [ProducerRouting(row["owner"], row["stalled"]) for row in world.route]
        self.decisions: list[Decision] = []
        self.round = 0
        self._idle = np.zeros(len(sites))
        self._memory = np.zeros(len(sites))
        self._rows, self._pending = (np.zeros(len(owners), dtype=np.int64) for _ in range(2))
        self._spilled = np.zeros(len(owners), dtype=bool)
        self._reports = 0
        self._moving: dict[int, Movement] = {}
        self._moving_since = 0.0

    # --- the collection phase ---

    def begin_round(self) -> None:
        self.round += 1
        self._reports = 0
        for site in self.sites:
            self._later(partial(site.post, partial(self._collect, site)))

    def _collect(self, site: Site) -> None:
        base = _Base(float(self.world.node["idle"][site.number]), self.world.unit["processed"].copy())
        self.agenda.after(self.rounds.collect, partial(site.post, partial(self._report, site, base)))

    def _report(self, site: Site, base: _Base) -> None:
        mine = self.owners == site.number
        self._rows[mine] = (self.world.unit["processed"] - base.rows)[mine]
        self._idle[site.number] = self.world.node["idle"][site.number] - base.idle
        self._spilled[mine] = ~self.world.unit["resident"][mine]
        self._pending[mine] = self.world.unit["pending"][mine]
        self._memory[site.number] = site.residence.limit
        self._later(self._reported)

    def _reported(self) -> None:
        self._reports += 1
        if self._reports == len(self.sites):
            self._decide()

    def view(self) -> ClusterView:
        return ClusterView(
            epoch=self.round,
            seconds=self.rounds.collect,
            unit_site=self.owners.copy(),
            unit_rows=self._rows.copy(),
            unit_bytes=np.full(len(self.owners), self.unit_bytes),
            unit_spilled=self._spilled.copy(),
            unit_pending=self._pending.copy(),
            site_idle=np.minimum(self._idle, self.rounds.collect),
            site_memory=self._memory.copy(),
        )

    # --- the move phase ---

    def _decide(self) -> None:
        moves = self.policy.decide(self.view())
        self._moving_since = self.agenda.now
        if not moves:
            self.rounds = self.rounds.after(None)
            self.begin_round()
        for move in moves:
            self._start(move)

    def _start(self, move: Move) -> None:
        source = int(self.owners[move.unit])
        movement = Movement(move.unit, source, move.site, range(len(self.sites)))
        self._moving[move.unit] = movement
        self.decisions.append(Decision(self.agenda.now, move.unit, source, move.site, move.reason))
        self._later(partial(self.sites[source].post, partial(self._begin, movement)))

    def _begin(self, movement: Movement) -> None:
        self.sites[movement.source].expect_to_leave(movement.unit)
        self._follow(movement, movement.begin())

    def _follow(self, movement: Movement, instructions: list[Instruction]) -> None:
        """Has what the protocol asks for next done, at the sites and over the network."""
        for instruction in instructions:
            match instruction:
                case Pause(unit, _):
                    self._later(partial(self._pause, movement, unit))
                case Extract(unit, site):
                    done = partial(self._then, movement, movement.extracted)
                    self.sites[site].post(partial(self.sites[site].extract, unit, done))
                case Transfer(_, source, target):
                    done = partial(self._then, movement, movement.transferred)
                    self.network.transfer(source, target, self.unit_bytes, done)
                case Install(unit, site):
                    done = partial(self._then, movement, movement.installed)
                    self.sites[site].post(partial(self.sites[site].install, unit, self.unit_bytes, done))
                case Restart(unit, site, _):
                    self._later(partial(self._restart, unit, site))
                case LetGo(unit, _):
                    self._later(partial(self._finished, unit))

    def _then(self, movement: Movement, report: Callable[[], list[Instruction]]) -> None:
        self._follow(movement, report())

    def _pause(self, movement: Movement, unit: int) -> None:
        """Every producer stops the unit's input and acknowledges behind what it has sent."""
        for producer, outlet in enumerate(self.outlets):
            outlet.pause(unit)
            core.stall(self.world, producer, unit, movement.source)
            behind = int(self.world.pair["sent"][producer, movement.source])
            self._later(partial(self._acknowledge, movement, producer, behind))

    def _acknowledge(self, movement: Movement, producer: int, behind: int) -> None:
        heard = partial(self._heard, movement, producer)
        self.sites[movement.source].when_dry(producer, behind, heard)

    def _heard(self, movement: Movement, producer: int) -> None:
        self._follow(movement, movement.acknowledged(producer))

    def _restart(self, unit: int, site: int) -> None:
        for producer, outlet in enumerate(self.outlets):
            outlet.restart(unit, site)
            core.unstall(self.world, self.costs, producer, unit, site)

    def _finished(self, unit: int) -> None:
        movement = self._moving.pop(unit)
        self.owners[unit] = movement.target
        at = max(i for i, decision in enumerate(self.decisions) if decision.unit == unit)
        self.decisions[at] = replace(self.decisions[at], done=self.agenda.now)
        if not self._moving:
            self.rounds = self.rounds.after(self.agenda.now - self._moving_since)
            self.begin_round()

    def _later(self, call: Callable[[], object]) -> None:
        self.agenda.after(self.costs.latency, call)
