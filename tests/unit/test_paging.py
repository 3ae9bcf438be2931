"""A site's state that does not fit into memory: units in pages, in memory or on disk, and input that waits its turn."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from paged_site import ALL, ALWAYS, UNITS, Site, crowded_site, rows

from sluice.model.clock import SystemClock
from sluice.model.epoch.segments import RunRef
from sluice.model.routing.directory import Directory
from sluice.model.routing.unit_ranges import subtract
from sluice.state import segment
from sluice.state.files.local_names import parse_name
from sluice.state.files.storage import watch
from sluice.state.paging import Fetch
from sluice.state.transaction import Transaction

EVERYTHING = Counter({unit: 120 for unit in range(UNITS)})
"""The rows of each unit after three epochs."""


@pytest.fixture
def crowded(tmp_path: Path) -> Site:
    return crowded_site(tmp_path)


def test_state_that_fits_lies_in_one_file_a_segment(tmp_path):
    site = Site(tmp_path, 1 << 20)
    for epoch in range(3):
        site.add(rows(epoch, 0, 1, 2, 3))
    assert site.queues is None
    assert len(site.files("memory")) == 3 and not site.files("disk")
    assert not any("@" in name for name in site.files("memory"))


class StillClock(SystemClock):
    """Time passes when the test says so."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now


def fetch_next(transaction: Transaction) -> int:
    """Page until a unit has come back, and say which."""
    for _ in range(2 * UNITS):
        task = transaction.pages.step()
        if isinstance(task, Fetch):
            return task.unit
    raise AssertionError("no unit comes back")


def test_how_long_the_rotation_rests_does_not_depend_on_any_clock(crowded, monkeypatch):
    """A unit is read in three seconds on one machine; the site goes on at another, whose clock is far behind."""
    clock = crowded.clock = StillClock()
    clock.now = 1e12
    transaction = crowded.begin()
    shift = crowded.tiers.shift

    def shift_slowly(unit: int, tier: str) -> None:
        shift(unit, tier)
        clock.now += 3.0

    monkeypatch.setattr(crowded.tiers, "shift", shift_slowly)
    fetch_next(transaction)
    clock.now += 1.0
    crowded.commit(transaction)
    assert crowded.queues.rest == 2.0
    clock.now = 7.0
    assert crowded.begin().pages.due == 9.0


def test_above_the_limit_whole_units_go_to_disk(crowded):
    assert crowded.queues is not None
    assert crowded.queues.disk and crowded.queues.memory
    assert crowded.bytes("memory") == crowded.tiers.used <= crowded.limit
    for tier, units in (("memory", crowded.queues.memory), ("disk", crowded.queues.disk)):
        assert {Directory(UNITS).unit_with(*parse_name(n).hashes) for n in crowded.files(tier)} == set(units)
    assert crowded.all_rows() == EVERYTHING


def test_without_any_memory_one_unit_at_a_time_is_in_it(tmp_path):
    site = Site(tmp_path, 0)
    for epoch in range(3):
        site.add(rows(epoch, 0, 1, 2, 3))
    assert site.queues is not None and len(site.queues.memory) <= 1
    assert len({name.partition("@")[2].partition(".")[0] for name in site.files("memory")}) <= 1
    assert site.all_rows() == EVERYTHING


def test_a_unit_that_is_fetched_is_in_memory_and_another_makes_room(crowded):
    transaction = crowded.begin()
    unit = crowded.queues.disk[0]
    assert fetch_next(transaction) == unit
    crowded.commit(transaction)
    assert unit in crowded.queues.memory
    assert [(event.action, event.unit) for event in transaction.pages.steps][-1] == ("fetch", unit)
    assert not [name for name in crowded.files("disk") if f"@{unit}." in name]
    assert crowded.bytes("memory") <= crowded.limit
    assert crowded.all_rows() == EVERYTHING


def test_what_an_attempt_fetched_that_failed_is_on_disk_again(crowded):
    """The next one begins with the queues of the epoch before, and counts on the memory."""
    crowded.begin()
    crowded.tiers.shift(crowded.queues.disk[0], "memory")
    crowded.commit(crowded.begin())
    assert crowded.bytes("memory") == crowded.tiers.used <= crowded.limit
    assert not [name for name in crowded.files("memory") if f"@{crowded.queues.disk[0]}." in name]


