"""From the wish that units be split or merged to another directory, an epoch a step.

First the sites weigh the units that are to be split: whether their rows have more than one hash, and which is the most
frequent. Then they count, segment by segment, the rows below the hashes where those may be cut. With the epoch after
that the directory is another one. Nothing waits meanwhile, and no row is written anew. But nothing else is decided
while the numbers of units are about to change, and moves in flight come first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum

from sluice.control.loop import ControlLoop
from sluice.model.actions import DirectoryAction, Merge, Split
from sluice.model.directory import Halving
from sluice.model.epoch import EpochRecord
from sluice.model.ids import Unit
from sluice.model.redivision import (
    CutPlan,
    Renumbering,
    UnitFindings,
    UnitWeight,
    redivided,
    total_rows,
    why_unmergeable,
)

Refuse = Callable[[DirectoryAction, str], None]
"""Tells that an action comes to nothing, and why."""


class Stage(Enum):
    """What the sites are finding out in the epoch under way."""

    WAITING = "nothing"
    WEIGHING = "which hashes units have"
    CUTTING = "how many rows are below some"


class Redividing:
    """One redivision at a time, of all units that the loop has for it. `single` are units all rows of which had one
    hash when they were last looked at."""

    def __init__(self) -> None:
        self.weigh: tuple[Unit, ...] = ()
        """Units that sites weigh in the next epoch."""
        self.cut: tuple[CutPlan, ...] = ()
        """Units that sites cut in the next epoch."""
        self.single: set[Unit] = set()
        self._stage = Stage.WAITING
        self._paths: dict[Unit, Sequence[Halving]] = {}

    def begin(self, loop: ControlLoop) -> None:
        """Begin with what is wanted, unless moves are in flight."""
        self._stage, self.weigh, self.cut, self._paths = Stage.WAITING, (), (), {}
        if loop.redivisions and not loop.moves:
            self.weigh = tuple(sorted(unit for unit, action in loop.redivisions.items() if isinstance(action, Split)))
            self._stage = Stage.WEIGHING

    def advance(
        self, loop: ControlLoop, record: EpochRecord, found: UnitFindings, refuse: Refuse, now: float
    ) -> EpochRecord:
        """One step on, now that another epoch has committed: its record, with the units as they are from now on."""
        if self._stage is Stage.WAITING or loop.moves or not loop.redivisions:
            self.begin(loop)
            return record
        if self._stage is Stage.WEIGHING:
            self._plan_cuts(loop, found.weights, refuse)
            if self.cut:
                return record
        record = self._change(loop, record, found, refuse, now)
        self.begin(loop)
        return record

    def _plan_cuts(self, loop: ControlLoop, weights: Sequence[UnitWeight], refuse: Refuse) -> None:
        """Where the units that are to be split may be cut. Those with one hash only stay as they are."""
        self._stage, self.weigh, plans = Stage.CUTTING, (), []
        for unit, action in sorted(loop.redivisions.items()):
            if not isinstance(action, Split):
                continue
            weight = UnitWeight.total(unit, weights)
            if weight is not None and weight.least == weight.greatest:
                del loop.redivisions[unit]
                self.single.add(unit)
                refuse(action, f"all rows of unit {unit} have one key")
                continue
            directory = loop.routing.directories[loop.routing.fragment_of(unit)]
            if weight is None:  # it has no rows: one bit more is as good as any
                path = directory.halvings(unit, directory.hashes_of(unit)[0])[:1]
            else:
                path = directory.halvings(unit, weight.frequent)
                parting = next(at for at, half in enumerate(path) if weight.least < half.middle <= weight.greatest)
                path = path if action.apart else path[: parting + 1]
            self._paths[unit] = path
            plans.append(CutPlan(unit, tuple(sorted({half.middle for half in path} | set(path[-1].towards)))))
        self.cut = tuple(plans)

    def _change(
        self, loop: ControlLoop, record: EpochRecord, found: UnitFindings, refuse: Refuse, now: float
    ) -> EpochRecord:
        """The record under another directory, which the loop has from now on."""
        for unit, action in list(loop.redivisions.items()):
            why = _why_not_merged(unit, record) if isinstance(action, Merge) else None
            if why is not None:
                del loop.redivisions[unit]
                refuse(action, why)
        if not loop.redivisions:
            return record
        alone = []
        for unit, path in self._paths.items():
            action = loop.redivisions[unit]
            if isinstance(action, Split) and action.apart:
                self._paths[unit] = path = _until_alone(path, total_rows(record.manifests, unit), found.below(unit))
                alone.append((record.routing.fragment_of(unit), path[-1]))
        loop.redivide(now, self._paths)
        renumbering = Renumbering.between(record.routing, loop.routing)
        self.single = {new for unit in self.single for new in renumbering.of([unit])}
        for fragment, half in alone:
            piece = loop.routing.directories[fragment].unit_with(*half.towards)
            self.single |= {piece} if piece is not None else set()
        return redivided(record, loop.routing, found.cuts)


def _why_not_merged(unit: Unit, record: EpochRecord) -> str | None:
    """Why a unit and its buddy cannot be one, as an epoch left them; None if they can."""
    buddy = record.routing.directories[record.routing.fragment_of(unit)].buddy(unit)
    if buddy is None:
        return f"unit {unit} has no buddy to be merged with"
    why = next((f"unit {each} {why}" for each in (unit, buddy) if (why := record.why_unready(each))), None)
    return why or why_unmergeable(record.manifests, unit, buddy)


def _until_alone(path: Sequence[Halving], rows: int, below: dict[int, int]) -> Sequence[Halving]:
    """As much of a path to a hash as it takes until nothing else is left on it; `below` is how many of the rows have
    hashes below each edge."""
    if not rows:
        return path[:1]
    counted = {path[0].low: 0, path[0].high: rows, **below}

    def rows_towards(half: Halving) -> int:
        first, end = half.towards
        return counted[end] - counted[first]

    own = rows_towards(path[-1])
    return path[: 1 + next(at for at, half in enumerate(path) if rows_towards(half) == own)]
