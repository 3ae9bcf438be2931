"""The control loop: collect → view → decide → vet → carry out, on Spark and in the simulator alike.

Rounds go as in section 5.3 of the Flux paper: statistics are collected, the policy is shown what came of it, units
move, and the time that took is how long statistics are collected the next time. The loop keeps the verbs' protocols in
flight and refuses what overlaps. It knows neither epochs nor messages: a collector brings the statistics, an executor
carries the protocols' instructions out and reports events.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from sluice.control.executor import InstructionExecutor
from sluice.control.requests import Requests
from sluice.control.round_history import RoundHistory
from sluice.control.rounds import Rounds
from sluice.model.epoch.decision import Decision, Ended, describe_end, name_units
from sluice.model.errors import ProtocolError, QueryError
from sluice.model.ids import Unit
from sluice.model.plan.plan import Capabilities
from sluice.model.routing.routing import Routing
from sluice.model.view import ClusterView
from sluice.policies import Policy
from sluice.verbs import Action
from sluice.verbs.base import (
    AllReady,
    Event,
    InFlight,
    Instruction,
    Situation,
    UnitConditions,
    VerbAction,
    VerbProtocol,
)
from sluice.verbs.move import Installed, MoveProtocol
from sluice.verbs.scale import Backoff, Scale, ScaleProtocol

USER = "you"
"""Who asks for what is asked for by hand."""
SITES = "sites"
"""Who decides where executors came or went, and what follows from another number of sites."""
_log = logging.getLogger(__name__)


class Collector(Protocol):
    """Brings the statistics of a round."""

    def begin(self, routing: Routing, now: float, seconds: float) -> None:
        """Collect anew, for so many seconds, while units are as the routing says."""

    def is_complete(self, now: float, seconds: float) -> bool:
        """Whether statistics of so many seconds have been collected."""

    def view(self) -> ClusterView:
        """The cluster as a policy sees it, from what was collected."""


class ControlLoop:
    """The policy's hand on a cluster. The clock is handed in with every call.

    `epoch` is the one that decisions are for, `routing` holds from it on; `conditions` says in which condition units
    are.
    """

    def __init__(
        self,
        policy: Policy,
        collector: Collector,
        executor: InstructionExecutor,
        routing: Routing,
        minimum: float,
        advise: bool = False,
        capabilities: Capabilities | None = None,
    ) -> None:
        self.policy, self.collector, self.executor, self.advise = policy, collector, executor, advise
        self.capabilities = capabilities or Capabilities()
        self.rounds = Rounds(minimum)
        self.epoch, self.routing = 0, routing
        self.conditions: UnitConditions = AllReady()
        self.in_flight = InFlight()
        self.requests = Requests()
        self.answered: tuple[Action, ...] = ()
        """The requests that were answered last."""
        self.backoff = Backoff()
        """When the policy may ask for more sites, if lately some did not come."""
        self.history = RoundHistory()
        self.ended: list[Ended] = []
        """Decisions that were abandoned, until somebody takes note."""
        self._successors: Mapping[Unit, tuple[Unit, ...]] = {}
        """The units in the place of each that was split or merged last."""
        self._moving_since: float | None = None
        """On the executor's clock; None when every unit is routed to where it goes."""
        self._routed_at = 0.0
        """When the last move phase ended."""

    def advance_to_epoch(self, epoch: int, routing: Routing, conditions: UnitConditions) -> None:
        """What is decided from now on is for another epoch, which follows one with this routing."""
        self.epoch, self.routing, self.conditions = epoch, routing, conditions

    @property
    def moves(self) -> list[MoveProtocol]:
        """Those in flight."""
        return self.in_flight.of(MoveProtocol)

    @property
    def scaling(self) -> ScaleProtocol | None:
        """The way to another number of sites, if there is to be one."""
        return next(reversed(self.in_flight.of(ScaleProtocol)), None)

    @property
    def situation(self) -> Situation:
        """What verbs look at."""
        return Situation(
            self.routing,
            self.capabilities,
            self.in_flight,
            self.conditions,
            self.epoch,
            producers=self.executor.producers,
        )

    def take_turn(self, now: float, asking: bool = True) -> tuple[Decision, ...]:
        """Have the user's requests carried out, or the policy's when a round's statistics are there and it is to be
        asked."""
        requests = self.answered = self.requests.take()
        if requests:
            shared = self.routing.shared
            decisions = self.decide(USER, requests, now)
            if self.routing.shared != shared:  # what was counted until now is of other holders
                self.collector.begin(self.routing, now, self.rounds.collect)
            return decisions
        if not asking or self._is_changing or not self.collector.is_complete(now, self.rounds.collect):
            return ()
        actions = self.ask_policy(now)
        if not actions:
            self.rounds = self.rounds.after(None)
        decisions = self.decide(self.policy.name, actions, now)
        if not self._is_changing:
            self.collector.begin(self.routing, now, self.rounds.collect)
        return decisions

    def decide(self, who: str, actions: Sequence[Action], now: float) -> tuple[Decision, ...]:
        """Have what somebody asks for vetted, begun and logged: a policy, the user, or an executor that needs it."""
        decisions = tuple(self._vet_and_begin(who, action, now) for action in actions)
        self.executor.finish(self, now)
        return decisions

    def refuse(self, action: Action) -> str | None:
        """Why an action cannot be carried out now, None if it can."""
        if not isinstance(action, VerbAction):
            raise QueryError(f"a policy answers with actions such as Move(unit, site, reason), not with {action!r}")
        unit = action.subject
        if unit is not None and not self.routing.has_unit(unit):
            new_units = self._successors.get(unit)
            return describe_end(unit, new_units) if new_units else self.routing.ids.why_missing(unit)
        impossible = self.executor.why_not(action, self.routing)
        return impossible or self._why_overlapping(action) or action.refuse(self.situation)

    def report(self, event: Event, now: float) -> None:
        """Something has happened to a unit: have what follows from it carried out."""
        for protocol in self.in_flight.at(event.unit):
            if protocol.expects(event):
                return self._follow(protocol, protocol.handle(event), now)
        raise ProtocolError(f"{event} is not what anybody waits for")

    def begin(self, protocol: VerbProtocol, now: float, units: tuple[Unit, ...] = ()) -> None:
        """Have a protocol in flight, which has these units to itself."""
        self.in_flight.add(protocol, units)
        if isinstance(protocol, MoveProtocol) and self._moving_since is None:
            self._moving_since = self.executor.clock()
        self._follow(protocol, protocol.begin(), now)
        protocol.has_delayed_policy = protocol.delays_policy

    def route(self, routing: Routing, now: float) -> None:
        """Rows go by this routing from now on. The move phase is over when every unit is routed to where it goes."""
        self.routing = routing
        if self._moving_since is not None and all(move.is_done(routing) for move in self.moves):
            self.rounds = self.rounds.after(self.executor.clock() - self._moving_since)
            self._moving_since, self._routed_at = None, now

    def replace_units(self, routing: Routing, successors: Mapping[Unit, tuple[Unit, ...]], now: float) -> None:
        """Units were split or merged, and others take their places. What was counted until now is of other units."""
        _log.info("epoch %d: units: %d, now %d", self.epoch, self.routing.units, routing.units)
        self.routing, self._successors = routing, successors
        for protocol in self.in_flight:
            protocol.replace_units(successors)
        self.collector.begin(self.routing, now, self.rounds.collect)

    def end_units(self, ended: Collection[Unit]) -> None:
        """Units have ended with the queries that they were of, and all that was in flight for them. Nothing is left to
        be done about it."""
        for protocol in self.in_flight:
            had_units = bool(protocol.units)
            protocol.end_units(ended)
            if had_units and not protocol.units:
                self.in_flight.remove(protocol)
        self._moving_since = self._moving_since if self.moves else None

    def abandon(self, protocol: VerbProtocol, reason: str | None, now: float) -> None:
        """A protocol comes to nothing, for this reason; none if its decision is done all the same. A unit that has
        arrived where it was to go stays there."""
        if isinstance(protocol, MoveProtocol) and protocol.is_done(self.routing):
            self._follow(protocol, protocol.handle(Installed(protocol.unit)), now)
            return
        since, self._moving_since = self._moving_since, None  # how long it took says nothing about the next ones
        self._follow(protocol, protocol.abandon(), now)
        self._moving_since = since if self.moves else None
        self._note(protocol, reason)

    def complete(self, protocol: VerbProtocol, now: float) -> None:
        """What a protocol is at is done."""
        protocol.commit(None)
        self.forget(protocol, now)

    def forget(self, protocol: VerbProtocol, now: float) -> None:
        """A protocol is over. After the last one that changed holders, statistics are collected: since all units were
        where they went, if they moved. What else the policy waits for, a unit that is to be split, changes none."""
        self.in_flight.remove(protocol)
        if isinstance(protocol, MoveProtocol):
            self.route(self.routing, now)
        if not (protocol.voids_statistics and protocol.has_delayed_policy):
            return
        if not any(other.voids_statistics and other.delays_policy for other in self.in_flight):
            since = self._routed_at if isinstance(protocol, MoveProtocol) else now
            self.collector.begin(self.routing, since, self.rounds.collect)

    def announce(self, decision: Decision) -> Decision:
        """Write a decision to the log."""
        what = decision.action if decision.unit is None else f"{decision.action} unit {decision.unit}"
        where = "" if decision.site is None else f", site {decision.site}"
        outcome = "accepted" if decision.refused is None else f"refused, {decision.refused}"
        _log.info("epoch %d: %s: %s%s: %s: %s", decision.epoch, decision.policy, what, where, decision.reason, outcome)
        return decision

    def describe(self, who: str, action: Action, epoch: int, refused: str | None = None) -> Decision:
        """What somebody asks for, as a decision for an epoch."""
        routing = self.routing  # users' threads ask, too, while it becomes another one
        unit, site, reason = action.subject, action.named_site, str(action.reason)
        if site is None and unit is not None and routing.has_unit(unit):
            site = routing.holder(unit)
        if isinstance(action, Scale):
            reason += f"; sites: {routing.sites}, wanted {action.sites}"
        return Decision(epoch, who, action.verb, unit, site, reason, refused)

    @property
    def _is_changing(self) -> bool:
        """Whether something is in flight for which the policy waits."""
        return any(protocol.delays_policy for protocol in self.in_flight)

    def ask_policy(self, now: float) -> tuple[Action, ...]:
        """What the policy wants. Where it only advises, sites freeze nothing by themselves: that is advice, too."""
        view, scaling = self.history.complete(self.collector.view()), self.scaling
        most = view.scaling.most_sites if self.backoff.allows(now) else len(view.sites)
        view = view.with_scaling(
            requested_sites=scaling.target_sites if scaling else self.routing.sites, most_sites=most
        )
        freezing = self.policy.freezing if self.advise else None
        return (*self.policy.decide(view), *(freezing.advise(view) if freezing else ()))

    def _vet_and_begin(self, who: str, action: Action, now: float) -> Decision:
        refused = self.refuse(action)
        if self.advise and who == self.policy.name:
            refused = "the policy only advises"
        decision = self.announce(self.describe(who, action, self.epoch, refused))
        if refused is None:
            protocol = action.protocol(replace(self.situation, now=now))
            protocol.decision = decision
            self.begin(protocol, now, action.touches(self.routing))
        return decision

    def _why_overlapping(self, action: Action) -> str | None:
        """Why an action cannot be begun beside what is in flight. Nothing comes to a site that is to leave."""
        for unit in action.touches(self.routing):
            for protocol in self.in_flight.at(unit):
                if not protocol.tolerates(action):
                    return protocol.describe(unit)
        return None if self.scaling is None else self.scaling.refuse(action)

    def _follow(self, protocol: VerbProtocol, instructions: Sequence[Instruction], now: float) -> None:
        """Have what a protocol answered carried out, in its order."""
        for instruction in instructions:
            self.executor.execute(self, instruction, now)
        if protocol.failure is not None and not protocol.over:
            protocol.over = True
            self._note(protocol, protocol.failure)
        if protocol.over and protocol in self.in_flight:
            self.forget(protocol, now)

    def _note(self, protocol: VerbProtocol, reason: str | None) -> None:
        """The decision that a protocol was to carry out is abandoned for a reason, or done."""
        if protocol.decision is not None:
            self.ended.append(Ended(protocol.decision, reason))

    def announce_end(self, end: Ended) -> None:
        """Write to the log what has become of a decision."""
        decision = end.decision
        what = decision.action if decision.unit is None else f"{decision.action} unit {decision.unit}"
        done = f"done, {name_units(end.new_units)} in its place" if end.new_units else "done"
        outcome = done if end.abandoned is None else f"abandoned, {end.abandoned}"
        _log.info("%s: %s of epoch %d: %s", decision.policy, what, decision.epoch, outcome)
