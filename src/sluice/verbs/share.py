"""Share, release, pass token, lay out: a unit has several holders (D-CAPE; joins on a grid).

A new holder on a grid, a holder that is released, another grid: with the routing, runs change hands. What is little
goes with it. What is much is copied ahead of time, beside the ordinary work. Who stores which row changes from one
place of the stream to the next, so that each row is stored once.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import ClassVar, TypeAlias

from msgspec.structs import force_setattr

from sluice.model.epoch.decision import Verb
from sluice.model.errors import ProtocolError
from sluice.model.ids import InputNumber, Site, Unit
from sluice.model.routing.routing import Routing
from sluice.verbs.base import (
    Event,
    Instruction,
    Situation,
    UnitAction,
    VerbAction,
    VerbProtocol,
    take_number,
    whole_number,
)


class SharingAction(UnitAction, frozen=True, tag=True):
    """What changes who holds and stores a unit."""

    impossible: ClassVar[str] = "units cannot be shared here"

    @property
    def needs(self) -> tuple[type[Instruction], ...]:
        return PrepareSharing, ApplySharing

    def apply(self, routing: Routing, inputs: Sequence[InputNumber], since: int) -> Routing:
        """The routing with the unit, of a join of these inputs, shared as wanted; `ProtocolError` if it cannot be."""
        raise NotImplementedError

    def refuse(self, situation: Situation) -> str | None:
        missing = super().refuse(situation)
        if missing:
            return missing
        unit, routing = self.unit, situation.routing
        inputs = situation.capabilities.shareable.get(routing.fragment_of(unit))
        if inputs is None:
            why = "only an inner join of two, with nothing chained to it by its key, can be shared"
            return f"{why}; unit {unit} is of none"
        unready = situation.conditions.why_unready(unit)
        if unready:
            return f"unit {unit} {unready}"
        try:
            for wish in situation.in_flight.at(unit):
                if isinstance(wish, SharingProtocol) and wish.phase is SharingPhase.PREPARING:
                    routing = wish.action.apply(routing, inputs, situation.epoch)
            self.apply(routing, inputs, situation.epoch)
        except ProtocolError as problem:
            return str(problem)
        return None

    def protocol(self, situation: Situation) -> SharingProtocol:
        assert isinstance(self, AnySharing)
        return SharingProtocol(self)


class PrepareSharing(Instruction, frozen=True, tag=True):
    """Sites copy what they will hold of a unit and do not have, unless that is little."""

    unit: Unit
    change: AnySharing


class ApplySharing(Instruction, frozen=True, tag=True):
    """Whoever sends rows, and the holders, do as a change wants it, from one place of the stream on."""

    unit: Unit
    change: AnySharing


class ApplyGrid(ApplySharing, frozen=True, tag=True):
    """The same, with holders on a grid."""


class SharingPrepared(Event, frozen=True, tag=True):
    """What is still to be copied is little."""


class Share(SharingAction, frozen=True, tag=True):
    """Have a unit at one more site, which gets its part of the rows to come; no state moves.

    Args:
        unit: its id.
        site: that becomes a holder.
        reason: why, as users read it.
        evenly: whether its holders stand on the grid for inputs of as many rows, and state is dealt out to them.

    >>> Share(3, 1, "to see")
    Share(unit=3, site=1, reason='to see', evenly=False)
    """

    verb: ClassVar[Verb] = Verb.SHARE

    site: Site
    reason: str
    evenly: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        take_number(self, "site")

    @property
    def needs(self) -> tuple[type[Instruction], ...]:
        return (PrepareSharing, ApplyGrid) if self.evenly else super().needs

    @property
    def destination(self) -> Site:
        return self.site

    def apply(self, routing: Routing, inputs: Sequence[InputNumber], since: int) -> Routing:
        return routing.share(self.unit, self.site, inputs, since, self.evenly)


class Release(SharingAction, frozen=True, tag=True):
    """Have a shared unit at one site less; what that one stored goes to the first of the others.

    Args:
        unit: its id.
        site: that is a holder no longer.
        reason: why, as users read it.

    >>> Release(3, 1, "to see")
    Release(unit=3, site=1, reason='to see')
    """

    verb: ClassVar[Verb] = Verb.RELEASE

    site: Site
    reason: str

    def __post_init__(self) -> None:
        super().__post_init__()
        take_number(self, "site")

    @property
    def named_site(self) -> Site:
        return self.site

    def refuse(self, situation: Situation) -> str | None:
        return situation.why_no_site(self.site) or super().refuse(situation)

    def apply(self, routing: Routing, inputs: Sequence[InputNumber], since: int) -> Routing:
        return routing.release(self.unit, self.site, since)


class PassToken(SharingAction, frozen=True, tag=True):
    """Have another holder of a shared unit store the new rows of one input.

    Args:
        unit: its id.
        input: its place in the join.
        site: the holder that stores them.
        reason: why, as users read it.

    >>> PassToken(3, 0, 1, "to see")
    PassToken(unit=3, input=0, site=1, reason='to see')
    """

    verb: ClassVar[Verb] = Verb.PASS_TOKEN

    input: int
    site: Site
    reason: str

    def __post_init__(self) -> None:
        super().__post_init__()
        take_number(self, "input")
        take_number(self, "site")

    @property
    def destination(self) -> Site:
        return self.site

    def apply(self, routing: Routing, inputs: Sequence[InputNumber], since: int) -> Routing:
        if not 0 <= self.input < len(inputs):
            raise ProtocolError(f"the join of unit {self.unit} has no input {self.input}")
        return routing.pass_token(self.unit, inputs[self.input], self.site, since)


class LayOut(SharingAction, frozen=True, tag=True):
    """Have the holders of a shared unit stand on a grid.

    Args:
        unit: its id.
        lines: how many for the rows of each input; with none all holders get every row and store in turn.
        reason: why, as users read it.

    >>> LayOut(3, (2, 4), "to see")
    LayOut(unit=3, lines=(2, 4), reason='to see')
    """

    verb: ClassVar[Verb] = Verb.LAY_OUT

    lines: tuple[int, ...]
    reason: str

    def __post_init__(self) -> None:
        super().__post_init__()
        force_setattr(self, "lines", tuple(whole_number("number of lines", line) for line in self.lines))

    @property
    def needs(self) -> tuple[type[Instruction], ...]:
        return (PrepareSharing, ApplyGrid) if self.lines else super().needs

    def apply(self, routing: Routing, inputs: Sequence[InputNumber], since: int) -> Routing:
        return routing.lay_out(self.unit, self.lines, since)


AnySharing: TypeAlias = Share | Release | PassToken | LayOut


class SharingPhase(Enum):
    PREPARING = "preparing"
    APPLYING = "applying"


class SharingProtocol(VerbProtocol):
    """A unit that is to be shared otherwise. There may be several of one unit, one after the other.

    >>> sharing = SharingProtocol(Release(7, 1, "to see"))
    >>> sharing.begin()
    [PrepareSharing(unit=7, change=Release(unit=7, site=1, reason='to see'))]
    >>> sharing.handle(SharingPrepared(7))
    [ApplySharing(unit=7, change=Release(unit=7, site=1, reason='to see'))]
    """

    voids_statistics: ClassVar[bool] = True

    def __init__(self, action: AnySharing) -> None:
        super().__init__((action.unit,))
        self.action, self.unit = action, action.unit
        self.phase = SharingPhase.PREPARING

    def describe(self, unit: Unit) -> str:
        return f"unit {unit} is about to be shared otherwise"

    def tolerates(self, action: VerbAction) -> bool:
        return isinstance(action, SharingAction)

    def begin(self) -> list[Instruction]:
        return [PrepareSharing(self.unit, self.action)]

    def expects(self, event: Event) -> bool:
        return isinstance(event, SharingPrepared) and self.phase is SharingPhase.PREPARING

    def handle(self, event: Event) -> list[Instruction]:
        if not self.expects(event):
            raise ProtocolError(f"{event} does not fit what is to become of unit {self.unit}: {self.phase.value}")
        self.phase = SharingPhase.APPLYING
        return [self.application]

    @property
    def application(self) -> ApplySharing:
        """The instruction that changes who holds and stores the unit."""
        return (ApplyGrid if ApplyGrid in self.action.needs else ApplySharing)(self.unit, self.action)

    @property
    def delays_policy(self) -> bool:
        return self.phase is SharingPhase.PREPARING

    def is_done(self, routing: Routing) -> bool:
        return self.phase is SharingPhase.APPLYING
