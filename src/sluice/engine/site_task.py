"""What the sites are told for one epoch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum

import numpy as np

from sluice.engine.epoch_tables import EpochTables
from sluice.engine.part_writer import Staging
from sluice.model.epoch.table_version import TableVersion
from sluice.model.epoch.times import Times
from sluice.model.ids import SiteKey
from sluice.model.plan.plan import Plan
from sluice.model.routing.routing import Routing
from sluice.policies.planning.freezing import Freezing
from sluice.record.epoch import EpochRecord
from sluice.state.files.workspace import Places
from sluice.verbs import SiteInstruction


class Spill(str, Enum):
    """What becomes of state that does not fit into a site's memory: the values of the option `spill`."""

    UNIT = "unit"
    """Whole units go to disk, and their input waits there for their turn."""
    PROBE = "probe"
    """The oldest segments go to disk, and are read there."""


@dataclass(frozen=True)
class SiteDirectives:
    """How far a site goes in an epoch, as the query's options and the controller want it."""

    limits: tuple[int, ...]
    """Bytes in memory, of each site."""
    spill: Spill = Spill.UNIT
    seconds: float | None = None
    backlog: float = float("inf")
    level_shares: tuple[float, ...] = (1.0,)
    """Which part of the seconds, and of the backlog, each level has."""
    patient: bool = False
    """Whether units on disk are waited for: there is no new input."""
    costs: tuple[float | None, ...] = ()
    """Seconds that a row took at each site in the epoch before."""
    freezing: Freezing | None = None
    """How it frees memory by freezing units; None if it does not."""
    results_produced: np.ndarray | None = None
    """The results of each unit since its present generation began, as far as they count; None if it does not
    freeze."""
    row_delay: tuple[float, ...] = ()
    """Seconds that a row takes longer at each site, for experiments with slow machines; none everywhere if empty."""
    result_delay: tuple[float, ...] = ()
    """Seconds that a result takes longer at each site, likewise."""
    disk_delay: float = 0.0
    """Seconds that a byte takes longer from and to a site's disk, for experiments with slow ones."""


@dataclass(frozen=True)
class SiteTask:
    """What the sites need to know for one epoch: `before` is the record of the last one, under this one's
    routing and with its tables.

    What one site alone needs of it is in `shares`, and there only. Spark hands the whole task to each site: so they are
    bytes, of which a site decodes its own.
    """

    plan: Plan
    number: int
    newest: Times
    """How far the sources have come, apart from the rows of this epoch: as far as before, or to their end."""
    before: EpochRecord
    shares: tuple[bytes, ...]
    site_keys: tuple[SiteKey, ...]
    checkpoint: str
    query: str
    run: str
    places: Places
    staging: tuple[Staging, ...]
    directives: SiteDirectives
    instructions: tuple[SiteInstruction, ...] = ()

    @property
    def routing(self) -> Routing:
        return self.before.routing

    def with_tables(self, versions: Sequence[TableVersion]) -> SiteTask:
        """With some tables more."""
        return replace(self, before=replace(self.before, tables=(*self.before.tables, *versions)))

    @property
    def tables(self) -> EpochTables:
        """Those that results are joined with."""
        return EpochTables(self.checkpoint, self.before.tables)
