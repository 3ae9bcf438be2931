"""What is found out about a unit before it is split, from runs of any sizes."""

from __future__ import annotations

from collections import Counter
from functools import partial

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from segment_refs import segment

from sluice.kernels.order import TimeScale
from sluice.kernels.probe import Run
from sluice.model.epoch.segments import RunRef
from sluice.model.ids import Unit, UnitIndex
from sluice.model.routing.directory import HASH_SPACE
from sluice.model.routing.unit_ranges import single_unit
from sluice.state.dividing import SAMPLED_BLOCKS, UnitPiece, look_at_units
from sluice.verbs.split import CountBelow

PLACE, UNIT = UnitIndex(3), Unit(12)


def run_of(hashes: np.ndarray) -> Run:
    order, times = np.sort(hashes.astype(np.uint64)) << np.uint64(32), np.zeros(len(hashes), np.int64)
    return Run(order, times, pa.record_batch({"time": times}), TimeScale(0, 0), 0, 0)


@given(st.lists(st.integers(1, 3_000), min_size=1, max_size=40), st.floats(0.55, 1), st.integers(0, 2**32 - 1))
def test_a_hash_that_most_rows_have_is_found_in_runs_of_any_sizes(sizes: list[int], part: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = sum(sizes)
    everything = rng.integers(0, HASH_SPACE, rows)
    frequent = int(rng.integers(0, HASH_SPACE))
    everything[: int(np.ceil(part * rows))] = frequent  # so the first runs have nothing else, the last ones none of it
    runs = {f"s{i}": run_of(hashes) for i, hashes in enumerate(np.split(everything, np.cumsum(sizes)[:-1]))}
    manifest = tuple(RunRef(segment(name), single_unit(PLACE)) for name in runs)
    (profile,) = look_at_units(manifest, {PLACE: UNIT}, {}, lambda run: [UnitPiece.of(runs[run.segment.id])])
    assert (profile.unit, profile.rows, profile.least, profile.greatest) == (
        UNIT,
        rows,
        everything.min(),
        everything.max(),
    )
    assert (profile.frequent, profile.frequent_rows) == (frequent, (everything == frequent).sum())


def test_a_unit_without_rows_has_no_profile() -> None:
    empty = run_of(np.array([], np.int64))
    manifest = (RunRef(segment("s"), single_unit(PLACE)),)
    assert not look_at_units(manifest, {PLACE: UNIT}, {}, lambda run: [UnitPiece.of(empty)])
    assert not look_at_units(manifest, {UnitIndex(9): UNIT}, {}, lambda run: [UnitPiece.of(empty)])


class FrozenRuns:
    """Runs that are read a block at a time; it counts how often each block is."""

    def __init__(self, runs: dict[str, Run], block_rows: int) -> None:
        self.runs, self.block_rows = runs, block_rows
        self.reads: Counter[tuple[str, int]] = Counter()

    @property
    def manifest(self) -> tuple[RunRef, ...]:
        return tuple(RunRef(segment(name), single_unit(PLACE), generation=1) for name in self.runs)

    @property
    def blocks(self) -> int:
        return sum(-(-len(run) // self.block_rows) for run in self.runs.values())

    def open(self, run: RunRef) -> list[UnitPiece]:
        whole = self.runs[run.segment.id]
        starts = range(0, len(whole), self.block_rows)
        parts = [(start, whole.part(start, min(start + self.block_rows, len(whole)))) for start in starts]
        return [UnitPiece(len(part), partial(self._read, run.segment.id, at, part), far=True) for at, part in parts]

    def _read(self, segment: str, at: int, part: Run) -> Run:
        self.reads[segment, at] += 1
        return part


def split_evenly(hashes: np.ndarray, runs: int) -> dict[str, Run]:
    return {f"s{i}": run_of(each) for i, each in enumerate(np.split(hashes, runs))}


def test_a_frozen_unit_is_profiled_by_few_of_its_blocks() -> None:
    rng = np.random.default_rng(1)
    hashes = rng.integers(0, HASH_SPACE, 400_000)
    hashes[rng.random(len(hashes)) < 0.6] = 4711
    frozen = FrozenRuns(split_evenly(hashes, 8), block_rows=100)
    (profile,) = look_at_units(frozen.manifest, {PLACE: UNIT}, {}, frozen.open)
    assert frozen.blocks == 4000 and sum(frozen.reads.values()) <= SAMPLED_BLOCKS
    assert profile.rows == 400_000 and profile.frequent == 4711
    assert abs(profile.frequent_rows - 240_000) < 20_000
    assert profile.least == 4711 and profile.greatest > 0.8 * HASH_SPACE


def test_a_frozen_unit_of_nearly_one_key_is_seen_to_have_another() -> None:
    hashes = np.full(80_000, 4711)
    hashes[-1] = 4710
    frozen = FrozenRuns(split_evenly(hashes, 8), block_rows=100)
    (profile,) = look_at_units(frozen.manifest, {PLACE: UNIT}, {}, frozen.open)
    assert (profile.least, profile.greatest, profile.frequent) == (4710, 4711, 4711)
    assert sum(frozen.reads.values()) <= SAMPLED_BLOCKS + 16


@given(
    st.lists(st.integers(0, 30), min_size=1, max_size=60), st.lists(st.integers(0, 31), max_size=5), st.integers(1, 9)
)
def test_rows_of_a_frozen_unit_are_counted_by_few_of_its_blocks(
    hashes: list[int], edges: list[int], block_rows: int
) -> None:
    frozen = FrozenRuns({"s": run_of(np.array(hashes))}, block_rows)
    order = CountBelow(UNIT, tuple(sorted({*edges, HASH_SPACE})))
    counts = look_at_units(frozen.manifest, {}, {PLACE: order}, frozen.open)
    assert {count.unit for count in counts} == {UNIT}
    assert {count.hash: count.below for count in counts} == {e: sum(h < e for h in hashes) for e in order.hashes}
    assert all(times == 1 for times in frozen.reads.values())
    assert len(frozen.reads) <= len(order.hashes) * (frozen.blocks.bit_length() + 1)
