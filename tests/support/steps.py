"""What an epoch's sites are told beside their ordinary work, by what it is about."""

from __future__ import annotations

from sluice.control.controller import NextEpoch
from sluice.verbs.freeze import CleanUpUnits, FreezeUnit
from sluice.verbs.move import CopyAhead, SetApart


def units_set_apart(step: NextEpoch) -> tuple[int, ...]:
    """The units that get segments of their own."""
    return tuple(unit for one in step.instructions if isinstance(one, SetApart) for unit in one.units)


def allowance(step: NextEpoch) -> float:
    """The bytes that a site may bring into segments of their own."""
    (apart,) = [one for one in step.instructions if isinstance(one, SetApart)]
    return apart.bytes


def segments_copied(step: NextEpoch, site: int) -> list[str]:
    """The segments that a site copies."""
    copies = [one for one in step.instructions if isinstance(one, CopyAhead)]
    return [name for one in copies if one.site == site for name in one.segments]


def units_frozen(step: NextEpoch) -> tuple[int, ...]:
    return tuple(one.unit for one in step.instructions if isinstance(one, FreezeUnit))


def units_cleaned_up(step: NextEpoch) -> tuple[int, ...]:
    return tuple(unit for one in step.instructions if isinstance(one, CleanUpUnits) for unit in one.units)
