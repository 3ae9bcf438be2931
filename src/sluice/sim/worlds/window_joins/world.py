"""A parallel window join, slot by slot: its units move, are split and merged, and its sites come and go.

Master and sites talk at the ends of distribution epochs, so all is decided there and messages take no time beside them.
A site sends or receives one unit at a time, and joins nothing meanwhile. A unit is held back at the master for as long
as its state is on its way; what waits in its site's buffer goes with it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import log2

import numpy as np

from sluice.control.loop import SITES
from sluice.model import ids
from sluice.model.routing.directory import HashRange
from sluice.model.routing.routing import Routing
from sluice.model.view import ClusterView
from sluice.policies.planning.draining import drain
from sluice.policies.planning.unit_sizes import UnitSizes
from sluice.record.rebalancing import rebalance
from sluice.record.repartition import successors
from sluice.sim.event_queue import EventQueue
from sluice.sim.network import Network
from sluice.sim.outcome import ControlRecord, Curve, Measure, Outcome
from sluice.sim.world import Call, Done, Handlers, World
from sluice.sim.worlds.window_joins.cells import FINEST, cells_of
from sluice.sim.worlds.window_joins.progress import Progress
from sluice.sim.worlds.window_joins.scenario import WindowJoinScenario
from sluice.sim.worlds.window_joins.sites import WindowSites
from sluice.verbs.base import Instruction
from sluice.verbs.move import Move, MoveProtocol
from sluice.verbs.scale import ChangeSites
from sluice.verbs.split import CountBelow, Divide, ProfileHashes, Unite

DRAINING = "draining"
"""Who decides where the units of a site go that is to leave."""
_ENOUGH = 1 << 40
"""Bytes: the paper's nodes have memory for all windows."""


@dataclass(frozen=True, kw_only=True)
class WindowJoinOutcome(Outcome):
    """What was seen. Columns `site_*` are seconds of each site that ever could take part, from `measured_from` on;
    `sites`, `units` and `waiting` (tuples of one stream at the master, the mean of both) have an entry a slot."""

    scenario: WindowJoinScenario
    results: float
    delay: float
    """Seconds between the arrival of the newer tuple of a result and the result, on average."""
    site_working: np.ndarray
    site_communicating: np.ndarray
    site_taking_part: np.ndarray
    sites: np.ndarray
    units: np.ndarray
    waiting: np.ndarray
    redivisions: int

    @property
    def times(self) -> np.ndarray:
        return np.arange(1, len(self.sites) + 1) * self.scenario.slot

    @property
    def measures(self) -> Sequence[Measure]:
        return (
            Measure("results", "results", self.results, "rows"),
            Measure("delay", "meanDelay", self.delay, "seconds"),
            Measure("site seconds", "siteSeconds", self.site_seconds, "count"),
            Measure("sites", "sitesAtTheEnd", int(self.sites[-1]), "count"),
            Measure("units", "unitsAtTheEnd", int(self.units[-1]), "count"),
            Measure("moves", "moves", len(self.moves), "count"),
        )

    @property
    def curves(self) -> Sequence[Curve]:
        return (
            Curve("waiting", "tuples that wait at the master", "rows", self.waiting),
            Curve("sites", "sites that take part", "count", self.sites),
        )

    @property
    def active(self) -> np.ndarray:
        """Which sites took part at all in what was measured."""
        took_part: np.ndarray = self.site_taking_part > 0
        return took_part

    @property
    def site_idle(self) -> np.ndarray:
        """Seconds, but for what adding up many small numbers leaves."""
        idle = self.site_taking_part - self.site_working - self.site_communicating
        rounded: np.ndarray = np.maximum(idle, 0.0).round(6)
        return rounded

    def mean(self, column: np.ndarray) -> float:
        """The mean of a column over the sites that took part."""
        return float(column[self.active].mean())

    @property
    def site_seconds(self) -> float:
        """Of all sites together."""
        return float(self.site_taking_part.sum())

    @property
    def largest_waiting(self) -> float:
        """Tuples of one stream that the master keeps when it has most, in a distribution epoch on average."""
        scenario = self.scenario
        first = round(scenario.measured_from / scenario.slot)
        epochs = (len(self.waiting) - first) // scenario.groups
        return float(self.waiting[first : first + epochs * scenario.groups].reshape(epochs, -1).max(axis=1).mean())


