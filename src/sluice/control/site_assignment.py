"""How many sites there are and which executor has which, while executors come and go."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

GRACE_SECONDS = 10.0
"""Seconds for which cores may be missing before sites are given up: a lost executor is often replaced sooner."""


@dataclass(frozen=True)
class Executor:
    """A process that runs so many tasks at a time."""

    id: str
    host: str
    slots: int


def spread(homes_before: Sequence[str | None], executors: Sequence[Executor]) -> tuple[str | None, ...]:
    """The executor of each site: as even, by slots, as it can be, and with as few changes as that takes. Sites that are
    nowhere fill one executor after the other, so that neighbours are together.

    `homes_before` is where the sites were; None, and executors that are gone, are nowhere.

    >>> two = [Executor("a", "h", 2), Executor("b", "h", 2)]
    >>> spread([None, None, None, None], two)
    ('a', 'a', 'b', 'b')
    >>> spread(["a", "gone", "a", "a"], two)
    ('a', 'b', 'a', 'b')
    """
    if not executors:
        return (None,) * len(homes_before)
    homes, slots, load = _present_homes(homes_before, executors)

    def emptiest() -> str:
        return min(slots, key=lambda e: ((load[e] + 1) / slots[e], load[e]))

    coming = dict.fromkeys(slots, 0)
    for _ in range(homes.count(None)):
        chosen = emptiest()
        load[chosen], coming[chosen] = load[chosen] + 1, coming[chosen] + 1
    next_homes = iter([executor for executor, count in coming.items() for _ in range(count)])
    homes = [next(next_homes) if home is None else home for home in homes]
    while True:
        fullest, other = max(slots, key=lambda e: load[e] / slots[e]), emptiest()
        if load[fullest] / slots[fullest] <= (load[other] + 1) / slots[other]:
            return tuple(homes)
        homes[len(homes) - 1 - homes[::-1].index(fullest)] = other
        load[fullest], load[other] = load[fullest] - 1, load[other] + 1


def pack(homes_before: Sequence[str | None], executors: Sequence[Executor]) -> tuple[str | None, ...]:
    """The executor of each site where there are to be few executors: a site stays where it is, if that has a slot for
    it, and the others fill one executor after the other. If there are more sites than slots they are spread.

    >>> two = [Executor("a", "h", 2), Executor("b", "h", 2)]
    >>> pack([None, None], two), pack(["b", None, None], two), pack(["a", "a", "a"], two)
    (('a', 'a'), ('b', 'b', 'a'), ('a', 'a', 'b'))
    """
    if len(homes_before) > sum(max(1, e.slots) for e in executors):
        return spread(homes_before, executors)
    homes, slots, load = _present_homes(homes_before, executors)
    for site in reversed(range(len(homes))):
        home = homes[site]
        if home is not None and load[home] > slots[home]:
            homes[site], load[home] = None, load[home] - 1
    used_first = sorted(slots, key=lambda e: not load[e])
    next_homes = iter([executor for executor in used_first for _ in range(slots[executor] - load[executor])])
    return tuple(next(next_homes) if home is None else home for home in homes)


def executors_needed(sites: int, executors: Sequence[Executor]) -> int:
    """How many executors have a slot for each of so many sites, whichever of those that are there stay. Those that come
    have as many slots as the largest.

    >>> two = [Executor("a", "h", 2), Executor("b", "h", 4)]
    >>> [executors_needed(sites, two) for sites in (2, 3, 6, 7, 11)]
    [1, 2, 2, 3, 4]
    """
    slots = sorted(max(1, executor.slots) for executor in executors)
    missing = sites - sum(slots)
    if missing > 0:
        return len(slots) + -(-missing // slots[-1])
    return next(number for number, sum_ in enumerate(accumulate(slots), 1) if sum_ >= sites)


def _present_homes(
    homes_before: Sequence[str | None], executors: Sequence[Executor]
) -> tuple[list[str | None], dict[str, int], dict[str, int]]:
    """Where the sites are of which the executor is there, and the slots and sites of each executor."""
    slots = {e.id: max(1, e.slots) for e in executors}
    homes: list[str | None] = [home if home in slots else None for home in homes_before]
    return homes, slots, {executor: homes.count(executor) for executor in slots}


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

    def __init__(self, sites: int, most: int, grace: float = GRACE_SECONDS) -> None:
        self.sites, self.most, self.grace = sites, most, grace
        self._missing_since: float | None = None

    def after(self, slots: int, now: float) -> int:
        """More at once where slots have joined; fewer when they have been missing for the grace time. While nobody is
        there at all, nothing can be said."""
        target = min(slots, self.most)
        if slots and target < self.sites:
            self._missing_since = now if self._missing_since is None else self._missing_since
            if now - self._missing_since < self.grace:
                return self.sites
        self._missing_since = None
        self.sites = target if slots else self.sites
        return self.sites
