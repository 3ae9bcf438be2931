"""Moves by epochs: how a query on Spark carries the protocol's instructions out.

An epoch boundary is where everybody is at rest, so pausing and draining have nothing to wait for. What remains of a
move goes beside the epochs' ordinary work: the source brings the unit's state into segments of its own, the target
copies those ahead of time, and when what is missing is little enough the routing changes. How much of this is done in
one epoch is bounded by the time it takes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sluice.control.copying import EpochCopies, missing_at_target, separate
from sluice.control.loop import ControlLoop
from sluice.control.movement import Extract, Install, Instruction, LetGo, Pause, Phase, Restart, Transfer
from sluice.control.moves import MoveInFlight
from sluice.control.redividing import Redividing, Refuse
from sluice.model.actions import CleanUp, Freeze, Scale, SharingAction
from sluice.model.epoch import Attempt, EpochRecord
from sluice.model.errors import ProtocolError
from sluice.model.ids import Unit
from sluice.model.redivision import UnitFindings
from sluice.model.state import SegmentRef
from sluice.model.stats import EpochStats


class EpochCarrier:
    """Has moves taken on from epoch to epoch. Its clock goes while epochs run in which units move: the time in which
    no input comes is no part of it."""

    producers: Sequence[int] = ()

    def __init__(self) -> None:
        self._clock = 0.0
        self.redividing = Redividing()

    def clock(self) -> float:
        return self._clock

    def pass_epoch(self, stats: EpochStats) -> None:
        """Let the time of an epoch pass."""
        self._clock += stats.seconds.elapsed

    def tell_holder(self, action: Freeze | CleanUp) -> None:
        """The site learns it with the next epoch's task, as one of the decisions that are under way."""

    def share_otherwise(self, loop: ControlLoop, action: SharingAction, now: float) -> None:
        loop.reshare(action)  # everybody learns it with the next epoch's tasks

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
        return self.redividing.advance(loop, record, found, refuse, now)

    def advance(
        self, loop: ControlLoop, record: EpochRecord, allowance: float, now: float
    ) -> tuple[tuple[SegmentRef, ...], ...]:
        """Take the moves in flight one step on, now that another epoch has committed; what each site copies ahead of
        time in the next one, of at most so many bytes."""
        holders = record.routing.holders
        for move in [m for m in loop.moves.values() if holders[m.unit] == m.target]:
            loop.follow(move, move.machine.installed(), now)
        copies = EpochCopies(allowance, record.routing.sites)
        for move in loop.moves.values():
            if move.phase is Phase.INSTALLING:  # the epoch that was to install it came to nothing
                self.carry_out(loop, move, Install(move.unit, move.target), now)
            else:
                self._prepare(loop, move, record, copies, now)
        return copies.by_site()

    def _prepare(
        self, loop: ControlLoop, move: MoveInFlight, record: EpochRecord, copies: EpochCopies, now: float
    ) -> None:
        """Switch to the target if what is missing there is little enough, else have it copy some of it."""
        own, shared = separate(record, move)
        if move.phase is Phase.EXTRACTING and not shared:
            loop.follow(move, move.machine.extracted(), now)
        missing = missing_at_target(move, own)
        # a unit that gets more in an epoch than may be copied would stay for good: what came last goes with it
        newest = Attempt.prefix(record.number)
        all_new = bool(move.copied) and all(s.id.startswith(newest) and not s.level for s in missing)
        if move.phase is Phase.TRANSFERRING and (all_new or copies.fits(move.target, missing)):
            copies.spend(move.target, missing)
            loop.follow(move, move.machine.transferred(), now)
        else:
            copies.copy_ahead(move, own)


def leaving_units(moves: Iterable[MoveInFlight]) -> tuple[Unit, ...]:
    """The units whose rows their sites keep apart from others, as long as they have not left."""
    return tuple(sorted(move.unit for move in moves if isinstance(move.step, Extract | Transfer)))
