"""What was counted and measured in an epoch: by stream, by site, by unit, and in all."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import NamedTuple

import numpy as np

from sluice.model.epoch.work_stats import OperatorColumns, OutputColumns
from sluice.model.ids import Site, UnitIndex


@dataclass(frozen=True)
class TaskSeconds:
    """Where tasks spent their time: on reading, on what crossed from Spark, on the split, on opening and sorting state
    and input, in kernels, on results, and on making state durable."""

    read: float = 0.0
    crossing: float = 0.0
    split: float = 0.0
    open: float = 0.0
    sort: float = 0.0
    kernel: float = 0.0
    sink: float = 0.0
    durable: float = 0.0

    def plus(self, other: TaskSeconds) -> TaskSeconds:
        """
        >>> TaskSeconds(read=1.0).plus(TaskSeconds(read=0.5, sink=1.0)).read
        1.5
        """
        return TaskSeconds(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))

    @property
    def total(self) -> float:
        """All of it."""
        return float(sum(getattr(self, f.name) for f in fields(self)))


@dataclass(frozen=True)
class EpochSeconds:
    """Where an epoch's time went: in its tasks, all together, and by the driver's clock. The journal's own record ends
    with the job, as it is written before the rest: then `total` is None."""

    tasks: TaskSeconds = field(default_factory=TaskSeconds)
    job: float = 0.0
    commit: float = 0.0
    deliver: float = 0.0
    total: float | None = None

    @property
    def elapsed(self) -> float:
        """How long the epoch took, as far as is known."""
        return max(self.job if self.total is None else self.total, 1e-6)


@dataclass(frozen=True)
class StreamStats:
    """The rows and files of one stream."""

    name: str
    rows: int = 0
    late: int = 0
    nulls: int = 0
    out_of_range: int = 0
    missing: int = 0
    corrupt: int = 0


@dataclass(frozen=True)
class SiteStats:
    """What a site did in an epoch, and what it holds after it.

    `results_per_unit` is its productivity rate R in the epoch, `productivity` the results by byte of its state, both of
    the present generations of its units; `frozen_units` have state in others, `missing_units` miss results because of
    that. These four are known when all its levels have reported. `unfreezable_excess` is by how many bytes the state of
    operators that cannot be frozen exceeds the memory, where a site freezes.
    """

    site: Site
    executor: str
    units: int
    rows_in: int = 0
    rows_done: int = 0
    rows_out: int = 0
    rows: int = 0
    segments: int = 0
    probed: int = 0
    null_rows: int = 0
    copied_rows: int = 0
    copied_bytes: int = 0
    memory_limit: int = 0
    memory_bytes: int = 0
    disk_bytes: int = 0
    durable_bytes: int = 0
    spilled_bytes: int = 0
    spilled_units: int = 0
    fetched_bytes: int = 0
    fetch_seconds: float = 0.0
    damaged_files: int = 0
    pending_rows: int = 0
    pending_bytes: int = 0
    merged_rows: int = 0
    frozen_rows: int = 0
    frozen_bytes: int = 0
    unfreezable_excess: int = 0
    late_results: int = 0
    results_per_unit: float = 0.0
    productivity: float = 0.0
    frozen_units: int = 0
    missing_units: int = 0
    busy_seconds: float = 0.0
    seconds: TaskSeconds = field(default_factory=TaskSeconds)

    @property
    def saturation(self) -> float:
        """How much of its memory for state it has filled, from 0 to 1."""
        return min(1.0, (self.memory_bytes + self.disk_bytes) / max(1, self.memory_limit))

    def plus(self, level: SiteStats) -> SiteStats:
        """With what the same site did at another level of operators."""
        sums = {name: getattr(self, name) + getattr(level, name) for name in _SUMMED}
        return replace(self, **sums, seconds=self.seconds.plus(level.seconds))


_OF_ALL_LEVELS = ("results_per_unit", "productivity", "frozen_units", "missing_units")
_SUMMED = [f.name for f in fields(SiteStats) if f.name not in ("site", "executor", "units", "seconds", *_OF_ALL_LEVELS)]


@dataclass(frozen=True)
class UnitColumns:
    """An entry for each unit: its rows of this epoch, those of its operator's first input, results, rows that wait,
    bytes in memory and on disk, processor seconds. `results_produced` are those since its present generation began;
    where they fade, those of long ago count less."""

    rows: np.ndarray
    first_rows: np.ndarray
    results: np.ndarray
    results_produced: np.ndarray
    pending: np.ndarray
    memory: np.ndarray
    disk: np.ndarray
    seconds: np.ndarray

    @classmethod
    def none(cls, units: int) -> UnitColumns:
        rows, first_rows, results, pending, memory, disk = np.zeros((6, units), dtype=np.int64)
        results_produced, seconds = np.zeros((2, units), dtype=np.float32)
        return cls(rows, first_rows, results, results_produced, pending, memory, disk, seconds)

    @property
    def productivity(self) -> np.ndarray:
        """Results by byte of state, both of the units' present generations."""
        return results_by_byte(self.results_produced, self.memory + self.disk)

    @classmethod
    def of_sites(cls, units: int, parts: Iterable[tuple[np.ndarray, UnitColumns]]) -> UnitColumns:
        """The columns of all units from those of some, with their places; what is said twice of a unit is added."""
        whole = cls.none(units)
        for places, part in parts:
            for column in fields(cls):
                getattr(whole, column.name)[places] += getattr(part, column.name)
        return whole