class WindowJoinWorld(World):
    """A master and its sites."""

    name = "window join"

    def __init__(self, scenario: WindowJoinScenario, events: EventQueue) -> None:
        routing = Routing.even(scenario.partitions, scenario.sites)
        network = Network(events, scenario.sites, scenario.link_rate, scenario.link_rate)
        super().__init__(network, routing, latency=0.0, minimum_collection=scenario.reorganization)
        cells = cells_of(scenario.partitions, scenario.bias)
        self.scenario = scenario
        self.progress = Progress(scenario, cells, routing)
        self.sites = WindowSites(self.progress)
        self.redivisions = 0
        self.slots_done = 0
        self.leaving: ChangeSites | None = None
        """How many sites stay, while others give their units away."""
        self._divisions: list[Divide | Unite] = []
        """Units that are to be split and merged, as soon as none is on its way."""
        self._waiting: list[tuple[MoveProtocol, Callable[[int], None]]] = []
        """Moves whose sites are busy with others."""
        self._occupied: set[ids.Site] = set()
        """Sites that send or receive a unit."""
        self._seen = np.zeros((scenario.slots, 3))
        self._first_measured = min(round(scenario.measured_from / scenario.slot), scenario.slots - 1)
        self._measured_before = self._measures()

    # --- time ---

    @property
    def over(self) -> bool:
        return self.slots_done == self.scenario.slots

    def advance(self, until: float) -> bool:
        """What was due within the slot before, then the master's messages, and what sites join."""
        slot = self.slots_done
        start = slot * self.scenario.slot
        if until <= start:
            self.events.now = until
            return True
        self.events.now = start
        if slot == self._first_measured:
            self._measured_before = self._measures()
        if self.scenario.local_tuning:
            self._tune()
        routing = self.loop.routing
        self._seen[slot] = routing.sites, routing.units, self.progress.waiting_at_master(slot).mean()
        self.sites.run_slot(slot, routing.sites)
        self.slots_done += 1
        return False

    def _tune(self) -> None:
        """Sites split units that are too large, while none is on its way to another site."""
        if not self.loop.moves and not self._divisions:
            splits = UnitSizes().splits_by_size(self.at_rest(self.loop.routing))
            self.decide(SITES, splits)

    def send(self, call: Call) -> None:
        call()

    # --- what it can do ---

    @property
    def handlers(self) -> Handlers:
        kinds: tuple[type[Instruction], ...] = (ProfileHashes, CountBelow, Divide, Unite)
        return {**super().handlers, **dict.fromkeys(kinds, self.divide), ChangeSites: self.change_sites}

    def pause(self, move: MoveProtocol, acknowledge: Callable[[int], None]) -> None:
        self._waiting.append((move, acknowledge))
        self._begin_waiting()

    def _begin_waiting(self) -> None:
        """The first moves between sites that are free."""
        for move, acknowledge in list(self._waiting):
            if not self._occupied & {move.source, move.target}:
                self._waiting.remove((move, acknowledge))
                self._occupied |= {move.source, move.target}
                self.progress.paused[self.progress.cells_of(move.unit)] = True
                acknowledge(self.producers[0])

    def state_bytes(self, unit: ids.Unit) -> float:
        return int(self.progress.stored[self.progress.cells_of(unit)].sum()) * self.scenario.tuple_bytes

    def transfer(self, move: MoveProtocol, size: float, done: Done) -> None:
        seconds = size / self.scenario.link_rate
        for site in (move.source, move.target):
            self.sites.occupy(site, seconds)
        self.events.after(seconds, done)

    def install(self, move: MoveProtocol, done: Done) -> None:
        self.progress.site[self.progress.cells_of(move.unit)] = move.target
        done()

    def restart(self, unit: ids.Unit, site: ids.Site) -> None:
        self.progress.paused[self.progress.cells_of(unit)] = False

    def let_go(self, move: MoveProtocol, done: Done) -> None:
        self._occupied -= {move.source, move.target}
        self._leave_if_empty([other for other in self.loop.moves if other is not move])
        done()
        self._begin_waiting()
        self.repartition()
        self._drain()

    def change_sites(self, change: ChangeSites) -> None:
        """Sites that join have no units; those that leave give theirs away first."""
        loop = self.loop
        routing, sites = loop.routing, min(max(change.sites, self.scenario.least), self.scenario.most)
        if sites >= routing.sites:
            self.leaving = None
            loop.routing = replace(routing, sites=sites, version=routing.version + 1, since=loop.epoch)
        else:
            self.leaving = change
            self._drain()

    def _drain(self) -> None:
        """The units of sites that leave go elsewhere, also those that were on their way there, or could not move."""
        self._leave_if_empty(self.loop.moves)
        if self.leaving is None or self.loop.moves:
            return
        routing, stay = self.loop.routing, self.leaving.sites
        staying = [ids.Site(site) for site in range(stay)]
        leaving = [ids.Site(site) for site in range(stay, routing.sites)]
        stored = self.progress.by_unit(self.progress.stored)
        placed = drain(routing.holders.array, stored, stored, leaving, staying)
        moves = [Move(routing.unit_at(index), site, self.leaving.reason) for index, site in placed]
        self.decide(DRAINING, moves)

    def _leave_if_empty(self, moves: Sequence[MoveProtocol]) -> None:
        """Sites are gone when they hold nothing, and nothing is on its way to them."""
        if self.leaving is None:
            return
        routing, sites = self.loop.routing, self.leaving.sites
        if max(*routing.holders, *(move.target for move in moves)) < sites:
            self.loop.routing = rebalance(routing, sites, self.loop.epoch)
            self.leaving = None

    def divide(self, division: Divide | Unite) -> None:
        """There is nothing to prepare; but a unit that is on its way comes first."""
        self._divisions.append(division)

    def repartition(self) -> None:
        loop = self.loop
        if not self._divisions or loop.moves:
            return
        before, divisions, self._divisions = loop.routing, self._divisions, []
        further = {one.unit: self._far_enough(one) for one in divisions if isinstance(one, Divide)}
        merged = [one.unit for one in divisions if isinstance(one, Unite)]
        routing = before.repartitioned(further, merged, loop.epoch)
        loop.replace_units(routing, successors(before, routing), self.events.now)
        for one in divisions:
            (protocol,) = loop.in_flight.at(one.unit)
            loop.complete(protocol, self.events.now)
        self.redivisions += len(divisions)
        self.progress.divide(routing)

    def _far_enough(self, division: Divide) -> list[HashRange]:
        """Of the parts of a unit that are to be halved those that are no finer than cells."""
        routing = self.loop.routing
        low, high = routing.hashes_of(division.unit)
        bits = FINEST - routing.directories[0].depth(routing.index_of(division.unit))
        return [(first, end) for first, end in division.further if round(log2((high - low) / (end - first))) < bits]

    # --- what it counts ---

    def counts(self) -> tuple[np.ndarray, ...]:
        progress, sites = self.progress, self.sites
        return progress.rows, progress.results, sites.working + sites.communicating, sites.occupancy, sites.messages

    def at_rest(self, routing: Routing) -> ClusterView:
        """How large units are by now, and which can be split and merged."""
        directory = routing.directories[0]
        size = self.progress.by_unit(self.progress.stored) * self.scenario.tuple_bytes
        return replace(
            ClusterView.at_rest(routing.holders, np.full(routing.sites, _ENOUGH))
            .with_units(
                id=routing.ids.array,
                bytes=size,
                memory=size,
                buddy=directory.buddies(),
                single_key=np.array(
                    [directory.depth(ids.UnitIndex(index)) >= FINEST for index in range(directory.units)]
                ),
                divisible=np.full(directory.units, True),
            )
            .with_scaling(least_sites=self.scenario.least, most_sites=self.scenario.most),
            unit_size=self.scenario.unit_size,
        )

    def observe(self, routing: Routing, grown: Sequence[np.ndarray], seconds: float) -> ClusterView:
        (rows, results), (busy, filled, messages) = grown[:2], (column[: routing.sites] for column in grown[2:])
        return (
            self.at_rest(routing)
            .with_units(
                rows=np.round(self.progress.by_unit(rows)).astype(np.int64),
                results=np.round(self.progress.by_unit(results)).astype(np.int64),
            )
            .with_sites(idle=np.maximum(seconds - busy, 0.0), occupancy=filled / np.maximum(messages, 1))
        )

    def _measures(self) -> tuple[np.ndarray, ...]:
        sites = self.sites
        sums = np.array([sites.results, sites.delays])
        return sums, sites.working.copy(), sites.communicating.copy(), sites.taking_part.copy()

    def outcome(self, control: ControlRecord) -> WindowJoinOutcome:
        measured = [now - then for now, then in zip(self._measures(), self._measured_before, strict=True)]
        (results, delays), working, communicating, taking_part = measured
        sites, units, waiting = self._seen.T
        return WindowJoinOutcome(
            **vars(control),
            scenario=self.scenario,
            results=float(results),
            delay=float(delays / results) if results else float("nan"),
            site_working=working,
            site_communicating=communicating,
            site_taking_part=taking_part,
            sites=sites.astype(np.int64),
            units=units.astype(np.int64),
            waiting=waiting,
            redivisions=self.redivisions,
        )
