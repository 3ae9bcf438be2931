"""A unit that is to be shared otherwise, while sites copy what they will hold of it and do not have.

A new holder on a grid, a holder that is released, another grid: with the routing runs change hands. What is little goes
with it. What is much is copied ahead of time, beside the epochs' ordinary work, as for moves: the holders bring the
unit's state into segments of its own, each site copies those that it will hold, so many bytes in an epoch, and when
what is missing is little enough the routing changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from sluice.model.actions import LayOut, SharingAction
from sluice.model.decision import Decision
from sluice.model.epoch import EpochRecord
from sluice.model.ids import Site, Unit
from sluice.model.reassignment import reassign_unit
from sluice.model.routing import Routing
from sluice.model.state import RunRef
from sluice.model.unit_ranges import holds


@dataclass(eq=False)
class Handover:
    """One wish to share a unit otherwise, and for which epoch it was decided. `copied` names the segments that each
    site has copied for it; `routed` is the epoch from which on the routing is to be as wanted, once it has come so
    far."""

    action: SharingAction
    decided: int
    copied: dict[Site, set[str]] = field(default_factory=dict)
    routed: int | None = None

    @property
    def unit(self) -> Unit:
        return self.action.unit

    def is_of(self, decision: Decision) -> bool:
        """Whether this is the wish that a decision tells of."""
        site = decision.site if isinstance(self.action, LayOut) else self.action.site
        wish = (self.decided, self.action.verb, site, self.action.reason)
        return wish == (decision.epoch, decision.action, decision.site, decision.reason)

    def copied_at(self, site: Site) -> set[str]:
        return self.copied.setdefault(site, set())


def missing_runs(record: EpochRecord, after: Routing, unit: Unit) -> list[list[RunRef]]:
    """By site: the runs of a unit that it has under another routing, and not by the record."""
    then = reassign_unit(record.manifests, record.routing, after, unit)
    index = record.routing.index_of(unit)
    here = [{run.segment.id for run in manifest if holds(run.units, index)} for manifest in record.manifests]
    return [
        [run for run in wanted if run.rows and run.segment.id not in held]
        for wanted, held in zip(then, here, strict=True)
    ]


def fetched_bytes(runs: Sequence[RunRef]) -> int:
    """What a site reads of the checkpoint to have some runs."""
    return sum(block.length for run in runs for block in run.blocks)
