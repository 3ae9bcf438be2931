"""What a run's journal says of its epochs, read while it runs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sluice.control.journal import Journal
from sluice.model.epoch.attempt import Attempt
from sluice.model.epoch.segments import unit_bytes
from sluice.record.epoch import EpochRecord
from sluice.state.files.storage import Storage


@dataclass(frozen=True)
class Epoch:
    """One epoch: `seconds` is the time from the commit before it to its own, everything included."""

    number: int
    committed: float
    seconds: float
    rows: int
    results: int
    backlog: int
    busy: tuple[float, ...]  # seconds that each site worked
    units: tuple[int, ...]  # that each site holds
    memory: tuple[int, ...]  # bytes of state that each site has in memory
    limits: tuple[int, ...]  # bytes that it may have
    moves: int  # asked for and not refused
    spills: int = 0
    fetches: int = 0
    on_disk: int = 0  # units
    late: int = 0  # of the results, those that cleaning up found
    frozen: int = 0  # units of which results are missing
    durable: int = 0  # bytes of state, wherever they lie
    copied: int = 0  # rows sent to holders of shared units beside the first of each
    written: int = 0  # bytes of state, new or anew
    job: float = 0.0  # seconds of its Spark job
    tasks: float = 0.0  # and of all tasks in it
    fetched: tuple[int, ...] = ()  # bytes of state that each site read from the checkpoint
    received: tuple[int, ...] = ()  # bytes that units had which came to each site, before the epoch
    state: tuple[int, ...] = ()  # bytes of state that each site has, wherever they lie
    largest_unit: int = 0  # bytes of the unit that has most
    exchanged: int = 0  # bytes of rows sent to sites
    between: int = 0  # of these, what left the home of its stream or the site that made it

    @property
    def rate(self) -> float:
        return self.rows / self.seconds

    @classmethod
    def of(cls, record: EpochRecord, before: float, previous: EpochRecord | None = None) -> Epoch:
        stats, sites = record.stats, record.stats.sites
        return cls(
            number=record.number,
            committed=stats.committed_at,
            seconds=max(stats.committed_at - before, 1e-6),
            rows=stats.rows_in,
            results=stats.rows_out,
            backlog=stats.backlog_rows,
            busy=tuple(round(site.busy_seconds, 3) for site in sites),
            units=tuple(site.units for site in sites),
            memory=tuple(site.memory_bytes for site in sites),
            limits=tuple(site.memory_limit for site in sites),
            moves=sum(1 for d in record.decisions if d.action == "move" and not d.refused),
            spills=stats.spills,
            fetches=stats.fetches,
            on_disk=sum(site.spilled_units for site in sites),
            late=sum(site.late_results for site in sites),
            frozen=len(record.missing_units),
            durable=sum(site.durable_bytes for site in sites),
            copied=stats.copied_rows,
            written=_written(record),
            job=stats.seconds.job,
            tasks=sum(vars(stats.seconds.tasks).values()),
            fetched=tuple(site.fetched_bytes for site in sites),
            received=_received(record, previous),
            state=tuple(site.durable_bytes for site in sites),
            largest_unit=int(_unit_sizes(record).max(initial=0)),
            exchanged=stats.traffic.total,
            between=stats.traffic.between_sites,
        )


class Watch:
    """Gives every epoch once, soon after its commit. Reads file names until there is a new one, which costs little."""

    def __init__(self, checkpoint: Path, begun: float) -> None:
        self.directory, self.journal = checkpoint / "journal", Journal(Storage(str(checkpoint)))
        self.next, self.number, self.last = 0, -1, begun
        self.previous: EpochRecord | None = None
        self.decisions: list[dict[str, Any]] = []

    def new(self) -> Iterator[Epoch]:
        while (self.directory / f"{self.next:012d}.json").exists():
            record = self.journal.read(self.next).record
            self.next += 1
            if record.number <= self.number:  # only its owner is new
                continue
            epoch = Epoch.of(record, self.last, self.previous)
            self.number, self.last, self.previous = record.number, epoch.committed, record
            self.decisions += [decision.as_dict() for decision in record.decisions]
            yield epoch


def _written(record: EpochRecord) -> int:
    """The bytes of the segments that an epoch has written."""
    new = Attempt.prefix(record.number)
    segments = {run.segment.id: run.segment.length for manifest in record.manifests for run in manifest}
    return sum(length for name, length in segments.items() if name.startswith(new))


def _received(record: EpochRecord, previous: EpochRecord | None) -> tuple[int, ...]:
    """The bytes that units had in the epoch before, input that waits among them, by the site that they came to; units
    that were just split or merged have other numbers and are left out."""
    sites = record.routing.sites
    if previous is None or previous.routing.directories != record.routing.directories:
        return (0,) * sites
    before, now = np.array(previous.routing.holders), np.array(record.routing.holders)
    sizes = np.where(before != now, _unit_sizes(previous), 0)
    return tuple(np.bincount(now, weights=sizes, minlength=sites).astype(np.int64).tolist())


def _unit_sizes(record: EpochRecord) -> np.ndarray:
    """The bytes that each unit has, input that waits among them, but for what is frozen."""
    runs = (run for manifest in record.manifests for run in manifest if not run.generation)
    return unit_bytes(runs, record.routing.units)