@dataclass(frozen=True)
class Slices:
    """An entry for each holder of a shared unit: the place of the unit, the rows that reached the holder, the results
    that it found, and the bytes of the unit's state that it has."""

    unit: np.ndarray
    site: np.ndarray
    rows: np.ndarray
    results: np.ndarray
    bytes: np.ndarray

    @classmethod
    def none(cls) -> Slices:
        return cls(*np.zeros((5, 0), dtype=np.int64))

    def plus(self, later: Slices) -> Slices:
        """With the rows and results of a later epoch, and the bytes where they were most: rows expire many at a time;
        anew if others hold the units."""
        if not (np.array_equal(self.unit, later.unit) and np.array_equal(self.site, later.site)):
            return later
        most = np.maximum(self.bytes, later.bytes)
        return replace(later, rows=self.rows + later.rows, results=self.results + later.results, bytes=most)

    @classmethod
    def of(cls, parts: Iterable[tuple[Site, np.ndarray, UnitColumns]], shared: Sequence[UnitIndex]) -> Slices:
        """From the columns of sites, with the places of the units that they are of."""
        pieces = []
        for site, places, columns in parts:
            at = np.flatnonzero(np.isin(places, shared))
            size = (columns.memory + columns.disk)[at]
            pieces.append((places[at], np.full(len(at), site), columns.rows[at], columns.results[at], size))
        return cls(*map(np.concatenate, zip(*pieces, strict=True))) if pieces else cls.none()


@dataclass(frozen=True)
class Traffic:
    """How many bytes of rows sites sent to each other: an entry for each sender and receiver. Rows of a stream are sent
    by its home. What a site keeps to itself has an entry, too."""

    sender: np.ndarray
    receiver: np.ndarray
    bytes: np.ndarray

    @classmethod
    def none(cls) -> Traffic:
        return cls(*np.zeros((3, 0), dtype=np.int64))

    @classmethod
    def of(cls, sent: Iterable[tuple[Site, np.ndarray]], sites: int) -> Traffic:
        """From what senders sent to each of so many sites.

        >>> Traffic.of([(0, np.array([0, 5])), (1, np.array([3, 0])), (0, np.array([1, 1]))], sites=2)
        Traffic(sender=array([0, 0, 1]), receiver=array([0, 1, 0]), bytes=array([1, 6, 3]))
        """
        by_pair: dict[int, np.ndarray] = {}
        for sender, bytes_to in sent:
            by_pair[sender] = by_pair.get(sender, 0) + bytes_to
        senders = sorted(by_pair)
        table = np.stack([by_pair[sender] for sender in senders]) if senders else np.zeros((0, sites), dtype=np.int64)
        row, receiver = np.nonzero(table)
        return cls(np.array(senders, dtype=np.int64)[row], receiver, table[row, receiver])

    @property
    def total(self) -> int:
        return int(self.bytes.sum())

    @property
    def between_sites(self) -> int:
        """The bytes that left the home of their stream, or the site that made them."""
        return int(self.bytes[self.sender != self.receiver].sum())


class FrozenTotals(NamedTuple):
    """How many units are frozen, with how much of state, and how many of them miss results."""

    units: int
    rows: int
    bytes: int
    missing: int


@dataclass(frozen=True)
class CleanUpProgress:
    """How far cleaning up has come since it began: rows of units that miss nothing any more, rows of those that still
    do, the results that were found, and how long its epochs took.

    >>> CleanUpProgress(rows_done=300, rows_left=100, results=70, seconds=2.0).rows_per_second
    150.0
    """

    rows_done: int = 0
    rows_left: int = 0
    results: int = 0
    seconds: float = 0.0

    @property
    def rows_per_second(self) -> float:
        return self.rows_done / self.seconds if self.seconds else 0.0


