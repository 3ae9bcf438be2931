"""State stays small in number: runs are merged, expired ones leave every tier, and a move loses no row."""

from __future__ import annotations

import pickle
from itertools import groupby
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from engine_harness import DirectQuery
from hypothesis import given
from hypothesis import strategies as st
from oracle import batch_join, multiset
from segment_refs import segment
from specs import SECOND, TIME, join, stream

from benchmarks.units import reachable_bytes
from sluice.model.epoch.segments import RunRef
from sluice.model.errors import CheckpointError
from sluice.model.routing.directory import Directory
from sluice.model.routing.routing import Routing
from sluice.model.routing.unit_ranges import to_ranges
from sluice.record.reassignment import reassign
from sluice.state.files.storage import watch
from sluice.state.segment import Layout, merge_sorted, parts, sort_run
from sluice.verbs.move import Move

A, B = stream("a"), stream("b")


def ticking(epoch: int, rows: int = 40, seconds: float = 1) -> list[pa.Table]:
    rng = np.random.default_rng(epoch)
    times = ((epoch + np.sort(rng.random(rows))) * seconds * SECOND).astype(np.int64)
    return [pa.table([rng.integers(0, 500, rows), pa.array(times, TIME), np.arange(rows)], schema=A.schema)] * 2


def everything_in(root: Path) -> list[Path]:
    return [p for p in root.rglob("*") if p.is_file()]


def test_runs_and_files_stay_few_however_long_it_runs(tmp_path):
    query = DirectQuery(join([A, B], 55 * SECOND), tmp_path)
    most_runs = most_files = most_probed = 0
    for epoch in range(125):  # more than twice the window, and than the journal keeps
        query.run(ticking(epoch))
        sites = query.epochs.record.stats.sites
        most_runs = max(most_runs, *(s.segments for s in sites))
        most_probed = max(most_probed, *(s.probed for s in sites))
        most_files = max(most_files, len(list((tmp_path / "checkpoint" / "state").iterdir())))
    assert most_runs <= 32 and most_probed <= 32
    assert most_files <= 2 * 32
    rows = sum(s.rows for s in query.epochs.record.stats.sites)
    assert rows <= 2 * 2 * 40 * 57  # twice the rows of the window at the most wait to expire
    assert len(list((tmp_path / "checkpoint" / "journal").iterdir())) == 100
    query.close()


def test_an_idle_stream_keeps_state_in_few_runs(tmp_path):
    query = DirectQuery(join([A, B], SECOND), tmp_path)
    nothing = A.schema.empty_table()
    for epoch in range(150):
        query.run([ticking(epoch)[0], nothing])
    assert all(s.segments <= 32 for s in query.epochs.record.stats.sites)
    assert sum(s.rows for s in query.epochs.record.stats.sites) == 150 * 40
    query.close()


def test_one_row_from_the_future_does_not_keep_the_others(tmp_path):
    """With delay, a clock that jumps does not close the stream; the run that holds the row must not stay for good."""
    a, b = stream("a", delay=1000 * SECOND), stream("b", delay=1000 * SECOND)
    query = DirectQuery(join([a, b], 10 * SECOND), tmp_path, sites=1)
    first = ticking(0)
    jump = pa.table([[1], pa.array([900 * SECOND], TIME), [0]], schema=A.schema)
    query.run([pa.concat_tables([first[0], jump]), first[1]])
    for epoch in range(1, 60):
        query.run(ticking(epoch * 40, rows=20))
    rows = sum(s.rows for s in query.epochs.record.stats.sites)
    assert rows < 2 * 20 * (1010 / 40 + 27) + 50
    query.close()


def test_expired_state_leaves_every_tier(tmp_path):
    query = DirectQuery(join([A, B], 5 * SECOND), tmp_path, memory=4000, spill="probe")
    for epoch in range(20):
        query.run(ticking(epoch))
    full = len(everything_in(tmp_path / "memory")) + len(everything_in(tmp_path / "disk"))
    far = pa.table([[1], pa.array([10_000 * SECOND], TIME), [0]], schema=A.schema)
    query.run([far, far])
    query.run([A.schema.empty_table()] * 2)
    query.run([A.schema.empty_table()] * 2)
    left = len(everything_in(tmp_path / "memory")) + len(everything_in(tmp_path / "disk"))
    assert full > 6 and left <= 4
    assert len(list((tmp_path / "checkpoint" / "state").iterdir())) <= 2
    assert sum(s.rows for s in query.epochs.record.stats.sites) <= 2
    query.close()
    assert not everything_in(tmp_path / "memory") and not everything_in(tmp_path / "disk")


