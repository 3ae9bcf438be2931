"""What is simulated: a cluster, a workload, and what goes wrong when."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from sluice.sim.hardware import MB, Hardware
from sluice.sim.workload import Skew
from sluice.sim.world import EXCHANGE, FLUX, RIVER

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
    found: list[Load] = []
    for load in sorted(loads, key=lambda one: (one.site, one.start)):
        if found and found[-1].site == load.site and load.start <= found[-1].end:
            found[-1] = Load(load.site, found[-1].start, max(found[-1].end, load.end))
        else:
            found.append(load)
    return tuple(found)


@dataclass(frozen=True)
class Pressure:
    """From `start` on, something else takes so many bytes of a site's memory; until `end`."""

    site: int
    size: int
    start: float = 0.0
    end: float = float("inf")


@dataclass(frozen=True)
class Drift:
    """At `start` other groups become the popular ones."""

    start: float


@dataclass(frozen=True)
class Scenario:
    """A stage of producers and consumers on a cluster; the values are those of the Flux paper, sections 3 and 5.4."""

    name: str = "baseline"
    seconds: float = 60.0
    sites: int = 32
    units_per_site: int = 64
    unit_bytes: int = 800_000
    groups: int = 16_384
    skew: Skew = field(default_factory=Skew)
    exchange: str = "flux"
    buffer: int = 2048
    loads: tuple[Load, ...] = ()
    load_on: float = 100e-6
    load_off: float = 50e-6
    pressures: tuple[Pressure, ...] = ()
    drifts: tuple[Drift, ...] = ()
    minimum_collection: float = 0.01
    interval: float = 1.0
    """Seconds over which rates and latencies are reported."""
    seed: int = 1
    hardware: Hardware = field(default_factory=Hardware)

    @property
    def units(self) -> int:
        return self.sites * self.units_per_site


MEMORY_BOUND = {"units_per_site": 128, "unit_bytes": 6 * MB}
"""What section 6.3 changes: 128 units of 6 MB, together 768 of a site's 1,024 MB."""
