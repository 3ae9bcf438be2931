"""What becomes of a routing when a unit is shared otherwise."""

from __future__ import annotations

from sluice.model.abilities import Abilities
from sluice.model.actions import LayOut, PassToken, Release, Share, SharingAction
from sluice.model.errors import ProtocolError
from sluice.model.routing import Routing


def reshared(action: SharingAction, routing: Routing, abilities: Abilities, since: int = 0) -> Routing:
    """The routing with a unit shared as an action wants it, from an epoch on; `ProtocolError` if it cannot be.

    >>> able = Abilities(shareable={0: (0, 1)})
    >>> reshared(Share(1, 0, "to see"), Routing.even(2, 2), able).holders_of(1)
    (1, 0)
    """
    unit = action.unit
    inputs = abilities.shareable[routing.fragment_of(unit)]
    match action:
        case Share(site=site, evenly=evenly):
            return routing.share(unit, site, inputs, since, evenly)
        case Release(site=site):
            return routing.release(unit, site, since)
        case PassToken(input=place, site=site):
            if not 0 <= place < len(inputs):
                raise ProtocolError(f"the join of unit {unit} has no input {place}")
            return routing.pass_token(unit, inputs[place], site, since)
        case LayOut(lines=lines):
            return routing.lay_out(unit, lines, since)
