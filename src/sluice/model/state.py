"""References to state: which segments a site holds, of which units, and where they are durable."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

from sluice.model.routing import Ranges, Routing, intersect, unite


@dataclass(frozen=True)
class SegmentRef:
    """An immutable columnar piece of state: `length` bytes at `offset` of one durable file.

    `base` and `shift` give the time part of its order: (time - base) >> shift fits 32 bits. `units` is of how many
    units it was written, `level` how often its rows were merged.
    """

    id: str
    file: str
    offset: int
    length: int
    input: int
    rows: int
    earliest: int
    middle: int
    latest: int
    base: int
    shift: int
    level: int
    units: int
    checksum: int


@dataclass(frozen=True)
class RunRef:
    """The part of a segment that one site holds: the rows of these units."""

    segment: SegmentRef
    units: Ranges

    @property
    def share(self) -> float:
        """The part of the segment's units that this site holds."""
        return sum(high - low for low, high in self.units) / self.segment.units

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self.segment), "held": [list(r) for r in self.units]}

    @classmethod
    def from_json(cls, doc: dict[str, Any]) -> RunRef:
        fields = dict(doc)
        units = tuple((low, high) for low, high in fields.pop("held"))
        return cls(SegmentRef(**fields), units)


Manifest = tuple[RunRef, ...]
"""All state of one site."""


def reassign(manifests: tuple[Manifest, ...], routing: Routing) -> tuple[Manifest, ...]:
    """The manifests under another routing: every run is split along the units' new sites; no data moves yet."""
    out: list[tuple[RunRef, ...]] = []
    for site in range(routing.sites):
        mine = routing.ranges_of(site)
        held: dict[str, RunRef] = {}
        for manifest in manifests:
            for run in manifest:
                units = intersect(run.units, mine)
                if units and run.segment.id in held:
                    held[run.segment.id] = replace(run, units=unite(held[run.segment.id].units, units))
                elif units:
                    held[run.segment.id] = replace(run, units=units)
        out.append(tuple(sorted(held.values(), key=lambda r: (r.segment.input, r.segment.latest, r.segment.id))))
    return tuple(out)
