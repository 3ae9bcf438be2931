"""What is found out about a unit before it is split, from runs of any sizes."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from segment_refs import segment

from sluice.kernels.order import TimeScale
from sluice.kernels.probe import Run
from sluice.model.directory import HASH_SPACE
from sluice.model.ids import Unit
from sluice.model.state import RunRef
from sluice.model.unit_ranges import only
from sluice.state.dividing import look_at_units


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
    manifest = tuple(RunRef(segment(name), only(Unit(3))) for name in runs)
    (weight,) = look_at_units(manifest, [Unit(3)], [], lambda run: [runs[run.segment.id]]).weights
    assert (weight.rows, weight.least, weight.greatest) == (rows, everything.min(), everything.max())
    assert (weight.frequent, weight.frequent_rows) == (frequent, (everything == frequent).sum())


def test_a_unit_without_rows_weighs_nothing() -> None:
    empty = run_of(np.array([], np.int64))
    manifest = (RunRef(segment("s"), only(Unit(3))),)
    assert not look_at_units(manifest, [Unit(3)], [], lambda run: [empty]).weights
    assert not look_at_units(manifest, [Unit(9)], [], lambda run: [empty]).weights
