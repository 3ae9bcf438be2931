"""How much state each site may keep in memory."""

from __future__ import annotations

from sluice.model.ids import Site


class SiteMemory:
    """The same for every site, but for those that got a limit of their own.

    >>> memory = SiteMemory(100)
    >>> memory.set(1, 7)
    >>> memory.limits(3)
    (100, 7, 100)
    """

    def __init__(self, default: int) -> None:
        self.default = default
        self._own: dict[Site, int] = {}

    def set(self, site: Site, size: int) -> None:
        """What a site may use from the next epoch on."""
        self._own[site] = size

    def limits(self, sites: int) -> tuple[int, ...]:
        """What each of so many sites may use."""
        return tuple(self._own.get(Site(site), self.default) for site in range(sites))
