"""What a contender reports: one JSON line, with rates taken from micro-batches that ran warm on a full state.

Only the standard library is imported here, because Flink's own interpreter reads this file too.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

# What every JVM may take; all contenders get the same.
MEMORY = "8g" if os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") > 14 << 30 else "4g"
FIRST_BATCHES = 1  # never counted: it loads code and opens the state


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


def streamed(run: list[Batch], fill_rows: int, seconds: float) -> dict[str, Any]:
    """Figures of a streaming run; ``seconds`` is the whole of it, from before the JVM was launched."""
    counted = warm(run, fill_rows)
    if not counted:
        raise SystemExit(f"all {len(run)} micro-batches went into filling the state ({fill_rows:,} rows)")
    rows = sum(b.rows for b in run)
    return {
        "rows_in": rows,
        "rows_out": sum(b.rows_out for b in run),
        "warm_rate": median(run[i].rows / run[i].seconds for i in counted),
        "startup_rate": rows / seconds,
        "batches": len(run),
        "counted": len(counted),
        "batch_seconds": median(run[i].seconds for i in counted),
    }


def report(**figures: Any) -> None:
    print(json.dumps(figures), flush=True)
