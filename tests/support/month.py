"""A query that runs for a month without Spark, an epoch every ten minutes: what it keeps and writes, sampled.

Time is handed in, so a month takes as long as its epochs do. Results go nowhere: a month of them would only fill disks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from engine_harness import DirectQuery
from specs import SECOND, TIME

from benchmarks.units import reachable_bytes
from sluice.control.journal import DIRECTORY
from sluice.model.clock import SystemClock
from sluice.testing.local_query import EpochRows
from sluice.verbs import Action

STEP = 600 * SECOND
"""From epoch to epoch."""
EPOCHS_A_MONTH = 30 * 24 * 6
SAMPLES = 240


@dataclass(frozen=True)
class Sample:
    """What there is after an epoch: rows of state of the inputs that are watched, the most runs that an input has at a
    site, files of state, bytes of the newest journal entry, and of what the driver keeps in memory."""

    epoch: int
    rows: int
    runs: int
    files: int
    entry_bytes: int
    driver_bytes: int

    @staticmethod
    def heading() -> str:
        return " ".join(f"{field.name.replace('_', ' '):>13}" for field in fields(Sample))

    def __str__(self) -> str:
        return " ".join(f"{getattr(self, field.name):13,}" for field in fields(Sample))


class MonthClock(SystemClock):
    """A calendar that goes on when it is told so."""

    now = 1e9

    def time(self) -> float:
        return self.now


class MonthlyQuery(DirectQuery):
    """A query whose clock is the month's. An epoch follows the one before by `interval` seconds of it."""

    def __init__(self, *arguments: Any, interval: float = STEP / SECOND, **options: Any) -> None:
        self.calendar, self.interval = MonthClock(), interval
        super().__init__(*arguments, clock=self.calendar, **options)

    def run(self, rows: EpochRows, *arguments: Any, **hooks: Any) -> None:
        self.calendar.now += self.interval
        super().run(rows, *arguments, **hooks)
        for sink in self.sinks:
            sink.storage.delete_all(entry.name for entry in sink.storage.files() if entry.name.endswith(".parquet"))

    def ask(self, action: Action) -> None:
        controller = self.epochs.settings.controller
        controller.ask(action)


def rows_of_epoch(rng: np.random.Generator, epoch: int, schema: pa.Schema, count: int, keys: int = 40) -> pa.Table:
    """Rows of one epoch, in the order of their times, columns (k, ts, v, ...)."""
    times = epoch * STEP + np.sort(rng.integers(0, STEP, count))
    columns = [pa.array(rng.integers(0, keys, count)), pa.array(times, TIME)]
    columns += [pa.array(rng.integers(0, 100, count)).cast(field.type) for field in list(schema)[2:]]
    return pa.table(columns, schema=schema)


def samples_of(
    query: MonthlyQuery,
    epochs: int,
    arriving: Callable[[int], EpochRows],
    between: Callable[[int], object] = lambda epoch: None,
    watched: tuple[int, ...] | None = None,
) -> Iterator[Sample]:
    """Run so many epochs, with what is done `between` them, and look at the query from time to time. Only the rows of
    `watched` inputs count, if some are given: the others may keep theirs for good."""
    every = max(1, epochs // SAMPLES)
    for epoch in range(epochs):
        between(epoch)
        query.run(arriving(epoch))
        if epoch % every == every - 1:
            yield _look_at(query, epoch, watched)


def _look_at(query: MonthlyQuery, epoch: int, watched: tuple[int, ...] | None) -> Sample:
    record = query.epochs.record
    runs: dict[tuple[int, int], int] = {}
    rows = 0
    for site, manifest in enumerate(record.manifests):
        for run in manifest:
            place = site, run.segment.input
            runs[place] = runs.get(place, 0) + 1
            rows += run.rows if watched is None or run.segment.input in watched else 0
    journal = Path(query.epochs.storage.root) / DIRECTORY
    newest = max(path for path in journal.iterdir() if path.suffix == ".json")
    return Sample(
        epoch=epoch,
        rows=rows,
        runs=max(runs.values(), default=0),
        files=len(record.files()),
        entry_bytes=newest.stat().st_size,
        driver_bytes=reachable_bytes(query.epochs),
    )


def check_flat(samples: list[Sample], printed: Callable[[str], object] = print) -> None:
    """Nothing is more in the last third of the month than in the second, but for chance: a tenth, and what a single
    epoch brings."""
    printed(Sample.heading())
    for sample in samples[:: max(1, len(samples) // 20)]:
        printed(str(sample))
    third = len(samples) // 3
    middle, last = samples[third : 2 * third], samples[2 * third :]
    for field in fields(Sample)[1:]:
        before = max(getattr(sample, field.name) for sample in middle)
        after = max(getattr(sample, field.name) for sample in last)
        assert after <= 1.1 * before + 2, f"{field.name.replace('_', ' ')} grow: {before:,}, then {after:,}"
