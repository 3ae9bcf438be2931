"""What goes wrong in a scenario file: external load and memory pressure, at which sites and how long."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from sluice.model.errors import ScenarioError
from sluice.sim.scenario import Load, Pressure
from sluice.sim.toml_table import Section

WHERE_AND_WHEN = ("sites", "count", "start", "end")
LOAD = (*WHERE_AND_WHEN, "rotate")
PRESSURE = (*WHERE_AND_WHEN, "size")
MOST = 100_000
"""Changes in a run: more are a unit that was mistaken."""


class Disturbances:
    """Reads `[[load]]` and `[[pressure]]` for a run of so many seconds on so many sites.

    Sites that are only counted are the first so many in an order that the seed gives. Load and pressure with the same
    count are so at the same sites, as one greedy process would be.
    """

    def __init__(self, seconds: float, sites: int, memory: int, seed: int) -> None:
        self.seconds, self.sites, self.memory = seconds, sites, memory
        self.order = [int(site) for site in np.random.default_rng(seed).permutation(sites)]

    def loads(self, entries: object) -> tuple[Load, ...]:
        found: list[Load] = []
        for section in _sections("load", entries, LOAD):
            sites = self._sites(section)
            start, end = self._times(section)
            if "rotate" in section:
                found += self._rotated(section, sites, start, min(end, self.seconds))
            else:
                found += [Load(site, start, end) for site in sites]
        return tuple(found)

    def _rotated(self, section: Section, sites: Sequence[int], start: float, end: float) -> list[Load]:
        each = section.duration("rotate", 0.0, positive=True)
        turns = math.ceil((end - start) / each - 1e-9)
        if turns > MOST:
            raise section.refuses("rotate", f"the load would change its site {turns:,} times")
        return [
            Load(sites[turn % len(sites)], start + turn * each, min(end, start + (turn + 1) * each))
            for turn in range(turns)
        ]

    def pressures(self, entries: object) -> tuple[Pressure, ...]:
        found: list[Pressure] = []
        for section in _sections("pressure", entries, PRESSURE):
            if "size" not in section:
                raise section.refuses("size", "say how much memory is taken, for example '512 MB'")
            size = section.size("size", 0)
            if size > self.memory:
                raise section.refuses("size", f"{in_bytes(size)} cannot be taken of a site's {in_bytes(self.memory)}")
            start, end = self._times(section)
            for site in self._sites(section):
                found.append(Pressure(site, size, start, end))
                peak = _peak([other for other in found if other.site == site])
                if peak > self.memory:
                    told = f"together with entries above it {in_bytes(peak)} of site {site}'s {in_bytes(self.memory)}"
                    raise section.refuses("size", f"{told} would be taken at the same time")
        # In this order memory that one gives back at an instant is there for another that takes it then.
        return tuple(sorted(found, key=lambda one: (one.start, one.site)))

    def _sites(self, section: Section) -> list[int]:
        if ("sites" in section) == ("count" in section):
            raise section.refuses("sites", 'say where: sites = [3, 5], sites = "all" or count = 8; one of them')
        if "count" in section:
            count = section.count("count", 1)
            if count > self.sites:
                raise section.refuses("count", f"the cluster has only {self.sites} sites")
            return self.order[:count]
        given = section.given["sites"]
        if given == "all":
            return list(range(self.sites))
        if not isinstance(given, list) or not given or not all(type(site) is int for site in given):
            raise section.refuses("sites", f'write a list of numbers such as [3, 5], or "all", not {given!r}')
        for site in given:
            if not 0 <= site < self.sites:
                raise section.refuses(
                    "sites", f"there is no site {site}; the cluster has {self.sites}, numbered from 0"
                )
            if given.count(site) > 1:
                raise section.refuses("sites", f"site {site} is listed twice")
        return given

    def _times(self, section: Section) -> tuple[float, float]:
        start = section.duration("start", 0.0)
        end = section.duration("end", float("inf"))
        if start >= self.seconds:
            raise section.refuses(
                "start", f"{start:g} seconds is not before the end of the run, {self.seconds:g} seconds"
            )
        if end <= start:
            raise section.refuses("end", f"{end:g} seconds is not after the start, {start:g} seconds")
        return start, end


def in_bytes(size: int) -> str:
    """A size as a scenario file has it: in the largest unit of which it is a whole number, if there is one.

    >>> in_bytes(800_000), in_bytes(6 << 20), in_bytes(1_234_567)
    ('800 KB', '6 MiB', '1.235 MB')
    """
    units = (("GB", 10**9), ("GiB", 1 << 30), ("MB", 10**6), ("MiB", 1 << 20), ("KB", 10**3), ("KiB", 1 << 10))
    for unit, factor in units:
        if size and size % factor == 0:
            return f"{size // factor} {unit}"
    return f"{size / 10**6:.4g} MB" if size >= 10**6 else f"{size} B"


def _peak(pressures: Sequence[Pressure]) -> int:
    """The most that is taken at one time; it is reached at one of the beginnings."""
    return max(sum(one.size for one in pressures if one.start <= at.start < one.end) for at in pressures)


def _sections(name: str, entries: object, known: Sequence[str]) -> list[Section]:
    if not isinstance(entries, list):
        raise ScenarioError(f"{name}: there can be several, so it is written [[{name}]], in double brackets")
    return [Section(f"{name}[{number}]", entry, known) for number, entry in enumerate(entries)]
