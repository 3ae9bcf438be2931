"""Units that are split and merged while the query runs: whatever becomes of them, the answer is the batch query's."""

from __future__ import annotations

import tempfile
from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from disturbed import FAST
from engine_harness import DirectQuery
from oracle import batch_join, multiset, on_time
from specs import SECOND, TIME, join, stream

from sluice.control import epoch_executor
from sluice.control.rounds import Rounds
from sluice.engine.cleaning import UnitCleaning
from sluice.model.durations import LONGEST
from sluice.model.routing.directory import HASH_SPACE
from sluice.model.routing.unit_ranges import numbers
from sluice.model.view import ClusterView
from sluice.record.epoch import EpochRecord
from sluice.state import segment as state_segment
from sluice.state.files.storage import Storage
from sluice.testing.drawn_actions import draw_redivision, draw_sharing
from sluice.verbs.freeze import CleanUp, Freeze
from sluice.verbs.move import Move
from sluice.verbs.split import Merge, Split

WITHIN = 30 * SECOND


def some_rows(rng: np.random.Generator, schema: pa.Schema, count: int, around: int, keys: int) -> pa.Table:
    """Rows of so many keys, half of them of the first one, near a point in time."""
    times = np.maximum(0, around + rng.integers(-20 * SECOND, 20 * SECOND, count))
    of = rng.integers(0, keys, count) * (rng.random(count) < 0.5)
    return pa.table([of, pa.array(times, TIME), rng.integers(0, 9, count)], schema=schema)


def assert_covered_once(record: EpochRecord) -> None:
    """Every hash is of one unit of each fragment, and every site has state of its own units only."""
    for directory in record.routing.directories:
        edges = [directory.hashes_of(unit) for unit in range(*directory.range)]
        assert edges[0][0] == 0 and edges[-1][1] == HASH_SPACE
        assert all(one[1] == other[0] and one[0] < one[1] for one, other in pairwise(edges))
    for site, manifest in enumerate(record.manifests):
        for run in manifest:
            assert sum(run.segment.counts) == run.segment.rows
            assert all(site in record.routing.holders_of(unit) for unit in record.routing.units_at(numbers(run.units)))


