"""Where an epoch's time went, from the seconds on its record."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

PHASES = ("read", "crossing", "split", "exchange", "kernel", "durable", "sink", "commit")
_WALL = ("job", "commit", "deliver", "total")
_PART_OF = {"open": "kernel", "sort": "kernel"}


def phases(figures: Mapping[str, Any]) -> dict[str, float]:
    """Seconds by phase. Tasks work side by side, so their seconds are divided by how many sites did it; what no phase
    accounts for is Spark's part: planning, scheduling, and the exchange of blobs."""
    seconds, tasks = figures.get("seconds", {}), max(1, len(figures.get("sites", [])))
    out: dict[str, float] = dict.fromkeys(PHASES, 0.0)
    for phase, value in seconds.items():
        if phase not in _WALL:
            name = _PART_OF.get(phase, phase)
            out[name] = out.get(name, 0.0) + value / tasks
    out["exchange"] = max(0.0, seconds.get("job", 0.0) - sum(out.values()))
    out["sink"] += seconds.get("deliver", 0.0)
    out["commit"] = seconds.get("commit", 0.0)
    return out
