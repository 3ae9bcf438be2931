"""Move: a unit goes to another site while all others keep running (Flux, section 5.2).

Quiesce, extract, transfer, install, restart. Whoever executes the instructions owes the protocol:

- A producer acknowledges behind the rows it has sent: when that is reported, the source has processed them or spooled
  them. The acknowledgement belongs to the move that asked for it, not to a later one of the same unit.
- Instructions reach each producer, and each site, in the order in which they were given.
- The source keeps what it extracted until it has to let go, and does not touch it unless it is told to restart. The
  target waits for its restart too: until then the move can be abandoned, and rows would be processed twice.
- What `LetGo` overtakes, a transfer still under way, is dropped when it comes in.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import ClassVar

from sluice.model.epoch.decision import UnderWay, Verb
from sluice.model.errors import ProtocolError
from sluice.model.ids import Site, Unit
from sluice.model.routing.routing import Routing
from sluice.verbs.base import Event, Instruction, Situation, UnitAction, VerbProtocol, take_number


class Pause(Instruction, frozen=True, tag=True):
    """Producers stop sending this unit's rows, and then acknowledge."""

    unit: Unit
    producers: tuple[int, ...]


class Extract(Instruction, frozen=True, tag=True):
    """The source brings the unit into a form that travels; input that waits is processed first, or goes along."""

    unit: Unit
    site: Site


class Transfer(Instruction, frozen=True, tag=True):
    """What was extracted goes to the target."""

    unit: Unit
    source: Site
    target: Site


class Install(Instruction, frozen=True, tag=True):
    """The target takes what was transferred into its own state."""

    unit: Unit
    site: Site


class Restart(Instruction, frozen=True, tag=True):
    """The unit is processed at this site from now on, and the producers send its rows there."""

    unit: Unit
    site: Site
    producers: tuple[int, ...]


class LetGo(Instruction, frozen=True, tag=True):
    """A site forgets what it has of a unit: the source of a move that is done, the target of an abandoned one."""

    unit: Unit
    site: Site


class SetApart(Instruction, frozen=True, tag=True):
    """In the next epoch sites bring the state of these units into segments of their own, of at most so many bytes at a
    site, and at least one unit."""

    units: tuple[Unit, ...]
    bytes: float


class CopyAhead(Instruction, frozen=True, tag=True):
    """In the next epoch a site copies these segments, of units that are on their way to it."""

    site: Site
    segments: tuple[str, ...]


class Acknowledged(Event, frozen=True, tag=True):
    """All rows that this producer sent before it paused have been processed, or spooled."""

    producer: int


class Extracted(Event, frozen=True, tag=True):
    """The unit's state and waiting input are ready to travel."""


class Transferred(Event, frozen=True, tag=True):
    """The target has all of it."""


class Installed(Event, frozen=True, tag=True):
    """The target can process the unit; from here on there is no way back but another move."""


class Released(Event, frozen=True, tag=True):
    """The site that had to let go has done so."""


class Move(UnitAction, frozen=True, tag=True):
    """Hold a unit at another site. Numbers may be numpy's.

    Args:
        unit: its id.
        site: that holds it then.
        reason: why, as users read it.

    >>> Move(3, 1, "to see")
    Move(unit=3, site=1, reason='to see')
    """

    verb: ClassVar[Verb] = Verb.MOVE
    impossible: ClassVar[str] = "units stay where they are here"

    site: Site
    reason: str

    def __post_init__(self) -> None:
        super().__post_init__()
        take_number(self, "site")

    @property
    def needs(self) -> tuple[type[Instruction], ...]:
        return Extract, Transfer, Install, Restart, LetGo

    @property
    def destination(self) -> Site:
        return self.site

    def refuse(self, situation: Situation) -> str | None:
        missing = super().refuse(situation)
        if missing:
            return missing
        routing = situation.routing
        if routing.sharing(self.unit):
            return f"unit {self.unit} is shared by sites {', '.join(map(str, routing.holders_of(self.unit)))}"
        at_home = routing.holder(self.unit) == self.site
        return f"unit {self.unit} is at site {self.site} already" if at_home else None

    def protocol(self, situation: Situation) -> MoveProtocol:
        return MoveProtocol(self, situation.routing.holder(self.unit), situation.producers)


