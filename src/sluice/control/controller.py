"""The driver's end of the control loop: a committed epoch goes in, what the next one does comes out.

The rounds' δ is in wall time, as nearly as whole epochs can: `collection.py` adds epochs up, `viewing.py` shows them to
the policy, `loop.py` keeps the verbs' protocols in flight, `epoch_executor.py` carries their instructions out, and
`site_changes.py` sees to sites that come and go.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, replace

from sluice.control.collection import EpochCollection
from sluice.control.copying import CopyRate
from sluice.control.epoch_executor import EpochExecutor
from sluice.control.loop import SITES, USER, ControlLoop
from sluice.control.round_history import RoundHistory
from sluice.control.site_changes import (
    change_sites,
    drain_sites,
    fill_sites,
    go_back_to,
    stop_waiting,
    units_to_set_apart,
)
from sluice.control.site_memory import SiteMemory
from sluice.model.columns import IntColumn
from sluice.model.epoch.decision import Decision, Ended, UnderWay, Verb
from sluice.model.epoch.stats import ScaleTarget
from sluice.model.ids import Unit
from sluice.model.plan.plan import Capabilities
from sluice.model.routing.routing import Routing
from sluice.policies import Policy
from sluice.record.epoch import EpochRecord, Turn
from sluice.record.replan import PlanChange, UnitPlaces, ended_units, replan
from sluice.verbs import Action, SiteInstruction
from sluice.verbs.base import InFlight, SiteWork, Situation
from sluice.verbs.freeze import CleanUpAll, CleanUpProtocol
from sluice.verbs.move import MoveProtocol
from sluice.verbs.scale import Backoff, ScaleProtocol
from sluice.verbs.share import SharingProtocol
from sluice.verbs.split import MergeProtocol, SplitProtocol

MINIMUM = 5.0
"""Seconds over which statistics are collected at least, unless said otherwise."""
UNIT_SIZE = 64 << 20
"""Bytes that a unit is to have at least, and twice that at most, unless said otherwise."""
CLEAN_UP_ALL = CleanUpAll("all results are wanted")
RESTARTED = "the driver was started again"
"""Why a decision is abandoned whose protocol ended with an earlier driver."""
DROPPED = "its query was dropped"
"""Why a decision is abandoned whose units ended with a query."""
RUN_AGAIN = "its epoch failed, and was run again with another number of sites"
"""Why a move is abandoned whose unit was to be at its target by another number of sites, which there was not."""


@dataclass(frozen=True)
class NextEpoch:
    """What the next epoch does: under which routing, what its sites are told to do, what was decided for it, and which
    decisions were abandoned. `before` is the record of the epoch before, if since then some units have been split or
    merged, `turns` what it was planned by."""

    routing: Routing
    instructions: tuple[SiteInstruction, ...] = ()
    decisions: tuple[Decision, ...] = ()
    ended: tuple[Ended, ...] = ()
    before: EpochRecord | None = None
    turns: tuple[Turn, ...] = ()


@dataclass(frozen=True)
class Settled:
    """What has become of decisions with an epoch: those that ended, and those that are under way."""

    ended: tuple[Ended, ...] = ()
    under_way: tuple[UnderWay, ...] = ()


class Controller:
    """The control loop between the epochs of a running query. The clock is handed in with every call."""

    def __init__(
        self,
        policy: Policy,
        site_memory: int,
        minimum: float = MINIMUM,
        advise: bool = False,
        capabilities: Capabilities | None = None,
        backlog: float = float("inf"),
        unit_size: int = UNIT_SIZE,
    ) -> None:
        capabilities = capabilities or Capabilities()
        self.memory = SiteMemory(site_memory)
        self.collection = EpochCollection(self.memory, capabilities, backlog, unit_size)
        self.executor = EpochExecutor()
        self._rate = CopyRate()
        self._slots: int | None = None
        self._planned: NextEpoch | None = None
        self._has_committed = False
        self._decisions: list[Decision] = []
        """What was decided for the next epoch."""
        self._dropped: tuple[Ended, ...] = ()
        """Decisions that have come to nothing since the newest epoch, because their units ended with a query."""
        nowhere = Routing(0, IntColumn())
        self.loop = ControlLoop(policy, self.collection, self.executor, nowhere, minimum, advise, capabilities)

    @property
    def policy(self) -> Policy:
        return self.loop.policy

    @property
    def slots(self) -> int | None:
        """For how many sites there are executors, be they ready yet or not; None if sites need not wait for any."""
        return self._slots

    @slots.setter
    def slots(self, slots: int | None) -> None:
        if slots != self._slots:
            self.loop.backoff = Backoff()  # other executors than when none came
        self._slots = slots

    def ask(self, action: Action) -> None:
        """What the user wants, beside the policy."""
        self.loop.requests.add(action)

    def refuse(self, action: Action, record: EpochRecord) -> str | None:
        """Why an action would be refused after an epoch, as far as anybody can tell; None if it might be done."""
        in_flight, scaling = InFlight(), self.scaling_after(record)
        if scaling is not None:
            in_flight.add(scaling, ())
        situation = Situation(record.routing, self.loop.capabilities, in_flight, record)
        return (scaling.refuse(action) if scaling else None) or action.refuse(situation)

    # --- from one epoch to the next ---

    def plan(self, record: EpochRecord, turn: Turn) -> NextEpoch:
        """What the epoch after a committed one does. What was planned for it before holds until it is committed, unless
        there is another number of sites now."""
        self.loop.answered = ()
        self.slots = turn.slots
        lost, now = self._planned, turn.now
        if lost is not None and lost.routing.sites == turn.sites:
            step = self.again(lost, turn.site_changes)
        elif record.routing.sites != turn.sites:
            step = self.resized(record, turn.sites, turn.site_changes or "restarted", now, lost)
        elif not self._has_committed:  # how long its input took to arrive is not known
            step = self.resume(record, now, lost)
        else:
            step = self.after(record, now, turn.site_changes, turn.asking, lost)
        turns = () if lost is None else lost.turns
        self._planned = replace(step, turns=(*turns, replace(turn, requests=self.loop.answered)))
        return self._planned

    def change_plan(self, record: EpochRecord, change: PlanChange) -> EpochRecord:
        """The flow goes by another plan from the next epoch on: the newest record, laid out for it. What is under way
        for units that end with it is abandoned."""
        assert self._planned is None, "an epoch is run again by the plan that it was planned for"
        change = replace(change, at_home=self.policy.begins_at_home)
        after = replan(record, change)
        ended = set(ended_units(record.routing, after.routing))
        under_way = (one for one in record.under_way if one.units and ended.issuperset(one.units))
        self._dropped = (*self._dropped, *(Ended(one.decision, DROPPED) for one in under_way))
        able = self.loop.capabilities
        self.loop.capabilities = self.collection.capabilities = replace(
            change.now.capabilities,
            scalable=able.scalable,
            least_sites=able.least_sites,
            most_sites=able.most_sites,
        )
        self.loop.end_units(ended)
        self.collection.change_plan(change, UnitPlaces.between(record.routing, after.routing, change.fragments))
        return after

    def copy(self) -> Controller:
        """A copy to go back to. The policy, users' requests and limits of memory are shared with it."""
        shared = (self.policy, self.loop.requests, self.memory)
        return deepcopy(self, {id(one): one for one in shared})

    def go_back_to(self, before: Controller) -> None:
        """Be again as a copy is. Requests that were answered since are not answered yet."""
        turns = () if self._planned is None else self._planned.turns
        self.loop.requests.put_back([action for turn in turns for action in turn.requests])
        vars(self).update(vars(before))

    def commit(self, record: EpochRecord) -> None:
        """The epoch that was planned has been committed."""
        self._planned, self._has_committed = None, True
        for end in record.ended:
            self.loop.announce_end(end)

    @property
    def planned(self) -> NextEpoch | None:
        """What was planned for an epoch that has not been committed."""
        return self._planned

    def resume(self, record: EpochRecord, now: float, lost: NextEpoch | None = None) -> NextEpoch:
        """What to do in the first epoch of a driver: nothing is known of how long epochs take. What an earlier driver
        was at is abandoned, but for units that are to be cleaned up."""
        self._begin_step(record, lost, now)
        return self._step(copying=False)

    def again(self, step: NextEpoch, site_changes: str) -> NextEpoch:
        """What to do in an epoch that has come to nothing and is run again, with as many sites."""
        if not site_changes or any(decision.reason == site_changes for decision in step.decisions):
            return step
        return replace(step, decisions=(*step.decisions, self._about_sites(Verb.PLACE, site_changes)))

    def after(
        self,
        record: EpochRecord,
        now: float,
        site_changes: str = "",
        asking: bool = True,
        lost: NextEpoch | None = None,
    ) -> NextEpoch:
        """What to do in the epoch that follows a committed one; `site_changes` says why sites are elsewhere since. The
        policy is asked unless the epoch is only there for what is under way. `lost` is what was decided for this epoch,
        if it was begun with another number of sites and came to nothing."""
        self._begin_step(record, lost, now)
        if lost is not None:
            go_back_to(self.loop, record.routing, now)
        self.executor.advance(self.loop, record, self._rate.allow(record.stats), now)
        self.collection.add(record, now)
        if site_changes:
            self._decisions.append(self._about_sites(Verb.PLACE, site_changes))
            self.loop.backoff, self.loop.history = Backoff(), RoundHistory()  # executors may be other machines
        after = self.executor.repartition(self.loop, record, now)
        if after is not record:
            self.collection.redivide(record, after)
        self.collection.single_key_units = self.executor.single_key_units
        self.collection.unmergeable_units = self.executor.unmergeable_units
        stop_waiting(self.loop, now)
        self._decisions += fill_sites(self.loop, now)
        self._decisions += self.loop.take_turn(now, asking)
        self._decisions += drain_sites(self.loop, now)
        return self._step(None if after is record else after)

    def resized(
        self, record: EpochRecord, sites: int, why: str, now: float, lost: NextEpoch | None = None
    ) -> NextEpoch:
        """What to do in the epoch from which on there is another number of sites. What was set apart for those that
        join, and is little enough, is there in this very epoch. Statistics begin anew. `lost` is as for `after`."""
        self._begin_step(record, lost, now)
        allowance = self._rate.allow(record.stats)
        joining, reason = change_sites(self.loop, self.collection, record, sites, why, allowance, now)
        self._decisions.append(self._about_sites(Verb.RESIZE, reason))
        self.collection.pass_by(record, now)
        self.collection.begin(self.loop.routing, now, self.loop.rounds.collect)
        if joining:
            self._decisions += fill_sites(self.loop, now)
            self.executor.advance(self.loop, replace(record, routing=self.loop.routing), allowance, now)
        return self._step(copying=joining)

    def settle(self, number: int, routing: Routing, work: SiteWork, abandoned: Sequence[Ended] = ()) -> Settled:
        """What becomes of decisions if an epoch is committed in which sites did this."""
        settled = [protocol.settle(number, routing, work) for protocol in self.loop.in_flight]
        return Settled(
            (*abandoned, *(one for one in settled if isinstance(one, Ended))),
            tuple(one for one in settled if isinstance(one, UnderWay)),
        )

    # --- what others want to know ---

    @property
    def changing_units(self) -> tuple[Unit, ...]:
        """Those that are about to be split, merged or shared."""
        kinds = (SplitProtocol, MergeProtocol, SharingProtocol)
        return tuple(unit for one in self.loop.in_flight if isinstance(one, kinds) for unit in one.units)

    @property
    def is_changing_routing(self) -> bool:
        """Whether something is asked for, or in flight, that may change the routing of the next epoch."""
        return bool(self.loop.requests.waiting()) or any(True for _ in self.loop.in_flight)

    def sites_next(self, record: EpochRecord) -> int | None:
        """How many sites there are to be in the epoch after this one, if their number is on its way to another."""
        scaling = self.scaling_after(record)
        return scaling.sites_next(record.routing) if scaling else None

    def scaling_after(self, record: EpochRecord) -> ScaleProtocol | None:
        """The way to another number of sites, if that is not yet the one of this epoch."""
        scaling = self.loop.scaling
        return None if scaling is None or scaling.is_done(record.routing) else scaling

    def has_leaving_sites(self, record: EpochRecord) -> bool:
        """Whether there are to be fewer sites than in this epoch."""
        scaling = self.scaling_after(record)
        target = scaling.target_sites if scaling else self.loop.requests.sites
        return target is not None and target < record.routing.sites

    def is_under_way(self, record: EpochRecord, now: float) -> bool:
        """Whether something has been asked for, or begun, that the next epochs take on, with input or without. Sites
        whose executors have not come are waited for without epochs; when they are given up it takes one."""
        if self.loop.requests.waiting() or self.has_leaving_sites(record):
            return True
        going_on = {one.decision for one in record.under_way}
        return any(
            protocol.takes_epochs(record.routing, now)
            for protocol in self.loop.in_flight
            if protocol.decision is None
            or protocol.decision.epoch > record.number
            or protocol.decision in going_on
            or isinstance(protocol, MoveProtocol)
        )

    def may_need_fewer(self, record: EpochRecord) -> bool:
        """Whether a policy decides how many sites there are, and there could be fewer than in this epoch."""
        able, routing = self.loop.capabilities, record.routing
        scales = able.scalable and self.policy.scales
        return scales and routing.sites > able.least_sites and self.scaling_after(record) is None

    def unanswered(self, epoch: int) -> tuple[Decision, ...]:
        """What the user has asked for and nobody has looked at yet, as if it were decided for an epoch."""
        return tuple(self.loop.describe(USER, action, epoch) for action in self.loop.requests.waiting())

    def clean_up(self, record: EpochRecord) -> None:
        """Have all found that is missing after an epoch, unless that is being done."""
        cleaning = {unit for one in record.under_way if one.decision.action == Verb.CLEAN_UP for unit in one.units}
        if not cleaning.issuperset(record.missing_units) and CLEAN_UP_ALL not in self.loop.requests.waiting():
            self.ask(CLEAN_UP_ALL)

    def is_cleaning_up(self, record: EpochRecord) -> bool:
        """Whether units are being cleaned up after an epoch, or are to be."""
        asked = CLEAN_UP_ALL in self.loop.requests.waiting()
        return asked or any(one.decision.action == Verb.CLEAN_UP for one in record.under_way)

    def note_idle_epoch(self, epoch: int) -> None:
        """The newest epoch took in nothing, because nothing has come."""
        self.collection.idle_epoch = epoch

    @property
    def scale_target(self) -> ScaleTarget | None:
        """How many sites there are to be, and may be; None where that is no matter of choice."""
        able, scaling = self.loop.capabilities, self.loop.scaling
        return (
            ScaleTarget(scaling.target_sites if scaling else None, able.least_sites, able.most_sites)
            if able.scalable
            else None
        )

    # --- the steps of these ---

    def _begin_step(self, record: EpochRecord, lost: NextEpoch | None, now: float) -> None:
        """The loop goes on from a committed epoch, whose routing is what counts. What was decided for an epoch that
        came to nothing is decided for this one; what was done by its routing alone is not."""
        loop = self.loop
        if loop.moves:
            self.executor.pass_epoch(record.stats)
        loop.advance_to_epoch(record.number + 1, record.routing, record)
        asked = [] if lost is None else [one for one in lost.decisions if one.action not in (Verb.PLACE, Verb.RESIZE)]
        self._decisions, loop.ended = asked, [] if lost is None else [_not_done(end) for end in lost.ended]
        loop.ended += self._dropped
        self._dropped = ()
        self._commit_protocols(record, now)
        self.executor.finish_moves(loop, record, now)
        self._take_over({one.decision: one.units for one in record.under_way}, now)

    def _commit_protocols(self, record: EpochRecord, now: float) -> None:
        """Tell protocols what a committed epoch says of their decisions. Of decisions that are alike, such as a unit
        that is to be shared, released and shared again, the first ones end first."""
        under_way: dict[Decision, list[UnderWay]] = {}
        for one in record.under_way:
            under_way.setdefault(one.decision, []).append(one)
        for protocol in reversed(list(self.loop.in_flight)):
            if protocol.decision is not None and protocol.decision.epoch <= record.number:
                alike = under_way.get(protocol.decision)
                protocol.commit(alike.pop() if alike else None)
        for protocol in self.loop.in_flight:
            if protocol.over:
                self.loop.forget(protocol, now)

    def _take_over(self, under_way: dict[Decision, tuple[Unit, ...]], now: float) -> None:
        """Of what is under way and in no flight, an earlier driver's, units are still cleaned up; the rest is
        abandoned."""
        settled = {protocol.decision for protocol in self.loop.in_flight} | {end.decision for end in self.loop.ended}
        for decision, units in under_way.items():
            if decision in settled:
                continue
            if decision.action == Verb.CLEAN_UP:
                cleaning = CleanUpProtocol(units)
                cleaning.decision = decision
                self.loop.begin(cleaning, now)
            else:
                self.loop.ended.append(Ended(decision, RESTARTED))

    def _step(self, before: EpochRecord | None = None, copying: bool = True) -> NextEpoch:
        """What the next epoch does, as far as was decided."""
        beside = (
            self.executor.copying_instructions(self.loop, units_to_set_apart(self.loop, self._slots)) if copying else ()
        )
        return NextEpoch(
            self.loop.routing,
            (*self.executor.freezing_instructions(self.loop), *beside),
            tuple(self._decisions),
            tuple(self.loop.ended),
            before,
        )

    def _about_sites(self, action: Verb, reason: str) -> Decision:
        """A decision that no policy makes: executors came or went."""
        return self.loop.announce(Decision(self.loop.epoch, SITES, action, None, None, reason))


def _not_done(end: Ended) -> Ended:
    """What becomes of a decision that has ended in an epoch which came to nothing, and had another routing."""
    return replace(end, abandoned=RUN_AGAIN) if end.abandoned is None else end
