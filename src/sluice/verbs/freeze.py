"""Freeze and clean up: a unit does without its state for a while, and what it missed is found later (lazy/active disk).

A frozen unit's state so far becomes a generation on disk, and new rows begin another one in memory. The results between
generations are missing until the unit is cleaned up. Its site does either in an epoch, beside its ordinary work.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import ClassVar

from sluice.model.epoch.decision import Ended, UnderWay, Verb
from sluice.model.ids import Level, Unit
from sluice.model.routing.routing import Routing
from sluice.verbs.base import (
    Event,
    Instruction,
    SiteWork,
    Situation,
    UnitAction,
    VerbAction,
    VerbProtocol,
    current_units,
)


class FreezeUnit(Instruction, frozen=True, tag=True):
    """In the next epoch the site that holds a unit freezes it."""

    unit: Unit


class CleanUpUnits(Instruction, frozen=True, tag=True):
    """In the next epochs sites find the results that these units miss, those named first before the others."""

    units: tuple[Unit, ...]


class UnitFrozen(Event, frozen=True, tag=True):
    """A site froze a unit at one level of operators."""

    level: Level
    reason: str


class UnitCleanedUp(Event, frozen=True, tag=True):
    """A unit misses nothing at one level of operators any more."""

    level: Level
    reason: str


def _why_not_a_join(unit: Unit, situation: Situation) -> str | None:
    if situation.routing.fragment_of(unit) in situation.capabilities.freezable:
        return None
    return f"only inner joins can do without their state, and unit {unit} is of none"


class Freeze(UnitAction, frozen=True, tag=True):
    """Have a unit begin anew: its state goes out of memory, and what it would still have found comes later.

    Args:
        unit: its id.
        reason: why, as users read it.

    >>> Freeze(3, "to see")
    Freeze(unit=3, reason='to see')
    """

    verb: ClassVar[Verb] = Verb.FREEZE
    impossible: ClassVar[str] = "units cannot be frozen here"

    reason: str

    @property
    def needs(self) -> tuple[type[Instruction], ...]:
        return (FreezeUnit,)

    def refuse(self, situation: Situation) -> str | None:
        refused = super().refuse(situation) or _why_not_a_join(self.unit, situation)
        shared = refused is None and situation.routing.sharing(self.unit)
        return f"unit {self.unit} is shared" if shared else refused

    def protocol(self, situation: Situation) -> FreezeProtocol:
        return FreezeProtocol(self.unit)


class FreezeProtocol(VerbProtocol):
    """The site of a unit is told to freeze it, once."""

    delays_policy = False

    def __init__(self, unit: Unit) -> None:
        super().__init__((unit,))

    def describe(self, unit: Unit) -> str:
        return f"unit {unit} is to be frozen"

    def begin(self) -> list[Instruction]:
        return [FreezeUnit(unit) for unit in self.units]

    def settle(self, number: int, routing: Routing, work: SiteWork) -> UnderWay | Ended | None:
        assert self.decision is not None, "nobody freezes a unit by this but on request"
        left = [unit for unit in self.units if unit not in work.frozen]
        if left:
            return Ended(self.decision, f"its site did not freeze unit {left[0]}")
        return Ended(self.decision) if self.decision.epoch < number else None


class CleanUp(UnitAction, frozen=True, tag=True):
    """Find what a frozen unit has missed; its state is one again then, in memory if there is room.

    Args:
        unit: its id.
        reason: why, as users read it.

    >>> CleanUp(3, "to see")
    CleanUp(unit=3, reason='to see')
    """

    verb: ClassVar[Verb] = Verb.CLEAN_UP
    impossible: ClassVar[str] = "frozen units are cleaned up at the end alone here"

    reason: str

    @property
    def needs(self) -> tuple[type[Instruction], ...]:
        return (CleanUpUnits,)

    def touches(self, routing: Routing) -> tuple[Unit, ...]:
        return ()  # it goes on wherever the unit is

    def refuse(self, situation: Situation) -> str | None:
        return super().refuse(situation) or _why_not_a_join(self.unit, situation)

    def protocol(self, situation: Situation) -> CleanUpProtocol:
        return CleanUpProtocol((self.unit,))


class CleanUpAll(VerbAction, frozen=True, tag=True):
    """Find what all frozen units have missed that miss anything now."""

    verb: ClassVar[Verb] = Verb.CLEAN_UP
    impossible: ClassVar[str] = CleanUp.impossible

    reason: str

    @property
    def needs(self) -> tuple[type[Instruction], ...]:
        return (CleanUpUnits,)

    def refuse(self, situation: Situation) -> str | None:
        return None if situation.conditions.missing_units else "nothing is missing"

    def protocol(self, situation: Situation) -> CleanUpProtocol:
        return CleanUpProtocol(situation.conditions.missing_units)


class CleanUpProtocol(VerbProtocol):
    """Sites clean up some units, from epoch to epoch until nothing of them is missing."""

    delays_policy = False

    def __init__(self, units: Iterable[Unit]) -> None:
        super().__init__(units)

    def begin(self) -> list[Instruction]:
        return [CleanUpUnits(self.units)]

    def replace_units(self, successors: Mapping[Unit, tuple[Unit, ...]]) -> None:
        self.units = current_units(self.units, successors)

    def settle(self, number: int, routing: Routing, work: SiteWork) -> UnderWay | Ended | None:
        assert self.decision is not None, "nobody cleans a unit up by this but on request"
        units = set(self.units)
        left = {unit for level, unit in work.missing if unit in units and (level, unit) not in work.cleaned}
        if left:
            return UnderWay(self.decision, tuple(unit for unit in self.units if unit in left))
        return Ended(self.decision) if self.decision.epoch < number else None

    def commit(self, under_way: UnderWay | None) -> None:
        super().commit(under_way)
        self.units = self.units if under_way is None else under_way.units
