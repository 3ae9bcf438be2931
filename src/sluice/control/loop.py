"""The control loop: collect → view → decide → vet → carry out, on Spark and in the simulator alike.

Rounds go as in section 5.3 of the Flux paper: statistics are collected, the policy is shown what came of it, units
move, and the time that took is how long statistics are collected the next time. The loop knows neither epochs nor
messages: a collector brings the statistics, a carrier has the protocols' instructions carried out and reports back.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from sluice.control.handover import Handover
from sluice.control.movement import Instruction
from sluice.control.moves import MoveInFlight
from sluice.control.resharing import reshared
from sluice.control.rounds import Rounds
from sluice.control.scaling import AT_ONCE, Backoff, Scaling
from sluice.control.vetting import WhyUnready, vet
from sluice.model.abilities import Abilities
from sluice.model.actions import (
    Action,
    CleanUp,
    DirectoryAction,
    Freeze,
    Merge,
    Move,
    PassToken,
    Release,
    Scale,
    Share,
    SharingAction,
    Split,
    UnitAction,
)
from sluice.model.decision import Decision, describe_end
from sluice.model.directory import HashRange
from sluice.model.ids import Site, Unit
from sluice.model.redivision import in_their_place, successors
from sluice.model.routing import Routing
from sluice.model.view import ClusterView
from sluice.policies import Policy
from sluice.policies.filling import fill

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


class Carrier(Protocol):
    """Has instructions carried out. When one is done it tells the move's machine, and has the loop follow the answer;
    when the unit's rows go to another site it has the loop route them, and when a site has let go, finish the move."""

    @property
    def producers(self) -> Sequence[int]:
        """Whoever sends rows and has to pause before a unit can move."""

    def clock(self) -> float:
        """The time by which it is measured how long moves take."""

    def carry_out(self, loop: ControlLoop, move: MoveInFlight, instruction: Instruction, now: float) -> None:
        """Begin to do what a move's protocol asks for next."""

    def tell_holder(self, action: Freeze | CleanUp) -> None:
        """Have the site that holds a unit do something about its state."""

    def share_otherwise(self, loop: ControlLoop, action: SharingAction, now: float) -> None:
        """Have whoever sends rows, and the holders of a unit, know who stores what; then the loop reshares it."""

    def prepare_redivision(self, loop: ControlLoop, now: float) -> None:
        """Have ready what it takes to split and merge the units that are to be; then the loop redivides them."""

    def scale(self, loop: ControlLoop, action: Scale, now: float) -> None:
        """Have so many sites take part as soon as that can be."""


