"""The cluster as a policy sees it, from what the epochs of a round add up to."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sluice.control.epoch_stats import EpochStats
from sluice.model.view import ClusterView


def view_cluster(
    newest: EpochStats,
    seconds: float,
    unit_rows: np.ndarray,
    unit_bytes: np.ndarray,
    site_busy: np.ndarray,
    site_memory: Sequence[int],
) -> ClusterView:
    """Sums are over the `seconds` that the busiest sites worked: for what is missing to them a site was idle. Where
    units are, what lies on disk and what waits is as the newest epoch left it."""
    return ClusterView(
        epoch=newest.record.number,
        seconds=seconds,
        unit_site=np.array(newest.record.routing.owners),
        unit_rows=unit_rows,
        unit_bytes=unit_bytes,
        unit_spilled=newest.unit_spilled,
        unit_pending=newest.unit_pending,
        site_idle=seconds - site_busy,
        site_memory=np.array(site_memory),
    )
