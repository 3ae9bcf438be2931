"""What a user might ask of a running query, drawn at random: few of these are refused."""

from __future__ import annotations

import numpy as np

from sluice.model.ids import Site, Unit, UnitIndex
from sluice.model.routing.routing import Routing
from sluice.model.routing.sharing import best_grid
from sluice.record.epoch import EpochRecord
from sluice.verbs import Action
from sluice.verbs.freeze import CleanUp, Freeze
from sluice.verbs.move import Move
from sluice.verbs.share import AnySharing, LayOut, PassToken, Release, Share
from sluice.verbs.split import Merge, Split

REASON = "to see"


def draw_move_or_freeze(rng: np.random.Generator, routing: Routing, sites: int) -> Action:
    """A unit moves to one of so many sites, is frozen or cleaned up; now and then it is one that is not there."""
    unit = Unit(int(rng.integers(0, routing.units + 1)))
    site = Site(int(rng.integers(0, sites)))
    if rng.random() < 0.5:
        return Freeze(unit, REASON) if rng.random() < 0.7 else CleanUp(unit, REASON)
    return Move(unit, site, REASON)


def draw_redivision(rng: np.random.Generator, record: EpochRecord) -> Action:
    """A split, a merge of two buddies at one site, or what brings two to one."""
    routing = record.routing
    unit = routing.unit_at(UnitIndex(int(rng.integers(routing.units))))
    buddies = [
        (routing.unit_at(UnitIndex(one)), routing.unit_at(UnitIndex(other)))
        for directory in routing.directories
        for one, other in zip(range(*directory.range), directory.buddies(), strict=True)
        if other > one
    ]
    together = [pair for pair in buddies if routing.holders_of(pair[0]) == routing.holders_of(pair[1])]
    if together and rng.random() < 0.5:
        return Merge(Unit(int(rng.choice(together[int(rng.integers(len(together)))]))), REASON)
    if buddies and rng.random() < 0.3:
        one, other = buddies[int(rng.integers(len(buddies)))]
        if (one, other) not in together:
            return Move(one, routing.holder(other), "to its buddy")
    if rng.random() < 0.15:
        return Freeze(unit, REASON)
    return Split(unit, REASON, bits=int(rng.integers(1, 4)))


def draw_sharing(rng: np.random.Generator, routing: Routing, among: tuple[int, int] | None = None) -> AnySharing:
    """A change of who holds a unit, at one of these places, and of who stores its rows, that makes sense now."""
    unit = routing.unit_at(UnitIndex(int(rng.integers(*(among or (0, routing.units))))))
    holders, sharing = routing.holders_of(unit), routing.sharing(unit)
    others = [site for site in range(routing.sites) if site not in holders]
    verbs = ["share"] * 2 * bool(others) + ["release", "pass", "turns", "grid", "grid"] * bool(sharing)
    match rng.choice(verbs or ["share"]):
        case "share":
            return Share(unit, Site(int(rng.choice(others or [0]))), REASON)
        case "release":
            return Release(unit, Site(int(rng.choice(holders))), REASON)
        case "pass":
            return PassToken(unit, int(rng.integers(2)), Site(int(rng.choice(holders))), REASON)
        case "turns":
            return LayOut(unit, (), REASON)
        case _:
            return LayOut(unit, best_grid(len(holders), rng.integers(1, 9, 2).tolist()), REASON)
