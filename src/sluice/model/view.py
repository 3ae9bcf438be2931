"""What a policy sees and what it may ask for: arrays, a row a unit or a site."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class ClusterView:
    """The cluster after an epoch. Columns `unit_*` have one entry a unit, `site_*` one a site."""

    epoch: int
    unit_site: np.ndarray
    site_rows: np.ndarray
    site_memory: np.ndarray
    site_disk: np.ndarray
    site_busy: np.ndarray


@dataclass(frozen=True)
class Move:
    """Hold a unit at another site from the next epoch on."""

    unit: int
    site: int
    reason: str


Action = Move
