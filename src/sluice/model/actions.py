"""What a policy, or a user by hand, may ask for: each verb is a value with its reason."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

from sluice.model.errors import FlowError
from sluice.model.ids import Site, Unit
from sluice.model.verb import Verb


@dataclass(frozen=True)
class _UnitAtSite:
    """Something about a unit and a site."""

    unit: Unit
    site: Site
    reason: str

    def __post_init__(self) -> None:
        _read(self, unit="unit", site="site")


@dataclass(frozen=True)
class Move(_UnitAtSite):
    """Hold a unit at another site from the next epoch on. Numbers may be numpy's.

    >>> import numpy as np
    >>> Move(np.int64(3), 1, "to see")
    Move(unit=3, site=1, reason='to see')
    >>> Move("3", 1, "to see")
    Traceback (most recent call last):
    sluice.model.errors.FlowError: a unit is given by its number, not by '3'
    """

    verb: ClassVar[Verb] = Verb.MOVE


@dataclass(frozen=True)
class _AtHolder:
    """Something that the site does which holds a unit."""

    unit: Unit
    reason: str

    def __post_init__(self) -> None:
        _read(self, unit="unit")


@dataclass(frozen=True)
class Freeze(_AtHolder):
    """Have a unit begin anew: its state goes out of memory, and what it would still have found comes later.

    >>> Freeze(3, "to see")
    Freeze(unit=3, reason='to see')
    """

    verb: ClassVar[Verb] = Verb.FREEZE


@dataclass(frozen=True)
class CleanUp(_AtHolder):
    """Find what a frozen unit has missed; its state is one again then, in memory if there is room."""

    verb: ClassVar[Verb] = Verb.CLEAN_UP


@dataclass(frozen=True)
class Share(_UnitAtSite):
    """Have a unit at one more site, which gets its part of the rows to come; no state moves. `evenly`: its holders
    stand on the grid for inputs of as many rows, and state is dealt out to them.

    >>> Share(3, 1, "to see")
    Share(unit=3, site=1, reason='to see', evenly=False)
    """

    verb: ClassVar[Verb] = Verb.SHARE

    evenly: bool = False


@dataclass(frozen=True)
class Release(_UnitAtSite):
    """Have a shared unit at one site less; what that one stored goes to the first of the others."""

    verb: ClassVar[Verb] = Verb.RELEASE


@dataclass(frozen=True)
class PassToken:
    """Have another holder of a shared unit store the new rows of one input, given by its place in the join."""

    verb: ClassVar[Verb] = Verb.PASS_TOKEN

    unit: Unit
    input: int
    site: Site
    reason: str

    def __post_init__(self) -> None:
        _read(self, unit="unit", input="input", site="site")


@dataclass(frozen=True)
class LayOut:
    """Have the holders of a shared unit stand on a grid, with so many lines for the rows of each input; with no lines
    they all get every row and store in turn.

    >>> LayOut(3, (2, 4), "to see")
    LayOut(unit=3, lines=(2, 4), reason='to see')
    """

    verb: ClassVar[Verb] = Verb.LAY_OUT

    unit: Unit
    lines: tuple[int, ...]
    reason: str

    def __post_init__(self) -> None:
        _read(self, unit="unit")
        object.__setattr__(self, "lines", tuple(read_number("number of lines", line) for line in self.lines))


@dataclass(frozen=True)
class Split(_AtHolder):
    """Have two new units in place of one, by one more bit of the hash; with more `bits`, four, eight, ... If one key
    has most of its rows, it is split so often that this key is alone. No row is rewritten.

    >>> Split(3, "to see")
    Split(unit=3, reason='to see', bits=1)
    """

    verb: ClassVar[Verb] = Verb.SPLIT

    bits: int = 1

    def __post_init__(self) -> None:
        _read(self, unit="unit", bits="number of bits")


@dataclass(frozen=True)
class Merge(_AtHolder):
    """Have one new unit in place of a unit and its buddy. No row is rewritten."""

    verb: ClassVar[Verb] = Verb.MERGE


@dataclass(frozen=True)
class Scale:
    """Have so many sites take part. Those that are to leave are the last ones: their units move to the others first,
    as any unit does; those that join have none until some move there.

    >>> Scale(3, "to see")
    Scale(sites=3, reason='to see')
    """

    verb: ClassVar[Verb] = Verb.SCALE

    sites: int
    reason: str

    def __post_init__(self) -> None:
        _read(self, sites="number of sites")


SharingAction: TypeAlias = Share | Release | PassToken | LayOut
"""What changes who holds and stores a unit, with the routing alone."""
DirectoryAction: TypeAlias = Split | Merge
"""What changes which hashes are a unit."""
UnitAction: TypeAlias = Move | Freeze | CleanUp | SharingAction | DirectoryAction
"""What is about one unit."""
Action: TypeAlias = UnitAction | Scale
"""Every verb that the control loop can vet and have carried out; another one joins by `|`."""


def read_number(what: str, number: object) -> int:
    """The id of a unit or the number of a site, from whatever counts as a whole number."""
    try:
        if not isinstance(number, bool):
            return operator.index(number)  # type: ignore[arg-type]
    except TypeError:
        pass
    raise FlowError(f"a {what} is given by its number, not by {number!r}")


def _read(action: object, **numbers: str) -> None:
    """Have the numbers of an action, each with what it counts, as plain ints, and its reason as text."""
    given = vars(action)
    for name, what in numbers.items():
        object.__setattr__(action, name, read_number(what, given[name]))
    object.__setattr__(action, "reason", str(given["reason"]))  # the journal keeps it as text