def test_what_is_missing_here_comes_from_durable_storage(crowded):
    for path in [*(crowded.root / "memory").iterdir(), *(crowded.root / "disk").iterdir()][::2]:
        path.unlink()
    assert crowded.all_rows() == EVERYTHING
    assert crowded.durable.fetched_bytes


def test_more_memory_brings_the_units_together_again_and_leaves_no_page(crowded):
    crowded.limit, crowded.queues = 1 << 20, None
    assert crowded.all_rows() == EVERYTHING
    assert not any("@" in name for tier in ("memory", "disk") for name in crowded.files(tier))


def test_pending_rows_come_back_in_the_order_of_their_arrival_and_once(tmp_path):
    site = Site(tmp_path, 1 << 20)
    for epoch in range(3):
        transaction = site.begin()
        transaction.postpone(((1, 3),), 0, rows(10 - epoch, 1, 2, each=5))
        site.commit(transaction)
    assert not site.files("memory"), "input that waits takes no memory"
    transaction = site.begin()
    assert transaction.pending_rows().tolist() == [0, 15, 15, 0]
    assert transaction.pending_bytes()[1:3].min() > 0
    transaction.begin_turn(((1, 2),))
    assert [run.times[0] for run in transaction.take_pending(0)] == [10, 9, 8]
    assert transaction.take_pending(0) == []
    assert transaction.pending_rows().tolist() == [0, 0, 15, 0]
    transaction.end_turn()
    site.commit(transaction)
    transaction = site.begin()
    assert transaction.pending_rows().tolist() == [0, 0, 15, 0]
    transaction.begin_turn(ALL)
    assert transaction.runs(0, ALWAYS) == [], "it is no state yet"


def test_input_that_waited_leaves_memory_when_units_begin_to_be_paged(tmp_path):
    """It was read from the checkpoint, where there was room for it; the pages of the state need that room."""
    site = Site(tmp_path, 14_000)
    transaction = site.begin()
    transaction.postpone(ALL, 0, rows(0, 0, 1, 2, 3, each=60))
    site.commit(transaction)
    for path in (tmp_path / "disk").iterdir():
        path.unlink()
    transaction = site.begin()
    transaction.begin_turn(ALL)
    (waited,) = transaction.take_pending(0)
    transaction.stage(0, waited)
    transaction.stage(0, rows(1, 0, 1, 2, 3, each=60))
    transaction.end_turn()
    assert site.files("memory") and not transaction.pages.active
    site.commit(transaction)
    assert transaction.pages.active
    assert site.bytes("memory") == site.tiers.used <= site.limit
    assert site.all_rows() == EVERYTHING


def test_pending_rows_do_not_expire_and_are_not_merged(tmp_path):
    site = Site(tmp_path, 1 << 20)
    for _ in range(6):
        transaction = site.begin(keep_from=100)
        transaction.postpone(ALL, 0, rows(1, 0, each=5))
        site.commit(transaction)
    assert site.begin(keep_from=100).pending_rows().tolist() == [30, 0, 0, 0]


@pytest.mark.parametrize("paging", [True, False])
def test_expired_state_leaves_memory_in_the_epoch_in_which_it_expires(tmp_path, paging):
    """Not one later: the new rows need its place."""
    size = Site(tmp_path / "measured", 1 << 20)
    size.add(rows(0, 0, 1, 2, 3))
    one = size.bytes("memory")
    site = Site(tmp_path / "site", 2 * one + 100, paging)
    for time in (0, 1):
        site.add(rows(time, 0, 1, 2, 3))
    for time in (10, 11):
        site.add(rows(time, 0, 1, 2, 3), keep_from=9)
        assert site.bytes("memory") == site.tiers.used == (time - 9) * one
    assert not site.files("disk")


def test_what_was_set_apart_is_not_in_memory_twice(tmp_path):
    site = Site(tmp_path, 14_000)
    for epoch in range(3):
        site.add(rows(epoch, 0, 1, 2, 3))
    for _ in range(2):
        transaction = site.begin()
        site.commit(transaction, set_apart=transaction.pages.resident_units if transaction.pages.active else ())
    assert site.bytes("memory") == site.tiers.used <= site.limit
    assert site.all_rows() == EVERYTHING


