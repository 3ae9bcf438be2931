"""A running query as a fake, with the part of its face that `watch` uses, and what it tells of an epoch."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from epoch_factory import record

from sluice.record.progress import EpochProgress


def progress(epoch: int, sites: int = 2, pending_rows: int = 0, **stats: Any) -> EpochProgress:
    """An epoch of half a second; nothing waits and nothing moves, unless it is said."""
    usual = {"rows_in": 1000, "rows_out": 3000, "late_rows": 2, "moves": 0, "spills": 0, "fetches": 0}
    measured = replace(record(epoch, max(1, sites)).stats, **{**usual, **stats})
    measured = replace(measured, sites=tuple(replace(s, pending_rows=pending_rows) for s in measured.sites[:sites]))
    return EpochProgress(epoch, epoch, 0.5, measured, 128, 0, (), None, (), ())


class FakeQuery:
    """Stands for a Query: each wait adds an epoch; ends, fails or is interrupted after some."""

    def __init__(self, epochs: int, name: str | None = None, ends: BaseException | None = None, sites: int = 2) -> None:
        self.epochs, self.name, self.ends, self.sites = epochs, name, ends, sites
        self.recentEpochs: list[EpochProgress] = []
        self.stopped = False

    def awaitTermination(self, timeout: float | None = None) -> bool | None:
        if len(self.recentEpochs) == self.epochs:
            if self.ends is not None:
                raise self.ends
            return True
        self.recentEpochs.append(progress(len(self.recentEpochs), self.sites))
        return len(self.recentEpochs) == self.epochs and self.ends is None

    def stop(self) -> None:
        self.stopped = True
