"""Storage tokens: memory that fills up passes new rows on to other sites, state stays (the D-CAPE proposal, section 3).

Every new row of a shared unit reaches all its holders, and the one with the token of the row's input stores it. When
that one's memory is filled above `high` the token passes, in the order of the proposal's section 3.3.1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np

from sluice.model.actions import Action, LayOut, PassToken, Release, Share
from sluice.model.errors import FlowError
from sluice.model.ids import InputNumber, Site, Unit
from sluice.model.sharing import SharedUnit
from sluice.model.view import ClusterView
from sluice.policies.settings import Number, check_settings

_SATURATION = Number("a part of a site's memory", least=0, most=1)


@dataclass(frozen=True)
class Tokens:
    """Pass tokens from sites that have filled more than `high` of their memory: first to a holder that has filled less
    than `low`, then to a site that becomes a holder, then to the holder that has filled least, below `high`. When there
    is none the holders store in turn; what does not fit then goes to disk. Holders with nothing left are released.

    >>> from dataclasses import replace
    >>> view = replace(
    ...     ClusterView.at_rest(unit_site=[0], site_memory=[100, 100]),
    ...     unit_bytes=np.array([95]), unit_inputs=np.array([2]),
    ... )
    >>> for action in Tokens().decide(view): print(action)
    Share(unit=0, site=1, reason='site 0 has filled 95 % of its memory; site 1, 0 %, becomes a holder', evenly=False)
    PassToken(unit=0, input=0, site=1, reason='site 0 has filled 95 % of its memory; site 1, 0 %, becomes a holder')
    PassToken(unit=0, input=1, site=1, reason='site 0 has filled 95 % of its memory; site 1, 0 %, becomes a holder')
    """

    name: ClassVar[str] = "tokens"

    low: Annotated[float, _SATURATION] = 0.2
    high: Annotated[float, _SATURATION] = 0.85

    def __post_init__(self) -> None:
        check_settings(self)
        if self.low >= self.high:
            raise FlowError(f"low must be less than high; they are {self.low} and {self.high}")

    def decide(self, view: ClusterView) -> tuple[Action, ...]:
        if view.sites < 2:
            return ()
        saturation = view.saturation
        actions: list[Action] = []
        passed: set[Site] = set()
        for unit in self._candidates(view, saturation):
            sharing = self._sharing(view, Unit(unit))
            if sharing.lines:
                continue  # laid out by hand, or for its work
            passing: list[Action] = []
            crowded = self._crowded(sharing, saturation)
            if crowded is not None and crowded not in passed and view.unit_bytes[unit]:
                passed.add(crowded)  # one unit a round, the largest; if it was not enough, another in the next
                passing = self._pass_on(sharing, crowded, saturation)
            actions += passing or self._release(view, sharing)  # not both: whoever has nothing may just get a token
        return tuple(actions)

    def _candidates(self, view: ClusterView, saturation: np.ndarray) -> list[int]:
        """Units that something may be done about, the largest first: those that are shared, and of the others the
        largest of each site that is above `high`."""
        able = (view.unit_inputs > 0) & ~view.unit_unready
        order = np.argsort(-view.unit_bytes, kind="stable")
        alone = order[(able & ~view.is_shared & (saturation[view.unit_site] > self.high))[order]]
        _, largest = np.unique(view.unit_site[alone], return_index=True)
        wanted = able & view.is_shared
        wanted[alone[largest]] = True
        found: list[int] = order[wanted[order]].tolist()
        return found

    def _sharing(self, view: ClusterView, unit: Unit) -> SharedUnit:
        found = next((sharing for sharing in view.shared if sharing.unit == unit), None)
        inputs = [InputNumber(place) for place in range(int(view.unit_inputs[unit]))]
        return found or SharedUnit.alone(unit, Site(int(view.unit_site[unit])), inputs)

    def _crowded(self, sharing: SharedUnit, saturation: np.ndarray) -> Site | None:
        """The site that stores new rows of a unit and has no room for them; where all store in turn, the fullest."""
        storing = [site for input_ in sharing.inputs for site in sharing.stores(input_)]
        fullest = max(storing, key=lambda site: float(saturation[site]))
        return fullest if saturation[fullest] > self.high else None

    def _pass_on(self, sharing: SharedUnit, crowded: Site, saturation: np.ndarray) -> list[Action]:
        unit, filled = sharing.unit, _percent(saturation[crowded])
        full = f"site {crowded} has filled {filled} of its memory"
        holders = sorted((s for s in sharing.holders if s != crowded), key=lambda site: float(saturation[site]))
        others = [Site(site) for site in np.argsort(saturation, kind="stable").tolist() if site not in sharing.holders]
        if holders and saturation[holders[0]] < self.low:
            target, becomes = holders[0], "has room again"
        elif others and saturation[others[0]] < self.high:
            target, becomes = others[0], "becomes a holder"
        elif holders and saturation[holders[0]] < self.high:
            target, becomes = holders[0], "has filled least"
        elif holders and not sharing.turns:
            return [LayOut(unit, (), f"{full}, and no site less than {_percent(self.high)}: they store in turn")]
        else:
            return []
        reason = f"{full}; site {target}, {_percent(saturation[target])}, {becomes}"
        sharing_first: list[Action] = [] if target in sharing.holders else [Share(unit, target, reason)]
        passing = [i for i, token in enumerate(sharing.tokens) if sharing.turns or token == crowded]
        return [*sharing_first, *(PassToken(unit, place, target, reason) for place in passing)]

    def _release(self, view: ClusterView, sharing: SharedUnit) -> list[Action]:
        """Holders that store nothing new, and of whose slice nothing is left."""
        if sharing.turns or sharing.lines:
            return []
        mine = view.slices.unit == sharing.unit
        empty = view.slices.site[mine][view.slices.bytes[mine] == 0].tolist()
        reason = f"nothing is left of its slice of unit {sharing.unit}"
        return [Release(sharing.unit, site, reason) for site in empty if site not in sharing.tokens]


def _percent(part: float) -> str:
    return f"{100 * part:.0f} %"