@pytest.mark.parametrize("paging", [True, False])
def test_segments_of_which_little_is_held_do_not_fill_the_memory(tmp_path, paging):
    """After a change of sites a segment lies here as a whole, though most of it is of units that are elsewhere."""
    site = Site(tmp_path, 12_000, paging)
    for epoch in range(3):
        site.add(rows(epoch, 0, 1, 2, 3, each=60))
    site.held = ((0, 1),)
    others = subtract(ALL, site.held)
    site.manifest = tuple(RunRef(run.segment, subtract(run.units, others)) for run in site.manifest)
    for root in ("memory", "disk"):
        for path in (site.root / root).iterdir():
            path.unlink()
    site.queues = None
    transaction = site.begin()
    transaction.begin_turn(site.held)
    assert sum(len(run) for run in transaction.runs(0, ALWAYS)) == 180
    transaction.stage(0, rows(5, 0))
    transaction.end_turn()
    site.commit(transaction)
    assert site.bytes("memory") <= site.limit
    assert site.all_rows() == Counter({0: 220})


def test_segments_that_are_copied_ahead_make_room_for_state(tmp_path):
    other = Site(tmp_path, 1 << 20)
    other.add(rows(0, 3, each=100))
    (arriving,) = (run.segment for run in other.manifest)
    site = Site(tmp_path, arriving.length + 1_000)
    site.number, site.held = 1, ((0, 3),)
    for path in (tmp_path / "memory").iterdir():
        path.unlink()
    for epoch in range(3):
        transaction = site.begin(arriving=[arriving])
        transaction.begin_turn(site.held)
        transaction.stage(0, rows(epoch, 0, 1))
        transaction.end_turn()
        site.commit(transaction)
        assert site.bytes("memory") == site.tiers.used <= site.limit
    assert [n for n in [*site.files("memory"), *site.files("disk")] if n.startswith(arriving.id)]


def test_a_unit_that_arrives_where_memory_is_short_is_laid_out_in_pages(crowded):
    """Else it would stay in memory when it is spilled."""
    queues, crowded.queues = crowded.queues, None
    crowded.limit = 1 << 20
    crowded.all_rows()  # whole segments lie in memory again
    crowded.limit, crowded.queues = 14_000, queues
    crowded.commit(crowded.begin())
    assert crowded.bytes("memory") <= crowded.limit
    assert all("@" in name for name in crowded.files("memory"))


def test_the_draft_of_a_writer_that_was_killed_is_no_page(crowded):
    name = crowded.files("memory")[0]
    draft = crowded.root / "memory" / f"{name}.0123abcd.tmp"
    draft.write_bytes(b"half a page")
    assert crowded.all_rows() == EVERYTHING
    assert draft.exists(), "its writer may still be at work"
    crowded.manifest = tuple(run for run in crowded.manifest if run.segment.id != name.partition("@")[0])
    crowded.begin()
    assert not draft.exists(), "but not once its segment is gone"


def test_another_attempt_that_moves_pages_meanwhile_does_no_harm(crowded):
    """Whatever happens between any two file operations of ours."""
    tiers = [crowded.root / name for name in ("memory", "disk")]
    before = {path: path.read_bytes() for tier in tiers for path in tier.iterdir()}
    operation, happened = 0, True
    while happened:
        for path in (path for tier in tiers for path in tier.iterdir()):
            path.unlink()
        for path, data in before.items():
            path.write_bytes(data)
        count, happened = 0, False

        def other(name: str, path: str, at: int = operation) -> None:
            nonlocal count, happened
            if count == at:
                happened = True
                for page in list(tiers[at % 2].iterdir()):
                    page.rename(tiers[1 - at % 2] / page.name)
            count += 1

        with watch(other):
            crowded.begin()
            for unit in crowded.queues.memory:
                crowded.tiers.shift(unit, "disk")
            assert crowded.all_rows() == EVERYTHING
        operation += 1
    assert operation > 20


def flip_a_bit(path: Path, at: int) -> None:
    """In place, as a medium does it."""
    with open(path, "r+b") as file:
        file.seek(at)
        (byte,) = file.read(1)
        file.seek(at)
        file.write(bytes([byte ^ 1]))


