"""A policy that never rests, for tests of what moves do to an answer."""

from __future__ import annotations

from sluice.model.view import ClusterView
from sluice.policies import Policy
from sluice.verbs.move import Move


class Wanderer(Policy):
    """A policy that moves units about all the time, some of them to where they are already."""

    name = "wanderer"

    def __init__(self, seed: int, sites: int) -> None:
        self.seed, self.sites = seed, sites

    def decide(self, view: ClusterView) -> tuple[Move, ...]:
        if not len(view.units):  # all queries are of filters alone
            return ()
        first = (view.period.epoch * 7 + self.seed) % len(view.units)
        units = {first, (first * 3 + 1) % len(view.units)}
        return tuple(Move(u, (self.seed + view.period.epoch + u) % self.sites, "wandering") for u in units)
