"""What a scenario file says of an exchange beside plain values: exchanges to compare, skew and drift, and what goes
wrong at which sites and how long."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, replace
from typing import Annotated, Any

import numpy as np

from sluice.sim.notation import Bytes, Count, Delay, NumberKind, Seconds, in_bytes, read_number
from sluice.sim.section import Section, meant, sections
from sluice.sim.worlds.flux.scenario import EXCHANGES, FluxScenario, Load, Pressure
from sluice.sim.worlds.flux.workload import SKEWS, UNIFORM, ZIPF, Skew

MOST = 100_000
"""Changes in a run: more are a unit that was mistaken."""


def read_variants(values: Mapping[str, Any], file: Mapping[str, Section]) -> dict[str, FluxScenario]:
    """The scenarios of a file, one an exchange."""
    cluster, workload, top = file["cluster"], file["workload"], file[""].table
    if "memory" in cluster:
        if "memory" in file["hardware"]:
            raise file["hardware"].refuses("memory", "this is in [cluster] too; say it once")
        memory = cluster.get("memory", Bytes, MISSING)
        values = {**values, "hardware": replace(values["hardware"], memory=memory)}
    scenario = FluxScenario(**values)
    skew = _skew(workload)
    wrong = Disturbances(scenario)
    scenario = replace(
        scenario,
        skew=skew,
        drifts=_drifts(workload, skew, scenario.seconds),
        loads=wrong.loads(top.get("load", [])),
        pressures=wrong.pressures(top.get("pressure", [])),
    )
    exchanges = _exchanges(cluster)
    if scenario.buffer == 0 and "flux" in exchanges:
        problem = 'flux passes every tuple through its buffer; give it room, or exchange = "exchange"'
        raise cluster.refuses("buffer", problem)
    return {name: replace(scenario, exchange=name) for name in exchanges}


def _exchanges(cluster: Section) -> tuple[str, ...]:
    names: tuple[str, ...] = cluster.get("exchange", tuple[str, ...], ("flux",))
    for name in names:
        if name not in EXCHANGES:
            raise cluster.refuses("exchange", f"there is no exchange {name!r}; {meant(name, list(EXCHANGES))}")
        if names.count(name) > 1:
            raise cluster.refuses("exchange", f"{name} is listed twice")
    return names


def _skew(workload: Section) -> Skew:
    kind = workload.get("skew", str, UNIFORM)
    if kind not in SKEWS:
        raise workload.refuses("skew", f"there is no skew {kind!r}; {meant(kind, SKEWS)}")
    if kind == UNIFORM:
        if "amount" in workload:
            raise workload.refuses("amount", "a uniform workload has none; give a skew too")
        return Skew()
    above, below, default = (0.0, 10.0, 1.0) if kind == ZIPF else (0.5, 1.0, 0.8)
    amount = Annotated[float, NumberKind(read_number, above=above, below=below)]
    return Skew(kind, workload.get("amount", amount, default))


def _drifts(workload: Section, skew: Skew, seconds: float) -> tuple[float, ...]:
    if "drift-every" in workload and "drift-at" in workload:
        raise workload.refuses("drift-at", "give this or drift-every, not both")
    for key in ("drift-every", "drift-at"):
        if key in workload and skew.kind == UNIFORM:
            raise workload.refuses(key, "in a uniform workload no group is more popular than another; give a skew")
    times: Sequence[float] = workload.get("drift-at", tuple[Delay, ...], ())
    if "drift-every" in workload:
        every = workload.get("drift-every", Seconds, seconds)
        if seconds / every > MOST:
            raise workload.refuses("drift-every", f"the workload would change {seconds / every:,.0f} times")
        times = [every * number for number in range(1, math.ceil(seconds / every - 1e-9))]
    for time in times:
        if not 0 < time < seconds:
            raise workload.refuses("drift-at", f"{time:g} seconds is not inside the run of {seconds:g} seconds")
    return tuple(sorted(set(times)))


class Disturbances:
    """Reads `[[load]]` and `[[pressure]]`.

    Sites that are only counted are the first so many in an order that the seed gives. Load and pressure with the same
    count are so at the same sites, as one greedy process would be.
    """

    def __init__(self, scenario: FluxScenario) -> None:
        self.seconds, self.sites, self.memory = scenario.seconds, scenario.sites, scenario.hardware.memory
        self.order = [int(site) for site in np.random.default_rng(scenario.seed).permutation(scenario.sites)]

    def loads(self, entries: object) -> tuple[Load, ...]:
        loads: list[Load] = []
        for section in sections("load", entries, FluxScenario.own_keys["load"]):
            sites = self._sites(section)
            start, end = self._times(section)
            if "rotate" in section:
                loads += self._rotated(section, sites, start, min(end, self.seconds))
            else:
                loads += [Load(site, start, end) for site in sites]
        return tuple(loads)

    def _rotated(self, section: Section, sites: Sequence[int], start: float, end: float) -> list[Load]:
        each = section.get("rotate", Seconds, MISSING)
        turns = math.ceil((end - start) / each - 1e-9)
        if turns > MOST:
            raise section.refuses("rotate", f"the load would change its site {turns:,} times")
        return [
            Load(sites[turn % len(sites)], start + turn * each, min(end, start + (turn + 1) * each))
            for turn in range(turns)
        ]

    def pressures(self, entries: object) -> tuple[Pressure, ...]:
        pressures: list[Pressure] = []
        for section in sections("pressure", entries, FluxScenario.own_keys["pressure"]):
            if "size" not in section:
                raise section.refuses("size", "say how much memory is taken, for example '512 MB'")
            size = section.get("size", Bytes, MISSING)
            if size > self.memory:
                raise section.refuses("size", f"{in_bytes(size)} cannot be taken of a site's {in_bytes(self.memory)}")
            start, end = self._times(section)
            for site in self._sites(section):
                pressures.append(Pressure(site, size, start, end))
                peak = _peak([other for other in pressures if other.site == site])
                if peak > self.memory:
                    problem = (
                        f"together with entries above it {in_bytes(peak)} of site {site}'s {in_bytes(self.memory)}"
                    )
                    raise section.refuses("size", f"{problem} would be taken at the same time")
        # In this order memory that one gives back at an instant is there for another that takes it then.
        return tuple(sorted(pressures, key=lambda one: (one.start, one.site)))

    def _sites(self, section: Section) -> list[int]:
        if ("sites" in section) == ("count" in section):
            raise section.refuses("sites", 'say where: sites = [3, 5], sites = "all" or count = 8; one of them')
        if "count" in section:
            count = section.get("count", Count, MISSING)
            if count > self.sites:
                raise section.refuses("count", f"the cluster has only {self.sites} sites")
            return self.order[:count]
        sites = section.table["sites"]
        if sites == "all":
            return list(range(self.sites))
        if not isinstance(sites, list) or not sites or not all(type(site) is int for site in sites):
            raise section.refuses("sites", f'write a list of numbers such as [3, 5], or "all", not {sites!r}')
        for site in sites:
            if not 0 <= site < self.sites:
                raise section.refuses(
                    "sites", f"there is no site {site}; the cluster has {self.sites}, numbered from 0"
                )
            if sites.count(site) > 1:
                raise section.refuses("sites", f"site {site} is listed twice")
        return sites

    def _times(self, section: Section) -> tuple[float, float]:
        start = section.get("start", Delay, 0.0)
        end = section.get("end", Delay, float("inf"))
        if start >= self.seconds:
            raise section.refuses(
                "start", f"{start:g} seconds is not before the end of the run, {self.seconds:g} seconds"
            )
        if end <= start:
            raise section.refuses("end", f"{end:g} seconds is not after the start, {start:g} seconds")
        return start, end


def _peak(pressures: Sequence[Pressure]) -> int:
    """The most that is taken at one time; it is reached at one of the beginnings."""
    return max(sum(one.size for one in pressures if one.start <= at.start < one.end) for at in pressures)
