"""A move in flight: what was asked for, how far its protocol has come, and what is already at the target."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from sluice.control.movement import Instruction, Movement, Phase
from sluice.model.actions import Move
from sluice.model.ids import Site, Unit
from sluice.model.routing import Routing


@dataclass(eq=False)
class MoveInFlight:
    """One unit between two sites, from the decision until its source has let go of it.

    `step` is the instruction that the next epochs carry out, `copied` names the segments that they have brought to the
    target so far; where messages carry them out neither is needed.
    """

    action: Move
    machine: Movement
    step: Instruction | None = None
    copied: set[str] = field(default_factory=set)

    @classmethod
    def begin(cls, action: Move, routing: Routing, producers: Sequence[int]) -> MoveInFlight:
        """A move of a unit from where it is, by a protocol that has not begun."""
        return cls(action, Movement(action.unit, routing.holder(action.unit), action.site, producers))

    @property
    def unit(self) -> Unit:
        return self.machine.unit

    @property
    def source(self) -> Site:
        return self.machine.source

    @property
    def target(self) -> Site:
        return self.machine.target

    @property
    def phase(self) -> Phase:
        return self.machine.phase
