"""Epochs as a journal keeps them, made by hand: with all statistics that a view can show, and no query behind them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from specs import SECOND

from sluice.control.journal import Journal, name_plan
from sluice.model.epoch.segments import RunRef, SegmentRef
from sluice.model.epoch.stats import EpochSeconds, EpochStats, SiteStats, StreamStats, TaskSeconds, UnitColumns
from sluice.model.epoch.times import Frozen
from sluice.model.identity import CheckpointIdentity, StreamIdentity
from sluice.model.plan.recorded_plan import RecordedPlan
from sluice.model.routing.routing import Routing
from sluice.record.epoch import EpochRecord
from sluice.state.files.storage import Storage

UNITS = 128
AT = 1_794_711_267.0
IDENTITY = CheckpointIdentity(
    id="0" * 16,
    name="desk",
    partitions=UNITS,
    streams=(StreamIdentity("trades", (("symbol", "string"),), "ts", 5 * SECOND),),
)
PLAN = RecordedPlan(says="Window join\n  'trades' on (symbol)")
RUN = "ab12"
PLAN_FILE = name_plan(PLAN, 0, RUN)


def owned_journal(uri: str, name: str = "desk", plan: RecordedPlan = PLAN, **more: Any) -> Journal:
    """The journal of a flow's checkpoint, made if need be, by a driver that has just taken it over."""
    storage = Storage(uri)
    storage.make_dir()
    journal = Journal(storage)
    journal.claim(replace(IDENTITY, name=name, **more))
    first = EpochRecord(-1, (None,), Routing.even(UNITS, 2), ((),) * 2, plan=journal.write_plan(plan, 0, RUN))
    assert journal.take_over(RUN, AT, journal.newest(), first)
    return journal


def record(number: int, sites: int = 2, rows: int = 100, **more: Any) -> EpochRecord:
    """An epoch that brought `rows` rows, each unit more of them than the one before it."""
    unit = np.arange(UNITS)
    stats = EpochStats(
        committed_at=AT + number,
        rows_in=rows,
        rows_out=2 * rows,
        late_rows=3,
        moves=number % 2,
        spills=1,
        streams=(StreamStats("trades", rows=rows, late=3),),
        sites=tuple(
            SiteStats(
                site=s,
                executor=f"host-{s}/4711",
                units=UNITS // sites,
                rows_in=rows // sites,
                rows_out=2 * rows // sites,
                rows=1000 + s,
                segments=4,
                memory_limit=4096,
                memory_bytes=2048,
                disk_bytes=1024,
                durable_bytes=3072,
                spilled_units=s,
                pending_rows=10 * s,
                pending_bytes=400 * s,
                busy_seconds=0.25 + s,
            )
            for s in range(sites)
        ),
        units=UnitColumns(
            rows=unit,
            first_rows=unit // 2,
            results=2 * unit,
            results_produced=2 * unit,
            pending=unit // 100,
            memory=16 * unit,
            disk=8 * unit,
            seconds=unit / 1000,
        ),
        seconds=EpochSeconds(TaskSeconds(read=0.2, open=0.1, sort=0.1, kernel=0.2, sink=0.1, durable=0.1), job=2.0),
    )
    more = {"plan": PLAN_FILE, **more}
    return EpochRecord(number, (None,), Routing.even(UNITS, sites), ((),) * sites, stats=stats, **more)


def with_stats(before: EpochRecord, **changes: Any) -> EpochRecord:
    """A record with other statistics."""
    return replace(before, stats=replace(before.stats, **changes))


def with_site(before: EpochRecord, site: int, **changes: Any) -> EpochRecord:
    """A record with other statistics of a site."""
    sites = [replace(one, **changes) if one.site == site else one for one in before.stats.sites]
    return with_stats(before, sites=tuple(sites))


def with_frozen_units(before: EpochRecord) -> EpochRecord:
    """A record in which the last three units are frozen, of which the last two miss results."""
    held, counts = ((UNITS - 3, UNITS),), (750, 1500, 2250)
    segment = SegmentRef("s", "f", 0, 96 << 10, 0, sum(counts), 0, 0, 0, 0, 0, 0, held, counts, ())
    first, others = ((UNITS - 3, UNITS - 2),), ((UNITS - 2, UNITS),)
    cold = (Frozen(0, first, (None,), missing=False), Frozen(0, others, (None,), missing=True))
    manifests = (*before.manifests[:-1], (RunRef(segment, held, generation=1),))
    last = len(before.stats.sites) - 1
    return with_site(
        replace(before, frozen=cold, manifests=manifests),
        last,
        frozen_units=3,
        missing_units=2,
        frozen_rows=segment.rows,
        frozen_bytes=segment.length,
        late_results=7,
    )