@pytest.mark.parametrize("seed", [*range(2), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 24))])
def test_units_that_are_split_and_merged(seed: int) -> None:
    """Sixteen epochs, with splits, merges, moves and freezes in most of them, in little memory or time, and shared
    units in some; with restarts on another number of sites."""
    rng = np.random.default_rng(seed)
    delay = [None, 5 * SECOND][seed % 2]
    spec = join([stream("a", delay=delay), stream("b", delay=delay)], [WITHIN, LONGEST][seed // 2 % 2])
    limited = [{}, {"seconds": 1e-6}, {"memory": 20_000}, {"memory": 20_000, "spill": "probe"}, {"memory": 6_000}]
    options = limited[seed % len(limited)]
    seen: list[list[pa.Table]] = [[] for _ in spec.streams]
    done: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(dir=FAST) as directory:
        query = DirectQuery(spec, Path(directory), 3, 4, **options)
        for epoch in range(16):
            record = query.epochs.record
            for _ in range(rng.integers(3)):
                query.epochs.settings.controller.ask(draw_redivision(rng, record))
            if seed % 3 == 0 and rng.random() < 0.3:
                query.epochs.settings.controller.ask(draw_sharing(rng, record.routing))
            new = [some_rows(rng, s.schema, int(rng.integers(0, 60)), 8 * SECOND * epoch, 40) for s in spec.streams]
            for kept, table in zip(seen, new, strict=True):
                kept.append(table)
            query.run(new)
            before, record = record, query.epochs.record
            assert_covered_once(record)
            done.update(d.action for d in record.decisions if d.refused is None)
            done["fewer units"] += record.routing.units < before.routing.units
            done["more units"] += record.routing.units > before.routing.units
            if rng.random() < 0.15:
                query.close()
                query = DirectQuery(spec, Path(directory), int(rng.integers(1, 6)), 4, **options)
        query.drain()
        good = [on_time(tables, s.event_time, s.delay)[0] for tables, s in zip(seen, spec.streams, strict=True)]
        assert multiset(query.results()) == multiset(batch_join(spec, good))
        assert done["split"] and done["more units"], done
        query.close()


class Fixture:
    """A join of two streams on two sites, with so many units."""

    def __init__(self, directory: str, units: int = 2, keys: int = 40) -> None:
        self.rng, self.keys, self.epoch = np.random.default_rng(7), keys, 0
        self.spec = join([stream("a", delay=None), stream("b", delay=None)], LONGEST)
        self.seen: list[list[pa.Table]] = [[], []]
        self.query = DirectQuery(self.spec, Path(directory), 2, units)

    @property
    def record(self) -> EpochRecord:
        return self.query.epochs.record

    def ask(self, *actions: Split | Merge | Move | Freeze) -> None:
        for action in actions:
            self.query.epochs.settings.controller.ask(action)

    def run(self, epochs: int = 1, count: int = 30) -> None:
        for _ in range(epochs):
            new = [some_rows(self.rng, s.schema, count, 0, self.keys) for s in self.spec.streams]
            for kept, table in zip(self.seen, new, strict=True):
                kept.append(table)
            self.query.run(new)
            assert_covered_once(self.record)

    @property
    def view(self) -> ClusterView:
        """What a policy would see."""
        return self.query.epochs.settings.controller.collection.view()

    def told(self) -> list[tuple[str, int | None, str | None]]:
        """What was decided, and why it came to nothing, if it did."""
        found = self.query.epochs.outcomes()
        return [(one.action, one.unit, one.refused or one.abandoned) for one in found]

    def hottest(self) -> int:
        """The unit that got most rows in the newest epoch."""
        return self.record.routing.unit_at(self.record.stats.units.rows.argmax())

    @property
    def new_units(self) -> tuple[int, ...]:
        """What came of the newest split or merge."""
        return next(one.new_units for one in reversed(self.query.epochs.outcomes()) if one.new_units)

    def check(self) -> None:
        self.query.drain()
        both = [pa.concat_tables(tables) for tables in self.seen]
        assert multiset(self.query.results()) == multiset(batch_join(self.spec, both))
        self.query.close()


@pytest.fixture
def fixture():
    with tempfile.TemporaryDirectory(dir=FAST) as directory:
        yield Fixture(directory)


def test_a_split_writes_nothing_anew(fixture):
    fixture.run(2)
    written = {run.segment.id: run.segment for manifest in fixture.record.manifests for run in manifest}
    fixture.ask(Split(0, "to see"))
    fixture.run(3, count=0)
    assert fixture.record.routing.units == 3
    there = {run.segment.id: run.segment for manifest in fixture.record.manifests for run in manifest}
    assert there.keys() == written.keys()
    for name, segment in there.items():
        before = written[name]
        assert (segment.file, segment.offset, segment.blocks) == (before.file, before.offset, before.blocks)
    fixture.check()


def test_a_split_of_a_frozen_unit_reads_few_blocks_and_holds_one(fixture, monkeypatch):
    monkeypatch.setattr(state_segment, "LARGEST_BLOCK_BYTES", 4000)
    monkeypatch.setattr(state_segment, "MOST_BLOCKS", 1 << 20)
    fixture.ask(*(Freeze(unit, "to see") for unit in range(2)))
    for _ in range(2):
        times = pa.array(np.arange(6000), TIME)
        new = [pa.table([np.arange(6000), times, np.arange(6000)], s.schema) for s in fixture.spec.streams]
        fixture.seen = [[*kept, table] for kept, table in zip(fixture.seen, new, strict=True)]
        fixture.query.run(new)
    assert {run.generation for manifest in fixture.record.manifests for run in manifest} == {1}
    frozen = sum(run.bytes for manifest in fixture.record.manifests for run in manifest)
    read: list[int] = []
    storage_read = Storage.read

    def counted(storage: Storage, name: str, offset: int = 0, length: int | None = None) -> pa.Buffer:
        data = storage_read(storage, name, offset, length)
        read.extend([len(data)] if name.endswith(".segments") else ())
        return data

    monkeypatch.setattr(Storage, "read", counted)
    fixture.ask(Split(1, "to see"))
    for _ in range(3):
        fixture.query.run([s.schema.empty_table() for s in fixture.spec.streams])
    assert fixture.record.routing.units == 3
    assert 0 < max(read) < 2 * 4000 and sum(read) < 0.6 * frozen
    monkeypatch.undo()
    fixture.check()


def test_a_key_is_set_apart(fixture):
    fixture.run(2)
    fixture.ask(Split(fixture.hottest(), "to see"))
    fixture.run(3)
    routing, rows = fixture.record.routing, fixture.record.stats.units.rows
    assert routing.units > 4
    hot = fixture.hottest()
    assert rows.max() > 0.4 * rows.sum() and hot in fixture.new_units
    fixture.ask(Split(hot, "again"))
    fixture.run(3)
    assert ("split", hot, f"all rows of unit {hot} have one key") in fixture.told()
    assert fixture.record.routing.directories == routing.directories
    fixture.check()


def test_what_was_split_is_merged_again(fixture):
    fixture.run(1)
    fixture.ask(Split(0, "to see"))
    fixture.run(3)
    assert fixture.record.routing.ids.array.tolist() == [2, 3, 1] and fixture.new_units == (2, 3)
    fixture.ask(Merge(3, "to see"))
    fixture.run(2)
    assert fixture.record.routing.directories[0].depths == ()
    assert fixture.record.routing.ids.array.tolist() == [4, 1] and fixture.new_units == (4,)
    fixture.check()


def test_halves_go_their_ways_and_come_together(fixture):
    fixture.run(1)
    fixture.ask(Split(0, "to see"))
    fixture.run(3)
    first, second = fixture.new_units
    there = fixture.record.routing.holder(first)
    fixture.ask(Move(first, 1 - there, "to see"))
    fixture.run(4)
    fixture.ask(Merge(first, "to see"))
    fixture.run(1)
    apart = f"units {first} and {second} are at different sites and cannot be merged"
    assert ("merge", first, apart) in fixture.told()
    fixture.ask(Move(first, there, "back"))
    fixture.run(4)
    fixture.ask(Merge(first, "to see"))
    fixture.run(2)
    assert len(fixture.new_units) == 1
    fixture.check()


def test_a_unit_keeps_its_id_while_others_are_split(fixture):
    fixture.run(1)
    hashes = fixture.record.routing.hashes_of(1)
    fixture.ask(Split(0, "to see"))
    fixture.run(3)
    assert fixture.record.routing.holders == (0, 0, 1) and fixture.record.routing.hashes_of(1) == hashes
    fixture.ask(Move(1, 0, "by its id"))
    fixture.run(3)
    assert fixture.record.routing.holders == (0, 0, 0)
    fixture.check()


def test_what_is_asked_of_a_unit_that_is_split_or_merged_meanwhile_is_refused(fixture):
    fixture.run(1)
    fixture.ask(Split(0, "to see"))
    while fixture.record.routing.has_unit(0):
        fixture.ask(Move(0, 1, "while it is about to be split"))
        fixture.run(1)
    assert fixture.new_units == (2, 3)
    refused = [why for action, _, why in fixture.told() if action == "move"]
    assert refused == ["unit 0 is to be split or merged"] * 2 + ["there is no unit 0; it was split into 2 and 3"]
    fixture.ask(Merge(2, "to see"), Freeze(3, "its buddy is about to be merged with it"))
    fixture.run(1)
    fixture.ask(Freeze(3, "the moment they are one"))
    fixture.run(1)
    assert fixture.new_units == (4,)
    about, gone = "unit 3 is to be split or merged", "there is no unit 3; it was merged into 4"
    assert [why for action, _, why in fixture.told() if action == "freeze"] == [about, gone]
    fixture.ask(Freeze(3, "merged"), Split(0, "long gone"), Split(5, "never there"))
    fixture.run(1)
    assert ("freeze", 3, gone) in fixture.told()
    assert (
        "split",
        0,
        "there is no unit 0 any more: it was split or merged, or its query was dropped",
    ) in fixture.told()
    assert ("split", 5, "there is no unit 5; ids go from 0 to 4") in fixture.told()
    fixture.check()


def test_ids_are_not_given_again_by_another_driver_or_with_another_number_of_sites(fixture):
    fixture.run(1)
    given = {0, 1}
    for sites in (3, 2, 1):
        routing = fixture.record.routing
        widest = max(routing.ids.array.tolist(), key=lambda unit: np.diff(routing.hashes_of(unit)))
        fixture.ask(Split(widest, "to see"))
        fixture.run(4)
        assert not given.intersection(fixture.new_units)
        given.update(fixture.new_units)
        fixture.query.close()
        fixture.query = DirectQuery(fixture.spec, fixture.query.root, sites, 2)
        fixture.run(1)
        assert given.issuperset(fixture.record.routing.ids.array.tolist())
    fixture.check()


def test_what_is_under_way_of_a_unit_that_is_split_goes_on_for_its_parts(fixture, monkeypatch):
    """A site has no time to clean up, and finds what is missing when it has."""
    fixture.run(1)
    fixture.ask(Freeze(0, "to see"))
    fixture.run(2)
    with monkeypatch.context() as no_time:
        no_time.setattr(UnitCleaning, "run", lambda *_: iter(()))
        fixture.ask(CleanUp(0, "to see"), Split(0, "to see"))
        fixture.run(4)
        (under_way,) = fixture.record.under_way
        assert under_way.decision.unit == 0 and under_way.units == fixture.new_units
    fixture.run(2)
    assert not fixture.record.missing_units and ("clean up", 0, None) in fixture.told()
    fixture.check()


def test_a_unit_without_rows_is_split_too(fixture):
    fixture.ask(Split(0, "to see"))
    fixture.run(4, count=0)
    assert fixture.record.routing.units == 3
    fixture.run(1)
    fixture.check()


def test_statistics_begin_anew_after_a_move_though_a_unit_is_to_be_split_then(monkeypatch):
    """It comes to nothing, as the unit has one key: what was counted is of other holders all the same."""
    with tempfile.TemporaryDirectory() as directory:
        fixture = Fixture(directory, units=4, keys=1)
        controller, begun = fixture.query.epochs.settings.controller, []
        controller.loop.rounds = Rounds(1e9)  # the policy is not asked: then they would begin anew, too
        monkeypatch.setattr(controller.collection, "begin", lambda *of: begun.append(fixture.record.number))
        fixture.run(3)
        still = next(unit for unit in range(4) if unit != fixture.hottest())
        fixture.ask(Move(still, 1 - fixture.record.routing.holder(still), "to see"))
        fixture.run()
        fixture.ask(Split(fixture.hottest(), "to see"))
        fixture.run(2)
        assert [why for _, _, why in fixture.told()] == [None, f"all rows of unit {fixture.hottest()} have one key"]
        assert begun == [4]


def test_it_is_forgotten_that_a_unit_had_one_key(monkeypatch):
    """Other keys may have come since, and then a policy is to split it."""
    monkeypatch.setattr(epoch_executor, "REMEMBERED_EPOCHS", 4)
    with tempfile.TemporaryDirectory(dir=FAST) as directory:
        fixture = Fixture(directory, keys=1)
        fixture.run(1)
        (hot,) = np.flatnonzero(fixture.record.stats.units.rows).tolist()
        fixture.ask(Split(hot, "to see"))
        fixture.run(3)
        assert ("split", hot, f"all rows of unit {hot} have one key") in fixture.told()
        assert np.flatnonzero(fixture.view.units.single_key).tolist() == [hot]
        fixture.run(4)
        assert not fixture.view.units.single_key.any()
        fixture.check()


def test_parts_of_a_unit_that_had_one_key_may_have_several():
    with tempfile.TemporaryDirectory(dir=FAST) as directory:
        fixture = Fixture(directory, keys=1)
        fixture.run(1, count=5)
        hot = fixture.hottest()
        fixture.ask(Split(hot, "to see"), Split(1 - hot, "to see"))
        fixture.run(3, count=5)
        assert fixture.hottest() == hot and fixture.record.routing.units == 3
        assert fixture.record.routing.units_at(np.flatnonzero(fixture.view.units.single_key)) == [hot]
        fixture.keys = 1000
        fixture.run(2)
        fixture.ask(Split(hot, "to see"))
        fixture.run(3)
        assert fixture.record.routing.units > 4
        assert np.count_nonzero(fixture.view.units.single_key) == 1, "the key that was set apart"
        fixture.check()


def test_policies_do_not_ask_for_ever_to_merge_what_cannot_be(fixture, monkeypatch):
    """They would get to nothing else."""
    monkeypatch.setattr(epoch_executor, "REMEMBERED_EPOCHS", 5)
    monkeypatch.setattr(epoch_executor, "why_unmergeable", lambda *_: "they have rows in one segment")
    fixture.run(1)
    fixture.ask(Split(0, "to see"))
    fixture.run(3)
    assert fixture.view.units.buddy.tolist() == [1, 0, -1]
    fixture.ask(Merge(2, "to see"))
    fixture.run(2, count=0)
    assert ("merge", 2, "they have rows in one segment") in fixture.told()
    assert fixture.view.units.buddy.tolist() == [-1, -1, -1]
    fixture.ask(Split(1, "others get other places"))
    fixture.run(3, count=0)
    assert fixture.view.units.buddy.tolist()[:2] == [-1, -1] and fixture.record.routing.units > 3
    fixture.run(3, count=0)
    assert fixture.view.units.buddy.tolist()[:2] == [1, 0]
    fixture.check()


def test_another_number_of_sites_comes_first(fixture):
    """Whoever asked for a split that was under way learns that it is not done."""
    fixture.run(1)
    fixture.ask(Split(0, "to see"))
    fixture.run(1)
    fixture.query.site_keys = (100, 101, 102)
    fixture.run(2)
    assert fixture.record.routing.units == 2
    assert ("split", 0, "there is another number of sites: 3") in fixture.told()
    fixture.ask(Split(0, "again"))
    fixture.run(3)
    assert fixture.record.routing.units == 3
    fixture.check()


def test_units_are_split_by_few_bits_at_a_time(fixture):
    fixture.ask(Split(0, "to see", bits=15))
    fixture.run(1)
    fixture.run(1)
    assert ("split", 0, "a unit is split by 1 to 5 bits at a time, not by 15") in fixture.told()
