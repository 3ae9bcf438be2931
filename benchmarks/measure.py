"""What a contender reports: one JSON line, with rates taken from micro-batches that ran warm on a full state.

Only the standard library is imported here, because Flink's own interpreter reads this file too.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

# What every JVM may take; all contenders get the same.
MEMORY = "8g" if os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") > 14 << 30 else "4g"
FIRST_BATCHES = 1  # never counted: it loads code and opens the state
WARM_UP = "SLUICE_BENCH_WARM_UP"
WARM_UP_SECONDS = float(os.environ.get(WARM_UP, "20"))
"""For how long a contender on a JVM has worked before anything counts: until then the JVM compiles its own code on the
cores that are measured. Who has taken in all rows sooner takes them in again from the beginning."""


@dataclass(frozen=True)
class Batch:
    """One micro-batch: rows of all streams together, and the seconds of its whole trigger."""

    rows: int
    seconds: float
    rows_out: int = 0


def batches(progress: Iterable[Mapping[str, Any]], rows_out: Mapping[int, int]) -> list[Batch]:
    """Micro-batches that had input, from progress records with Spark's own field names."""
    return [
        Batch(p["numInputRows"], p["durationMs"]["triggerExecution"] / 1000, rows_out[p["batchId"]])
        for p in progress
        if p["numInputRows"]
    ]


def warm(run: list[Batch], fill_rows: int) -> list[int]:
    """Positions of the batches that count: past the first few, and begun when the state was already full."""
    before, counted = 0, []
    for i, batch in enumerate(run):
        if i >= FIRST_BATCHES and before >= fill_rows:
            counted.append(i)
        before += batch.rows
    return counted


def run_warm(run_all: Callable[[], list[Batch]], fill_rows: int) -> list[Batch]:
    """The first run over all rows whose batches that count begin warm."""
    begin = time.monotonic()
    while True:
        begun = time.monotonic()
        run = run_all()
        counted = warm(run, fill_rows)
        if not counted:
            raise SystemExit(f"all {len(run)} micro-batches went into filling the state ({fill_rows:,} rows)")
        if begun - begin + sum(batch.seconds for batch in run[: counted[0]]) >= WARM_UP_SECONDS:
            return run


def time_warm(run: Callable[[], float], times: int, worked: float) -> list[float]:
    """The seconds of so many runs that begin warm, after so many seconds of work."""
    while worked < WARM_UP_SECONDS:
        worked += run()
    return [run() for _ in range(times)]


def streamed(run: list[Batch], fill_rows: int) -> dict[str, Any]:
    """Figures of a warm run."""
    counted = warm(run, fill_rows)
    return {
        "rows_in": sum(b.rows for b in run),
        "rows_out": sum(b.rows_out for b in run),
        "warm_rate": median(run[i].rows / run[i].seconds for i in counted),
        "batches": len(run),
        "counted": len(counted),
        "batch_seconds": median(run[i].seconds for i in counted),
    }


def report(**figures: Any) -> None:
    print(json.dumps(figures), flush=True)
