"""What a policy, or a user by hand, may ask for: each verb is a value with its reason."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, TypeAlias

import numpy as np

from sluice.model.errors import FlowError
from sluice.model.ids import Site, Unit


@dataclass(frozen=True, init=False)
class Move:
    """Hold a unit at another site from the next epoch on. Numbers may be numpy's.

    >>> Move(np.int64(3), 1, "to see")
    Move(unit=3, site=1, reason='to see')
    """

    verb: ClassVar[str] = "move"

    unit: Unit
    site: Site
    reason: str

    def __init__(self, unit: int, site: int, reason: str) -> None:
        object.__setattr__(self, "unit", Unit(whole("unit", unit)))
        object.__setattr__(self, "site", Site(whole("site", site)))
        object.__setattr__(self, "reason", str(reason))  # the journal keeps it as text


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


Action: TypeAlias = Move | Freeze | CleanUp
"""Every verb that the control loop can vet and have carried out; another one joins by `|`."""


def whole(what: str, number: object) -> int:
    """The number of a unit or a site, from whatever counts as a whole number."""
    if isinstance(number, int | np.integer) and not isinstance(number, bool):
        return int(number)
    raise FlowError(f"a {what} is given by its number, not by {number!r}")
