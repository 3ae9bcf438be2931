"""What a policy, or a user by hand, may ask for: each verb is a value with its reason."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

import numpy as np

from sluice.model.errors import FlowError
from sluice.model.ids import Site, Unit


@dataclass(frozen=True, init=False)
class _UnitAtSite:
    """Something about a unit and a site."""

    unit: Unit
    site: Site
    reason: str

    def __init__(self, unit: int, site: int, reason: str) -> None:
        object.__setattr__(self, "unit", Unit(whole("unit", unit)))
        object.__setattr__(self, "site", Site(whole("site", site)))
        object.__setattr__(self, "reason", str(reason))  # the journal keeps it as text


class Move(_UnitAtSite):
    """Hold a unit at another site from the next epoch on. Numbers may be numpy's.

    >>> Move(np.int64(3), 1, "to see")
    Move(unit=3, site=1, reason='to see')
    """

    verb: ClassVar[str] = "move"


@dataclass(frozen=True, init=False)
class _AtHolder:
    """Something that the site does which holds a unit."""

    unit: Unit
    reason: str

    def __init__(self, unit: int, reason: str) -> None:
        object.__setattr__(self, "unit", Unit(whole("unit", unit)))
        object.__setattr__(self, "reason", str(reason))


class Freeze(_AtHolder):
    """Have a unit begin anew: its state goes out of memory, and what it would still have found comes later.

    >>> Freeze(3, "to see")
    Freeze(unit=3, reason='to see')
    """

    verb: ClassVar[str] = "freeze"


class CleanUp(_AtHolder):
    """Find what a frozen unit has missed; its state is one again then, in memory if there is room."""

    verb: ClassVar[str] = "clean up"


@dataclass(frozen=True, init=False)
class Share(_UnitAtSite):
    """Have a unit at one more site, which gets its part of the rows to come; no state moves. `evenly`: its holders
    stand on the grid for inputs of as many rows, and state is dealt out to them.

    >>> Share(3, 1, "to see")
    Share(unit=3, site=1, reason='to see', evenly=False)
    """

    verb: ClassVar[str] = "share"

    evenly: bool

    def __init__(self, unit: int, site: int, reason: str, evenly: bool = False) -> None:
        super().__init__(unit, site, reason)
        object.__setattr__(self, "evenly", evenly)


class Release(_UnitAtSite):
    """Have a shared unit at one site less; what that one stored goes to the first of the others."""

    verb: ClassVar[str] = "release"


@dataclass(frozen=True, init=False)
class PassToken:
    """Have another holder of a shared unit store the new rows of one input, given by its place in the join."""

    verb: ClassVar[str] = "pass token"

    unit: Unit
    input: int
    site: Site
    reason: str

    def __init__(self, unit: int, input: int, site: int, reason: str) -> None:
        object.__setattr__(self, "unit", Unit(whole("unit", unit)))
        object.__setattr__(self, "input", whole("input", input))
        object.__setattr__(self, "site", Site(whole("site", site)))
        object.__setattr__(self, "reason", str(reason))


@dataclass(frozen=True, init=False)
class LayOut:
    """Have the holders of a shared unit stand on a grid, with so many lines for the rows of each input; with no lines
    they all get every row and store in turn.

    >>> LayOut(3, (2, 4), "to see")
    LayOut(unit=3, lines=(2, 4), reason='to see')
    """

    verb: ClassVar[str] = "lay out"

    unit: Unit
    lines: tuple[int, ...]
    reason: str

    def __init__(self, unit: int, lines: Iterable[int], reason: str) -> None:
        object.__setattr__(self, "unit", Unit(whole("unit", unit)))
        object.__setattr__(self, "lines", tuple(whole("number of lines", line) for line in lines))
        object.__setattr__(self, "reason", str(reason))


@dataclass(frozen=True, init=False)
class Split(_AtHolder):
    """Have two units in place of one, by one more bit of the hash; with more `bits`, four, eight, ... Those behind it
    get other numbers. If one key has most of its rows, it is split so often that this key is alone. No row is
    rewritten.

    >>> Split(3, "to see")
    Split(unit=3, reason='to see', bits=1)
    """

    verb: ClassVar[str] = "split"

    bits: int

    def __init__(self, unit: int, reason: str, bits: int = 1) -> None:
        super().__init__(unit, reason)
        object.__setattr__(self, "bits", whole("number of bits", bits))


class Merge(_AtHolder):
    """Have one unit in place of a unit and its buddy; those behind them count one less. No row is rewritten."""

    verb: ClassVar[str] = "merge"


@dataclass(frozen=True, init=False)
class Scale:
    """Have so many sites take part. Those that are to leave are the last ones: their units move to the others first,
    as any unit does; those that join have none until some move there.

    >>> Scale(3, "to see")
    Scale(sites=3, reason='to see')
    """

    verb: ClassVar[str] = "scale"

    sites: int
    reason: str

    def __init__(self, sites: int, reason: str) -> None:
        object.__setattr__(self, "sites", whole("number of sites", sites))
        object.__setattr__(self, "reason", str(reason))


SharingAction: TypeAlias = Share | Release | PassToken | LayOut
"""What changes who holds and stores a unit, with the routing alone."""
DirectoryAction: TypeAlias = Split | Merge
"""What changes which hashes are a unit."""
Action: TypeAlias = Move | Freeze | CleanUp | SharingAction | DirectoryAction | Scale
"""Every verb that the control loop can vet and have carried out; another one joins by `|`."""


def whole(what: str, number: object) -> int:
    """The number of a unit or a site, from whatever counts as a whole number."""
    if isinstance(number, int | np.integer) and not isinstance(number, bool):
        return int(number)
    raise FlowError(f"a {what} is given by its number, not by {number!r}")
