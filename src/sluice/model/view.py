"""What a policy sees: arrays, a row a unit or a site."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class ClusterView:
    """The cluster over the time its statistics were collected. Columns `unit_*` have one entry a unit, `site_*` a site.

    `unit_bytes` is a unit's state wherever it lies; `unit_spilled` says that it lies on disk, so that its input waits,
    `unit_pending` rows of it. `site_idle` is how many of the `seconds` a site waited for input, `site_memory` the bytes
    it may use for state, always a finite number. `unit_memory` is what lies in memory of a unit's state, `unit_yielded`
    the results that this has given so far: since the unit was frozen last, if it ever was.
    """

    epoch: int
    seconds: float
    unit_site: np.ndarray
    unit_rows: np.ndarray
    unit_bytes: np.ndarray
    unit_spilled: np.ndarray
    unit_pending: np.ndarray
    site_idle: np.ndarray
    site_memory: np.ndarray
    unit_memory: np.ndarray
    unit_yielded: np.ndarray

    @property
    def productivity(self) -> np.ndarray:
        """What each unit has yielded by byte in memory."""
        by_byte: np.ndarray = self.unit_yielded / np.maximum(self.unit_memory, 1)
        return by_byte

    @property
    def sites(self) -> int:
        """How many sites there are."""
        return len(self.site_idle)