def test_an_epoch_costs_no_look_at_state_it_cannot_match(tmp_path):
    """Rows kept for good, far away in time, are neither opened nor fetched."""
    a, b = stream("a", delay=None), stream("b", delay=None)
    query = DirectQuery(join([a, b], SECOND), tmp_path)
    for epoch in range(10):
        query.run(ticking(epoch * 100))
    query.close()
    query = DirectQuery(join([a, b], SECOND), tmp_path)
    query.run(ticking(5000))
    sites = query.epochs.record.stats.sites
    assert [s.probed for s in sites] == [0, 0]
    assert sum(s.rows for s in sites) == 11 * 80
    query.close()


@given(st.data(), st.integers(1, 5), st.integers(1, 5))
def test_every_unit_of_every_run_is_held_by_its_site_alone(data, before, after):
    units = 12
    owners = st.lists(st.integers(0, before - 1), min_size=units, max_size=units)
    old = Routing(before, tuple(data.draw(owners)))
    new = Routing(after, tuple(data.draw(st.lists(st.integers(0, after - 1), min_size=units, max_size=units))))
    manifests = tuple((RunRef(segment(f"s{i}"), old.ranges_of(i)),) for i in range(before))
    moved = reassign(manifests, old, new)

    def held(all_of: tuple) -> list[tuple[str, int, int]]:
        return sorted(
            (run.segment.id, unit, site)
            for site, manifest in enumerate(all_of)
            for run in manifest
            for low, high in run.units
            for unit in range(low, high)
        )

    assert [(s, u) for s, u, _ in held(manifests)] == [(s, u) for s, u, _ in held(moved)]
    assert all(new.holders[unit] == site for _, unit, site in held(moved))
    back = reassign(moved, new, old)
    assert held(back) == held(manifests)


@given(st.data(), st.integers(1, 4), st.sampled_from([10, 10**9, 10**15]))
def test_a_merged_run_is_in_the_order_of_its_own_scale(data, count, span):
    """Also where an ancient row, which does not stay, had made the scale of the pieces a coarse one."""
    layout = Layout(A.schema, "ts")
    pieces, rows = [], []
    for _ in range(count):
        near = st.tuples(st.integers(0, 2), st.integers(0, 50))
        ancient = st.tuples(st.integers(0, 2), st.integers(-span, -1))
        some = data.draw(st.lists(near | ancient, min_size=1, max_size=20))
        hashes, times = np.array([h for h, _ in some], np.uint32), np.array([t for _, t in some])
        batch = pa.record_batch([hashes.astype(np.int64), pa.array(times, TIME), times], schema=A.schema)
        pieces.append(sort_run(layout, hashes, batch))
        rows += some
    keep_from = data.draw(st.sampled_from([None, 0]))
    merged = merge_sorted(pieces, keep_from)
    kept = sorted(row for row in rows if keep_from is None or row[1] >= keep_from)
    assert np.all(merged.order[1:] >= merged.order[:-1])
    assert list(zip(merged.hashes.tolist(), merged.times.tolist(), strict=True)) == kept


def test_an_ancient_first_row_loses_nothing(tmp_path):
    """It widens the run it is merged into and expires with the merge."""
    spec = join([stream("a", delay=5 * SECOND), stream("b", delay=5 * SECOND)], 30 * SECOND)
    rng = np.random.default_rng(1)

    def some(epoch: int, rows: int) -> pa.Table:
        times = 10**15 + epoch * 10 * SECOND + np.sort(rng.integers(0, 10 * SECOND, rows))
        return pa.table([rng.integers(0, 20, rows), pa.array(times, TIME), np.arange(rows)], schema=A.schema)

    ancient = pa.table([[1], pa.array([0], TIME), [0]], schema=A.schema)
    idle = A.schema.empty_table()
    a = [pa.concat_tables([ancient, some(0, 200)]), *(some(epoch, 200) for epoch in range(1, 12))]
    b = [some(0, 1), *[idle] * 10, some(11, 300)]
    query = DirectQuery(spec, tmp_path, sites=1)
    for rows in zip(a, b, strict=True):
        query.run(list(rows))
    assert query.epochs.record.stats.late_rows == 0
    expected = batch_join(spec, [pa.concat_tables(a), pa.concat_tables(b)])
    assert multiset(query.results()) == multiset(expected)


