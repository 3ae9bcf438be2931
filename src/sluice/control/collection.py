"""The collection phase on Spark: what the committed epochs of a round add up to."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from dataclasses import dataclass, replace

import numpy as np

from sluice.control.arrival_forecast import ArrivalForecast
from sluice.control.site_memory import SiteMemory
from sluice.control.viewing import view_units
from sluice.model.epoch.segments import unit_bytes
from sluice.model.epoch.stats import EpochStats, Slices
from sluice.model.ids import Unit
from sluice.model.plan.plan import Capabilities
from sluice.model.routing.routing import Routing
from sluice.model.view import ClusterView, Neighbours, Period, Scaling, SharedUnits, SiteTable
from sluice.record.epoch import EpochRecord
from sluice.record.repartition import spread_column
from sluice.record.replan import PlanChange, UnitPlaces, replan

RECENT = 10
"""Epochs over which a unit's state counts as large as it was at its largest: rows expire many at a time, and what fits
just after that would not for long."""


@dataclass(frozen=True)
class Sums:
    """Statistics of the collection phase so far."""

    since: float
    taken: float
    """When the input was taken in that came before: what counts has arrived since."""
    epochs: int
    seconds: float
    unit_rows: np.ndarray
    unit_results: np.ndarray
    unit_first_rows: np.ndarray
    slices: Slices
    site_busy: np.ndarray
    site_waiting: np.ndarray
    """Bytes of input that waited at each site, summed over the epochs."""
    site_done: np.ndarray
    stream_rows: np.ndarray

    @classmethod
    def none(cls, now: float, taken: float, routing: Routing) -> Sums:
        rows, results, first_rows = np.zeros((3, routing.units), dtype=np.int64)
        busy, waiting, done = np.zeros((3, routing.sites))
        streams = np.zeros(len(routing.homes), dtype=np.int64)
        return cls(now, taken, 0, 0.0, rows, results, first_rows, Slices.none(), busy, waiting, done, streams)

    def at(self, places: UnitPlaces) -> Sums:
        """The same for the units of another plan."""
        return replace(
            self,
            unit_rows=places.take(self.unit_rows),
            unit_results=places.take(self.unit_results),
            unit_first_rows=places.take(self.unit_first_rows),
            slices=Slices.none(),
        )

    def plus(self, stats: EpochStats) -> Sums:
        """An epoch counts as long as its busiest site worked."""
        busy = np.array([site.busy_seconds for site in stats.sites])
        return replace(
            self,
            epochs=self.epochs + 1,
            seconds=self.seconds + float(busy.max(initial=0.0)),
            unit_rows=self.unit_rows + stats.units.rows,
            unit_results=self.unit_results + stats.units.results,
            unit_first_rows=self.unit_first_rows + stats.units.first_rows,
            slices=self.slices.plus(stats.slices),
            site_busy=self.site_busy + busy,
            site_waiting=self.site_waiting + [site.pending_bytes for site in stats.sites],
            site_done=self.site_done + [site.rows_done for site in stats.sites],
            stream_rows=self.stream_rows + [stream.rows for stream in stats.streams],
        )


class EpochCollection:
    """Adds up epochs, round by round. The epoch after which it is begun for the first time is no part of it."""

    def __init__(self, memory: SiteMemory, capabilities: Capabilities, backlog: float, unit_size: int) -> None:
        """`backlog` is how many bytes of input may wait at a site, `unit_size` how many a unit is to have at least."""
        self.memory, self.capabilities, self.backlog, self.unit_size = memory, capabilities, backlog, unit_size
        self.single_key_units: Collection[Unit] = ()
        """Units with one key, as far as is known."""
        self.unmergeable_units: Collection[Unit] = ()
        """Units that could not be merged with their buddies, lately."""
        self._added = self._taken = 0.0
        """When the newest epoch was added, as the next one began, and when input was taken in the last time before."""
        self.forecast = ArrivalForecast()
        self.idle_epoch: int | None = None
        """The newest epoch that took in nothing because nothing had come."""
        self._sums: Sums | None = None
        self._sizes: deque[np.ndarray] = deque(maxlen=RECENT)
        self._newest: EpochRecord | None = None

    @property
    def has_begun(self) -> bool:
        """Whether an epoch of this run was added: before, sites have nothing, and read all that they hold anyway."""
        return self._newest is not None

    def begin(self, routing: Routing, now: float, seconds: float) -> None:
        if self._newest is not None:
            self._sums = Sums.none(now, self._taken, routing)

    def add(self, record: EpochRecord, now: float) -> None:
        """Add another committed epoch, as soon as the next one begins."""
        if self._newest is None:
            self._added = self._taken = now - record.stats.seconds.elapsed
        self.pass_by(record, now)
        self._sums = (
            Sums.none(now, self._taken, record.routing) if self._sums is None else self._sums.plus(record.stats)
        )
        self._sizes.append(state_bytes(record))
        self._newest = record

    def pass_by(self, record: EpochRecord, now: float) -> None:
        """The next epoch begins, after this one, which may have been for input that waited alone."""
        if not record.stats.catch_up or record.number == self.idle_epoch:
            self.forecast.add(record.stats.rows_in, self._added - self._taken)
            self._taken = self._added
        self._added = now

    def redivide(self, before: EpochRecord, record: EpochRecord) -> None:
        """The newest epoch's units are others from now on."""
        sizes = state_bytes(record)
        spread = [spread_column(column, before.routing, record.routing, sizes) for column in self._sizes]
        self._sizes.clear()
        self._sizes.extend(spread)
        self._newest = record

    def change_plan(self, change: PlanChange, places: UnitPlaces) -> None:
        """The flow goes by another plan: what was counted of units that stay goes on counting."""
        if self._newest is None:
            return
        self._newest = replan(self._newest, change)
        sizes = [places.take(column) for column in self._sizes]
        self._sizes.clear()
        self._sizes.extend(sizes)
        if self._sums is not None:
            self._sums = self._sums.at(places)

    def is_complete(self, now: float, seconds: float) -> bool:
        """As nearly as whole epochs can."""
        sums = self._sums
        return sums is not None and sums.epochs > 0 and (now - sums.since) * (1 + 0.5 / sums.epochs) >= seconds

    def view(self) -> ClusterView:
        """Sums are over the seconds that the busiest sites worked: for what is missing to them a site was idle."""
        assert self._sums is not None and self._newest is not None, "no epoch was collected"
        sums, newest, capabilities = self._sums, self._newest, self.capabilities
        sites = newest.routing.sites
        return ClusterView(
            units=view_units(
                newest,
                capabilities,
                sums.stream_rows,
                sums.unit_rows,
                sums.unit_first_rows,
                sums.unit_results,
                np.max(self._sizes, axis=0),
                self.single_key_units,
                self.unmergeable_units,
            ),
            sites=SiteTable(
                memory=np.array(self.memory.limits(sites)),
                idle=sums.seconds - sums.site_busy,
                occupancy=self._occupancy(sums),
                rows_done=sums.site_done,
            ),
            period=Period(
                newest.number,
                elapsed_seconds=self._added - sums.since,
                working_seconds=sums.seconds,
                arrival_seconds=self._taken - sums.taken,
            ),
            shared=SharedUnits(newest.routing.shared, sums.slices),
            neighbours=Neighbours(*capabilities.data_flow.neighbours(newest.routing)),
            scaling=Scaling(
                least_sites=capabilities.least_sites if capabilities.scalable else sites,
                most_sites=capabilities.most_sites if capabilities.scalable else sites,
                growth_factor=self.forecast.growth_factor(self._added - self._taken),
            ),
            unit_size=self.unit_size,
        )

    def _occupancy(self, sums: Sums) -> np.ndarray:
        """How much of what may wait at each site did, on average; nothing where nothing may."""
        most = max(1, sums.epochs) * max(self.backlog, 1.0)
        occupancy: np.ndarray = np.clip(sums.site_waiting / most, 0.0, 1.0)
        return occupancy


def state_bytes(record: EpochRecord) -> np.ndarray:
    """The state of each unit, from what the manifests say; input that waits is none yet, what is frozen none now."""
    runs = (run for manifest in record.manifests for run in manifest if run.is_active)
    return unit_bytes(runs, record.routing.units)
