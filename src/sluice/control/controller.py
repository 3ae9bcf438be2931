"""The driver's end of the control loop: a committed epoch goes in, what the next one does comes out.

The rounds' δ is in wall time, as nearly as whole epochs can: `collection.py` adds epochs up, `viewing.py` shows them to
the policy, `vetting.py` says what cannot be, `epoch_carrier.py` has the rest carried out, and `loop.py` calls them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from sluice.control.collection import EpochCollection
from sluice.control.copying import CopyRate
from sluice.control.epoch_carrier import EpochCarrier, leaving_units, units_to_share
from sluice.control.handover import fetched_bytes
from sluice.control.ledger import Ledger
from sluice.control.loop import SITES, ControlLoop
from sluice.control.movement import Phase
from sluice.control.moves import MoveInFlight
from sluice.control.rounds import Rounds
from sluice.control.scaling import AT_ONCE, PATIENCE, Backoff, Scaling
from sluice.control.site_memory import SiteMemory
from sluice.model.abilities import Abilities
from sluice.model.actions import Action, DirectoryAction, Move
from sluice.model.decision import Decision, Ended, UnderWay
from sluice.model.epoch import EpochRecord
from sluice.model.ids import Unit
from sluice.model.reassignment import reassign
from sluice.model.redivision import CutPlan, UnitFindings
from sluice.model.routing import Routing
from sluice.model.state import SegmentRef
from sluice.model.stats import Turnout
from sluice.model.verb import Verb
from sluice.policies import Policy

MINIMUM = 5.0
"""Seconds over which statistics are collected at least, unless said otherwise."""
UNIT_SIZE = 64 << 20
"""Bytes that a unit is to have at least, and twice that at most, unless said otherwise."""


@dataclass(frozen=True)
class NextEpoch:
    """What the next epoch does: under which routing, which units their sites prepare to leave, which segments sites
    copy for units on their way to them, at most how many bytes, which units they freeze and clean up, which they weigh
    and cut so that these can be split, what was decided, which decisions end with it, and which are under way."""

    routing: Routing
    leaving: tuple[Unit, ...] = ()
    arriving: tuple[tuple[SegmentRef, ...], ...] = ()
    allowance: float = float("inf")
    freeze: tuple[Unit, ...] = ()
    clean_up: tuple[Unit, ...] = ()
    weigh: tuple[Unit, ...] = ()
    cut: tuple[CutPlan, ...] = ()
    decisions: tuple[Decision, ...] = ()
    ended: tuple[Ended, ...] = ()
    under_way: tuple[UnderWay, ...] = ()
    before: EpochRecord | None = None
    """The record of the epoch before, if units of it were split or merged since."""
    successors: Mapping[Unit, tuple[Unit, ...]] = field(default_factory=dict)
    """The units that are in the place of each that was."""


class Controller:
    """The control loop between the epochs of a running query. The clock is handed in with every call."""

    def __init__(
        self,
        policy: Policy,
        site_memory: int,
        minimum: float = MINIMUM,
        advise: bool = False,
        abilities: Abilities | None = None,
        backlog: float = float("inf"),
        unit_size: int = UNIT_SIZE,
    ) -> None:
        abilities = abilities or Abilities()
        self.memory = SiteMemory(site_memory)
        self.collection = EpochCollection(self.memory, abilities, backlog, unit_size)
        self.carrier = EpochCarrier()
        self._rate = CopyRate()
        self._slots: int | None = None
        self._ledger = Ledger()
        self.loop = ControlLoop(policy, self.collection, self.carrier, Routing(0, ()), minimum, advise, abilities)

    @property
    def policy(self) -> Policy:
        return self.loop.policy

    @property
    def rounds(self) -> Rounds:
        return self.loop.rounds

    @property
    def moves(self) -> tuple[MoveInFlight, ...]:
        """Those in flight."""
        return tuple(self.loop.moves.values())

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
        self.loop.ask(action)

    def resume(self, record: EpochRecord, lost: NextEpoch | None = None) -> NextEpoch:
        """What to do in the first epoch of a driver: nothing is known of how long epochs take. What an earlier driver
        was at is abandoned, but for units that are to be cleaned up."""
        self._go_on_from(record, lost)
        return self._step()

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
        found: UnitFindings | None = None,
        asking: bool = True,
        lost: NextEpoch | None = None,
    ) -> NextEpoch:
        """What to do in the epoch that follows a committed one; `site_changes` says why sites are elsewhere since,
        `found` what the sites have found out about units that are to be split. The policy is asked unless the epoch is
        only there for what is under way. `lost` is what was decided for this epoch, if it was begun with another number
        of sites and came to nothing."""
        self._go_on_from(record, lost)
        if lost is not None:
            self._go_back_to(record.routing, now)
        allowance = self._rate.allow(record.stats)
        arriving = self.carrier.advance(self.loop, record, allowance, now)
        self.collection.add(record, now)
        if site_changes:
            self._ledger.add([self._about_sites(Verb.PLACE, site_changes)])
            self.loop.backoff = Backoff()
        committed, record = record, self._redivided(record, found or UnitFindings(), now)
        known = self.carrier.redividing
        known.forget(record.number)
        self.collection.single, self.collection.apart = known.single, known.apart
        self._stop_waiting(now)
        self._ledger.add(self.loop.fill(now))
        self._ledger.add(self.loop.take_turn(now, asking))
        self._ledger.add(self.loop.drain(now))
        return replace(
            self._step(),
            leaving=self._units_to_set_apart(),
            arriving=arriving,
            allowance=allowance,
            weigh=self.carrier.redividing.weigh,
            cut=self.carrier.redividing.cut,
            before=None if record is committed else record,
            successors={} if record is committed else self.loop.successors,
        )

    def _step(self) -> NextEpoch:
        """What the next epoch does, as far as the decisions that are under way say."""
        ledger = self._ledger
        ledger.conclude(self.loop)
        return NextEpoch(
            self.loop.routing,
            freeze=tuple(ledger.units_under(Verb.FREEZE)),
            clean_up=tuple(ledger.units_under(Verb.CLEAN_UP)),
            decisions=tuple(ledger.decisions),
            ended=tuple(ledger.ended),
            under_way=tuple(ledger.under_way),
        )

    def _redivided(self, record: EpochRecord, found: UnitFindings, now: float) -> EpochRecord:
        """The record, with the units as they are from now on, if any were to be split or merged."""
        if not self.loop.redivisions:
            return record

        def refuse(action: DirectoryAction, why: str) -> None:
            self._ledger.end(action.verb, action.unit, why)

        wanted = dict(self.loop.redivisions)
        after = self.carrier.redivide(self.loop, record, found, refuse, now)
        if after is not record:
            for unit, action in wanted.items():
                self._ledger.end(action.verb, unit, new_units=self.loop.successors.get(unit, ()))
            self._ledger.follow(self.loop.successors)
            self.loop.go_on(after.number + 1, after.routing, after.why_unready)
            self.collection.redivide(record, after)
        return after

    def sites_next(self, record: EpochRecord) -> int | None:
        """How many sites there are to be in the epoch after this one, if their number is on its way to another."""
        scaling = self.scaling_after(record)
        return scaling.sites_next(record.routing) if scaling else None

    def scaling_after(self, record: EpochRecord) -> Scaling | None:
        """The way to another number of sites, if that is not yet the one of this epoch."""
        scaling = self.loop.scaling
        return None if scaling is None or scaling.is_over(record.routing) else scaling

    def has_leaving_sites(self, record: EpochRecord) -> bool:
        """Whether there are to be fewer sites than in this epoch."""
        scaling = self.scaling_after(record)
        wanted = scaling.wanted if scaling else self.loop.asked_for_sites
        return wanted is not None and wanted < record.routing.sites

    def is_under_way(self, record: EpochRecord, now: float) -> bool:
        """Whether something has been asked for, or begun, that the next epochs take on, with input or without. Sites
        whose executors have not come are waited for without epochs; when they are given up it takes one."""
        loop, scaling = self.loop, self.scaling_after(record)
        if loop.has_requests or loop.moves or loop.handovers or loop.redivisions or self.has_leaving_sites(record):
            return True
        cleaning = any(one.decision.action == Verb.CLEAN_UP for one in record.under_way)
        if cleaning or any(move.site < record.routing.sites for move in loop.filling):
            return True
        return scaling is not None and now - scaling.since >= PATIENCE

    def may_need_fewer(self, record: EpochRecord) -> bool:
        """Whether a policy decides how many sites there are, and there could be fewer than in this epoch."""
        able, routing = self.loop.abilities, record.routing
        scales = able.scalable and self.policy.scales
        return scales and routing.sites > able.least_sites and self.scaling_after(record) is None

    def note_idle_epoch(self, epoch: int) -> None:
        """The newest epoch took in nothing, because nothing has come."""
        self.collection.idle_epoch = epoch

    @property
    def turnout(self) -> Turnout | None:
        """How many sites there are to be, and may be; None where that is no matter of choice."""
        able, scaling = self.loop.abilities, self.loop.scaling
        return (
            Turnout(scaling.wanted if scaling else None, able.least_sites, able.most_sites) if able.scalable else None
        )

    def resized(
        self, record: EpochRecord, sites: int, why: str, now: float, lost: NextEpoch | None = None
    ) -> NextEpoch:
        """What to do in the epoch from which on there is another number of sites.

        If that was asked for, those that left held nothing, and units begin to move to those that join as was planned:
        what was set apart for them, and is little enough, is there in this very epoch. Else as few units move as can
        be: all at once, unless sites have come and would have to read more than they may in an epoch. Then these get
        their units by ordinary moves. Statistics begin anew. A move in flight is abandoned if one of its sites is gone
        or its unit is needed elsewhere; the others go on in the epoch after. `lost` is as for `after`.
        """
        self._go_on_from(record, lost)
        self.loop.backoff = Backoff()
        ledger, another = self._ledger, f"there is another number of sites: {sites}"
        for unit, action in self.loop.redivisions.items():
            ledger.end(action.verb, unit, another)
        self.loop.redivisions = {}
        self.carrier.redividing.begin(self.loop)
        before = record.routing
        if not (self.loop.scaling and self.loop.scaling.leads_to(sites, before)):
            self.loop.stop_scaling()  # it was about other sites
            ledger.end(Verb.SCALE, None, another)
        if self.loop.scaling:
            why = self.loop.scaling.action.reason
        allowance = self._rate.allow(record.stats)
        routing = before.resized(sites, before.version + 1, record.number + 1)
        joining = sites > before.sites and self.loop.scaling is not None
        if joining and self.loop.scaling:
            self.collection.growth.joining = now - self.loop.scaling.since
        elif sites > before.sites and self.collection.has_begun and not _is_little(record, routing, allowance):
            joining, self.loop.filling = True, _moves_to(routing, before, f"{why}; sites: {before.sites}, now {sites}")
        if joining:
            routing = before.joined(sites, record.number + 1)
        reason = f"{why}; sites: {before.sites}, now {sites}; {routing.moves_since(before)} units moved"
        ledger.add([self._about_sites(Verb.RESIZE, reason)])
        for handover in self.loop.stop_handovers():
            ledger.end(handover.action.verb, handover.unit, another)
        stopped = [
            move
            for move in self.moves
            if _is_without_site(move, routing) or routing.holder(move.unit) != before.holder(move.unit)
        ]
        self._stop_moves(stopped, routing, now)
        self.collection.pass_by(record, now)
        self.collection.begin(routing, now, self.rounds.collect)
        if not joining:
            return self._step()
        ledger.add(self.loop.fill(now))
        arriving = self.carrier.advance(self.loop, replace(record, routing=routing), allowance, now)
        return replace(self._step(), leaving=self._units_to_set_apart(), arriving=arriving, allowance=allowance)

    def _units_to_set_apart(self) -> tuple[Unit, ...]:
        """Those that move or are to be shared otherwise, and of those that are to move to sites that join as soon as
        their executors are ready as many as are to be moving at a time. Units for sites whose executors have not come
        stay with the others. Units that are to be split or merged stay as they are until then, and so do all others.
        What the next epoch freezes is set apart later."""
        units = {*leaving_units(self.moves), *units_to_share(self.loop)}
        if not self.loop.redivisions:
            awaited = [
                move.unit
                for move in self.loop.filling
                if not self.loop.routing.sharing(move.unit) and (self._slots is None or move.site < self._slots)
            ]
            units |= set(awaited[: max(0, AT_ONCE - len(units))])
        return tuple(sorted(units.difference(self._ledger.units_under(Verb.FREEZE))))

    def _go_on_from(self, record: EpochRecord, lost: NextEpoch | None) -> None:
        """The loop goes on from a committed epoch, whose routing is what counts. Of what was decided for one that came
        to nothing holds what the loop is still at."""
        if self.moves:
            self.carrier.pass_epoch(record.stats)
        self.loop.go_on(record.number + 1, record.routing, record.why_unready)
        self.loop.scaling = self.scaling_after(record)
        self._ledger = Ledger(record.under_way)
        if lost is not None:
            self._ledger.recover(lost.decisions, lost.ended)

    def _go_back_to(self, routing: Routing, now: float) -> None:
        """There are as many sites as under a committed routing: the epoch with another number came to nothing."""
        self._stop_moves([move for move in self.moves if _is_without_site(move, routing)], routing, now)
        if self.loop.scaling is None:
            self.loop.stop_scaling(routing.sites)
        self.collection.begin(routing, now, self.rounds.collect)

    def _stop_moves(self, moves: Sequence[MoveInFlight], routing: Routing, now: float) -> None:
        """End moves that cannot go on under a routing, which holds from now on. Those to sites that are still awaited
        begin anew when these are there."""
        self.loop.stop(moves, now)
        self.loop.routing = routing
        stopped = [move for move in moves if move.phase is Phase.ABANDONED]
        for move in stopped:
            if routing.holder(move.unit) != move.target:
                self._ledger.end(Verb.MOVE, move.unit, _explain_abandonment(move, routing.sites))
        if self.loop.scaling:
            awaited = range(routing.sites, self.loop.scaling.wanted)
            again = (move.action for move in stopped if move.target in awaited)
            self.loop.filling = (*again, *self.loop.filling)

    def _stop_waiting(self, now: float) -> None:
        """Go on with the sites that are there, if those that were to join have not come for too long."""
        scaling = self.loop.scaling
        if scaling is None or scaling.leaving or now - scaling.since < PATIENCE:
            return
        self.loop.stop_scaling(self.loop.routing.sites)
        self.loop.backoff = self.loop.backoff.after(now)
        there = f"sites: {self.loop.routing.sites}; nobody else came within {PATIENCE:.0f} s"
        if self.policy.scales:
            there += f", and {self.policy.name} waits {self.loop.backoff.seconds:.0f} s before it asks again"
        self._ledger.end(Verb.SCALE, None, there)

    def _about_sites(self, action: Verb, reason: str) -> Decision:
        """A decision that no policy makes: executors came or went."""
        return self.loop.announce(Decision(self.loop.epoch, SITES, action, None, None, reason))


def _moves_to(routing: Routing, before: Routing, reason: str) -> tuple[Move, ...]:
    """The moves by which units come to where they are under another routing; those that are shared stay."""
    changed = np.flatnonzero(np.array(before.holders) != np.array(routing.holders))
    units = [unit for unit in before.units_at(changed) if not before.sharing(unit)]
    return tuple(Move(unit, routing.holder(unit), reason) for unit in units)


def _is_little(record: EpochRecord, routing: Routing, allowance: float) -> bool:
    """Whether no site that is new under a routing has to read more than this to have its units at once."""
    arriving = reassign(record.manifests, record.routing, routing)[record.routing.sites :]
    return all(fetched_bytes(runs) <= allowance for runs in arriving)


def _is_without_site(move: MoveInFlight, routing: Routing) -> bool:
    """Whether a site that a move is from, or to, is not there under a routing."""
    return max(move.source, move.target) >= routing.sites


def _explain_abandonment(move: MoveInFlight, sites: int) -> str:
    gone = next((site for site in (move.source, move.target) if site >= sites), None)
    return "its unit is needed elsewhere" if gone is None else f"site {gone} is gone"