def test_state_is_within_the_memory_given_at_every_moment(tmp_path):
    """Older segments make room before new ones come; also after a restart, when all comes from the checkpoint."""
    spec = join([A, B], 1000 * SECOND)
    held = [0]

    def look(operation: str, path: str) -> None:
        held.append(sum(p.stat().st_size for p in everything_in(tmp_path / "memory")))

    for since in (0, 20):
        query = DirectQuery(spec, tmp_path, sites=1, memory=20_000, spill="probe")
        with watch(look):
            query.run(ticking(since))
        fetched = query.epochs.record.stats.sites[0].fetched_bytes
        with watch(look):
            for epoch in range(since + 1, since + 20):
                query.run(ticking(epoch))
        query.close()
    assert fetched > 40_000
    assert 15_000 < max(held) <= 20_000


@given(st.sets(st.integers(0, 15)), st.sets(st.integers(0, 15)), st.integers(0, 2**32 - 1))
def test_units_side_by_side_in_a_run_are_one_slice_of_it(held, wanted, seed):
    """A site that holds units from here and there looks at its runs as a whole, not unit by unit."""
    of = np.random.default_rng(seed).permutation([unit for unit in held for _ in range(3)])
    rows = pa.record_batch([of, pa.array(np.arange(len(of)), TIME), of], schema=A.schema)
    hashes = np.array([Directory(16).hashes_of(int(u))[0] for u in of], dtype=np.uint32)
    run = sort_run(Layout(A.schema, "ts"), hashes, rows)
    found = parts(run, to_ranges(sorted(wanted)), Directory(16))
    assert [u for part in found for u in part.rows.column(0).to_pylist()] == [
        u for u in sorted(held & wanted) for _ in "abc"
    ]
    assert all(part.order.tolist() == sorted(part.order.tolist()) and len(part) for part in found)
    assert len(found) == sum(1 for _ in (g for g, _ in groupby(u in wanted for u in sorted(held)) if g))
    if found and held <= wanted:
        assert found[0] is run


def test_the_work_of_a_driver_that_takes_over_is_not_touched(tmp_path):
    """Two drivers on one checkpoint: the older one ends, or a newer one starts, while the other is in an epoch."""
    spec = join([A, B], 120 * SECOND)
    first = DirectQuery(spec, tmp_path)
    first.run(ticking(0))
    second = DirectQuery(spec, tmp_path)
    second.run(ticking(1), before_commit=first.epochs.close)
    third, later = DirectQuery(spec, tmp_path), []
    with pytest.raises(CheckpointError, match=r"belongs to process \d+ on .*; this is process \d+ on"):
        third.run(ticking(2), before_commit=lambda: later.append(DirectQuery(spec, tmp_path)))
    third.epochs.close()
    later[0].run(ticking(2))
    expected = batch_join(spec, [pa.concat_tables([ticking(e)[0] for e in range(3)])] * 2)
    assert multiset(later[0].results()) == multiset(expected)
    last = DirectQuery(spec, tmp_path)
    last.run(ticking(3))
    state = {f"state/{p.name}" for p in (tmp_path / "checkpoint" / "state").iterdir()}
    assert state == last.epochs.record.files()
    last.close()


def test_what_is_kept_of_past_epochs_does_not_grow_with_units_and_runs(tmp_path):
    """The driver keeps a hundred of them, for progress."""
    sizes = {}
    for units in (8, 2048):
        spec = join([stream("a"), stream("b")])
        query = DirectQuery(spec, tmp_path / str(units), 1, units)
        for epoch in range(8):
            times = pa.array(epoch * SECOND + np.arange(500), TIME)
            query.run([pa.table([np.arange(500), times, np.arange(500)], s.schema) for s in spec.streams])
        routing = len(pickle.dumps(query.epochs.record.routing))  # one, as long as nothing moves
        sizes[units] = len(pickle.dumps(list(query.epochs.standing.recent))) - routing
        query.close()
    assert sizes[2048] < 1.5 * sizes[8], sizes


def test_how_much_more_the_driver_keeps_with_every_epoch_is_no_matter_of_units(tmp_path):
    """One of them moves in every other epoch, so there are as many routings as epochs; a hundred are kept."""
    grown = {}
    for units in (64, 4096):
        query = DirectQuery(join([A, B], 3 * SECOND), tmp_path / str(units), partitions=units)
        sizes = []
        for epoch in range(50):
            holder = query.epochs.record.routing.holder(epoch)
            query.epochs.settings.controller.ask(Move(epoch, 1 - holder, "to see"))
            query.run(ticking(epoch))
            sizes.append(reachable_bytes(query.epochs) if epoch in (20, 49) else 0)
        assert query.epochs.record.routing.version > 20
        grown[units] = sizes[49] - sizes[20]
        query.close()
    assert grown[4096] < 1.2 * grown[64], grown
