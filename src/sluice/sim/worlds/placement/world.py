"""Many queries at sites that balance among themselves: a piece is a unit, and moves by the protocol of every move.

Under `placement` nobody collects statistics for a coordinator: each site has its balancer, and their messages take the
network's latency. Other policies are asked by the coordinator, as in every world.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from sluice.control.loop import ControlLoop
from sluice.model import ids
from sluice.model.columns import IntColumn
from sluice.model.routing.routing import Routing
from sluice.model.view import ClusterView
from sluice.policies import Policy
from sluice.policies.placement import Placement
from sluice.policies.planning.diffusion import Balancer, Message
from sluice.policies.planning.piece_selection import HeldPieces
from sluice.sim.event_queue import EventQueue
from sluice.sim.network import Network
from sluice.sim.outcome import ControlRecord, Curve, Measure, Outcome
from sluice.sim.world import Done, World
from sluice.sim.worlds.placement.core import (
    FREE,
    NO_ROOM,
    STATE_ARRIVED,
    TIME,
    PlacementCosts,
    advance,
    new_state,
    pause,
    resume,
    send_state,
    with_room,
)
from sluice.sim.worlds.placement.queries import NOWHERE, draw_pieces, links, neighbouring_sites
from sluice.sim.worlds.placement.scenario import PlacementScenario
from sluice.verbs.move import Move, MoveProtocol

_ENOUGH = 1 << 40
"""Bytes: the paper's sites have memory for all windows."""


@dataclass(frozen=True, kw_only=True)
class PlacementOutcome(Outcome):
    """What was seen, an entry an interval: the performance ratio of the query that has the worst, the workload of each
    site, and the bytes between sites, of tuples and of state."""

    scenario: PlacementScenario
    worst_ratio: np.ndarray
    workload: np.ndarray
    tuple_bytes: np.ndarray
    state_bytes: np.ndarray
    waiting: np.ndarray
    results: int

    @property
    def times(self) -> np.ndarray:
        return np.arange(1, len(self.worst_ratio) + 1) * self.scenario.interval

    @property
    def deviation(self) -> np.ndarray:
        """The standard deviation of the sites' workloads."""
        deviation: np.ndarray = self.workload.std(axis=1, ddof=1)
        return deviation

    def mean(self, values: np.ndarray, start: float, end: float) -> float:
        """Over a part of the run, where there are values."""
        return float(np.nanmean(values[self.within(start, end)]))

    @property
    def measures(self) -> Sequence[Measure]:
        end = self.scenario.seconds
        return (
            Measure("worst ratio", "worstRatio", float(np.nanmean(self.worst_ratio)), "count"),
            Measure("last 10 s", "worstRatioAtTheEnd", self.mean(self.worst_ratio, end - 10, end), "count"),
            Measure("deviation", "workloadDeviation", self.mean(self.deviation, end - 10, end), "share"),
            Measure("sent", "tupleBytes", float(self.tuple_bytes.sum()), "bytes"),
            Measure("moved", "stateBytes", float(self.state_bytes.sum()), "bytes"),
            Measure("moves", "moves", len(self.moves), "count"),
        )

    @property
    def curves(self) -> Sequence[Curve]:
        return (
            Curve("ratio", "performance ratio of the worst query", "count", self.worst_ratio, log=True),
            Curve("deviation", "standard deviation of workloads", "share", self.deviation),
            Curve("sent", "bytes of tuples between sites", "bytes", self.tuple_bytes),
        )


