"""What the control loop reads of a committed epoch: the one place that knows how the record keeps it."""

from __future__ import annotations

import numpy as np

from sluice.model.codec import decode_column
from sluice.model.epoch import EpochRecord
from sluice.model.state import unit_bytes


class EpochStats:
    """Statistics of one epoch. Columns of units are decoded when they are asked for."""

    def __init__(self, record: EpochRecord) -> None:
        self.record, self._figures = record, record.figures

    @property
    def site_busy(self) -> np.ndarray:
        """Seconds that each site worked."""
        return np.array([site["busySeconds"] for site in self._figures["sites"]])

    @property
    def unit_rows(self) -> np.ndarray:
        return decode_column(self._figures["unitRows"])

    @property
    def unit_pending(self) -> np.ndarray:
        """Rows of each unit that wait."""
        return decode_column(self._figures["unitPending"])

    @property
    def unit_spilled(self) -> np.ndarray:
        """Units that lie on disk while their input waits (where the rotation keeps up, none does) or, where disks are
        probed, those of which any state is there."""
        queues = self.record.queues
        if not queues:
            on_disk: np.ndarray = decode_column(self._figures["unitDisk"]) > 0
            return on_disk
        units = np.arange(self.record.routing.units)
        waiting: np.ndarray = np.isin(units, [unit for q in queues for unit in q.disk]) & (self.unit_pending > 0)
        return waiting

    @property
    def state_bytes(self) -> np.ndarray:
        """The state of each unit, from what the manifests say; input that waits is none yet."""
        runs = (run for manifest in self.record.manifests for run in manifest if not run.segment.pending)
        return unit_bytes(runs, self.record.routing.units)

    @property
    def job_seconds(self) -> float:
        return float(self._figures["seconds"]["job"])

    @property
    def seconds(self) -> float:
        """All of it, as far as is known."""
        return float(self._figures["seconds"].get("total", self.job_seconds))

    @property
    def copies(self) -> tuple[int, float]:
        """Bytes that sites copied from others, and the seconds it took them."""
        sites = self._figures["sites"]
        return sum(site["fetchedBytes"] for site in sites), sum(site["fetchSeconds"] for site in sites)
