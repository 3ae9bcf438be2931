"""Moves by epochs: how a query on Spark carries the protocol's instructions out.

An epoch boundary is where everybody is at rest, so pausing and draining have nothing to wait for. What remains of a
move goes beside the epochs' ordinary work: the source brings the unit's state into segments of its own, the target
copies those ahead of time, and when what is missing is little enough the routing changes. How much of this is done in
one epoch is bounded by the time it takes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sluice.control.copying import EpochCopies, is_all_new, length, not_in, separate
from sluice.control.handover import Handover, fetched_bytes, missing_runs
from sluice.control.loop import ControlLoop
from sluice.control.movement import Extract, Install, Instruction, LetGo, Pause, Phase, Restart, Transfer
from sluice.control.moves import MoveInFlight
from sluice.control.redividing import Redividing, Refuse
from sluice.model.actions import CleanUp, Freeze, Scale, SharingAction
from sluice.model.epoch import EpochRecord
from sluice.model.errors import ProtocolError
from sluice.model.ids import Site, Unit
from sluice.model.redivision import UnitFindings
from sluice.model.state import SegmentRef
from sluice.model.stats import EpochStats
from sluice.model.unit_ranges import only


class EpochCarrier:
    """Has moves taken on from epoch to epoch. Its clock goes while epochs run in which units move: the time in which
    no input comes is no part of it."""

    producers: Sequence[int] = ()

    def __init__(self) -> None:
        self._clock = 0.0
        self.redividing = Redividing()
        self._newest: EpochRecord | None = None
        self._copies: EpochCopies | None = None
        """What sites copy in the next epoch, as far as it is known."""

    def clock(self) -> float:
        return self._clock

    def pass_epoch(self, stats: EpochStats) -> None:
        """Let the time of an epoch pass."""
        self._clock += stats.seconds.elapsed

    def tell_holder(self, action: Freeze | CleanUp) -> None:
        """The site learns it with the next epoch's task, as one of the decisions that are under way."""

    def share_otherwise(self, loop: ControlLoop, action: SharingAction, now: float) -> None:
        """Everybody learns it with the next epoch's tasks, or later, if there is much to copy before."""
        handover = Handover(action, loop.epoch)
        waiting = any(other.routed is None for other in loop.handovers.get(action.unit, ()))
        if not waiting and self._may_route(loop, handover):
            loop.reshare(action)
        else:
            loop.handovers.setdefault(action.unit, []).append(handover)

    def prepare_redivision(self, loop: ControlLoop, now: float) -> None:
        self.redividing.begin(loop)

    def scale(self, loop: ControlLoop, action: Scale, now: float) -> None:
        loop.scale(action, now)  # `Controller` has sites drained from epoch to epoch, whoever runs them has some join

    def carry_out(self, loop: ControlLoop, move: MoveInFlight, instruction: Instruction, now: float) -> None:
        match instruction:
            case Extract() | Transfer():  # beside the next epochs' work, until `advance` sees that it is done
                move.step = instruction
            case Install(unit, site):  # the target reads the unit's state in the first epoch of the new routing
                move.step = instruction
                loop.route(unit, site, now)
            case Restart(unit, site):
                move.step = None
                loop.route(unit, site, now)
            case LetGo():  # the manifests of the next record are what a site has
                loop.finish(move, now)
            case Pause():
                raise ProtocolError(f"nobody sends rows of unit {move.unit} between two epochs")

    def redivide(
        self, loop: ControlLoop, record: EpochRecord, found: UnitFindings, refuse: Refuse, now: float
    ) -> EpochRecord:
        """Take units that are to be split or merged one step on: the record, with the units as they are from now on."""
        self._newest = self.redividing.advance(loop, record, found, refuse, now)
        return self._newest

    def advance(
        self, loop: ControlLoop, record: EpochRecord, allowance: float, now: float
    ) -> tuple[tuple[SegmentRef, ...], ...]:
        """Take the moves in flight one step on, now that another epoch has committed; what each site copies ahead of
        time in the next one, of at most so many bytes."""
        for move in [m for m in loop.moves.values() if record.routing.holder(m.unit) == m.target]:
            loop.follow(move, move.machine.installed(), now)
        copies = EpochCopies(allowance, record.routing.sites)
        for move in loop.moves.values():
            if move.phase is Phase.INSTALLING:  # the epoch that was to install it came to nothing
                self.carry_out(loop, move, Install(move.unit, move.target), now)
            else:
                self._prepare(loop, move, record, copies, now)
        self._newest, self._copies = record, copies
        for unit in list(loop.handovers):
            self._hand_over(loop, unit, now)
        return copies.by_site()

    def _prepare(
        self, loop: ControlLoop, move: MoveInFlight, record: EpochRecord, copies: EpochCopies, now: float
    ) -> None:
        """Switch to the target if what is missing there is little enough, else have it copy some of it."""
        own, shared = separate(record, move)
        if move.phase is Phase.EXTRACTING and not shared:
            loop.follow(move, move.machine.extracted(), now)
        missing = not_in(move.copied, own)
        fits = copies.fits(move.target, length(missing)) or is_all_new(move.copied, missing, record.number)
        if move.phase is Phase.TRANSFERRING and fits:
            copies.spend(move.target, length(missing))
            loop.follow(move, move.machine.transferred(), now)
        else:
            copies.copy_ahead(move.target, move.copied, own)

    def _hand_over(self, loop: ControlLoop, unit: Unit, now: float) -> None:
        """Take what is to become of a unit's holders one step on, one wish after the other."""
        assert self._newest is not None and self._copies is not None, "an epoch has committed"
        record = self._newest
        alone = only(record.routing.index_of(unit))
        for handover in list(loop.handovers[unit]):
            if handover.routed is not None and record.number >= handover.routed:
                loop.finish_handover(handover, now)
                continue
            if handover.routed is None and not self._may_route(loop, handover):
                for site, runs in enumerate(missing_runs(record, loop.reshared(handover.action), unit)):
                    own = [run.segment for run in runs if run.segment.units == alone]
                    self._copies.copy_ahead(Site(site), handover.copied_at(Site(site)), own)
                return
            handover.routed = loop.epoch  # or again, if the epoch that was to have this routing came to nothing
            loop.reshare(handover.action)

    def _may_route(self, loop: ControlLoop, handover: Handover) -> bool:
        """Whether the routing can change: what each site has not copied of what it will hold is little enough. If so
        they read it in the next epoch."""
        record, copies = self._newest, self._copies
        if record is None or copies is None:
            return True
        if loop.why_unready(handover.unit) is not None:
            return False
        missing = missing_runs(record, loop.reshared(handover.action), handover.unit)
        left: list[int] = []
        for site, runs in enumerate(missing):
            copied = handover.copied_at(Site(site))
            to_read = [run for run in runs if run.segment.id not in copied]
            left.append(fetched_bytes(to_read))
            is_new = is_all_new(copied, [run.segment for run in to_read], record.number)
            if left[-1] and not (copies.fits(Site(site), left[-1]) or is_new):
                return False
        for site, size in enumerate(left):
            copies.spend(Site(site), size)
        return True


def leaving_units(moves: Iterable[MoveInFlight]) -> tuple[Unit, ...]:
    """The units whose rows their sites keep apart from others, as long as they have not left."""
    return tuple(sorted(move.unit for move in moves if isinstance(move.step, Extract | Transfer)))


def units_to_share(loop: ControlLoop) -> tuple[Unit, ...]:
    """The units whose rows their holders keep apart from others until they are shared otherwise."""
    return tuple(sorted(unit for unit, wishes in loop.handovers.items() if any(h.routed is None for h in wishes)))
