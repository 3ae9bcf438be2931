"""Placement of many queries by diffusion (Zhou, Ooi, Tan, Wu: dynamic operator placement)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
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
from sluice.policies.settings import Choice, Count, Flag, Number, check_settings
from sluice.verbs import Action
from sluice.verbs.move import Move

_ORDERS = tuple(one.value for one in Selection)


@dataclass(frozen=True)
class Placement(Policy):
    """Sites ask a few partners for load, and give pieces away so that streams stay together."""

    name = "placement"
    begins_at_home = True

    partners: Annotated[int, Count("how many partners a site asks for")] = 5
    kappa: Annotated[float, Number("how much a workload changes before partners hear of it", above=1)] = 1.2
    selection: Annotated[str, Choice("in which order pieces are given away", _ORDERS)] = "flow-aware"
    homing: Annotated[bool, Flag("whether pieces go home when no site asks for load (flow-aware only)")] = True
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
        """A round of every site in turn. If nobody asks for load, pieces go home that no site has to ask for then."""
        seconds = view.period.working_seconds
        if seconds <= 0 or not len(view.sites):
            return ()
        site_loads = 1.0 - view.sites.idle / seconds
        unit_loads = _spread(site_loads, view)
        balancers, places = self._balancers(view), _places_by_site(view)
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
        if self.homing and not migrations and self.diffusion.selection is Selection.FLOW_AWARE:
            return tuple(_send_home(view, site_loads, unit_loads, self.kappa))
        return tuple(Move(Unit(one.piece), one.receiver, one.reason) for one in migrations)

    def _balancers(self, view: ClusterView) -> list[Balancer]:
        """Those of the rounds before, unless there is another number of sites: then all begin anew."""
        sites = len(view.sites)
        if len(self._at_sites) != sites:
            settings = replace(self.diffusion, alpha=0.0)  # what a period shows is an average already
            neighbours = _neighbouring_sites(view)
            self._at_sites[:] = [Balancer(Site(site), sites, neighbours[site], settings) for site in range(sites)]
            requests = [request for balancer in self._at_sites for request in balancer.choose_partners()]
            _deliver(self._at_sites, requests)
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
    units, neighbours = view.units, view.neighbours
    row_of = np.full(len(units), -1)
    row_of[places] = np.arange(len(places))
    rows = row_of[neighbours.unit]
    here = rows >= 0
    return HeldPieces(
        number=units.id[places],
        load=unit_loads[places],
        bytes=units.bytes[places],
        home=units.home[places],
        link_piece=rows[here],
        link_site=neighbours.site[here],
    )


def _send_home(view: ClusterView, site_loads: np.ndarray, unit_loads: np.ndarray, kappa: float) -> Iterator[Move]:
    """Foreign pieces go home, those with most rows first, as long as both sites stay near the average: the home is not
    κ times as busy, and the other one has no reason to ask for load."""
    units, loads, mean = view.units, site_loads.copy(), float(site_loads.mean())

    def stay_near(place: np.ndarray) -> np.ndarray:
        load, home, site = unit_loads[place], units.home[place], units.site[place]
        near: np.ndarray = (loads[home] + load <= kappa * mean) & (kappa * (loads[site] - load) >= mean)
        return near

    foreign = np.flatnonzero((units.home >= 0) & (units.home != units.site) & ~view.is_shared & ~units.unready)
    foreign = foreign[stay_near(foreign)]
    for place in foreign[np.argsort(-units.rows[foreign], kind="stable")]:
        if stay_near(place):
            loads[units.site[place]] -= unit_loads[place]
            loads[units.home[place]] += unit_loads[place]
            home = Site(int(units.home[place]))
            yield Move(units.unit_at(place), home, f"its stream is native at site {home}, which has room for it")


def _neighbouring_sites(view: ClusterView) -> list[list[Site]]:
    """Of each site the sites of its native pieces' neighbours, by falling neighbouring factor: how many there are."""
    sites, own = len(view.sites), view.units.home[view.neighbours.unit]
    other = view.neighbours.site
    apart = (own >= 0) & (own != other)
    pairs, factors = np.unique(own[apart] * sites + other[apart], return_counts=True)
    neighbouring: list[list[Site]] = [[] for _ in range(sites)]
    for pair in pairs[np.argsort(-factors, kind="stable")].tolist():
        neighbouring[pair // sites].append(Site(pair % sites))
    return neighbouring
