"""Another number of sites: those that join get their share, those that leave hand their units over first.

Sites are numbered from 0 on, and the last ones leave. What they hold goes to the others by ordinary moves, some at a
time; what they share is released. Only when they hold nothing does the routing have fewer sites. Those that join get
their units by ordinary moves, too; these are planned when sites are asked for. As soon as there are executors for them,
the units are set apart.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass

from sluice.model.actions import Action, Move, Release, Scale
from sluice.model.ids import Site, Unit
from sluice.model.routing import Routing
from sluice.model.view import ClusterView
from sluice.policies.draining import drain

AT_ONCE = 64
"""Units that are on their way from leaving or to joining sites at a time: each is set apart in segments of its own."""
PATIENCE = 120.0
"""Seconds after which sites that were to join, and whose executors have not come, are given up."""
LONGEST_WAIT = 3600.0
"""Seconds after which a policy may ask again for sites that did not come, however often that was."""


@dataclass(frozen=True)
class Backoff:
    """From when on a policy may ask again for more sites than there are: each time that none came it waits twice as
    long.

    >>> once = Backoff().after(now=0.0)
    >>> once, once.after(now=240.0).allows(479.0), once.after(now=240.0).allows(480.0)
    (Backoff(seconds=120.0, until=120.0), False, True)
    """

    seconds: float = PATIENCE / 2
    until: float = -math.inf

    def after(self, now: float) -> Backoff:
        """None came again."""
        seconds = min(2 * self.seconds, LONGEST_WAIT)
        return Backoff(seconds, now + seconds)

    def allows(self, now: float) -> bool:
        return now >= self.until


@dataclass(frozen=True)
class Scaling:
    """On the way to another number of sites: what was asked for, and when.

    >>> Scaling(Scale(2, "to see"), before=4, since=0.0).leaving
    range(2, 4)
    """

    action: Scale
    before: int
    since: float

    @property
    def wanted(self) -> int:
        return self.action.sites

    @property
    def leaving(self) -> range:
        """The sites that are to leave; none where some are to join."""
        return range(self.wanted, self.before)

    @property
    def reason(self) -> str:
        """Why units move because of this."""
        return f"sites: {self.before}, soon {self.wanted}; {self.action.reason}"

    @property
    def in_words(self) -> str:
        return "sites are leaving" if self.leaving else "sites are joining"

    def is_over(self, routing: Routing) -> bool:
        return routing.sites == self.wanted

    def sites_next(self, routing: Routing) -> int:
        """How many sites there may be, at most or at least, in the epoch after one with this routing: those that leave
        take part as long as they hold anything.

        >>> scaling = Scaling(Scale(1, "to see"), before=2, since=0.0)
        >>> scaling.sites_next(Routing(2, (0, 1))), scaling.sites_next(Routing(2, (0, 0)))
        (2, 1)
        """
        if any(routing.ranges_of(Site(site)) for site in self.leaving):
            return routing.sites
        return self.wanted

    def leads_to(self, sites: int, routing: Routing) -> bool:
        """Whether it is because of this that there are so many sites after an epoch with this routing: some may join
        before others."""
        joining = not self.leaving and routing.sites < sites < self.wanted
        return joining or sites == self.wanted == self.sites_next(routing)

    def actions(self, view: ClusterView, routing: Routing, moving: Collection[Unit]) -> list[Action]:
        """What is to be done next so that the leaving sites hold nothing, beside the units that are on their way."""
        if not self.leaving:
            return []
        asked: list[Action] = []
        for sharing in routing.shared:
            if sharing.unit in moving:  # it is being released
                continue
            gone = [site for site in sharing.holders if site in self.leaving]
            staying = len(gone) < len(sharing.holders)
            asked += [Release(sharing.unit, site, self.reason) for site in (gone if staying else gone[1:])]
        placed = drain(
            view.unit_site,
            view.unit_rows + view.unit_results,
            view.unit_bytes,
            [Site(site) for site in self.leaving],
            [Site(site) for site in range(self.wanted)],
        )
        moves = (Move(view.unit_at(index), site, self.reason) for index, site in placed)
        ready = [m for m in moves if m.unit not in moving and not routing.sharing(m.unit)]
        return [*asked, *ready[: max(0, AT_ONCE - len(moving))]]
