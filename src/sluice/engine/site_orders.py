"""What a site is told to do in an epoch beside its ordinary work, by the places of units."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sluice.model.ids import Unit, UnitIndex
from sluice.model.routing.routing import Routing
from sluice.verbs import SiteInstruction
from sluice.verbs.freeze import CleanUpUnits, FreezeUnit
from sluice.verbs.move import SetApart
from sluice.verbs.split import CountBelow, ProfileHashes


@dataclass(frozen=True)
class SiteOrders:
    """What a site does to which units in an epoch. It brings those to `set_apart` into segments of their own, at most
    `bytes_apart` in all. It counts the hashes of those to `profile`."""

    freeze: tuple[UnitIndex, ...]
    clean_up: tuple[UnitIndex, ...]
    set_apart: tuple[UnitIndex, ...]
    bytes_apart: float
    profile: dict[UnitIndex, Unit]
    count_below: dict[UnitIndex, CountBelow]

    @classmethod
    def of(cls, instructions: Sequence[SiteInstruction], routing: Routing) -> SiteOrders:
        """
        >>> SiteOrders.of([FreezeUnit(2)], Routing.even(3, 1).split(0, since=0)).freeze
        (3,)
        """
        place = routing.index_of
        apart = [one for one in instructions if isinstance(one, SetApart)]
        return cls(
            freeze=tuple(place(one.unit) for one in instructions if isinstance(one, FreezeUnit)),
            clean_up=tuple(place(u) for one in instructions if isinstance(one, CleanUpUnits) for u in one.units),
            set_apart=tuple(place(unit) for one in apart for unit in one.units),
            bytes_apart=sum(one.bytes for one in apart),
            profile={place(one.unit): one.unit for one in instructions if isinstance(one, ProfileHashes)},
            count_below={place(one.unit): one for one in instructions if isinstance(one, CountBelow)},
        )
