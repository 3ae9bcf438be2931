"""How far event time has come, from what a checkpoint says."""

from __future__ import annotations

from sluice.model.epoch.times import ENDED, watermarks
from sluice.model.identity import CheckpointIdentity
from sluice.model.plan.recorded_plan import RecordedPlan
from sluice.record.epoch import EpochRecord


def watermark_seconds(identity: CheckpointIdentity, plan: RecordedPlan, record: EpochRecord) -> dict[str, float]:
    """Below which event time, in seconds since 1970, rows of each stream are late; streams without one are left out,
    as are those that have ended, and all if the plan is gone."""
    if not plan.sources:
        return {}
    delays = {stream.name: stream.delay for stream in identity.streams}
    marks = watermarks(record.newest, tuple(delays[name] for name in plan.sources))
    named = zip(plan.sources, marks, strict=True)
    return {name: mark / 1e6 for name, mark in named if mark is not None and mark != ENDED}
