"""Random changes of who holds a unit and who stores its rows, for tests."""

from __future__ import annotations

import numpy as np
from engine_harness import DirectQuery
from hypothesis import strategies as st

from sluice.model.routing.routing import Routing
from sluice.model.routing.sharing import best_grid
from sluice.verbs.share import LayOut, PassToken, Release, Share, SharingAction


def sharing_by_hand(data: st.DataObject, query: DirectQuery) -> list[SharingAction]:
    """Some shares, passes, releases and shapes; what cannot be is refused when its turn comes."""
    routing = query.epochs.record.routing
    unit = st.sampled_from(routing.ids.array.tolist())
    site = st.integers(0, routing.sites - 1)
    verbs = st.sampled_from(["share", "share", "pass", "release", "turns", "grid"])
    actions: list[SharingAction] = []
    for verb in data.draw(st.lists(verbs, max_size=5)):
        number, where = data.draw(unit), data.draw(site)
        match verb:
            case "share":
                actions.append(Share(number, where, "to see"))
            case "release":
                actions.append(Release(number, where, "to see"))
            case "pass":
                actions.append(PassToken(number, data.draw(st.integers(0, 1)), where, "to see"))
            case "turns":
                actions.append(LayOut(number, (), "to see"))
            case "grid":
                holders = data.draw(st.integers(2, 4))
                shapes = st.sampled_from([best_grid(holders, (1, 1)), (1, holders)])
                actions.append(LayOut(number, data.draw(shapes), "to see"))
    return actions


def next_sharing(rng: np.random.Generator, routing: Routing, among: tuple[int, int] | None = None) -> SharingAction:
    """A change that makes sense as the unit, at one of these places, is now: few of these are refused."""
    unit = routing.unit_at(int(rng.integers(*(among or (0, routing.units)))))
    holders, sharing = routing.holders_of(unit), routing.sharing(unit)
    others = [site for site in range(routing.sites) if site not in holders]
    verbs = ["share"] * 2 * bool(others) + ["release", "pass", "turns", "grid", "grid"] * bool(sharing)
    match rng.choice(verbs or ["share"]):
        case "share":
            return Share(unit, rng.choice(others or [0]), "to see")
        case "release":
            return Release(unit, rng.choice(holders), "to see")
        case "pass":
            return PassToken(unit, rng.integers(2), rng.choice(holders), "to see")
        case "turns":
            return LayOut(unit, (), "to see")
        case _:
            return LayOut(unit, best_grid(len(holders), rng.integers(1, 9, 2).tolist()), "to see")
