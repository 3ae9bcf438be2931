"""How many sites there are and which executor has which, while executors come and go."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

GRACE = 10.0
"""Seconds for which cores may be missing before sites are given up: a lost executor is often replaced sooner."""


@dataclass(frozen=True)
class Executor:
    """A process that runs so many tasks at a time."""

    id: str
    host: str
    slots: int


def spread(held: Sequence[str | None], executors: Sequence[Executor]) -> tuple[str | None, ...]:
    """The executor of each site: as even, by slots, as it can be, and with as few changes as that takes.

    `held` is where the sites were; None, and executors that are gone, are nowhere.

    >>> two = [Executor("a", "h", 2), Executor("b", "h", 2)]
    >>> spread(["a", "a", None, None], two)
    ('a', 'a', 'b', 'b')
    >>> spread(["a", "gone", "a", "a"], two)
    ('a', 'b', 'a', 'b')
    """
    if not executors:
        return (None,) * len(held)
    slots = {e.id: max(1, e.slots) for e in executors}
    load = dict.fromkeys(slots, 0)
    homes: list[str | None] = [home if home in slots else None for home in held]

    def emptiest() -> str:
        return min(slots, key=lambda e: ((load[e] + 1) / slots[e], load[e]))

    for home in homes:
        if home is not None:
            load[home] += 1
    for site, home in enumerate(homes):
        if home is None:
            homes[site] = chosen = emptiest()
            load[chosen] += 1
    while True:
        fullest, other = max(slots, key=lambda e: load[e] / slots[e]), emptiest()
        if load[fullest] / slots[fullest] <= (load[other] + 1) / slots[other]:
            return tuple(homes)
        homes[len(homes) - 1 - homes[::-1].index(fullest)] = other
        load[fullest], load[other] = load[fullest] - 1, load[other] + 1


def changes(before: Sequence[Executor], now: Sequence[Executor]) -> str:
    """How many executors came and went, in words.

    >>> changes([Executor("1", "h", 2), Executor("2", "h", 2)], [Executor("2", "h", 2), Executor("3", "h", 2)])
    'executors joined: 1, gone: 1'
    """
    there, here = {e.id for e in before}, {e.id for e in now}
    counts = {"joined": len(here - there), "gone": len(there - here)}
    return "executors " + ", ".join(f"{what}: {count}" for what, count in counts.items() if count)


class SiteCount:
    """How many sites a query has that follows the cores: one a slot, at most one a unit.

    >>> count = SiteCount(sites=4, most=256)
    >>> count.after(slots=6, now=0.0), count.after(slots=4, now=1.0), count.after(slots=4, now=11.0)
    (6, 6, 4)
    """

    def __init__(self, sites: int, most: int, grace: float = GRACE) -> None:
        self.sites, self.most, self.grace = sites, most, grace
        self._missing_since: float | None = None

    def after(self, slots: int, now: float) -> int:
        """More at once where slots have joined; fewer when they have been missing for the grace time. While nobody is
        there at all, nothing can be said."""
        wanted = min(slots, self.most)
        if slots and wanted < self.sites:
            self._missing_since = now if self._missing_since is None else self._missing_since
            if now - self._missing_since < self.grace:
                return self.sites
        self._missing_since = None
        self.sites = wanted if slots else self.sites
        return self.sites
