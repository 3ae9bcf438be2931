"""Runs stay few and state stays near what is needed, for as long as a query runs: the choice of merges, simulated.

A simulated run knows how many rows it was made of, not the rows: what is left of them when it is merged, and how they
lie in a range of hashes, is computed. So a year of epochs takes seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.kernels.order import TimeScale, order_key
from sluice.kernels.probe import Run
from sluice.model.epoch.segments import ALL_HASHES, HashRange, RunRef, SegmentRef
from sluice.state import compaction
from sluice.state.compaction import RunMerge, choose_rewrites, merges_of_epoch
from sluice.state.merging import cut_run

MB = 1 << 20
HOT = 0x30000000
"""The hash of a key that many rows have."""


@dataclass
class Site:
    """One input's runs at one site: `live` bytes are needed of rows spread evenly, `hot_live` of those of one key."""

    live: float
    hot_live: float = 0.0
    shrinks: bool = True
    retention: int | None = None
    held: HashRange = ALL_HASHES
    runs: list[RunRef] = field(default_factory=list)
    brought: dict[str, tuple[float, float]] = field(default_factory=dict)
    """Of every run, the bytes of all epochs that went into it, spread evenly and of the hot key."""
    epoch: int = 0
    written: float = 0.0
    largest_merge: float = 0.0
    merged: float = 0.0
    """Bytes that the newest epoch merged."""

    def run(self, even: float, hot: float = 0.0) -> None:
        """An epoch that brings so many bytes."""
        keep_from = None if self.retention is None else self.epoch - self.retention
        self.runs = [run for run in self.runs if keep_from is None or run.segment.latest >= keep_from]
        merges = merges_of_epoch([self.runs], even + hot, lambda run: keep_from, self.retention, self.shrinks)
        self.merged = sum(merge.bytes for merge in merges)
        merged = {run.segment.id for merge in merges for run in merge.runs}
        again = [run for run in choose_rewrites(self.runs, ()) if run.segment.id not in merged]
        new = self._pieces(even, hot, ALL_HASHES, (), self.epoch, self.epoch)
        for merge in [*merges, *(RunMerge([run], run.segment.hashes) for run in again)]:
            new += self._merged(merge)
            self.largest_merge = max(self.largest_merge, merge.bytes)
        gone = {*merged, *(run.segment.id for run in again)}
        for id_ in gone:
            del self.brought[id_]
        length = round(sum(ref.length for ref in new))
        self.written += length
        file = f"file-{self.epoch}"
        self.runs = [run for run in self.runs if run.segment.id not in gone]
        self.runs += [RunRef(replace(ref, file=file, file_length=length), ref.units) for ref in new]
        self.epoch += 1

    @property
    def used(self) -> float:
        return sum(run.bytes for run in self.runs)

    @property
    def durable(self) -> int:
        return sum({run.segment.file: run.segment.file_length for run in self.runs}.values())

    def most_runs_of_a_hash(self) -> int:
        """How many runs the rows of one hash are in at the most."""
        edges = [(r.segment.hashes[0], 1) for r in self.runs] + [(r.segment.hashes[1], -1) for r in self.runs]
        most = depth = 0
        for _, step in sorted(edges):
            depth += step
            most = max(most, depth)
        return most

    def leave(self, units: float) -> None:
        """This part of every run's units has moved to another site."""
        self.live *= 1 - units
        for i, run in enumerate(self.runs):
            stay = round(run.rows * (1 - units))
            counts = (stay, sum(run.segment.counts) - stay)
            segment = replace(run.segment, units=((0, 2),), counts=counts, rows=sum(counts))
            self.runs[i] = RunRef(segment, ((0, 1),))
            even, hot = self.brought[segment.id]
            self.brought[segment.id] = even * (1 - units), hot

    def _merged(self, merge: RunMerge) -> list[SegmentRef]:
        even, hot = np.sum([self.brought[run.segment.id] for run in merge.runs], axis=0)
        earliest = min(run.segment.earliest for run in merge.runs)
        latest = max(run.segment.latest for run in merge.runs)
        return self._pieces(float(even), float(hot), merge.hashes, merge.narrower, earliest, latest)

    def _pieces(
        self, even: float, hot: float, hashes: HashRange, narrower: Sequence[HashRange], earliest: int, latest: int
    ) -> list[SegmentRef]:
        """The segments that these rows become, cut as real ones are."""
        parts = {within: (part, 0.0) for within, part in self._cut(even, hashes, list(narrower))}
        if hot:
            alone = (HOT, HOT + 1)
            large = self._left(hot, self.hot_live) > compaction.PIECE_BYTES / 2
            at = alone if large else next((r for r in parts if r[0] <= HOT < r[1]), hashes)
            parts[at] = parts.get(at, (0.0, 0.0))[0], hot
        return [self._segment(within, *part, earliest, latest) for within, part in parts.items()]

    def _cut(self, even: float, hashes: HashRange, narrower: list[HashRange]) -> Iterator[tuple[HashRange, float]]:
        low, high = hashes
        inside = [r for r in narrower if low <= r[0] and r[1] <= high and r != hashes and r[1] - r[0] > 1]
        if not even:
            return
        if self._left(even, self.live * (high - low) / ALL_HASHES[1]) <= compaction.PIECE_BYTES and not inside:
            yield hashes, even
            return
        for half in ((low, (low + high) // 2), ((low + high) // 2, high)):
            yield from self._cut(even / 2, half, inside)

    def _left(self, brought: float, live: float) -> float:
        return min(brought, live) if self.shrinks else brought

    def _segment(self, hashes: HashRange, even: float, hot: float, earliest: int, latest: int) -> SegmentRef:
        id_ = f"{self.epoch}-{len(self.brought)}"
        self.brought[id_] = even, hot
        share = (hashes[1] - hashes[0]) / ALL_HASHES[1]
        size = round(self._left(even, self.live * share) + self._left(hot, self.hot_live)) + 1000
        middle = (earliest + latest) // 2
        return SegmentRef(
            id_, "", 0, size, 0, size, earliest, middle, latest, 0, 0, 0, ((0, 1),), (size,), 0, False, hashes
        )


@dataclass(frozen=True)
class Bounds:
    """What a simulation was at its most, in times of what is needed or of an epoch's rows."""

    used: float
    durable: float
    runs: int
    runs_of_a_hash: int


def simulate(
    site: Site,
    epochs: int,
    even: float,
    hot: float = 0.0,
    events: Callable[[int, Site], None] | None = None,
    since: int = 0,
) -> Bounds:
    """Many epochs, each of so many bytes; from `since` on it is looked at what there is."""
    used = durable = 0.0
    runs = runs_of_a_hash = 0
    for epoch in range(epochs):
        if events is not None:
            events(epoch, site)
        site.run(even, hot)
        if epoch >= since:
            needed = site.live + site.hot_live
            used, durable = max(used, site.used / needed), max(durable, site.durable / needed)
            runs = max(runs, len(site.runs))
            if epoch % 16 == 0:
                runs_of_a_hash = max(runs_of_a_hash, site.most_runs_of_a_hash())
    return Bounds(used, durable, runs, runs_of_a_hash)


def assert_bounded(found: Bounds, needed: float, site: Site) -> None:
    """What the page on the architecture promises."""
    few = compaction.PIECE_BYTES / needed
    assert found.used <= 3 + few and found.durable <= 4.5 + few
    assert found.runs <= 24 + 3 * needed / compaction.PIECE_BYTES
    assert found.runs_of_a_hash <= 24
    one_key = compaction.ONE_KEY_BYTES if site.hot_live else 0
    assert site.largest_merge <= max(2 * compaction.MERGE_BYTES, one_key)


@pytest.mark.parametrize(("live", "brought"), [(0.2, 0.01), (20, 1), (500, 1), (500, 60), (2000, 60)])
def test_state_that_is_replaced_all_the_time_stays_near_what_is_needed(live, brought):
    """Above all where it is much larger than a merge may be."""
    site = Site(live * MB)
    assert_bounded(simulate(site, 1500, brought * MB), live * MB, site)


@pytest.mark.parametrize("hot_live", [10, 300])
def test_a_key_with_half_of_all_rows_changes_nothing(hot_live):
    site = Site(500 * MB, hot_live * MB)
    assert_bounded(simulate(site, 1500, MB, MB), (500 + hot_live) * MB, site)


def test_state_that_grows_and_then_stays():
    def grow(epoch: int, site: Site) -> None:
        site.live = min(600, 10 + epoch // 2) * MB

    site = Site(10 * MB)
    assert_bounded(simulate(site, 2000, MB, events=grow, since=20), 600 * MB, site)


def test_units_that_move_away_do_not_leave_their_bytes_behind():
    def leave(epoch: int, site: Site) -> None:
        if epoch in range(1000, 1500, 100):
            site.leave(0.2)

    site = Site(800 * MB)
    assert_bounded(simulate(site, 2000, 2 * MB, events=leave, since=1700), 800 * 0.8**5 * MB, site)


def test_a_unit_that_leaves_an_idle_site_leaves_its_files():
    """Nothing new comes, so nothing is merged: half of every run is some other site's now."""
    site = Site(100 * MB)
    simulate(site, 300, MB)
    site.leave(0.5)
    assert simulate(site, 40, 0.0).durable <= 2.5 * compaction.SLACK
    assert site.durable <= compaction.SLACK * site.used


@pytest.mark.parametrize(("kept", "brought"), [(50, 0.01), (500, 1), (200, 100)])
def test_state_that_expires_stays_in_few_runs_of_bounded_size(kept, brought):
    """A join's: merges make nothing smaller, whole runs leave when their newest row does."""
    site = Site(kept * brought * MB, shrinks=False, retention=kept)
    found = simulate(site, 4 * kept, brought * MB, since=kept)
    assert found.used <= 2.5 and found.durable <= 3.5
    assert found.runs <= 40 + 6 * site.live / compaction.PIECE_BYTES
    assert site.largest_merge <= 2 * compaction.MERGE_BYTES


def test_state_that_is_kept_for_good_stays_in_few_runs():
    site = Site(0.0, shrinks=False)
    for _ in range(1500):
        site.run(MB)
        site.live += MB
    assert len(site.runs) <= 24 + 3 * site.live / compaction.PIECE_BYTES
    assert site.most_runs_of_a_hash() <= 32


@pytest.mark.parametrize("size", [0.01, 1])
@pytest.mark.parametrize("shrinks", [False, True])
def test_runs_of_units_that_came_from_elsewhere_are_merged_as_fast_as_they_came(size, shrinks):
    """Though an idle stream brings next to nothing, whose bytes others would go by."""
    site = Site(1000 * MB, shrinks=shrinks, retention=None if shrinks else 100)
    for _ in range(8):
        for number in range(64):
            ref = site._segment(ALL_HASHES, size * MB, 0.0, max(0, site.epoch - 100), site.epoch)
            site.runs.append(RunRef(replace(ref, file=f"other-{site.epoch}-{number}"), ref.units))
        site.run(0.001 * MB)
        assert len(site.runs) <= compaction.FEW_RUNS + compaction.RUNS_OF_A_PIECE * site.used / compaction.PIECE_BYTES
        assert site.merged <= compaction.MERGE_BYTES


@pytest.mark.slow
@pytest.mark.parametrize("live", [1, 500])
def test_a_year_of_minutes(live):
    site = Site(live * MB)
    assert_bounded(simulate(site, 365 * 24 * 60, 0.1 * MB, since=10_000), live * MB, site)


@given(st.data(), st.integers(1, 400), st.integers(2, 60))
def test_a_run_is_cut_into_ranges_of_bounded_size(data, count, largest):
    some = st.integers(0, 2**32 - 1) | st.sampled_from([7, 8, 2**31, 2**32 - 1])
    hashes = np.sort(np.array(data.draw(st.lists(some, min_size=count, max_size=count)), dtype=np.uint32))
    times = np.arange(count)
    scale = TimeScale.for_span(0, count)
    rows = pa.record_batch({"n": pa.array(times)})
    run = Run(order_key(hashes, times, scale), times, rows, scale, 0, count - 1)
    narrower = data.draw(st.sampled_from([(), ((0, 2**30), (0, 2**29)), ((2**31, 2**32),), ((3 << 30, 2**32),)]))
    pieces = cut_run(run, ALL_HASHES, largest * 16, narrower)
    found = sorted(n for _, piece in pieces for n in piece.rows.column(0).to_pylist())
    assert found == list(range(count))
    for (low, high), piece in pieces:
        assert len(piece) and low <= piece.hashes[0] and piece.hashes[-1] < high
        assert piece.earliest == piece.times.min() and piece.latest == piece.times.max()
        assert np.all(piece.order[1:] >= piece.order[:-1])
        assert len(piece) <= largest or high - low == 1
        assert (high - low) & (high - low - 1) == 0 and low % (high - low) == 0
        assert not any(low <= a and b <= high and (a, b) != (low, high) for a, b in narrower)
