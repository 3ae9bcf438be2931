"""An epoch in a few numbers: one point of each chart of the page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sluice.dashboard.watermarks import watermark_seconds
from sluice.model.epoch.stats import EpochSeconds, EpochStats, phases
from sluice.model.identity import CheckpointIdentity
from sluice.model.plan.recorded_plan import RecordedPlan
from sluice.record.epoch import EpochRecord

STREAMS = 12
"""Streams that have a line of their own in a chart; further ones are added up."""
OTHERS = "other streams"


@dataclass(frozen=True)
class StreamPoint:
    """A stream in an epoch; `lag` is by how many seconds its watermark was behind the clock, if it has one."""

    name: str
    rows: int
    late: int
    lag: float | None = None


@dataclass(frozen=True)
class EpochPoint:
    """An epoch. `period` is the time in which its rows came: since the commit before, or what it took itself.
    `latency` is how long its rows took through all operators, None if there was nothing for these to do."""

    epoch: int
    committed_at: float
    seconds: float
    period: float
    rows_in: int
    results: int
    late: int
    latency: float | None
    phases: dict[str, float]
    streams: tuple[StreamPoint, ...]
    backlog_rows: int
    imbalance: float
    sites: int
    units: int
    shared_units: int
    memory_bytes: int
    memory_limit: int
    disk_bytes: int
    durable_bytes: int
    frozen_bytes: int
    bytes_between_sites: int
    moves: int
    spills: int
    fetches: int
    under_way: int

    @classmethod
    def of(
        cls, record: EpochRecord, identity: CheckpointIdentity, plan: RecordedPlan, before: EpochPoint | None = None
    ) -> EpochPoint:
        """The point of a record, after the one of the epoch before it."""
        stats, seconds = record.stats, record.stats.seconds.elapsed
        gap = 0.0 if before is None else stats.committed_at - before.committed_at
        delays = [*stats.operators.delay.tolist(), *stats.outputs.delay.tolist()]
        return cls(
            epoch=record.number,
            committed_at=stats.committed_at,
            seconds=seconds,
            period=max(gap, seconds),
            rows_in=stats.rows_in,
            results=stats.rows_out,
            late=stats.late_rows,
            latency=max(delays, default=None),
            phases=phases(stats),
            streams=_streams(stats, watermark_seconds(identity, plan, record)),
            backlog_rows=stats.backlog_rows,
            imbalance=stats.imbalance,
            sites=record.routing.sites,
            units=record.routing.units,
            shared_units=len(record.routing.shared),
            memory_bytes=sum(site.memory_bytes for site in stats.sites),
            memory_limit=sum(site.memory_limit for site in stats.sites),
            disk_bytes=sum(site.disk_bytes for site in stats.sites),
            durable_bytes=sum(site.durable_bytes for site in stats.sites),
            frozen_bytes=stats.frozen.bytes,
            bytes_between_sites=stats.traffic.between_sites,
            moves=stats.moves,
            spills=stats.spills,
            fetches=stats.fetches,
            under_way=len(record.under_way),
        )

    def with_whole_time(self, following: EpochRecord, stats: EpochStats) -> EpochPoint:
        """With all of its time, which the record of the epoch after it has. `stats` are its own."""
        seconds = _seconds_before(following)
        if seconds is None or seconds.total is None:
            return self
        timed = replace(stats, seconds=seconds)
        return replace(self, seconds=seconds.elapsed, period=max(self.period, seconds.elapsed), phases=phases(timed))


def _seconds_before(record: EpochRecord) -> EpochSeconds | None:
    return record.turns[-1].seconds if record.turns else None


def _streams(stats: EpochStats, marks: dict[str, float]) -> tuple[StreamPoint, ...]:
    points = [
        StreamPoint(
            stream.name,
            stream.rows,
            stream.late,
            stats.committed_at - marks[stream.name] if stream.name in marks else None,
        )
        for stream in stats.streams
    ]
    return (*points[:STREAMS], *_added(points[STREAMS:]))


def _added(rest: Sequence[StreamPoint]) -> tuple[StreamPoint, ...]:
    """Streams as one; it is as late as the last of them."""
    if not rest:
        return ()
    lags = [one.lag for one in rest if one.lag is not None]
    late = sum(one.late for one in rest)
    return (StreamPoint(OTHERS, sum(one.rows for one in rest), late, max(lags, default=None)),)