class ControlLoop:
    """The policy's hand on a cluster. The clock is handed in with every call.

    `epoch` is the one that decisions are for, `routing` holds from it on.
    """

    def __init__(
        self,
        policy: Policy,
        collector: Collector,
        carrier: Carrier,
        routing: Routing,
        minimum: float,
        advise: bool = False,
        abilities: Abilities | None = None,
        why_not: Callable[[Action], str | None] = lambda action: None,
    ) -> None:
        """`why_not` tells why a world cannot do just now what its abilities would allow; None if it can."""
        self.policy, self.collector, self.carrier, self.advise = policy, collector, carrier, advise
        self._why_not = why_not
        self.abilities = abilities or Abilities()
        self._unready: WhyUnready = lambda unit: None
        self._told: set[Unit] = set()
        """Units whose holders were told to do something about their state, in the epoch to come."""
        self.rounds = Rounds(minimum)
        self.epoch, self.routing = 0, routing
        self.moves: dict[Unit, MoveInFlight] = {}
        self._moving_since: float | None = None
        """On the carrier's clock; None when every unit is routed to where it goes."""
        self._routed_at = 0.0
        """When the last move phase ended."""
        self.redivisions: dict[Unit, DirectoryAction] = {}
        """Units that are to be split or merged; until they are, nothing else is decided."""
        self.handovers: dict[Unit, list[Handover]] = {}
        """Wishes to share units otherwise for which there is something to copy before, in their order."""
        self.scaling: Scaling | None = None
        """While there is to be another number of sites, and is not yet."""
        self.backoff = Backoff()
        """When the policy may ask for more sites, if lately some did not come."""
        self.filling: tuple[Move, ...] = ()
        """By which sites that join get their share. Each begins when its site is there."""
        self.successors: dict[Unit, tuple[Unit, ...]] = {}
        """The units in the place of each that the newest redivision has ended."""
        self._requests: list[Action] = []
        self._lock = threading.Lock()

    def go_on(self, epoch: int, routing: Routing, unready: WhyUnready) -> None:
        """What is decided from now on is for another epoch, which follows one with this routing."""
        self.epoch, self.routing, self._unready = epoch, routing, unready
        self._told.clear()

    def ask(self, action: Action) -> None:
        """What the user wants, beside the policy."""
        with self._lock:
            self._requests.append(action)

    @property
    def asked_for_sites(self) -> int | None:
        """How many sites the user has asked for, where nobody has looked at that yet."""
        with self._lock:
            return next((action.sites for action in self._requests if isinstance(action, Scale)), None)

    @property
    def has_requests(self) -> bool:
        """Whether the user has asked for something that nobody has looked at yet."""
        with self._lock:
            return bool(self._requests)

    def unanswered(self, epoch: int) -> tuple[Decision, ...]:
        """What the user has asked for and nobody has looked at yet, as if it were decided for an epoch."""
        with self._lock:
            return tuple(self._decision(epoch, USER, action) for action in self._requests)

    def take_turn(self, now: float, asking: bool = True) -> tuple[Decision, ...]:
        """Have the user's requests carried out, or the policy's when a round's statistics are there and it is to be
        asked."""
        if self.redivisions:
            return ()
        requests = self._take_requests()
        if requests:
            shared = self.routing.shared
            decisions = self.decide(USER, requests, now)
            if self.routing.shared != shared:  # what was counted until now is of other holders
                self.collector.begin(self.routing, now, self.rounds.collect)
            return decisions
        if (
            not asking
            or self.moves
            or self.handovers
            or self.leaving
            or not self.collector.is_complete(now, self.rounds.collect)
        ):
            return ()
        actions = self._ask_policy(now)
        if not actions:
            self.rounds = self.rounds.after(None)
        decisions = self.decide(self.policy.name, actions, now)
        if not self.moves and not self.handovers and not self.redivisions and not self.leaving:
            self.collector.begin(self.routing, now, self.rounds.collect)
        return decisions

    def _ask_policy(self, now: float) -> tuple[Action, ...]:
        """What the policy wants. Where it only advises, sites freeze nothing by themselves: that is advice, too."""
        view = self._view(now)
        freezing = self.policy.freezing if self.advise else None
        return (*self.policy.decide(view), *(freezing.advise(view) if freezing else ()))

    def _view(self, now: float) -> ClusterView:
        """The cluster as the policy sees it. No more sites can be had for a while after some did not come."""
        view = self.collector.view()
        most = view.most_sites if self.backoff.allows(now) else view.sites
        return replace(view, wanted_sites=self.scaling.wanted if self.scaling else self.routing.sites, most_sites=most)

    @property
    def leaving(self) -> range:
        """The sites that are to leave."""
        return self.scaling.leaving if self.scaling else range(0)

    def scale(self, action: Scale, now: float) -> None:
        """Begin to have another number of sites. What those that join will hold is decided now, so that it can be set
        apart as soon as there are executors for them."""
        self.scaling, self.filling = Scaling(action, self.routing.sites, now), ()
        if not self.leaving:
            self.filling = fill(self.collector.view(), action.sites, self.scaling.reason)

    def stop_scaling(self, sites: int = 0) -> None:
        """Let there be the sites that are there; so many still get what was planned for them."""
        self.scaling, self.filling = None, tuple(move for move in self.filling if move.site < sites)

    def drain(self, now: float) -> tuple[Decision, ...]:
        """Have the sites that are to leave hand over more of what they hold."""
        if not self.scaling or not self.leaving or self.redivisions:
            return ()
        actions = self.scaling.actions(self.collector.view(), self.routing, {**self.moves, **self.handovers})
        return self.decide(SITES, actions, now)

    def fill(self, now: float) -> tuple[Decision, ...]:
        """Have sites that have joined get more of what they are to hold."""
        if not self.filling or self.redivisions:
            return ()
        there = [move for move in self.filling if move.site < self.routing.sites][: max(0, AT_ONCE - len(self.moves))]
        begun = {move.unit for move in there}
        self.filling = tuple(move for move in self.filling if move.unit not in begun)
        return self.decide(SITES, there, now)

    def follow(self, move: MoveInFlight, instructions: Sequence[Instruction], now: float) -> None:
        """Have what a move's machine answered carried out, in its order."""
        for instruction in instructions:
            self.carrier.carry_out(self, move, instruction, now)

    def route(self, unit: Unit, site: Site, now: float) -> None:
        """A unit's rows go to this site from now on."""
        if self.routing.holder(unit) != site:
            self.routing = self.routing.moved(unit, site, self.epoch)
        self._end_phase(now)

    def finish(self, move: MoveInFlight, now: float) -> None:
        """A move is over. After the last one, statistics are collected since all units were where they went."""
        del self.moves[move.unit]
        self._end_phase(now)
        if not self.moves:
            self.collector.begin(self.routing, self._routed_at, self.rounds.collect)

    def stop(self, moves: Sequence[MoveInFlight], now: float) -> None:
        """End moves that cannot go on: their units are where they were, or where they went if they have arrived."""
        since, self._moving_since = self._moving_since, None  # how long these took says nothing about the next ones
        for move in moves:
            arrived = self.routing.holder(move.unit) == move.target
            self.follow(move, move.machine.installed() if arrived else move.machine.abandon(), now)
        self._moving_since = since if self.moves else None

    def announce(self, decision: Decision) -> Decision:
        """Write a decision to the log."""
        what = decision.action if decision.unit is None else f"{decision.action} unit {decision.unit}"
        where = "" if decision.site is None else f", site {decision.site}"
        outcome = "accepted" if decision.refused is None else f"refused, {decision.refused}"
        _log.info("epoch %d: %s: %s%s: %s: %s", decision.epoch, decision.policy, what, where, decision.reason, outcome)
        return decision

    def _take_requests(self) -> list[Action]:
        with self._lock:
            requests, self._requests = self._requests, []
        return requests

    def decide(self, who: str, actions: Sequence[Action], now: float) -> tuple[Decision, ...]:
        """Have what somebody asks for vetted, begun and logged: a policy, the user, or a carrier that needs it."""
        decisions = tuple(self.announce(self._vet_and_begin(who, action, now)) for action in actions)
        if self.redivisions:
            self.carrier.prepare_redivision(self, now)
        return decisions

    def _vet_and_begin(self, who: str, action: Action, now: float) -> Decision:
        refused = vet(
            action,
            self._routing_to_come(action),
            self.moves,
            self.abilities,
            self.why_unready,
            self.redivisions,
            self.scaling,
            self.handovers,
        )
        refused = self._why_ended(action) or refused or self._why_not(action)
        if self.advise and who == self.policy.name:
            refused = "the policy only advises"
        decision = self._decision(self.epoch, who, action, refused)
        if refused is None:
            match action:
                case Move():
                    self._begin_move(action, now)
                case Freeze() | CleanUp():
                    self.carrier.tell_holder(action)
                    self._told.add(action.unit)
                case Split() | Merge():
                    self.redivisions[action.unit] = action
                case Scale():
                    self.carrier.scale(self, action, now)
                case _:
                    self.carrier.share_otherwise(self, action, now)
        return decision

    def _decision(self, epoch: int, who: str, action: Action, refused: str | None = None) -> Decision:
        """What somebody asks for, as a decision for an epoch."""
        unit = None if isinstance(action, Scale) else action.unit
        site = action.site if isinstance(action, Move | Share | Release | PassToken) else self._holder(unit)
        reason = action.reason
        if isinstance(action, Scale):
            reason += f"; sites: {self.routing.sites}, wanted {action.sites}"
        return Decision(epoch, who, action.verb, unit, site, reason, refused)

    def redivide(self, now: float, further: Mapping[Unit, Sequence[HashRange]] | None = None) -> None:
        """The units that are to be split or merged are so from now on, and parts of those that are split `further`."""
        before, further = self.routing, further or {}
        split = {unit: further.get(unit, ()) for unit, action in self.redivisions.items() if isinstance(action, Split)}
        merged = [unit for unit, action in self.redivisions.items() if isinstance(action, Merge)]
        self.routing = before.redivided(split, merged, self.epoch)
        _log.info("epoch %d: units: %d, now %d", self.epoch, before.units, self.routing.units)
        self.redivisions, self.successors = {}, successors(before, self.routing)
        self.filling = self._filling_of_parts()
        self.collector.begin(self.routing, now, self.rounds.collect)

    def _filling_of_parts(self) -> tuple[Move, ...]:
        """What is planned for sites that join, for the units that are in the place of those that were split or
        merged."""
        moves = {unit: move for move in self.filling for unit in in_their_place([move.unit], self.successors)}
        return tuple(replace(move, unit=unit) for unit, move in moves.items())

    def reshare(self, action: SharingAction) -> None:
        """A unit is shared as an action wants it from now on."""
        self.routing = self.reshared(action)

    def reshared(self, action: SharingAction) -> Routing:
        """The routing with a unit shared as an action wants it."""
        return reshared(action, self.routing, self.abilities, self.epoch)

    def finish_handover(self, handover: Handover, now: float) -> None:
        """A unit is shared as it was to be. What was counted until now is of other holders."""
        self._forget(handover)
        if not self.handovers:
            self.collector.begin(self.routing, now, self.rounds.collect)

    def stop_handovers(self) -> list[Handover]:
        """Let units be shared as they are; the wishes that come to nothing."""
        stopped, self.handovers = [h for wishes in self.handovers.values() for h in wishes], {}
        return [handover for handover in stopped if handover.routed is None or handover.routed >= self.epoch]

    def _forget(self, handover: Handover) -> None:
        wishes = self.handovers[handover.unit]
        wishes.remove(handover)
        if not wishes:
            del self.handovers[handover.unit]

    def _routing_to_come(self, action: Action) -> Routing:
        """The routing, with the unit of an action that shares it otherwise as it is to be shared before."""
        if not isinstance(action, SharingAction):
            return self.routing
        routing = self.routing
        for handover in self.handovers.get(action.unit, ()):
            if handover.routed is None:
                routing = reshared(handover.action, routing, self.abilities, self.epoch)
        return routing

    def why_unready(self, unit: Unit) -> str | None:
        return "is to be frozen or cleaned up" if unit in self._told else self._unready(unit)

    def _holder(self, unit: Unit | None) -> Site | None:
        return self.routing.holder(unit) if unit is not None and self.routing.has_unit(unit) else None

    def _why_ended(self, action: Action) -> str | None:
        """Why there is no unit any more that somebody asks about, if it has ended with the newest redivision."""
        unit = action.unit if isinstance(action, UnitAction) else None
        return None if unit not in self.successors else describe_end(unit, self.successors[unit])

    def _begin_move(self, action: Move, now: float) -> None:
        move = MoveInFlight.begin(action, self.routing, self.carrier.producers)
        self.moves[move.unit] = move
        if self._moving_since is None:
            self._moving_since = self.carrier.clock()
        self.follow(move, move.machine.begin(), now)

    def _end_phase(self, now: float) -> None:
        """The move phase is over when every unit is routed to where it goes."""
        if self._moving_since is None:
            return
        if all(self.routing.holder(move.unit) == move.target for move in self.moves.values()):
            self.rounds = self.rounds.after(self.carrier.clock() - self._moving_since)
            self._moving_since, self._routed_at = None, now
