"""What sites copy ahead of time for units on their way to them: so much in an epoch that it takes little longer."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from sluice.model.epoch.attempt import Attempt
from sluice.model.epoch.segments import RunRef, SegmentRef
from sluice.model.epoch.stats import EpochStats
from sluice.model.ids import Site, Unit
from sluice.model.routing.routing import Routing
from sluice.model.routing.unit_ranges import holds, single_unit
from sluice.record.epoch import EpochRecord
from sluice.record.reassignment import reassign_unit

MAX_EPOCH_SHARE = 0.1
"""Part of an epoch's time that copying may take."""
COPY_BYTES_PER_SECOND = 50e6
"""Bytes that are copied in a second, until it was measured."""
CATCH_UP_FACTOR = 2
"""Times the bytes that an epoch brought to a unit that may be copied of it at least: else copying would fall behind."""
MIN_COPY_BYTES = 1 << 20
"""Bytes that may always be copied in an epoch."""


class CopyRate:
    """How fast copying goes, as far as was measured."""

    def __init__(self) -> None:
        self._rate = COPY_BYTES_PER_SECOND

    def allow(self, stats: EpochStats) -> float:
        """The bytes that a site may copy in the epoch after this one, by how long it took and copying takes."""
        seconds = sum(site.fetch_seconds for site in stats.sites)
        if seconds:
            self._rate = (self._rate + sum(site.fetched_bytes for site in stats.sites) / seconds) / 2
        return max(MIN_COPY_BYTES, MAX_EPOCH_SHARE * stats.seconds.job * self._rate)


class EpochCopies:
    """The segments that each site copies in the epoch after the `newest`, of at most `allowance` bytes that it has not
    copied before; and of a unit always more than the newest epoch brought."""

    def __init__(self, allowance: float, sites: int, newest: int) -> None:
        self.allowance, self.newest = allowance, newest
        self._left = [allowance] * sites
        self._segments: list[list[SegmentRef]] = [[] for _ in range(sites)]

    def fits(self, site: Site, length: float) -> bool:
        return length <= self._left[site]

    def spend(self, site: Site, length: float) -> None:
        """A site reads so many bytes anyway."""
        self._left[site] -= length

    def copy_ahead(self, site: Site, copied: set[str], segments: Sequence[SegmentRef]) -> None:
        """Have a site copy what is missing of a unit's segments and still fits, large ones first, and the first one
        whatever its size; what it has copied stays there."""
        missing = sorted(not_in(copied, segments), key=lambda segment: -segment.length)
        catch_up = CATCH_UP_FACTOR * length([segment for segment in missing if _is_of_epoch(segment, self.newest)])
        for segment in missing:
            alone = self._left[site] == self.allowance and segment is missing[0]
            if alone or segment.length <= max(self._left[site], catch_up):
                copied.add(segment.id)
                self._left[site] -= segment.length
                catch_up -= 0 if alone else segment.length
        self._segments[site] += [segment for segment in segments if segment.id in copied]

    def by_site(self) -> tuple[tuple[SegmentRef, ...], ...]:
        """Empty if no site copies anything."""
        return tuple(map(tuple, self._segments)) if any(self._segments) else ()


def not_in(copied: Collection[str], segments: Sequence[SegmentRef]) -> list[SegmentRef]:
    return [segment for segment in segments if segment.id not in copied]


def is_all_new(copied: Collection[str], missing: Sequence[SegmentRef], newest: int) -> bool:
    """Whether some was copied, and all that is missing came with the newest epoch. A unit that gets more in an epoch
    than may be copied would stay for good: what came last goes with it."""
    return bool(copied) and all(_is_of_epoch(segment, newest) for segment in missing)


def _is_of_epoch(segment: SegmentRef, epoch: int) -> bool:
    """Whether a segment has rows that came with an epoch, and not what was merged in it."""
    return segment.id.startswith(Attempt.prefix(epoch)) and not segment.level


def separate(record: EpochRecord, unit: Unit, source: Site) -> tuple[list[SegmentRef], bool]:
    """The segments at the source that hold nothing but the unit's rows, and whether others hold some of them."""
    index = record.routing.index_of(unit)
    alone = single_unit(index)
    runs = [r for r in record.manifests[source] if r.is_active and holds(r.units, index)]
    own = [run.segment for run in runs if run.segment.units == alone]
    shared = [run for run in runs if run.segment.units != alone and run.of(alone).rows]
    return own, bool(shared)


def length(segments: Sequence[SegmentRef]) -> int:
    return sum(segment.length for segment in segments)


def missing_runs(record: EpochRecord, after: Routing, unit: Unit) -> list[list[RunRef]]:
    """By site: the runs of a unit that it has under another routing, and not by the record."""
    then = reassign_unit(record.manifests, record.routing, after, unit)
    index = record.routing.index_of(unit)
    here = [{run.segment.id for run in manifest if holds(run.units, index)} for manifest in record.manifests]
    return [
        [run for run in runs if run.rows and run.segment.id not in present]
        for runs, present in zip(then, here, strict=True)
    ]


def fetched_bytes(runs: Sequence[RunRef]) -> int:
    """What a site reads of the checkpoint to have some runs."""
    return sum(block.length for run in runs for block in run.blocks)
