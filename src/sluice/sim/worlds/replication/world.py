"""A plan of joins, step by step, until a machine is remiss: full, with one more tuple to store.

The split hears what it is told in its order. A command in the stream reaches a holder when that has taken all places
ahead of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from sluice.model import ids
from sluice.model.epoch.stats import Slices
from sluice.model.routing.routing import Routing
from sluice.model.routing.sharing import SharedUnit
from sluice.model.view import ClusterView, SharedUnits
from sluice.sim.event_queue import EventQueue
from sluice.sim.network import Network
from sluice.sim.outcome import ControlRecord, Curve, Measure, Outcome
from sluice.sim.world import Call, Done, Handlers, World
from sluice.sim.worlds.replication.holders import Holders
from sluice.sim.worlds.replication.scenario import ReplicationScenario
from sluice.sim.worlds.replication.token_passing import (
    PassInstruction,
    PassPhase,
    PutCommand,
    StartStoring,
    StopStoring,
    TokenPassing,
)
from sluice.verbs.base import VerbAction
from sluice.verbs.move import MoveProtocol
from sluice.verbs.share import AnySharing, ApplySharing, PrepareSharing, Release


@dataclass(frozen=True)
class Remiss:
    """The first remiss state: when, and which machine."""

    time: float
    site: ids.Site


@dataclass(frozen=True, kw_only=True)
class ReplicationOutcome(Outcome):
    """What was seen until the first remiss state, or the end. `output` has the results of the plan's last join by step,
    `filled` what each machine had stored of its memory after each step, from 0 to 1.

    `input_bytes` are those of all tuples that the splits had to send, each once; `sent_bytes` went to holders, every
    copy counted. `passes` are of tokens.
    """

    scenario: ReplicationScenario
    output: np.ndarray
    filled: np.ndarray
    remiss: Remiss | None
    input_bytes: float
    sent_bytes: float
    passes: int
    holders: int
    """Of all units together, at the end."""

    @property
    def times(self) -> np.ndarray:
        """The ends of the steps, in seconds."""
        return np.arange(1, len(self.output) + 1) * self.scenario.step

    @property
    def measures(self) -> Sequence[Measure]:
        return (
            Measure("results", "results", self.total, "rows"),
            Measure("remiss after", "remissAfter", self.remiss.time if self.remiss else float("nan"), "seconds"),
            Measure("memory used", "peakShare", self.peak, "share"),
            Measure("network", "networkBytes", self.network_bytes, "bytes"),
            Measure("moves", "moves", len(self.moves), "count"),
            Measure("passes", "passes", self.passes, "count"),
        )

    @property
    def curves(self) -> Sequence[Curve]:
        return (
            Curve("output", "results", "rows a second", self.output / self.scenario.step),
            Curve("memory", "filled, of all machines together", "share", self.filled.mean(axis=1)),
        )

    @property
    def total(self) -> float:
        """Results before the first remiss state."""
        return float(self.output.sum())

    def total_until(self, time: float) -> float:
        """Results up to a time."""
        return float(self.output[self.times <= time + 1e-9].sum())

    @property
    def peak(self) -> float:
        """How much of the memory of all machines together was ever filled."""
        return float(self.filled.mean(axis=1).max())

    @property
    def network_bytes(self) -> float:
        return self.sent_bytes + self.moved_bytes


class ReplicationWorld(World):
    """Machines with the splits and the units of a plan."""

    name = "plan"

    def __init__(self, scenario: ReplicationScenario, events: EventQueue) -> None:
        network = Network(events, scenario.sites, scenario.link_rate, scenario.link_rate * scenario.sites)
        super().__init__(network, scenario.routing(), scenario.latency, scenario.minimum_collection)
        self.scenario, self.holders = scenario, Holders(scenario)
        self.inputs = {ids.Fragment(join): _inputs_of(join) for join in range(len(scenario.joins))}
        self.passes = 0
        self.steps_done = 0
        self.remiss: Remiss | None = None
        self._filled = np.zeros((scenario.steps, scenario.sites))
        self._passing: list[ids.Unit] = []
        """Units with a token on its way, once for each."""
        self._commands: list[tuple[int, TokenPassing, ids.Site]] = []
        """What is in the stream and has not reached a holder: its place, the command, the holder."""

    # --- time ---

    @property
    def over(self) -> bool:
        return self.remiss is not None or self.steps_done == self.scenario.steps

    def advance(self, until: float) -> bool:
        """Messages that are due, at the beginnings of steps alone, then a step's tuples."""
        step = self.steps_done
        self.events.now = step * self.scenario.step
        if until <= self.events.now:
            return True
        self.holders.bring(step)
        self._meet_commands()
        self.holders.take_in(step)
        filled = self.holders.site_tuples * (self.scenario.tuple_bytes / self.scenario.memory)
        self._filled[step] = np.minimum(filled, 1.0)
        self.steps_done += 1
        fullest = int(filled.argmax())
        if filled[fullest] > 1:
            self.remiss = Remiss(self.steps_done * self.scenario.step, ids.Site(fullest))
        return False

    @property
    def _place(self) -> int:
        """Where the splits are in the stream: the step that begins now."""
        return round(self.events.now / self.scenario.step)

    # --- what it can do ---

    @property
    def handlers(self) -> Handlers:
        return {**super().handlers, **dict.fromkeys((PrepareSharing, ApplySharing), self.change_sharing)}

    def why_not(self, action: VerbAction) -> str | None:
        """No state is handed over, so a holder leaves with none, and with no token on its way."""
        if not isinstance(action, Release):
            return None
        unit, site = action.unit, action.site
        if self._has_state(unit, site) or self.holders.storing[unit, :, site].any() or unit in self._passing:
            return f"site {site} of a simulated plan cannot leave unit {unit}: it stores state"
        return None

    def change_sharing(self, change: AnySharing) -> None:
        """The coordinator counts on it at once, as the split does things in the order in which it is told."""
        unit, loop = change.unit, self.loop
        before = self._sharing(unit)
        loop.routing = change.apply(loop.routing, self.inputs[loop.routing.fragment_of(unit)], loop.epoch)
        after = self._sharing(unit)
        self.send(partial(self._change_links, before, after))
        for input_ in after.inputs:
            storing, target = before.stores(input_), after.stores(input_)
            if storing != target:
                receiving = tuple(dict.fromkeys((*after.holders, *before.holders)))
                passing = TokenPassing(unit, input_, receiving, storing, target)
                self._passing.append(unit)
                self._follow(passing, passing.begin())

    def _sharing(self, unit: ids.Unit) -> SharedUnit:
        routing = self.loop.routing
        inputs = self.inputs[routing.fragment_of(unit)]
        return routing.sharing(unit) or SharedUnit.alone(unit, routing.holder(unit), inputs)

    def _meet_commands(self) -> None:
        """Holders that have taken all places ahead of a command do as it says."""
        waiting = self._commands
        self._commands = []
        for place, passing, site in waiting:
            if self.holders.next_place[passing.unit, site] < place:
                self._commands.append((place, passing, site))
                continue
            assert self.holders.next_place[passing.unit, site] == place, "a holder has gone past a command"
            self._follow(passing, passing.reached(site))
            if passing.phase is PassPhase.PASSED:
                self._passing.remove(passing.unit)

    def _follow(self, passing: TokenPassing, instructions: list[PassInstruction]) -> None:
        for instruction in instructions:
            match instruction:
                case PutCommand(holders=holders):
                    self.send(partial(self._put, passing, holders))
                case StartStoring(unit, input_, site, _, turns):
                    self.holders.storing[unit, input_ % 2, site] = 1 / turns  # in turn: of a portion, as much each
                case StopStoring(unit, input_, site):
                    self.holders.storing[unit, input_ % 2, site] = 0.0

    def _put(self, passing: TokenPassing, holders: tuple[ids.Site, ...]) -> None:
        passing.put()
        self.passes += 1
        self._commands += [(self._place, passing, site) for site in holders]

    def _change_links(self, before: SharedUnit, after: SharedUnit) -> None:
        """The split adds and removes holders in its table."""
        for site in after.holders:
            if site not in before.holders:
                self.holders.open_link(after.unit, site, self._place)
        for site in before.holders:
            if site not in after.holders:
                assert not self._has_state(after.unit, site), "a holder leaves with state"
                self.holders.close_link(after.unit, site, self._place)

    def _has_state(self, unit: ids.Unit, site: ids.Site) -> bool:
        return bool(self.holders.stored[unit, :, site].sum() * self.scenario.tuple_bytes >= 1)

    def pause(self, move: MoveProtocol, acknowledge: Callable[[int], None]) -> None:
        """The split holds a unit's tuples back, and acknowledges behind those that are on their way to the source."""
        self.holders.close_link(move.unit, move.source, self._place)
        self.send(partial(acknowledge, self.producers[0]))

    def state_bytes(self, unit: ids.Unit) -> float:
        return float(self.holders.stored[unit].sum()) * self.scenario.tuple_bytes

    def install(self, move: MoveProtocol, done: Done) -> None:
        self.holders.relocate(move.unit, move.source, move.target)
        done()

    def restart(self, unit: ids.Unit, site: ids.Site) -> None:
        self.holders.restart(unit)

    # --- what it counts ---

    def ask(self, site: ids.Site | None, call: Call) -> None:
        """Statistics are of the time since they were asked for."""
        call()

    def counts(self) -> tuple[np.ndarray, ...]:
        return self.holders.received, self.holders.results

    def observe(self, routing: Routing, grown: Sequence[np.ndarray], seconds: float) -> ClusterView:
        by_input, results = map(_whole, grown)
        rows, stored = by_input.sum(axis=1), self._bytes  # (U, S)
        sites, unit_bytes = self.scenario.sites, stored.sum(axis=1)
        unready = np.zeros(len(unit_bytes), dtype=bool)
        unready[self._passing] = True
        view = ClusterView.at_rest(routing.holders, np.full(sites, self.scenario.memory)).with_units(
            rows=rows.sum(axis=1),
            first_rows=by_input[:, 0].sum(axis=1),
            results=results.sum(axis=1),
            bytes=unit_bytes,
            memory=unit_bytes,
            inputs=np.full(len(unit_bytes), 2),
            unready=unready,
        )
        shared = SharedUnits(routing.shared, _slices(routing, rows, results, stored))
        return replace(view.with_scaling(least_sites=sites), shared=shared)

    @property
    def _bytes(self) -> np.ndarray:
        """(U, S): what is stored of each unit at each machine."""
        return _whole(self.holders.stored.sum(axis=1) * self.scenario.tuple_bytes)

    def outcome(self, control: ControlRecord) -> ReplicationOutcome:
        holders, done, routing = self.holders, self.steps_done, self.loop.routing
        return ReplicationOutcome(
            **vars(control),
            scenario=self.scenario,
            output=holders.handed_on[:done, -1].copy(),
            filled=self._filled[:done].copy(),
            remiss=self.remiss,
            input_bytes=float(holders.rows[:done].sum()) * self.scenario.tuple_bytes,
            sent_bytes=float(holders.received.sum()) * self.scenario.tuple_bytes,
            passes=self.passes,
            holders=sum(len(routing.holders_of(ids.Unit(unit))) for unit in range(routing.units)),
        )


def _inputs_of(join: int) -> tuple[ids.InputNumber, ids.InputNumber]:
    return ids.InputNumber(2 * join), ids.InputNumber(2 * join + 1)


def _slices(routing: Routing, rows: np.ndarray, results: np.ndarray, size: np.ndarray) -> Slices:
    at = [(sharing.unit, site) for sharing in routing.shared for site in sharing.holders]
    if not at:
        return Slices.none()
    unit, site = np.array(at).T
    return Slices(unit, site, rows[unit, site], results[unit, site], size[unit, site])


def _whole(numbers: np.ndarray) -> np.ndarray:
    return np.round(numbers).astype(np.int64)
