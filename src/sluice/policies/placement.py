"""Placement of many queries by diffusion (Zhou, Ooi, Tan, Wu: dynamic operator placement)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Annotated

import numpy as np

from sluice.model.ids import Site, Unit
from sluice.model.view import ClusterView
from sluice.policies.base import Policy
from sluice.policies.planning.diffusion import Balancer, DiffusionSettings, Message
from sluice.policies.planning.piece_selection import HeldPieces, Selection
from sluice.policies.planning.workload import Fluctuation
from sluice.policies.settings import Choice, Count, Number, check_settings
from sluice.verbs import Action
from sluice.verbs.move import Move

_ORDERS = tuple(one.value for one in Selection)


@dataclass(frozen=True)
class Placement(Policy):
    """Sites ask a few partners for load, and give pieces away so that streams stay together."""

    name = "placement"

    partners: Annotated[int, Count("how many partners a site asks for")] = 5
    kappa: Annotated[float, Number("how much a workload changes before partners hear of it", above=1)] = 1.2
    selection: Annotated[str, Choice("in which order pieces are given away", _ORDERS)] = "flow-aware"
    _at_sites: list[Balancer] = field(default_factory=list, init=False, repr=False, compare=False)
    """What each site knows of its partners. It is not kept over a restart: sites choose partners anew."""

    def __post_init__(self) -> None:
        check_settings(self)

    @property
    def diffusion(self) -> DiffusionSettings:
        """What each site's balancer goes by."""
        return DiffusionSettings(
            self.partners,
            self.kappa,
            alpha=Fluctuation().smoothing(self.kappa),
            tries=self.partners,
            probes=self.partners,
            selection=Selection(self.selection),
        )

    def decide(self, view: ClusterView) -> tuple[Action, ...]:
        """A round of every site in turn. Units have no home here: the rows of a stream come from everywhere."""
        seconds = view.period.working_seconds
        if seconds <= 0:
            return ()
        site_loads = 1.0 - view.sites.idle / seconds
        unit_loads = _spread(site_loads, view)
        balancers, places = self._balancers(len(view.sites)), _places_by_site(view)
        for balancer in balancers:
            _deliver(balancers, balancer.end_window(float(site_loads[balancer.site])))
        for balancer in balancers:
            _deliver(balancers, balancer.begin_round())
        migrations = [
            migration
            for balancer in balancers
            for migration in balancer.serve(partial(_held_pieces, places[balancer.site], view, unit_loads))
        ]
        for migration in migrations:
            balancers[migration.receiver].take_in(float(unit_loads[view.units.index_of(Unit(migration.piece))]))
        return tuple(Move(Unit(one.piece), one.receiver, one.reason) for one in migrations)

    def _balancers(self, sites: int) -> list[Balancer]:
        """Those of the rounds before, unless there is another number of sites: then all begin anew."""
        if len(self._at_sites) != sites:
            settings = replace(self.diffusion, alpha=0.0)  # what a period shows is an average already
            self._at_sites[:] = [Balancer(Site(site), sites, (), settings) for site in range(sites)]
            for balancer in self._at_sites:
                _deliver(self._at_sites, balancer.choose_partners())
        return self._at_sites


def _deliver(balancers: Sequence[Balancer], messages: Iterable[Message]) -> None:
    """Have messages answered until nobody has anything to say."""
    waiting = deque(messages)
    while waiting:
        message = waiting.popleft()
        waiting.extend(balancers[message.receiver].handle(message))


def _spread(site_loads: np.ndarray, view: ClusterView) -> np.ndarray:
    """The load of each unit: its part of its site's rows."""
    units, rows = view.units, view.rows_by_site
    loads: np.ndarray = site_loads[units.site] * units.rows / np.maximum(rows[units.site], 1)
    return loads


def _places_by_site(view: ClusterView) -> list[np.ndarray]:
    """Of each site the places of the units that it may give away; shared ones stay."""
    order = np.argsort(view.units.site, kind="stable")
    order = order[~view.is_shared[order]]
    ends = np.searchsorted(view.units.site[order], np.arange(1, len(view.sites)))
    return np.split(order, ends)


def _held_pieces(places: np.ndarray, view: ClusterView, unit_loads: np.ndarray) -> HeldPieces:
    units, none, nowhere = view.units, np.zeros(0, dtype=np.int64), np.full(len(places), -1)
    return HeldPieces(units.id[places], unit_loads[places], units.bytes[places], nowhere, none, none)
