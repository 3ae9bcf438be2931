"""How a query runs, apart from what it computes."""

from __future__ import annotations

from dataclasses import dataclass, field

from sluice.control.controller import Controller
from sluice.control.site_assignment import SiteCount
from sluice.engine.site_task import Spill
from sluice.model.ids import Site
from sluice.policies.planning.freezing import Freezing
from sluice.state.files.workspace import Places


@dataclass
class Emulation:
    """Machines made slow on purpose while a query runs, for experiments: see `sluice.experiments`."""

    row_delay: dict[Site, float] = field(default_factory=dict)
    """Seconds that a row takes longer at a site."""
    result_delay: dict[Site, float] = field(default_factory=dict)
    """Seconds that a result takes longer at a site."""
    disk_delay: float = 0.0
    """Seconds that a byte takes longer from and to the disk of any site."""


@dataclass(frozen=True)
class QuerySettings:
    """How a query runs, apart from what it computes."""

    sites: int
    partitions: int
    site_memory: int
    places: Places
    controller: Controller
    seconds: float | None = None
    """How long a site works on an epoch at most; what it did not get to waits."""
    backlog: float = float("inf")
    """Bytes of input that may wait at a site."""
    spill: Spill = Spill.UNIT
    freezing: Freezing | None = None
    """How memory is freed by freezing units, as the policy has it; None if it has nothing of the kind."""
    site_count: SiteCount | None = None
    """How the number of sites follows the executors' cores, from `sites` on; None where it does not."""
    emulation: Emulation = field(default_factory=Emulation)

    @property
    def freezing_at_sites(self) -> Freezing | None:
        """How sites free memory by freezing units; None if they do not, also because the policy only advises."""
        return None if self.controller.loop.advise else self.freezing