@pytest.mark.parametrize("paging", [True, False])
@pytest.mark.parametrize("tier", ["memory", "disk"])
def test_a_flipped_bit_is_noticed_and_the_state_read_again(tmp_path, tier, paging):
    """Wherever in a file it is, while the query runs; pages and whole segments alike."""
    site = Site(tmp_path, 14_000 if paging else 8_000, paging)
    for epoch in range(3):
        site.add(rows(epoch, 0, 1, 2, 3))
    assert site.all_rows() == EVERYTHING
    for part in np.linspace(0, 1, 24, endpoint=False):
        site.begin()  # what the attempt before has fetched is on disk again
        files = list((tmp_path / tier).iterdir())
        assert files
        for path in files:
            flip_a_bit(path, int(part * path.stat().st_size))
        transaction = site.begin()
        for unit in transaction.pages.spilled_units:
            site.tiers.shift(unit, "memory")
        transaction.begin_turn(ALL)
        values = [v for run in transaction.runs(0, ALWAYS) for v in run.rows.column("v").to_pylist()]
        assert Counter(values) == EVERYTHING, f"a bit at {part:.0%} of each file"
        assert site.tiers.damaged_files and site.durable.fetched_bytes


def test_pages_are_put_together_from_what_is_here(crowded):
    """Where memory has become enough, nothing is read from the checkpoint."""
    crowded.limit, crowded.queues = 1 << 20, None
    assert crowded.all_rows() == EVERYTHING
    assert crowded.durable.fetched_bytes == 0
    assert not any("@" in name for tier in ("memory", "disk") for name in crowded.files(tier))
    assert crowded.all_rows() == EVERYTHING and crowded.durable.fetched_bytes == 0


@pytest.mark.parametrize("limit", [1 << 30, 100_000])
def test_a_site_reads_of_a_large_segment_what_it_holds(tmp_path, limit):
    """A site that joins, or takes over a unit: not the whole segment, and nothing again when it holds less."""
    first = Site(tmp_path / "first", 1 << 30)
    first.add(rows(0, 0, 1, 2, 3, each=20_000))
    (run,) = first.manifest
    assert len(run.segment.blocks) > 3
    (tmp_path / "joined").mkdir()
    (tmp_path / "joined" / "durable").symlink_to(tmp_path / "first" / "durable")
    joined = Site(tmp_path / "joined", limit)
    joined.number, joined.held, joined.manifest = 1, ((1, 2), (3, 4)), (RunRef(run.segment, ((1, 2), (3, 4))),)
    assert joined.all_rows() == Counter({1: 20_000, 3: 20_000})
    assert joined.durable.fetched_bytes == pytest.approx(run.segment.length / 2, rel=0.1)
    assert joined.bytes("memory") + joined.bytes("disk") == pytest.approx(run.segment.length / 2, rel=0.1)
    joined.held, joined.manifest = ((3, 4),), (RunRef(run.segment, ((3, 4),)),)
    assert joined.all_rows() == Counter({3: 20_000}) and joined.durable.fetched_bytes == 0
    joined.held, joined.manifest = ((0, 1), (3, 4)), (RunRef(run.segment, ((0, 1), (3, 4))),)
    assert joined.all_rows() == Counter({0: 20_000, 3: 20_000}), "more is held than lies here"


def test_what_lay_here_of_a_segment_goes_when_its_pages_come(tmp_path, monkeypatch):
    """A unit arrives of a segment of which others are here in one file, and memory is short."""
    monkeypatch.setattr(segment, "BLOCK_BYTES", 500)
    crowded = Site(tmp_path, 14_000)
    for epoch in range(3):
        crowded.add(rows(epoch, 0, 1, 2, 3))
    queues, manifest, crowded.queues, crowded.limit = crowded.queues, crowded.manifest, None, 1 << 20
    for path in [*(crowded.root / "memory").iterdir(), *(crowded.root / "disk").iterdir()]:
        path.unlink()
    crowded.held = ((0, 2),)
    crowded.manifest = tuple(RunRef(run.segment, crowded.held) for run in manifest)
    assert crowded.all_rows() == Counter({0: 120, 1: 120})
    assert crowded.files("memory") and not any("@" in name for name in crowded.files("memory"))
    crowded.held, crowded.manifest, crowded.queues, crowded.limit = ALL, manifest, queues, 14_000
    crowded.commit(crowded.begin())
    assert crowded.all_rows() == EVERYTHING
    assert all("@" in name for name in crowded.files("memory"))
    assert crowded.bytes("memory") <= crowded.limit
