"""The progress of an epoch as a value; users get it as a dictionary, under Spark's names (`api/progress.py`)."""

from __future__ import annotations

from dataclasses import dataclass

from sluice.model.epoch.stats import EpochStats, phases
from sluice.model.epoch.times import ENDED, Times, watermarks
from sluice.model.plan.plan import Plan
from sluice.model.routing.sharing import SharedUnit
from sluice.record.epoch import EpochRecord


@dataclass(frozen=True)
class StreamWatermark:
    """Below which event time, in microseconds, a row of a stream is late; None as long as none is."""

    stream: str
    micros: int | None

    @property
    def has_ended(self) -> bool:
        """Whether the stream has ended: any row would be late."""
        return self.micros == ENDED


@dataclass(frozen=True)
class SilentStream:
    """A stream that brought no rows in an epoch and is behind others that it meets in a union or a join, by so many
    seconds of event time; None if it has brought no rows yet. State is kept, and windows stay open, until it goes on.
    """

    stream: str
    behind_seconds: float | None


@dataclass(frozen=True)
class OperatorProgress:
    """What went into an operator (rows, or partial aggregates where it combines them early) and came out of it."""

    operator: str
    rows_in: int
    rows_out: int


@dataclass(frozen=True)
class ScalingProgress:
    """How many sites there are, may be and are to be.

    >>> ScalingProgress(sites=4, least=1, most=8, wanted=2).leaving, ScalingProgress(4, 1, 8, wanted=6).awaited
    (range(2, 4), 2)
    """

    sites: int
    least: int
    most: int
    wanted: int

    @property
    def leaving(self) -> range:
        """The sites that are to leave."""
        return range(self.wanted, self.sites)

    @property
    def awaited(self) -> int:
        """How many sites are to join."""
        return max(0, self.wanted - self.sites)


@dataclass(frozen=True)
class EpochProgress:
    """What an epoch did, and how the query stands after it. `seconds` is how long it took, as Spark counts it."""

    epoch: int
    batch: int
    seconds: float
    stats: EpochStats
    units: int
    missing_units: int
    shared: tuple[SharedUnit, ...]
    scaling: ScalingProgress | None
    watermarks: tuple[StreamWatermark, ...]
    operators: tuple[OperatorProgress, ...]
    silent_streams: tuple[SilentStream, ...] = ()

    @classmethod
    def of(cls, record: EpochRecord, plan: Plan, seconds: float) -> EpochProgress:
        """The progress of the epoch of a record."""
        marks = watermarks(record.newest, tuple(stream.delay for stream in plan.sources))
        named = zip((stream.name for stream in plan.sources), marks, strict=True)
        return cls(
            epoch=record.number,
            batch=record.batch,
            seconds=seconds,
            stats=record.stats,
            units=record.routing.units,
            missing_units=len(record.missing_units),
            shared=record.routing.shared,
            scaling=_scaling(record),
            watermarks=tuple(StreamWatermark(stream, mark) for stream, mark in named),
            operators=_operators(record.stats, plan),
            silent_streams=_silent_streams(record.stats, plan, marks),
        )

    @property
    def rows_per_second(self) -> float:
        """Rows that were taken in, by second of the epoch."""
        return self.stats.rows_in / self.seconds if self.seconds else 0.0

    @property
    def phase_seconds(self) -> dict[str, float]:
        """Where the time went; what no phase accounts for is Spark's."""
        spark = max(0.0, self.seconds - (self.stats.seconds.total or self.seconds))
        return {**phases(self.stats), "spark": spark}


def _scaling(record: EpochRecord) -> ScalingProgress | None:
    """None where the number of sites is no matter of choice."""
    scale_target, sites = record.stats.scale_target, record.routing.sites
    if scale_target is None:
        return None
    return ScalingProgress(
        sites, scale_target.least, scale_target.most, sites if scale_target.sites is None else scale_target.sites
    )


def _silent_streams(stats: EpochStats, plan: Plan, marks: Times) -> tuple[SilentStream, ...]:
    rows = {stream.name: stream.rows for stream in stats.streams}
    silent = []
    for number, stream in enumerate(plan.sources):
        others = {source for sources in plan.meetings if number in sources for source in sources}
        newest = max((mark for source in others if (mark := marks[source]) is not None), default=None)
        own = marks[number]
        if stream.delay is None or rows.get(stream.name) or newest is None or newest == own:
            continue
        silent.append(SilentStream(stream.name, None if own is None else (newest - own) / 1e6))
    return tuple(silent)


def _operators(stats: EpochStats, plan: Plan) -> tuple[OperatorProgress, ...]:
    columns = stats.operators
    counted = zip(columns.operator.tolist(), columns.rows_in.tolist(), columns.rows_out.tolist(), strict=True)
    rows = {operator: (rows_in, rows_out) for operator, rows_in, rows_out in counted}
    titles = (node.spec.describe().split("\n")[0] for node in plan.nodes)
    return tuple(OperatorProgress(title, *rows.get(number, (0, 0))) for number, title in enumerate(titles))
