"""The totals after an epoch: those after the one before, and what the epoch added."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from sluice.model.epoch.decision import outcomes
from sluice.model.epoch.segments import unit_bytes
from sluice.model.epoch.stats import phases
from sluice.model.epoch.totals import Totals
from sluice.model.routing.routing import Routing
from sluice.record.epoch import EpochRecord


def totals_after(previous: EpochRecord, routing: Routing, record: EpochRecord) -> Totals:
    """Those after an epoch that began under this `routing`. The record of the one before, laid out alike, has its times
    as they were measured."""
    stats, totals = record.stats, previous.totals
    totals = totals.with_streams(stats.streams).with_sites(stats.sites)
    totals = totals.with_actions((one.action, one.outcome) for one in outcomes([record]) if one.outcome != "waiting")
    if previous.number >= 0:
        totals = totals.with_phases(phases(previous.stats))
    return replace(
        totals,
        results=totals.results + stats.rows_out,
        moves=totals.moves + stats.moves,
        moved_bytes=totals.moved_bytes + (_moved_bytes(previous, routing) if stats.moves else 0),
        exchanged_bytes=totals.exchanged_bytes + stats.traffic.total,
        bytes_between_sites=totals.bytes_between_sites + stats.traffic.between_sites,
        copied_bytes=totals.copied_bytes + stats.copied_bytes,
    )


def _moved_bytes(previous: EpochRecord, routing: Routing) -> int:
    """The bytes of the units that are at other sites now."""
    runs = (run for manifest in previous.manifests for run in manifest)
    sizes = unit_bytes(runs, previous.routing.units)
    places = [previous.routing.index_of(unit) for unit in routing.units_moved_since(previous.routing)]
    return round(float(sizes[np.array(places, dtype=np.int64)].sum()))
