"""Scale: another number of sites (parallel window joins; executors that come and go).

Sites are numbered from 0 on, and the last ones leave. What they hold goes to the others by ordinary moves, some at a
time; what they share is released. Only when they hold nothing does the routing have fewer sites. Those that join get
their units by ordinary moves, too. These are planned when sites are asked for: so units can be set apart as soon as
there are executors.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from msgspec.structs import replace

from sluice.model.epoch.decision import Verb
from sluice.model.ids import Site, Unit
from sluice.model.routing.routing import Routing
from sluice.verbs.base import Instruction, Situation, VerbAction, VerbProtocol, take_number
from sluice.verbs.move import Move

JOIN_TIMEOUT_S = 120.0
"""Seconds after which sites that were to join, and whose executors have not come, are given up."""
LONGEST_BACKOFF_S = 3600.0
"""Seconds after which a policy may ask again for sites that did not come, however often that was."""


class ChangeSites(Instruction, frozen=True, tag=True):
    """There are to be so many sites: those that join get units, those that leave hand theirs over."""

    sites: int
    reason: str


class Scale(VerbAction, frozen=True, tag=True):
    """Have so many sites take part. Those that are to leave are the last ones: their units move to the others first, as
    any unit does; those that join have none until some move there.

    Args:
        sites: how many.
        reason: why, as users read it.

    >>> Scale(3, "to see")
    Scale(sites=3, reason='to see')
    """

    verb: ClassVar[Verb] = Verb.SCALE
    impossible: ClassVar[str] = "the number of sites is fixed here"

    sites: int
    reason: str

    def __post_init__(self) -> None:
        take_number(self, "sites", "number of sites")

    @property
    def needs(self) -> tuple[type[Instruction], ...]:
        return (ChangeSites,)

    def refuse(self, situation: Situation) -> str | None:
        able, routing = situation.capabilities, situation.routing
        if not able.scalable:
            return self.impossible
        if self.sites < 1:
            return "at least one site takes part"
        if not able.least_sites <= self.sites <= able.most_sites:
            return f"there may be {able.least_sites} to {able.most_sites} sites"
        for scaling in situation.in_flight.of(ScaleProtocol):  # while some join, more can be asked for
            if scaling.leaving or self.sites <= scaling.target_sites:
                return "sites are leaving" if scaling.leaving else "sites are joining"
        return f"there are {routing.sites} sites already" if self.sites == routing.sites else None

    def protocol(self, situation: Situation) -> ScaleProtocol:
        return ScaleProtocol(self, situation.routing.sites, situation.now)


class ScaleProtocol(VerbProtocol):
    """On the way to another number of sites, since a time.

    >>> ScaleProtocol(Scale(2, "to see"), before=4, since=0.0).leaving
    range(2, 4)
    """

    def __init__(self, action: Scale, before: int, since: float) -> None:
        super().__init__()
        self.action, self.before, self.since = action, before, since

    @property
    def target_sites(self) -> int:
        return self.action.sites

    @property
    def leaving(self) -> range:
        """The sites that are to leave; none where some are to join."""
        return range(self.target_sites, self.before)

    @property
    def delays_policy(self) -> bool:
        return bool(self.leaving)

    @property
    def reason(self) -> str:
        """Why units move because of this."""
        return f"sites: {self.before}, soon {self.target_sites}; {self.action.reason}"

    def refuse(self, action: VerbAction) -> str | None:
        """Why an action cannot be done beside it: nothing comes to a site that is to leave."""
        return f"site {action.destination} is leaving" if action.destination in self.leaving else None

    def begin(self) -> list[Instruction]:
        return [ChangeSites(self.target_sites, self.reason)]

    def is_done(self, routing: Routing) -> bool:
        return routing.sites == self.target_sites

    def sites_next(self, routing: Routing) -> int:
        """How many sites there may be, at most or at least, in the epoch after one with this routing: those that leave
        take part as long as they hold anything.

        >>> scaling = ScaleProtocol(Scale(1, "to see"), before=2, since=0.0)
        >>> scaling.sites_next(Routing(2, (0, 1))), scaling.sites_next(Routing(2, (0, 0)))
        (2, 1)
        """
        if any(routing.ranges_of(Site(site)) for site in self.leaving):
            return routing.sites
        return self.target_sites

    def leads_to(self, sites: int, routing: Routing) -> bool:
        """Whether it is because of this that there are so many sites after an epoch with this routing: some may join
        before others."""
        joining = not self.leaving and routing.sites < sites < self.target_sites
        return joining or sites == self.target_sites == self.sites_next(routing)

    def takes_epochs(self, routing: Routing, now: float) -> bool:
        return bool(self.leaving) or self.is_given_up(now)

    def is_given_up(self, now: float) -> bool:
        """Whether sites that were to join have not come for too long."""
        return not self.leaving and now - self.since >= JOIN_TIMEOUT_S


class ArrivalProtocol(VerbProtocol):
    """Moves that are planned for sites that join; each begins when its site is there."""

    delays_policy = False

    def __init__(self, moves: Iterable[Move]) -> None:
        super().__init__()
        self.moves = tuple(moves)
        self.over = not self.moves

    def begin(self) -> Sequence[Instruction]:
        return ()

    def replace_units(self, successors: Mapping[Unit, tuple[Unit, ...]]) -> None:
        planned = {new: replace(m, unit=new) for m in self.moves for new in successors.get(m.unit, (m.unit,))}
        self.moves = tuple(planned.values())

    def end_units(self, ended: Collection[Unit]) -> None:
        self.moves = tuple(move for move in self.moves if move.unit not in ended)
        self.over = not self.moves

    def takes_epochs(self, routing: Routing, now: float) -> bool:
        return any(move.site < routing.sites for move in self.moves)


@dataclass(frozen=True)
class Backoff:
    """From when on a policy may ask again for more sites than there are: each time that none came it waits twice as
    long.

    >>> once = Backoff().after(now=0.0)
    >>> once, once.after(now=240.0).allows(479.0), once.after(now=240.0).allows(480.0)
    (Backoff(seconds=120.0, until=120.0), False, True)
    """

    seconds: float = JOIN_TIMEOUT_S / 2
    until: float = -math.inf

    def after(self, now: float) -> Backoff:
        """None came again."""
        seconds = min(2 * self.seconds, LONGEST_BACKOFF_S)
        return Backoff(seconds, now + seconds)

    def allows(self, now: float) -> bool:
        return now >= self.until