class PlacementWorld(World):
    """Where pieces and tuples are; balancers talk to each other through it."""

    name = "placement of queries"

    def __init__(self, scenario: PlacementScenario, events: EventQueue, policy: Policy) -> None:
        self.scenario, self.pieces = scenario, draw_pieces(scenario)
        routing = Routing(scenario.sites, IntColumn(self.pieces.home))
        network = Network(events, scenario.sites, scenario.bandwidth, scenario.bandwidth)
        super().__init__(network, routing, scenario.latency, scenario.round)
        self.state = new_state(scenario, self.pieces)
        self.costs = PlacementCosts(float(scenario.tuple_bytes), scenario.bandwidth, scenario.latency)
        self.balancers = self._balancers(policy) if isinstance(policy, Placement) else []
        if self.balancers:
            self.reporters = ()  # nobody asks for statistics
        self._links = links(self.pieces)
        self._load = np.zeros(len(self.pieces.home))
        """Of each piece, smoothed as sites' workloads are."""
        self._busy_before = self._load.copy()
        self._arrivals: dict[ids.Unit, Done] = {}
        self._seen: list[tuple[float, np.ndarray, float, float, int]] = []
        self._site_busy = np.zeros(scenario.sites)
        self._sent_before = np.zeros(2)
        self._results = 0

    def _balancers(self, policy: Placement) -> list[Balancer]:
        neighbours, settings = neighbouring_sites(self.pieces, self.scenario.sites), policy.diffusion
        return [
            Balancer(ids.Site(site), self.scenario.sites, list(map(ids.Site, own)), settings, self.scenario.seed)
            for site, own in enumerate(neighbours)
        ]

    # --- time ---

    def start(self, loop: ControlLoop) -> None:
        super().start(loop)
        scenario, rng = self.scenario, np.random.default_rng(self.scenario.seed + 1)
        for surge in scenario.surges:
            sites = rng.choice(scenario.sites, surge.count, replace=False)
            self.events.at(surge.start, partial(self._change_rates, sites, surge.factor))
            self.events.at(surge.end, partial(self._change_rates, sites, 1.0))
        for number in range(int(scenario.seconds / scenario.interval + 1e-9)):
            self.events.at((number + 1) * scenario.interval, self._measure)
        if not self.balancers:
            return
        self.events.at(scenario.workload_window, self._end_window)
        for balancer in self.balancers:
            self._send(balancer.choose_partners())
            self.events.at(float(rng.uniform(0, scenario.round)), partial(self._begin_round, balancer))
            self.events.at(scenario.renewal + float(rng.uniform(0, scenario.renewal)), partial(self._renew, balancer))

    @property
    def over(self) -> bool:
        return bool(self.state.clock[0] >= self.scenario.seconds)

    def advance(self, until: float) -> bool:
        """On to the next event, or until a piece's state has arrived."""
        reason = NO_ROOM
        while reason == NO_ROOM:
            reason = advance(self.state, self.pieces, self.costs, min(until, self.scenario.seconds))
            if reason == NO_ROOM:
                self._make_room(len(self.state.record))
        self.events.now = float(self.state.clock[0])
        if reason == STATE_ARRIVED:
            self._arrivals.pop(ids.Unit(int(self.state.arrived[0])))()
        return bool(reason == TIME)

    def _make_room(self, records: int) -> None:
        self.state = with_room(self.state, records)

    def _change_rates(self, sites: np.ndarray, factor: float) -> None:
        streams = self.state.stream
        streams["rate"][np.isin(streams["home"], sites)] = factor / self.scenario.arrival

    def _measure(self) -> None:
        """The performance ratio of a query is that of its worst stream: how long tuples with results took, by what
        operators spent on them."""
        piece, queries = self.state.piece, self.scenario.queries
        seen = piece["results"] > 0
        ratio = np.full(queries, -np.inf)
        np.maximum.at(ratio, self.pieces.query[seen], piece["delay"][seen] / piece["work"][seen])
        worst = float(ratio.max())
        busy, sent = self.state.site["busy"].copy(), np.array([self.state.sent.sum(), self.state.sent_state.sum()])
        workload = (busy - self._site_busy) / self.scenario.interval
        tuples, state = (sent - self._sent_before).tolist()
        waiting = len(self.state.record) - int(self.state.ends[FREE])
        self._seen.append((worst if np.isfinite(worst) else np.nan, workload, tuples, state, waiting))
        self._results += int(piece["results"].sum())
        self._site_busy, self._sent_before = busy, sent
        for name in ("results", "delay", "work"):
            piece[name] = 0

    # --- balancers ---

    def _send(self, messages: Iterable[Message]) -> None:
        for message in messages:
            self.send(partial(self._receive, message))

    def _receive(self, message: Message) -> None:
        self._send(self.balancers[message.receiver].handle(message))

    def _end_window(self) -> None:
        """All sites measure what they and their pieces did; those that were asked for load give some."""
        window, busy = self.scenario.workload_window, self.state.piece["busy"].copy()
        share = (busy - self._busy_before) / window
        first, self._busy_before = not self._busy_before.any(), busy
        alpha = self.balancers[0].settings.alpha
        self._load = share if first else alpha * self._load + (1 - alpha) * share
        site_share = np.bincount(self.state.piece["site"], share, minlength=self.scenario.sites)
        for balancer in self.balancers:
            self._send(balancer.end_window(min(1.0, float(site_share[balancer.site]))))
            for migration in balancer.serve(partial(self._held_by, balancer.site)):
                load = float(self._load[migration.piece])
                self.send(partial(self.balancers[migration.receiver].take_in, load))
                self.decide(Placement.name, [Move(ids.Unit(migration.piece), migration.receiver, migration.reason)])
        self.events.after(window, self._end_window)

    def _held_by(self, site: ids.Site) -> HeldPieces:
        """The pieces that a site may give away: not those that are on their way."""
        piece, (own, other) = self.state.piece, self._links
        number = np.flatnonzero((piece["site"] == site) & (piece["paused"] == 0))
        number = np.array([one for one in number.tolist() if not self.loop.in_flight.at(ids.Unit(one))], dtype=np.int64)
        row = np.full(len(piece), NOWHERE)
        row[number] = np.arange(len(number))
        linked = row[own] != NOWHERE
        return HeldPieces(
            number,
            self._load[number],
            self.pieces.state[number],
            self.pieces.home[number],
            row[own][linked],
            piece["site"][other[linked]],
        )

    def _begin_round(self, balancer: Balancer) -> None:
        self._send(balancer.begin_round())
        self.events.after(self.scenario.round, partial(self._begin_round, balancer))

    def _renew(self, balancer: Balancer) -> None:
        self._send(balancer.choose_partners())
        self.events.after(self.scenario.renewal, partial(self._renew, balancer))

    # --- what it can do ---

    def pause(self, move: MoveProtocol, acknowledge: Callable[[int], None]) -> None:
        """Tuples that wait at the source go with the piece."""
        in_use = len(self.state.record) - int(self.state.ends[FREE])
        if self.state.ends[FREE] < in_use:
            self._make_room(in_use)
        pause(self.state, self.pieces, move.unit)
        self.send(partial(acknowledge, 0))

    def state_bytes(self, unit: ids.Unit) -> float:
        return int(self.pieces.state[unit])

    def transfer(self, move: MoveProtocol, size: float, done: Done) -> None:
        """State goes through the network that tuples go through."""
        self._arrivals[move.unit] = done
        send_state(self.state, self.costs, move.unit, move.source, move.target, int(size))

    def install(self, move: MoveProtocol, done: Done) -> None:
        done()

    def restart(self, unit: ids.Unit, site: ids.Site) -> None:
        resume(self.state, self.pieces, self.costs, unit, site)

    # --- what it counts ---

    def counts(self) -> tuple[np.ndarray, ...]:
        return self.state.piece["busy"], self.state.site["busy"]

    def at_rest(self, routing: Routing) -> ClusterView:
        state = self.pieces.state
        view = ClusterView.at_rest(routing.holders, np.full(self.scenario.sites, _ENOUGH))
        return view.with_units(bytes=state, memory=state).with_scaling(least_sites=self.scenario.sites)

    def observe(self, routing: Routing, grown: Sequence[np.ndarray], seconds: float) -> ClusterView:
        """A piece's rows are its work: microseconds, as pieces differ in what a tuple costs them."""
        worked, busy = grown
        work = np.round(worked * 1e6).astype(np.int64)
        return self.at_rest(routing).with_units(rows=work).with_sites(idle=np.maximum(seconds - busy, 0.0))

    def outcome(self, control: ControlRecord) -> PlacementOutcome:
        worst, workload, tuples, state, waiting = zip(*self._seen, strict=True)
        return PlacementOutcome(
            **vars(control),
            scenario=self.scenario,
            worst_ratio=np.array(worst),
            workload=np.array(workload),
            tuple_bytes=np.array(tuples),
            state_bytes=np.array(state),
            waiting=np.array(waiting),
            results=self._results,
        )
