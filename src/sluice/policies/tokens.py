"""Storage tokens: memory that fills up passes new rows on to other sites, state stays (the D-CAPE proposal, section 3).

Every new row of a shared unit reaches all its holders, and the one with the token of the row's input stores it. When
that one's memory is filled above `high` the token passes, in the order of the proposal's section 3.3.1. All tokens of a
crowded site pass in a round, as it grows until it stores nothing new: the proposal partitions states "until memory
usage growth has stalled". Of several sites that could take a token, it goes to the one that stays below `high` longest,
what was passed to it in the same round counted: if all went to the emptiest one, that would fill at the rate of them
all. Where every site is above `high`, the proposal's round robin, tokens go to the holder that is filled least.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from sluice.model.errors import FlowError
from sluice.model.ids import InputNumber, Site, Unit
from sluice.model.routing.sharing import SharedUnit
from sluice.model.view import ClusterView
from sluice.policies.base import Policy
from sluice.policies.settings import Count, Number, check_settings
from sluice.verbs import Action
from sluice.verbs.share import PassToken, Release, Share

_SATURATION = Number("a part of a site's memory", least=0, most=1)


@dataclass(frozen=True)
class Tokens(Policy):
    """Pass tokens from sites that have filled more than `high` of their memory: first to a holder that has filled less
    than `low`, then to a site that becomes a holder, then to a holder below `high`; when there is none, to the holder
    that has filled least, and what does not fit goes to disk. At most `most` units a round, those that take in most.
    Holders with nothing left are released.

    >>> view = ClusterView.at_rest(unit_site=[0], site_memory=[100, 100])
    >>> view = view.with_units(bytes=np.array([95]), inputs=np.array([2]), rows=np.array([10]))
    >>> for action in Tokens().decide(view): print(action)
    Share(unit=0, site=1, reason='site 0 has filled 95 % of its memory; site 1, 0 %, becomes a holder', evenly=False)
    PassToken(unit=0, input=0, site=1, reason='site 0 has filled 95 % of its memory; site 1, 0 %, becomes a holder')
    PassToken(unit=0, input=1, site=1, reason='site 0 has filled 95 % of its memory; site 1, 0 %, becomes a holder')
    """

    name = "tokens"

    low: Annotated[float, _SATURATION] = 0.2
    high: Annotated[float, _SATURATION] = 0.85
    most: Annotated[int, Count("how many units are passed on in a round")] = 64

    def __post_init__(self) -> None:
        check_settings(self)
        if self.low >= self.high:
            raise FlowError(f"low must be less than high; they are {self.low} and {self.high}")

    def decide(self, view: ClusterView) -> tuple[Action, ...]:
        if len(view.sites) < 2:
            return ()
        saturation, intake = view.saturation, _Intake(view)
        actions: list[Action] = []
        passed = 0
        for unit in self._candidates(view, saturation, intake):
            sharing = intake.sharing(unit)
            passing = self._pass_on(view, sharing, saturation, intake) if passed < self.most else []
            passed += bool(passing)
            actions += passing or self._release(view, sharing)  # not both: whoever has nothing may just get a token
        return tuple(actions)

    def _candidates(self, view: ClusterView, saturation: np.ndarray, intake: _Intake) -> list[Unit]:
        """Units that something may be done about, those that take in most first: those that are shared by token, and,
        as long as any site has room, all that are at one above `high`."""
        crowded = (saturation > self.high) & bool((saturation < self.high).any())
        eligible = (view.units.inputs > 0) & ~view.units.unready & (view.is_shared | crowded[view.units.site])
        places = np.flatnonzero(eligible)
        order = np.argsort(-intake.unit_rows[places], kind="stable")
        return [unit for unit in view.units.id[places[order]].tolist() if not intake.sharing(unit).grid_shape]

    def _pass_on(self, view: ClusterView, sharing: SharedUnit, saturation: np.ndarray, intake: _Intake) -> list[Action]:
        """The tokens that sites without room have of a unit, if it takes in anything."""
        unit = sharing.unit
        storing = dict.fromkeys(site for input_ in sharing.inputs for site in sharing.stores(input_))
        crowded = sorted((s for s in storing if saturation[s] > self.high), key=lambda s: -float(saturation[s]))
        actions: list[Action] = []
        for site in crowded if intake.unit_rows[view.units.index_of(unit)] else ():
            places = [i for i, token in enumerate(sharing.tokens) if sharing.turns or token == site]
            rows = sum(intake.input_rows(unit)[place] for place in places)
            room = (self.high - saturation) * view.sites.memory
            lasts = room / np.maximum(intake.site_rows + rows, 1e-9)
            chosen = self._choose(sharing, site, saturation, lasts) if places else None
            if chosen is None:
                continue
            target, becomes = chosen
            reason = (
                f"site {site} has filled {_percent(saturation[site])} of its memory; "
                f"site {target}, {_percent(saturation[target])}, {becomes}"
            )
            if target not in sharing.holders:
                actions.append(Share(unit, target, reason))
                sharing = sharing.with_holder(target)
            for place in places:
                actions.append(PassToken(unit, InputNumber(place), target, reason))
                sharing = sharing.with_token(sharing.inputs[place], target)
            intake.pass_on(unit, sharing)
        return actions

    def _choose(
        self, sharing: SharedUnit, crowded: Site, saturation: np.ndarray, lasts: np.ndarray
    ) -> tuple[Site, str] | None:
        """Who stores new rows in place of a crowded site, and why; None if nobody is better. `lasts` says for how long
        each site would stay below `high` with them."""
        sites = [Site(site) for site in range(len(saturation)) if site != crowded]
        holders = [site for site in sites if site in sharing.holders]

        def longest(among: Iterable[Site], below: float) -> Site | None:
            return max((s for s in among if saturation[s] < below), key=lambda s: float(lasts[s]), default=None)

        for target, becomes in (
            (longest(holders, self.low), "has room again"),
            (longest((site for site in sites if site not in sharing.holders), self.high), "becomes a holder"),
            (longest(holders, self.high), "lasts longest"),
        ):
            if target is not None:
                return target, becomes
        least = min(holders, key=lambda site: float(saturation[site]), default=crowded)
        emptier = saturation[least] < saturation[crowded] and not sharing.turns
        return (least, "has filled least") if emptier else None

    def _release(self, view: ClusterView, sharing: SharedUnit) -> list[Action]:
        """Holders that store nothing new, and of whose slice nothing is left."""
        if sharing.turns:
            return []
        slices = view.shared.slices
        empty = (slices.unit == view.units.index_of(sharing.unit)) & (slices.bytes == 0)
        reason = f"nothing is left of its slice of unit {sharing.unit}"
        return [
            Release(sharing.unit, site, reason) for site in slices.site[empty].tolist() if site not in sharing.tokens
        ]


class _Intake:
    """The rows that units take in, each counted once, and those that sites store of them; and as tokens pass, those
    that they will."""

    def __init__(self, view: ClusterView) -> None:
        self._view = view
        self._shared = {sharing.unit: sharing for sharing in view.shared.units}
        copies = np.ones(len(view.units))
        for sharing in view.shared.units:
            copies[view.units.index_of(sharing.unit)] = len(sharing.holders)
        self._copies = copies
        self.unit_rows: np.ndarray = view.units.rows / copies
        self.site_rows: np.ndarray = view.by_site(view.units.rows)
        for sharing in view.shared.units:
            self._store(sharing, 1)

    def sharing(self, unit: Unit) -> SharedUnit:
        """How a unit is shared; by one site, if it is not."""
        index = self._view.units.index_of(unit)
        inputs = [InputNumber(place) for place in range(int(self._view.units.inputs[index]))]
        return self._shared.get(unit) or SharedUnit.alone(unit, Site(int(self._view.units.site[index])), inputs)

    def input_rows(self, unit: Unit) -> tuple[float, ...]:
        """Of each input of a unit's operator."""
        index = self._view.units.index_of(unit)
        rows, first = float(self.unit_rows[index]), float(self._view.units.first_rows[index] / self._copies[index])
        return (first, rows - first) if len(self.sharing(unit).inputs) == 2 else (rows,)

    def pass_on(self, unit: Unit, sharing: SharedUnit) -> None:
        """A unit is stored otherwise."""
        self._store(self.sharing(unit), -1)
        self._store(sharing, 1)
        self._shared[unit] = sharing

    def _store(self, sharing: SharedUnit, sign: int) -> None:
        """On a grid every holder stores all that it gets."""
        for input_, rows in zip(sharing.inputs, self.input_rows(sharing.unit), strict=True):
            part = 1 if sharing.grid_shape else sharing.line_count(input_)
            self.site_rows[list(sharing.stores(input_))] += sign * rows / part


def _percent(part: float) -> str:
    return f"{100 * part:.0f} %"