class Phase(Enum):
    """How far a move has come; each phase ends with the report that its step is done."""

    NEW = "not begun"
    QUIESCING = "quiescing"
    EXTRACTING = "extracting"
    TRANSFERRING = "transferring"
    INSTALLING = "installing"
    LETTING_GO = "done"
    ABANDONED = "abandoned"


class MoveProtocol(VerbProtocol):
    """One unit on its way from one site to another.

    >>> move = MoveProtocol(Move(7, 1, "to see"), source=0, producers=[0])
    >>> move.begin()
    [Pause(unit=7, producers=(0,))]
    >>> move.handle(Acknowledged(7, producer=0))
    [Extract(unit=7, site=0)]
    >>> move.abandon()
    [Restart(unit=7, site=0, producers=(0,)), LetGo(unit=7, site=1)]
    """

    voids_statistics: ClassVar[bool] = True

    def __init__(self, action: Move, source: Site, producers: Sequence[int]) -> None:
        super().__init__((action.unit,))
        if source == action.site:
            raise ProtocolError(f"unit {action.unit} is at site {source} already: there is nothing to move")
        self.action, self.unit, self.source, self.target = action, action.unit, source, action.site
        self.producers = tuple(producers)
        self.phase = Phase.NEW
        self._awaiting_ack: set[int] = set()
        self._overtaken: Phase | None = None
        """The phase in which it was abandoned, until the report comes in that its step is done."""

    def describe(self, unit: Unit) -> str:
        return f"unit {unit} is on its way to site {self.target}"

    def is_done(self, routing: Routing) -> bool:
        return routing.holder(self.unit) == self.target

    def commit(self, under_way: UnderWay | None) -> None:
        """It is over when the source has let go."""

    def begin(self) -> list[Instruction]:
        """Stop the unit's input."""
        if self.phase is not Phase.NEW:
            raise self._misplaced("begin")
        self.phase = Phase.QUIESCING
        self._awaiting_ack.update(self.producers)
        return [Pause(self.unit, self.producers)] if self.producers else self._extract()

    def handle(self, event: Event) -> list[Instruction]:
        match event:
            case Acknowledged(producer=producer):
                return self._acknowledge(producer)
            case Extracted():
                following = Transfer(self.unit, self.source, self.target)
                return self._go_on(Phase.EXTRACTING, Phase.TRANSFERRING, following)
            case Transferred():
                return self._go_on(Phase.TRANSFERRING, Phase.INSTALLING, Install(self.unit, self.target))
            case Installed():
                restart = Restart(self.unit, self.target, self.producers)
                return self._go_on(Phase.INSTALLING, Phase.LETTING_GO, restart, LetGo(self.unit, self.source))
            case Released() if self.phase in (Phase.LETTING_GO, Phase.ABANDONED):
                self.over = True
                return []
        raise self._misplaced(f"{event}")

    def abandon(self) -> list[Instruction]:
        """The target is gone, or the move is no longer wanted: the unit goes on where it was, nothing is lost.

        Reports of what was under way may still come in, each once; nothing follows from them.
        """
        if self.phase in (Phase.LETTING_GO, Phase.ABANDONED):
            raise self._misplaced("abandon")
        begun = self.phase is not Phase.NEW
        self._overtaken, self.phase = self.phase, Phase.ABANDONED
        let_go = LetGo(self.unit, self.target)
        return [Restart(self.unit, self.source, self.producers), let_go] if begun else [let_go]

    def _acknowledge(self, producer: int) -> list[Instruction]:
        if producer not in self._awaiting_ack:
            raise self._misplaced(f"an acknowledgement of producer {producer}")
        self._awaiting_ack.remove(producer)
        return [] if self._awaiting_ack or self.phase is Phase.ABANDONED else self._extract()

    def _extract(self) -> list[Instruction]:
        self.phase = Phase.EXTRACTING
        return [Extract(self.unit, self.source)]

    def _go_on(self, finished: Phase, following: Phase, *instructions: Instruction) -> list[Instruction]:
        if self._overtaken is finished:
            self._overtaken = None
            return []
        if self.phase is not finished:
            raise self._misplaced(f"the end of {finished.value}")
        self.phase = following
        return list(instructions)

    def _misplaced(self, event: str) -> ProtocolError:
        move = f"the move of unit {self.unit} from site {self.source} to site {self.target}"
        return ProtocolError(f"{event} does not fit {move}, which is {self.phase.value}")
