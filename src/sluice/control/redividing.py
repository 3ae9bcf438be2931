"""From the wish that units be split or merged to another directory, an epoch a step.

First the sites weigh the units that are to be split: whether their rows have more than one hash, and which is the most
frequent. Then they count, segment by segment, the rows below the hashes where those may be cut. With the epoch after
that the directory is another one. Nothing waits meanwhile, and no row is written anew. But nothing else is decided
while units are about to end, and moves in flight come first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum

from sluice.control.loop import ControlLoop
from sluice.control.vetting import concerned
from sluice.model.actions import DirectoryAction, Merge, Split
from sluice.model.directory import HashRange, halves
from sluice.model.epoch import EpochRecord
from sluice.model.ids import Fragment, Unit
from sluice.model.redivision import (
    CutPlan,
    UnitFindings,
    UnitWeight,
    redivided,
    rows_of_units,
    why_unmergeable,
)

REMEMBERED = 100
"""Epochs for which it counts that a unit had one key, or could not be merged: then other keys may have come, or what
was in the way may be gone."""
Refuse = Callable[[DirectoryAction, str], None]
"""Tells that an action comes to nothing, and why."""


class Stage(Enum):
    """What the sites are finding out in the epoch under way."""

    WAITING = "nothing"
    WEIGHING = "which hashes units have"
    CUTTING = "how many rows are below some"


class Redividing:
    """One redivision at a time, of all units that the loop has for it. `single` are units all rows of which had one
    hash when they were last looked at, `apart` those that could not be merged with their buddies because of their
    segments, each with the epoch when that was seen: a policy that asked again in every round would get to nothing
    else."""

    def __init__(self) -> None:
        self.weigh: tuple[Unit, ...] = ()
        """Units that sites weigh in the next epoch."""
        self.cut: tuple[CutPlan, ...] = ()
        """Units that sites cut in the next epoch."""
        self.single: dict[Unit, int] = {}
        self.apart: dict[Unit, int] = {}
        self._stage = Stage.WAITING
        self._asked_after = -1
        """The newest epoch when the sites were asked."""
        self._divided: dict[Unit, list[HashRange]] = {}
        """What is to be halved for each unit that is to be split, one after the other."""
        self._frequent: dict[Unit, int] = {}
        """Of units with one hash that most of their rows have: this one."""

    def begin(self, loop: ControlLoop) -> None:
        """Begin with what is wanted, unless units are on their way to sites."""
        self._stage, self.weigh, self.cut, self._divided, self._frequent = Stage.WAITING, (), (), {}, {}
        if loop.redivisions and not loop.moves and not loop.handovers:
            self.weigh = tuple(sorted(unit for unit, action in loop.redivisions.items() if isinstance(action, Split)))
            self._stage, self._asked_after = Stage.WEIGHING, loop.epoch - 1

    def forget(self, epoch: int) -> None:
        """Forget what was seen too long ago."""
        self.single, self.apart = (
            {unit: at for unit, at in seen.items() if epoch - at < REMEMBERED} for seen in (self.single, self.apart)
        )

    def advance(
        self, loop: ControlLoop, record: EpochRecord, found: UnitFindings, refuse: Refuse, now: float
    ) -> EpochRecord:
        """One step on, now that another epoch has committed: its record, with the units as they are from now on."""
        if self._stage is Stage.WAITING or loop.moves or loop.handovers or not loop.redivisions:
            self.begin(loop)
            return record
        if record.number <= self._asked_after:  # the epoch that was to find it out came to nothing
            return record
        self._asked_after = record.number
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
        totals = UnitWeight.totals(weights)
        for unit, action in sorted(loop.redivisions.items()):
            if not isinstance(action, Split):
                continue
            weight = totals.get(unit)
            if weight is not None and weight.least == weight.greatest:
                del loop.redivisions[unit]
                self.single[unit] = loop.epoch
                refuse(action, f"all rows of unit {unit} have one key")
                continue
            whole = loop.routing.hashes_of(unit)
            if weight is not None and 2 * weight.frequent_rows > weight.rows:
                self._frequent[unit] = weight.frequent
                self._divided[unit] = halved_around(whole, weight.frequent)
            else:
                self._divided[unit] = halved_into(whole, weight, action.bits)
            edges = {edge for part in self._divided[unit] for half in halves(part) for edge in half}
            plans.append(CutPlan(unit, tuple(sorted(edges - set(whole)))))
        self.cut = tuple(plans)

    def _change(
        self, loop: ControlLoop, record: EpochRecord, found: UnitFindings, refuse: Refuse, now: float
    ) -> EpochRecord:
        """The record under another directory, which the loop has from now on."""
        for unit, action in list(loop.redivisions.items()):
            if not isinstance(action, Merge):
                continue
            unready, unmergeable = _why_not_merged(unit, record)
            if unready or unmergeable:
                del loop.redivisions[unit]
                refuse(action, unready or str(unmergeable))
            if unmergeable:
                self.apart |= dict.fromkeys(concerned({unit: action}, loop.routing), loop.epoch)
        if not loop.redivisions:
            return record
        alone: list[tuple[Fragment, HashRange]] = []
        below, rows = found.below(), rows_of_units(record.manifests, record.routing.units)
        for unit, key in self._frequent.items():
            unit_rows = int(rows[record.routing.index_of(unit)])
            parts = _until_alone(self._divided[unit], key, unit_rows, below.get(unit, {}))
            self._divided[unit] = parts
            alone.append((record.routing.fragment_of(unit), _half_with(key, parts[-1])))
        loop.redivide(now, {unit: parts[1:] for unit, parts in self._divided.items()})
        for fragment, hashes in alone:
            pieces = loop.routing.units_in(fragment, hashes)
            if [loop.routing.hashes_of(piece) for piece in pieces] == [hashes]:
                self.single[pieces[0]] = loop.epoch
        return redivided(record, loop.routing, found.cuts)


def _why_not_merged(unit: Unit, record: EpochRecord) -> tuple[str | None, str | None]:
    """Why a unit and its buddy cannot be one, as an epoch left them: what keeps them from it for now, and what their
    segments do."""
    buddy = record.routing.buddy_of(unit)
    if buddy is None:
        return record.routing.why_alone(unit), None
    why = next((f"unit {each} {why}" for each in (unit, buddy) if (why := record.why_unready(each))), None)
    return why, why_unmergeable(record, unit, buddy)


def _half_with(key: int, hashes: HashRange) -> HashRange:
    lower, upper = halves(hashes)
    return upper if key >= upper[0] else lower


def halved_around(hashes: HashRange, key: int) -> list[HashRange]:
    """What is to be halved, one after the other, until a hash is alone.

    >>> halved_around((0, 8), 5)
    [(0, 8), (4, 8), (4, 6)]
    """
    found = []
    while hashes[1] - hashes[0] > 1:
        found.append(hashes)
        hashes = _half_with(key, hashes)
    return found


def halved_into(hashes: HashRange, weight: UnitWeight | None, bits: int) -> list[HashRange]:
    """What is to be halved, one after the other, until rows are parted, and from there on by so many bits.

    >>> halved_into((0, 16), UnitWeight(3, 7, 9, 14, 9, 1), bits=2)
    [(0, 16), (8, 16), (8, 12), (12, 16)]
    """
    found = []
    while weight is not None and len(sides := {_half_with(key, hashes) for key in (weight.least, weight.greatest)}) < 2:
        found.append(hashes)
        hashes = sides.pop()
    parts = [hashes]
    for _ in range(bits):
        parts = [part for part in parts if part[1] - part[0] > 1]
        found += parts
        parts = [half for part in parts for half in halves(part)]
    return found


def _until_alone(parts: Sequence[HashRange], key: int, rows: int, below: dict[int, int]) -> list[HashRange]:
    """Of what is to be halved until a hash is alone, as much as it takes until no other row is left beside it; `below`
    is how many of the rows have hashes below each edge."""
    if not rows:
        return list(parts[:1])
    counted = {parts[0][0]: 0, parts[0][1]: rows, **below}
    left = [counted[high] - counted[low] for low, high in (_half_with(key, part) for part in parts)]
    return list(parts[: 1 + left.index(left[-1])])