@dataclass(frozen=True)
class ScaleTarget:
    """The number of sites that is aimed at, None if it is that of now, and the least and most that there may be."""

    sites: int | None
    least: int
    most: int

    def in_words(self, sites: int) -> str:
        """
        >>> ScaleTarget(2, 1, 8).in_words(4), ScaleTarget(4, 1, 8).in_words(3), ScaleTarget(None, 1, 8).in_words(3)
        ('4 of at most 8 sites, 2 to 3 are leaving', '3 of at most 8 sites, 1 awaited', '3 of at most 8 sites')
        """
        what = f"{sites:,} of at most {self.most:,} sites"
        if self.sites is None or self.sites == sites:
            return what
        if self.sites > sites:
            return f"{what}, {self.sites - sites:,} awaited"
        alone = self.sites + 1 == sites
        return f"{what}, {self.sites} is leaving" if alone else f"{what}, {self.sites} to {sites - 1} are leaving"


@dataclass(frozen=True)
class EpochStats:
    """What was counted and measured in an epoch."""

    committed_at: float = 0.0
    catch_up: bool = False
    """Whether it only took in input that waited."""
    rows_in: int = 0
    rows_out: int = 0
    late_rows: int = 0
    null_rows: int = 0
    out_of_range_rows: int = 0
    missing_files: int = 0
    corrupt_files: int = 0
    moves: int = 0
    spills: int = 0
    fetches: int = 0
    streams: tuple[StreamStats, ...] = ()
    sites: tuple[SiteStats, ...] = ()
    units: UnitColumns = field(default_factory=lambda: UnitColumns.none(0))
    operators: OperatorColumns = field(default_factory=OperatorColumns.none)
    outputs: OutputColumns = field(default_factory=OutputColumns.none)
    slices: Slices = field(default_factory=Slices.none)
    """Of shared units."""
    copied_rows: int = 0
    """Rows that were sent to holders of shared units beside the first one of each."""
    copied_bytes: int = 0
    traffic: Traffic = field(default_factory=Traffic.none)
    clean_up: CleanUpProgress | None = None
    """None if no unit was to be cleaned up, but for those that a site cleans up by itself."""
    scale_target: ScaleTarget | None = None
    """None where the number of sites is no matter of choice."""
    seconds: EpochSeconds = field(default_factory=EpochSeconds)

    @property
    def frozen(self) -> FrozenTotals:
        """What is frozen at all sites."""
        return FrozenTotals(
            units=sum(site.frozen_units for site in self.sites),
            rows=sum(site.frozen_rows for site in self.sites),
            bytes=sum(site.frozen_bytes for site in self.sites),
            missing=sum(site.missing_units for site in self.sites),
        )

    @property
    def remiss(self) -> bool:
        """Whether all sites have filled their memory: more state goes to disk, and nothing but the disk is left."""
        return bool(self.sites) and all(site.saturation >= 1.0 for site in self.sites)

    @property
    def backlog_rows(self) -> int:
        """Rows that wait at all sites."""
        return sum(site.pending_rows for site in self.sites)

    @property
    def imbalance(self) -> float:
        """How much longer than the average the busiest site worked."""
        busy = [site.busy_seconds for site in self.sites]
        return max(busy) * len(busy) / sum(busy) if sum(busy) else 1.0


PHASES = ("read", "crossing", "split", "exchange", "kernel", "durable", "sink", "commit")


def phases(stats: EpochStats) -> dict[str, float]:
    """Seconds by phase. Tasks work side by side, so their seconds are divided by how many sites did it; what no phase
    accounts for is Spark's part (planning, scheduling, and the exchange of blobs) and waiting for the busiest site."""
    seconds, sites = stats.seconds, max(1, len(stats.sites))
    tasks = {f.name: getattr(seconds.tasks, f.name) / sites for f in fields(TaskSeconds)}
    kernel = sum(tasks.pop(phase) for phase in ("open", "sort", "kernel"))
    out = {**dict.fromkeys(PHASES, 0.0), **tasks, "kernel": kernel}
    out["exchange"] = max(0.0, seconds.job - kernel - sum(tasks.values()))
    out["sink"] += seconds.deliver
    out["commit"] = seconds.commit
    return out


def results_by_byte(results_produced: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """The productivity of each unit (lazy/active-disk paper, section 5.3): its results by byte of its
    state. What has no state has none.

    >>> results_by_byte(np.array([30, 5, 8]), np.array([10, 10, 0]))
    array([3. , 0.5, 0. ])
    """
    productivity: np.ndarray = np.divide(results_produced, sizes, out=np.zeros(len(sizes)), where=sizes > 0)
    return productivity


def results_by_unit(results: np.ndarray, unit_site: np.ndarray, sites: int) -> np.ndarray:
    """The productivity rate R of each site: the results of its units in some time, by unit.

    >>> results_by_unit(np.array([30, 10, 8]), np.array([0, 0, 1]), sites=3)
    array([20.,  8.,  0.])
    """
    units = np.bincount(unit_site, minlength=sites)
    rates: np.ndarray = np.bincount(unit_site, weights=results, minlength=sites) / np.maximum(units, 1)
    return rates
