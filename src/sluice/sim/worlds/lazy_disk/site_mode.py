"""What a site is busy with: normal work, a relocation, or a spill (lazy/active-disk paper, table 2 and algorithms).

A spill takes units out of memory and a relocation takes units away: both at once would choose among the same units. So
a site does not spill while it relocates, and a relocation that is asked for during a spill waits until that is over.
The machine is told what happens and answers with what may begin; whoever drives it does the work.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from sluice.model.errors import ProtocolError
from sluice.model.ids import Site, Unit


class Mode(Enum):
    """The paper's `normal_mode`, `sr_mode` and `ss_mode`."""

    NORMAL = "normal"
    RELOCATING = "relocating"
    SPILLING = "spilling"


@dataclass(frozen=True)
class BeginSpill:
    """Freeze these units now; none are named where memory is full and the site chooses for itself."""

    units: tuple[Unit, ...] = ()


@dataclass(frozen=True)
class BeginRelocation:
    """This unit may leave, or come in, now."""

    unit: Unit


@dataclass(frozen=True)
class MeasureMemory:
    """Look whether memory is full: nobody has looked since the mode was last normal."""


Permission: TypeAlias = BeginSpill | BeginRelocation | MeasureMemory


class SiteMode:
    """One site's mode, and what waits for it to end.

    >>> site = SiteMode(0)
    >>> site.memory_full()
    [BeginSpill(units=())]
    >>> site.relocate(7)  # waits
    []
    >>> site.spilled(), site.mode
    ([BeginRelocation(unit=7)], <Mode.RELOCATING: 'relocating'>)
    >>> site.memory_full()  # not while relocating
    []
    >>> site.relocated(7), site.mode
    ([MeasureMemory()], <Mode.NORMAL: 'normal'>)
    """

    def __init__(self, site: Site) -> None:
        self.site, self.mode = site, Mode.NORMAL
        self._relocating: set[Unit] = set()
        self._relocations_asked: dict[Unit, None] = {}
        self._spills_asked: dict[Unit, None] = {}

    def memory_full(self) -> list[Permission]:
        """The site has measured its memory and found it full. Where it cannot spill now it measures again later."""
        if self.mode is not Mode.NORMAL:
            return []
        self.mode = Mode.SPILLING
        return [BeginSpill()]

    def spill(self, units: Iterable[Unit]) -> list[Permission]:
        """The coordinator wants these units frozen (`start_ss`)."""
        self._spills_asked.update(dict.fromkeys(units))
        return self._next() if self.mode is Mode.NORMAL else []

    def spilled(self) -> list[Permission]:
        """The spill that was begun is over."""
        if self.mode is not Mode.SPILLING:
            raise self._misplaced("the end of a spill")
        self.mode = Mode.NORMAL
        return self._next() or [MeasureMemory()]

    def relocate(self, unit: Unit) -> list[Permission]:
        """The coordinator wants a unit to leave this site or to come to it (`cptv`)."""
        if unit in self._relocating or unit in self._relocations_asked:
            raise self._misplaced(f"another relocation of unit {unit}")
        self._relocations_asked[unit] = None
        return [] if self.mode is Mode.SPILLING else self._next()

    def relocated(self, unit: Unit) -> list[Permission]:
        """The unit has left, or is installed; or its relocation was given up."""
        if unit in self._relocations_asked:
            del self._relocations_asked[unit]
            return []
        if unit not in self._relocating:
            raise self._misplaced(f"the end of a relocation of unit {unit}")
        self._relocating.remove(unit)
        if self._relocating:
            return []
        self.mode = Mode.NORMAL
        return self._next() or [MeasureMemory()]

    def _next(self) -> list[Permission]:
        """What has waited begins: relocations before spills, since a unit that has left need not be frozen."""
        if self._relocations_asked:
            self.mode = Mode.RELOCATING
            units, self._relocations_asked = list(self._relocations_asked), {}
            self._relocating.update(units)
            return [BeginRelocation(unit) for unit in units]
        if self._spills_asked:
            self.mode = Mode.SPILLING
            spills, self._spills_asked = tuple(self._spills_asked), {}
            return [BeginSpill(spills)]
        return []

    def _misplaced(self, event: str) -> ProtocolError:
        return ProtocolError(f"{event} does not fit site {self.site}, whose mode is {self.mode.value}")
