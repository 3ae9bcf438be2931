"""What can be carried out: every action, a policy's or a user's, is vetted here and nowhere else."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from sluice.control.moves import MoveInFlight
from sluice.model.actions import Action, CleanUp, Freeze, Move
from sluice.model.errors import FlowError
from sluice.model.ids import Fragment, Unit
from sluice.model.routing import Routing


def vet(
    action: Action,
    routing: Routing,
    moves: Mapping[Unit, MoveInFlight] | None = None,
    freezable: Collection[Fragment] = (),
) -> str | None:
    """Why an action cannot be carried out under a routing and beside the moves in flight (by unit), or None. Units can
    be frozen in some of the fragments.

    >>> vet(Move(1, 0, "to see"), Routing.even(4, 2))
    'unit 1 is at site 0 already'
    """
    match action:
        case Move():
            return _vet_move(action, routing, moves or {})
        case Freeze() | CleanUp():
            return _vet_at_holder(action, routing, moves or {}, freezable)
        case _:
            raise FlowError(f"a policy answers with actions such as Move(unit, site, reason), not with {action!r}")


def _vet_at_holder(
    action: Freeze | CleanUp, routing: Routing, moves: Mapping[Unit, MoveInFlight], freezable: Collection[Fragment]
) -> str | None:
    unit = action.unit
    missing = no_such("unit", unit, routing.units)
    if missing:
        return missing
    if routing.fragment_of(unit) not in freezable:
        return f"only joins can do without their state, and unit {unit} is of none"
    if isinstance(action, Freeze) and unit in moves:
        return _on_its_way(unit, moves)
    return None


def _vet_move(move: Move, routing: Routing, moves: Mapping[Unit, MoveInFlight]) -> str | None:
    missing = no_such("unit", move.unit, routing.units) or no_such("site", move.site, routing.sites)
    if missing:
        return missing
    if move.unit in moves:
        return _on_its_way(move.unit, moves)
    if routing.holders[move.unit] == move.site:
        return f"unit {move.unit} is at site {move.site} already"
    return None


def _on_its_way(unit: Unit, moves: Mapping[Unit, MoveInFlight]) -> str:
    return f"unit {unit} is on its way to site {moves[unit].target}"


def no_such(what: str, number: int, count: int) -> str | None:
    """Why this is not the number of a unit or a site, of which there are so many; None if it is.

    >>> no_such("site", 4, 4), no_such("unit", 3, 4)
    ('there is no site 4; they are numbered from 0 to 3', None)
    """
    return None if 0 <= number < count else f"there is no {what} {number}; they are numbered from 0 to {count - 1}"
