"""Moving one unit while all others keep running: quiesce, extract, transfer, install, restart (Flux, section 5.2).

The machine says what has to be done next and is told when it is done. Whoever drives it does the work, and owes it:

- A producer acknowledges behind the rows it has sent: when `acknowledged` is called, the source has processed them or
  spooled them. The acknowledgement belongs to the movement that asked for it, not to a later one of the same unit.
- Instructions reach each producer, and each site, in the order in which they were given.
- The source keeps what it extracted until it has to let go, and does not touch it unless it is told to restart. The
  target waits for its restart too: until then the move can be abandoned, and rows would be processed twice.
- What `LetGo` overtakes, a transfer still under way, is dropped when it comes in.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from sluice.model.errors import ProtocolError
from sluice.model.ids import Site, Unit


class Phase(Enum):
    """How far a move has come; each phase ends with the report that its step is done."""

    QUIESCING = "quiescing"
    EXTRACTING = "extracting"
    TRANSFERRING = "transferring"
    INSTALLING = "installing"
    DONE = "done"
    ABANDONED = "abandoned"


@dataclass(frozen=True)
class Pause:
    """Producers stop sending this unit's rows, and then acknowledge."""

    unit: Unit
    producers: tuple[int, ...]


@dataclass(frozen=True)
class Extract:
    """The source brings the unit into a form that travels; input that waits is processed first, or goes along."""

    unit: Unit
    site: Site


@dataclass(frozen=True)
class Transfer:
    """What was extracted goes to the target."""

    unit: Unit
    source: Site
    target: Site


@dataclass(frozen=True)
class Install:
    """The target takes what was transferred into its own state."""

    unit: Unit
    site: Site


@dataclass(frozen=True)
class Restart:
    """The unit is processed at this site from now on, and the producers send its rows there."""

    unit: Unit
    site: Site
    producers: tuple[int, ...]


@dataclass(frozen=True)
class LetGo:
    """A site forgets what it has of a unit: the source of a move that is done, the target of an abandoned one."""

    unit: Unit
    site: Site


Instruction: TypeAlias = Pause | Extract | Transfer | Install | Restart | LetGo


class Movement:
    """One unit on its way from one site to another.

    >>> move = Movement(unit=7, source=0, target=1, producers=[0])
    >>> move.begin()
    [Pause(unit=7, producers=(0,))]
    >>> move.acknowledged(0)
    [Extract(unit=7, site=0)]
    >>> move.abandon()
    [Restart(unit=7, site=0, producers=(0,)), LetGo(unit=7, site=1)]
    """

    def __init__(self, unit: Unit, source: Site, target: Site, producers: Sequence[int]) -> None:
        if source == target:
            raise ProtocolError(f"unit {unit} is at site {source} already: there is nothing to move")
        self.unit, self.source, self.target, self.producers = unit, source, target, tuple(producers)
        self.phase = Phase.QUIESCING
        self._begun = False
        self._unheard: set[int] = set()
        self._late: Phase | None = None

    def begin(self) -> list[Instruction]:
        """Stop the unit's input."""
        if self._begun or self.phase is Phase.ABANDONED:
            raise self._misplaced("begin")
        self._begun = True
        self._unheard.update(self.producers)
        return [Pause(self.unit, self.producers)] if self.producers else self._quiesced()

    def acknowledged(self, producer: int) -> list[Instruction]:
        """All rows that this producer sent before it paused have been processed, or spooled."""
        if producer not in self._unheard:
            raise self._misplaced(f"an acknowledgement of producer {producer}")
        self._unheard.remove(producer)
        return [] if self._unheard or self.phase is Phase.ABANDONED else self._quiesced()

    def extracted(self) -> list[Instruction]:
        """The unit's state and waiting input are ready to travel."""
        return self._after(Phase.EXTRACTING, Phase.TRANSFERRING, Transfer(self.unit, self.source, self.target))

    def transferred(self) -> list[Instruction]:
        """The target has all of it."""
        return self._after(Phase.TRANSFERRING, Phase.INSTALLING, Install(self.unit, self.target))

    def installed(self) -> list[Instruction]:
        """The target can process the unit; from here on there is no way back but another move."""
        restart = Restart(self.unit, self.target, self.producers)
        return self._after(Phase.INSTALLING, Phase.DONE, restart, LetGo(self.unit, self.source))

    def abandon(self) -> list[Instruction]:
        """The target is gone, or the move is no longer wanted: the unit goes on where it was, nothing is lost.

        Reports of what was under way may still come in, each once; nothing follows from them.
        """
        if self.phase in (Phase.DONE, Phase.ABANDONED):
            raise self._misplaced("abandon")
        self._late, self.phase = self.phase, Phase.ABANDONED
        let_go = LetGo(self.unit, self.target)
        return [Restart(self.unit, self.source, self.producers), let_go] if self._begun else [let_go]

    def _quiesced(self) -> list[Instruction]:
        self.phase = Phase.EXTRACTING
        return [Extract(self.unit, self.source)]

    def _after(self, finished: Phase, following: Phase, *instructions: Instruction) -> list[Instruction]:
        if self._late is finished:
            self._late = None
            return []
        if self.phase is not finished:
            raise self._misplaced(f"the end of {finished.value}")
        self.phase = following
        return list(instructions)

    def _misplaced(self, event: str) -> ProtocolError:
        phase = self.phase.value if self._begun or self.phase is Phase.ABANDONED else "not begun"
        move = f"the move of unit {self.unit} from site {self.source} to site {self.target}"
        return ProtocolError(f"{event} does not fit {move}, which is {phase}")
