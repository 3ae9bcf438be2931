"""What is simulated of an exchange: a cluster, a workload, and what goes wrong when."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from sluice.policies import Policy
from sluice.sim.event_queue import EventQueue
from sluice.sim.hardware import MB, Hardware
from sluice.sim.notation import Bytes, Count, Natural, RunSeconds, Seconds, in_bytes
from sluice.sim.scenario import Scenario
from sluice.sim.section import Section
from sluice.sim.world import World
from sluice.sim.worlds.flux.cluster import EXCHANGE, FLUX, RIVER
from sluice.sim.worlds.flux.workload import Skew

EXCHANGES = {"flux": FLUX, "exchange": EXCHANGE, "river": RIVER}


@dataclass(frozen=True)
class Load:
    """An external process at a site, from `start` to `end`, that computes for a while and sleeps for a while."""

    site: int
    start: float = 0.0
    end: float = float("inf")


def merged(loads: Iterable[Load]) -> tuple[Load, ...]:
    """The loads without overlaps: a site has one external process or none.

    >>> merged([Load(3, 5, 9), Load(3, 0, 5), Load(1, 2, 4)])
    (Load(site=1, start=2, end=4), Load(site=3, start=0, end=9))
    """
    apart: list[Load] = []
    for load in sorted(loads, key=lambda one: (one.site, one.start)):
        if apart and apart[-1].site == load.site and load.start <= apart[-1].end:
            apart[-1] = Load(load.site, apart[-1].start, max(apart[-1].end, load.end))
        else:
            apart.append(load)
    return tuple(apart)


@dataclass(frozen=True)
class Pressure:
    """From `start` on, something else takes so many bytes of a site's memory; until `end`."""

    site: int
    size: int
    start: float = 0.0
    end: float = float("inf")


@dataclass(frozen=True)
class FluxScenario(Scenario):
    """A stage of producers and consumers on a cluster; the values are those of the Flux paper, sections 3 and 5.4."""

    name: str = "baseline"
    seconds: RunSeconds = 60.0
    sites: Count = 32
    units_per_site: Count = 64
    unit_size: Bytes = 800_000
    groups: Count = 16_384
    skew: Skew = field(default_factory=Skew)
    exchange: str = "flux"
    buffer: Natural = 2048
    loads: tuple[Load, ...] = ()
    load_on: Seconds = 100e-6
    load_off: Seconds = 50e-6
    pressures: tuple[Pressure, ...] = ()
    drifts: tuple[Seconds, ...] = ()
    """When other groups become the popular ones."""
    minimum_collection: Seconds = 0.01
    interval: Seconds = 1.0
    """Seconds over which rates and latencies are reported."""
    seed: Natural = 1
    hardware: Hardware = field(default_factory=Hardware)

    effort = 32.0
    smallest: ClassVar = {"seconds": 0.001, "sites": 2, "units_per_site": 1, "interval": 0.001}
    sections: ClassVar = {
        "cluster": ("sites", "units_per_site", "unit_size", "buffer", "load_on", "load_off"),
        "workload": ("groups",),
        "run": ("seconds", "seed", "interval", "minimum_collection"),
    }
    own_keys: ClassVar = {
        "cluster": ("memory", "exchange"),
        "workload": ("skew", "amount", "drift_every", "drift_at"),
        "load": ("sites", "count", "start", "end", "rotate"),
        "pressure": ("sites", "count", "start", "end", "size"),
    }
    policies = ("static", "hybrid")

    @property
    def decides(self) -> bool:
        """A river sends any tuple anywhere, so there is nothing to move."""
        return self.exchange != "river"

    @property
    def summary(self) -> str:
        return f"{self.sites} sites, {self.units_per_site} units of {in_bytes(self.unit_size)} each"

    @property
    def incidents(self) -> Mapping[str, Iterable[float]]:
        return {
            "load": (load.start for load in self.loads),
            "load ends": (load.end for load in self.loads),
            "memory taken": (pressure.start for pressure in self.pressures),
            "memory given back": (pressure.end for pressure in self.pressures),
            "other groups popular": self.drifts,
        }

    @property
    def units(self) -> int:
        return self.sites * self.units_per_site

    def world(self, events: EventQueue, policy: Policy) -> World:
        from sluice.sim.worlds.flux.world import FluxWorld

        return FluxWorld(self, events, policy)

    @classmethod
    def variants(cls, values: Mapping[str, Any], file: Mapping[str, Section]) -> Mapping[str, FluxScenario]:
        from sluice.sim.worlds.flux.reading import read_variants

        return read_variants(values, file)


MEMORY_BOUND = {"units_per_site": 128, "unit_size": 6 * MB}
"""What section 6.3 changes: 128 units of 6 MB, together 768 of a site's 1,024 MB."""
