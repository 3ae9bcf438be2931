"""What can be carried out: every action, a policy's or a user's, is vetted here and nowhere else."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from sluice.control.moves import MoveInFlight
from sluice.control.resharing import reshared
from sluice.control.scaling import Scaling
from sluice.model.abilities import Abilities
from sluice.model.actions import (
    Action,
    CleanUp,
    DirectoryAction,
    Freeze,
    LayOut,
    Merge,
    Move,
    PassToken,
    Release,
    Scale,
    Share,
    SharingAction,
    Split,
    UnitAction,
)
from sluice.model.directory import MOST_BITS, MOST_UNITS
from sluice.model.errors import ProtocolError, QueryError
from sluice.model.ids import Site, Unit
from sluice.model.routing import Routing

WhyUnready = Callable[[Unit], str | None]
"""Why a unit cannot be shared otherwise just now; None if it can."""


def vet(
    action: Action,
    routing: Routing,
    moves: Mapping[Unit, MoveInFlight] | None = None,
    abilities: Abilities | None = None,
    unready: WhyUnready = lambda unit: None,
    redivisions: Mapping[Unit, DirectoryAction] | None = None,
    scaling: Scaling | None = None,
    resharing: Collection[Unit] = (),
) -> str | None:
    """Why an action cannot be carried out under a routing and beside the moves in flight (by unit), or None. Units that
    are `unready`, for the reason it gives, cannot be shared otherwise than they are now, nor merged. Nothing else can
    be done to a unit that is to be split or merged, and nothing comes to a site that is to leave. A unit that is about
    to be shared otherwise (`resharing`) can be shared otherwise again, but stays where it is.

    >>> vet(Move(1, 0, "to see"), Routing.even(4, 2))
    'unit 1 is at site 0 already'
    """
    moves, abilities, redivisions = moves or {}, abilities or Abilities(), redivisions or {}
    if isinstance(action, UnitAction):
        if not routing.has_unit(action.unit):
            return routing.ids.why_missing(action.unit)
        if action.unit in concerned(redivisions, routing):
            return f"unit {action.unit} is to be split or merged"
    if scaling and isinstance(action, Move | Share | PassToken) and action.site in scaling.leaving:
        return f"site {action.site} is leaving"
    if isinstance(action, Move | Freeze | Split | Merge):
        touched = concerned({action.unit: action}, routing) if isinstance(action, Merge) else {action.unit}
        for other in touched.intersection(resharing):
            return f"unit {other} is about to be shared otherwise"
    match action:
        case Move():
            return _vet_move(action, routing, moves)
        case Freeze() | CleanUp():
            return _vet_at_holder(action, routing, moves, abilities)
        case Share() | Release() | PassToken() | LayOut():
            return _vet_sharing(action, routing, moves, abilities, unready)
        case Split() | Merge():
            return _vet_redivision(action, routing, moves, abilities, unready, redivisions)
        case Scale():
            return _vet_scale(action, routing, abilities, scaling)
        case _:
            raise QueryError(f"a policy answers with actions such as Move(unit, site, reason), not with {action!r}")


def _vet_at_holder(
    action: Freeze | CleanUp, routing: Routing, moves: Mapping[Unit, MoveInFlight], abilities: Abilities
) -> str | None:
    unit = action.unit
    if routing.fragment_of(unit) not in abilities.freezable:
        return f"only joins can do without their state, and unit {unit} is of none"
    if isinstance(action, CleanUp) and not abilities.cleanable:
        return "frozen units are cleaned up at the end alone here"
    if isinstance(action, Freeze) and unit in moves:
        return _on_its_way(unit, moves)
    if isinstance(action, Freeze) and routing.sharing(unit):
        return f"unit {unit} is shared"
    return None


def _vet_move(move: Move, routing: Routing, moves: Mapping[Unit, MoveInFlight]) -> str | None:
    missing = no_such_site(move.site, routing)
    if missing:
        return missing
    if move.unit in moves:
        return _on_its_way(move.unit, moves)
    if routing.sharing(move.unit):
        return f"unit {move.unit} is shared by sites {_list_sites(routing.holders_of(move.unit))}"
    if routing.holder(move.unit) == move.site:
        return f"unit {move.unit} is at site {move.site} already"
    return None


def _vet_sharing(
    action: SharingAction,
    routing: Routing,
    moves: Mapping[Unit, MoveInFlight],
    abilities: Abilities,
    unready: WhyUnready,
) -> str | None:
    unit, site = action.unit, None if isinstance(action, LayOut) else action.site
    missing = None if site is None else no_such_site(site, routing)
    if missing:
        return missing
    if routing.fragment_of(unit) not in abilities.shareable:
        return f"only a join of two, with nothing chained to it by its key, can be shared, and unit {unit} is of none"
    if unit in moves:
        return _on_its_way(unit, moves)
    why = unready(unit)
    if why is not None:
        return f"unit {unit} {why}"
    try:
        after = reshared(action, routing, abilities).sharing(unit)
    except ProtocolError as problem:
        return str(problem)
    return "there are no grids here" if after and after.lines and not abilities.grids else None


def _vet_redivision(
    action: DirectoryAction,
    routing: Routing,
    moves: Mapping[Unit, MoveInFlight],
    abilities: Abilities,
    unready: WhyUnready,
    redivisions: Mapping[Unit, DirectoryAction],
) -> str | None:
    unit = action.unit
    if routing.fragment_of(unit) not in abilities.divisible:
        return f"units are split and merged by the hashes of their keys, and unit {unit} has none"
    if isinstance(action, Split) and not 1 <= action.bits <= MOST_BITS:
        return f"a unit is split by 1 to {MOST_BITS} bits at a time, not by {action.bits}"
    if isinstance(action, Split) and not routing.directories[routing.fragment_of(unit)].has_room(1 + len(redivisions)):
        return f"an operator's state has at most {MOST_UNITS:,} units"
    for other in concerned({unit: action}, routing):
        if other in concerned(redivisions, routing):
            return f"unit {other} is to be split or merged"
        if other in moves:
            return _on_its_way(other, moves)
        why = unready(other) if isinstance(action, Merge) else None
        if why is not None:
            return f"unit {other} {why}"
    try:
        routing.split(unit, since=0) if isinstance(action, Split) else routing.merge(unit, since=0)
    except ProtocolError as problem:
        return str(problem)
    return None


def concerned(redivisions: Mapping[Unit, DirectoryAction], routing: Routing) -> set[Unit]:
    """The units that are to be split or merged, with those that they are merged with."""
    units = set(redivisions)
    for unit, action in redivisions.items():
        if isinstance(action, Merge):
            buddy = routing.buddy_of(unit)
            units |= {unit if buddy is None else buddy}
    return units


def _vet_scale(action: Scale, routing: Routing, abilities: Abilities, scaling: Scaling | None) -> str | None:
    if not abilities.scalable:
        return "the number of sites is fixed here"
    if action.sites < 1:
        return "at least one site takes part"
    if not abilities.least_sites <= action.sites <= abilities.most_sites:
        return f"there may be {abilities.least_sites} to {abilities.most_sites} sites"
    if scaling and (scaling.leaving or action.sites <= scaling.wanted):  # while some join, more can be asked for
        return scaling.in_words
    return f"there are {routing.sites} sites already" if action.sites == routing.sites else None


def _list_sites(sites: Iterable[Site]) -> str:
    return ", ".join(map(str, sites))


def _on_its_way(unit: Unit, moves: Mapping[Unit, MoveInFlight]) -> str:
    return f"unit {unit} is on its way to site {moves[unit].target}"


def no_such_site(site: int, routing: Routing) -> str | None:
    """Why this is not the number of a site; None if it is.

    >>> no_such_site(4, Routing.even(8, 4)), no_such_site(3, Routing.even(8, 4))
    ('there is no site 4; they are numbered from 0 to 3', None)
    """
    sites = routing.sites
    return None if 0 <= site < sites else f"there is no site {site}; they are numbered from 0 to {sites - 1}"
