"""What sites copy ahead of time for moves: so much in an epoch that it takes little longer."""

from __future__ import annotations

from collections.abc import Sequence

from sluice.control.moves import MoveInFlight
from sluice.model.epoch import EpochRecord
from sluice.model.ids import Site
from sluice.model.state import SegmentRef
from sluice.model.stats import EpochStats
from sluice.model.unit_ranges import intersect, only

SHARE = 0.1
"""How much longer copying for moves may make an epoch."""
COPIED = 50e6
"""Bytes that are copied in a second, as long as nothing was measured."""
LEAST = 1 << 20
"""Bytes that may always be copied in an epoch."""


class CopyRate:
    """How fast copying goes, as far as was measured."""

    def __init__(self) -> None:
        self._rate = COPIED

    def allow(self, stats: EpochStats) -> float:
        """The bytes that a site may copy in the epoch after this one, by how long it took and copying takes."""
        seconds = sum(site.fetch_seconds for site in stats.sites)
        if seconds:
            self._rate = (self._rate + sum(site.fetched_bytes for site in stats.sites) / seconds) / 2
        return max(LEAST, SHARE * stats.seconds.job * self._rate)


class EpochCopies:
    """The segments that each site copies in one epoch, of at most `allowance` bytes that it has not copied before."""

    def __init__(self, allowance: float, sites: int) -> None:
        self.allowance = allowance
        self._left = [allowance] * sites
        self._segments: list[list[SegmentRef]] = [[] for _ in range(sites)]

    def fits(self, site: Site, segments: Sequence[SegmentRef]) -> bool:
        return _length(segments) <= self._left[site]

    def spend(self, site: Site, segments: Sequence[SegmentRef]) -> None:
        """A site reads these anyway."""
        self._left[site] -= _length(segments)

    def copy_ahead(self, move: MoveInFlight, segments: Sequence[SegmentRef]) -> None:
        """Have the target copy what is missing and still fits, the first segment whatever its size; what it has copied
        stays there."""
        target = move.target
        missing = missing_at_target(move, segments)
        for segment in missing:
            alone = self._left[target] == self.allowance and segment is missing[0]
            if alone or segment.length <= self._left[target]:
                move.copied.add(segment.id)
                self._left[target] -= segment.length
        self._segments[target] += [segment for segment in segments if segment.id in move.copied]

    def by_site(self) -> tuple[tuple[SegmentRef, ...], ...]:
        """Empty if no site copies anything."""
        return tuple(map(tuple, self._segments)) if any(self._segments) else ()


def missing_at_target(move: MoveInFlight, segments: Sequence[SegmentRef]) -> list[SegmentRef]:
    return [segment for segment in segments if segment.id not in move.copied]


def separate(record: EpochRecord, move: MoveInFlight) -> tuple[list[SegmentRef], bool]:
    """The segments at the source that hold nothing but the unit's rows, and whether others hold some of them."""
    alone = only(move.unit)
    runs = [r for r in record.manifests[move.source] if r.is_active and intersect(r.units, alone)]
    own = [run.segment for run in runs if run.segment.units == alone]
    shared = [run for run in runs if run.segment.units != alone and run.of(alone).rows]
    return own, bool(shared)


def _length(segments: Sequence[SegmentRef]) -> int:
    return sum(segment.length for segment in segments)
