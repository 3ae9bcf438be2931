"""Changes of who holds a unit and who stores its rows, drawn by Hypothesis."""

from __future__ import annotations

from engine_harness import DirectQuery
from hypothesis import strategies as st

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
