"""What the tasks of an epoch say beside their rows: each split of its stream, each site of its level."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from sluice.model.columns import IntColumn
from sluice.model.epoch.packed_manifests import PackedManifests
from sluice.model.epoch.results import Part
from sluice.model.epoch.segments import Manifest
from sluice.model.epoch.stats import SiteStats, TaskSeconds, UnitColumns
from sluice.model.epoch.times import Frozen, Lagging, Queues, Times
from sluice.model.epoch.work_stats import OperatorWork, OutputWork
from sluice.model.ids import Level, Site
from sluice.verbs import SiteEvent


@dataclass(frozen=True)
class LoadedRows:
    """How many files of a table, and rows in them, a map task has read into state; or the `problem` with one of them,
    where the epoch can do without."""

    table: str
    files: int
    rows: int
    problem: str = ""


@dataclass(frozen=True)
class SplitReport:
    """What one map task saw of one stream, said to every site. `newest` is the newest event time, `oldest` that of the
    rows that were not late. A task that reads tables saw nothing of the first one.

    The first site alone is told of the `parts` that it wrote for sinks and of its work on each output (`outputs`): it
    passes that on to the driver.
    """

    stream: int
    attempt: str = ""
    files: int = 0
    missing: int = 0
    corrupt: int = 0
    rows: int = 0
    late: int = 0
    nulls: int = 0
    out_of_range: int = 0
    copied_rows: int = 0
    copied_bytes: int = 0
    sent: IntColumn[int] = field(default_factory=IntColumn)
    """Bytes to each site; told to the first site alone."""
    newest: int | None = None
    oldest: int | None = None
    seconds: TaskSeconds = field(default_factory=TaskSeconds)
    parts: tuple[Part, ...] = ()
    outputs: tuple[OutputWork, ...] = ()
    loaded: tuple[LoadedRows, ...] = ()

    def for_level_above(self) -> SplitReport:
        """The same for the sites of a higher level, without what the first level has passed on to the driver."""
        return replace(self, parts=(), outputs=())


@dataclass(frozen=True)
class LevelWatermark:
    """How far a site has come, said to every site of the level above."""

    newest: Times
    attempt: str


@dataclass(frozen=True)
class SiteReport:
    """What a site says to the driver after its work at one level of operators.

    `took_in` names the attempts whose rows it took in, `splits` is what the splits said, if it is the site that passes
    that on; `queues` are there if not all its state fits into memory.
    """

    site: Site
    level: Level
    attempt: str
    took_in: str
    state: PackedManifests
    """Of this site alone."""
    parts: tuple[Part, ...]
    lagging: tuple[Lagging, ...]
    frozen: tuple[Frozen, ...]
    reached: Times
    queues: Queues | None
    events: tuple[SiteEvent, ...]
    splits: tuple[SplitReport, ...]
    units: UnitColumns
    stats: SiteStats
    operators: tuple[OperatorWork, ...]
    outputs: tuple[OutputWork, ...]
    sent: IntColumn[int] = field(default_factory=IntColumn)
    """Bytes to each site of the level above."""

    @property
    def manifest(self) -> Manifest:
        """All runs of the site at the level."""
        return self.state.unpack()[0]


def newest_of(before: Times, splits: Sequence[SplitReport]) -> Times:
    """The newest event times with an epoch's own rows seen.

    >>> newest_of((5, None), [SplitReport(0, newest=3), SplitReport(1, newest=7)])
    (5, 7)
    """
    newest = list(before)
    for split in splits:
        seen = [t for t in (newest[split.stream], split.newest) if t is not None]
        newest[split.stream] = max(seen, default=None)
    return tuple(newest)
