"""A running query as a fake, with the part of its face that `watch` uses, and what it tells of an epoch."""

from __future__ import annotations

from typing import Any

SITE = {"rows": 1000, "units": 64, "memoryBytes": 2048, "diskBytes": 1024, "durableBytes": 3072}


def progress(epoch: int, sites: int = 2, **more: Any) -> dict[str, Any]:
    return {
        "batchId": epoch,
        "epoch": epoch,
        "numInputRows": 1000,
        "processedRowsPerSecond": 2000.0,
        "numOutputRows": 3000,
        "lateRows": 2,
        "moves": 0,
        "spills": 0,
        "fetches": 0,
        "backlogRows": 0,
        "imbalance": 1.0,
        "durationMs": {"triggerExecution": 500},
        "phaseSeconds": {"read": 0.1, "exchange": 0.3, "kernel": 0.1},
        "sites": [{**SITE, "site": site, "busySeconds": 0.25 + site} for site in range(sites)],
        **more,
    }


class FakeQuery:
    """Stands for a Query: each wait adds an epoch; ends, fails or is interrupted after some."""

    def __init__(self, epochs: int, name: str | None = None, ends: BaseException | None = None, sites: int = 2) -> None:
        self.epochs, self.name, self.ends, self.sites = epochs, name, ends, sites
        self.recentProgress: list[dict[str, Any]] = []
        self.stopped = False

    def awaitTermination(self, timeout: float | None = None) -> bool | None:
        if len(self.recentProgress) == self.epochs:
            if self.ends is not None:
                raise self.ends
            return True
        self.recentProgress.append(progress(len(self.recentProgress), self.sites))
        return len(self.recentProgress) == self.epochs and self.ends is None

    def stop(self) -> None:
        self.stopped = True
