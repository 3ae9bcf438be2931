"""A site of a simulated join: it keeps within its memory by freezing, and hands units over; one thing at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from sluice.model import ids
from sluice.policies.planning.freezing import Freezing
from sluice.sim.event_queue import EventQueue
from sluice.sim.hardware import Hardware
from sluice.sim.worlds.lazy_disk.core import Cluster
from sluice.sim.worlds.lazy_disk.frozen_generations import FrozenGenerations
from sluice.sim.worlds.lazy_disk.site_mode import BeginRelocation, BeginSpill, MeasureMemory, Mode, Permission, SiteMode

Done = Callable[[], object]


@dataclass(frozen=True)
class TimedSpill:
    """Units that a site froze at a time, of its own accord or because the coordinator wanted it."""

    time: float
    site: ids.Site
    units: int
    size: int
    forced: bool


class LazyDiskSite:
    """One instance of the join with its memory. Whatever it does takes its turn behind what it was given before."""

    def __init__(
        self,
        number: ids.Site,
        cluster: Cluster,
        events: EventQueue,
        hardware: Hardware,
        freezing: Freezing | None,
        frozen: FrozenGenerations,
        seed: int,
    ) -> None:
        """Without `freezing` all state stays in memory, however large it gets."""
        self.number, self.cluster, self.events, self.hardware = number, cluster, events, hardware
        self.freezing, self.frozen, self.seed = freezing, frozen, seed
        self.units: set[ids.Unit] = set()
        self.spills: list[TimedSpill] = []
        self._mode = SiteMode(number)
        self._waiting: dict[ids.Unit, Done] = {}
        cluster.site["may_spill"][number] = freezing is not None

    @property
    def mode(self) -> Mode:
        return self._mode.mode

    @property
    def is_full(self) -> bool:
        own = self.cluster.site[self.number]
        return self.freezing is not None and bool(own["stored"] > own["limit"])

    # --- what it is told ---

    def measure_memory(self) -> None:
        """Spill, if memory is full and nothing else is under way."""
        if self.is_full:
            self._follow(self._mode.memory_full())

    def freeze(self, units: Iterable[ids.Unit]) -> None:
        """The coordinator wants units frozen."""
        self._follow(self._mode.spill(units))

    def relocate(self, unit: ids.Unit, begin: Done) -> None:
        """A unit is to leave or to come: `begin` is called when the site is ready for it."""
        self._waiting[unit] = begin
        self._follow(self._mode.relocate(unit))

    def relocated(self, unit: ids.Unit) -> None:
        """What was begun with `relocate` is over."""
        self._follow(self._mode.relocated(unit))

    def extract(self, unit: ids.Unit, done: Done) -> None:
        """Take a unit's state out of memory, into the hands of the network."""
        stored = int(self.cluster.unit["stored"][unit])
        self.units.remove(unit)
        self.cluster.site["stored"][self.number] -= stored
        self._work(stored * self.hardware.handle_state, done)

    def install(self, unit: ids.Unit, done: Done) -> None:
        """Take a unit's state into memory. Its frozen generations lie where every site can read them."""
        stored = int(self.cluster.unit["stored"][unit])
        self.units.add(unit)
        self.cluster.site["stored"][self.number] += stored
        self._work(stored * self.hardware.handle_state, done)

    # --- what it does ---

    def _follow(self, permissions: Iterable[Permission]) -> None:
        for permission in permissions:
            match permission:
                case BeginSpill(units):
                    self._spill(units)
                case BeginRelocation(unit):
                    self._waiting.pop(unit)()
                case MeasureMemory():
                    self.measure_memory()
        self.cluster.site["may_spill"][self.number] = self.freezing is not None and self.mode is Mode.NORMAL

    def _spill(self, asked: tuple[ids.Unit, ...]) -> None:
        """Units leave memory at once; the site writes for as long as that takes, while its tuples wait."""
        stored = self.cluster.unit["stored"]
        chosen = [unit for unit in asked if unit in self.units and stored[unit]] if asked else self._choose()
        tuples = 0
        for unit in chosen:
            tuples += self.frozen.freeze(unit)
            stored[unit] = self.cluster.unit["yielded"][unit] = 0
        self.cluster.site["stored"][self.number] -= tuples
        size = tuples * self.hardware.tuple_bytes
        if chosen:
            self.spills.append(TimedSpill(self.events.now, self.number, len(chosen), size, bool(asked)))
        seconds = len(chosen) * self.hardware.seek + size / self.hardware.disk_rate
        self._work(seconds + tuples * self.hardware.handle_state, lambda: self._follow(self._mode.spilled()))

    def _choose(self) -> list[ids.Unit]:
        assert self.freezing is not None, "a site that cannot freeze has no limit"
        held = np.array(sorted(self.units), dtype=np.int64)
        sizes = self.cluster.unit["stored"][held] * self.hardware.tuple_bytes
        limit = int(self.cluster.site["limit"][self.number]) * self.hardware.tuple_bytes
        seed = self.seed * 1_000_003 + len(self.spills)
        places = self.freezing.choose(sizes, self.cluster.unit["yielded"][held], limit, seed)
        return [ids.Unit(unit) for unit in held[places].tolist()]

    def _work(self, seconds: float, done: Done) -> None:
        own = self.cluster.site[self.number]
        own["busy_until"] = max(own["busy_until"], self.events.now) + seconds
        own["worked"] += seconds
        self.events.at(float(own["busy_until"]), done)
