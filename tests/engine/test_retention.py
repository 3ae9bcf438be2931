"""For how long rows are kept, by operator and by unit: what one unit still needs keeps nothing of any other."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from engine_harness import DirectQuery
from group_by_oracle import source
from oracle import batch_join, multiset
from specs import SECOND, TIME, join, stream

from sluice.kernels.hashing import hash_keys
from sluice.model.durations import LONGEST
from sluice.model.epoch.segments import unit_rows
from sluice.model.plan.planning import plan_of
from sluice.model.plan.stream import Stream
from sluice.model.routing.directory import Directory
from sluice.verbs.freeze import Freeze

PARTITIONS = 8
KEYS = 40


def second_of(s: Stream, epoch: int, keys: int = KEYS) -> pa.Table:
    """A row for each key, in one second."""
    values = {"k": np.arange(keys), "v": np.arange(keys), "w": np.full(keys, 0.5)}
    times = pa.array(epoch * SECOND + np.arange(keys), TIME)
    columns = [times if field.name == "ts" else pa.array(values[field.name], field.type) for field in s.schema]
    return pa.table(columns, s.schema)


def ask_to_freeze(query: DirectQuery, *units: int) -> None:
    for unit in units:
        query.epochs.settings.controller.ask(Freeze(unit, "to see"))


def rows_by_input(query: DirectQuery) -> Counter[int]:
    """The rows that all sites keep of each input, frozen or not."""
    kept: Counter[int] = Counter()
    for manifest in query.epochs.record.manifests:
        for run in manifest:
            kept[run.segment.input] += run.rows
    return kept


EPOCHS = pytest.mark.parametrize("epochs", [50, pytest.param(80, marks=pytest.mark.slow)])
"""In the fewer ones, too, rows that nobody gives up are far more than the bounds of these tests."""


@EPOCHS
def test_a_frozen_unit_keeps_no_rows_of_other_operators(tmp_path, epochs):
    a, b, c = (source(name, delay=0) for name in "abc")
    pairs = a.join(b, on="k", within="unbounded")
    sums = c.groupBy("k").window("10 seconds", "1 second").agg(n=("*", "count"))
    plan = plan_of([pairs.relation, sums.relation])
    query, most = DirectQuery(plan, tmp_path, 1, PARTITIONS), Counter()
    for epoch in range(epochs):
        if epoch == 5:
            ask_to_freeze(query, 0)
        query.run([second_of(s, epoch) for s in plan.sources])
        most |= rows_by_input(query)
    assert query.epochs.record.missing_units == (0,)
    (long_a, long_b), (windows,) = (plan.inputs_of(node) for node in range(2))
    assert most[long_a] == most[long_b] == epochs * KEYS
    assert most[windows] <= 2.5 * 12 * KEYS, most
    query.close()


def run_join(query: DirectQuery, spec, epochs: int, freezes: dict[int, tuple[int, ...]]) -> Counter[int]:
    """Runs epochs of a second each, freezes units before some; the most rows of each input, and the answer is exact."""
    seen: list[list[pa.Table]] = [[], []]
    most: Counter[int] = Counter()
    for epoch in range(epochs):
        ask_to_freeze(query, *freezes.get(epoch, ()))
        new = [second_of(s, epoch) for s in spec.streams]
        for kept, table in zip(seen, new, strict=True):
            kept.append(table)
        query.run(new)
        most |= rows_by_input(query)
    query.drain()
    assert multiset(query.results()) == multiset(batch_join(spec, [pa.concat_tables(tables) for tables in seen]))
    query.close()
    return most


@EPOCHS
@pytest.mark.parametrize("memory", [0, 1 << 30])
def test_a_frozen_unit_keeps_few_rows_of_the_side_that_is_bounded(tmp_path, memory, epochs):
    """With memory it is active again, without it stays frozen."""
    spec = join([stream("a"), stream("b")], (LONGEST, 10 * SECOND))
    query = DirectQuery(spec, tmp_path, 1, PARTITIONS, memory=memory, spill="probe")
    most = run_join(query, spec, epochs, dict.fromkeys(range(5, epochs, 20), tuple(range(PARTITIONS))))
    assert most[1] == epochs * KEYS
    assert most[0] <= 2.5 * 11 * KEYS + (0 if memory else 0.5 * most[1]), most


def test_units_are_cleaned_up_by_the_time_that_their_own_join_keeps_rows(tmp_path):
    a, b = (source(name, delay=0) for name in "ab")
    pairs = a.join(b, on="k", within="60 seconds")
    short = a.alias("x").join(b.alias("y"), on="v", within="2 seconds")
    plan = plan_of([pairs.relation, short.relation])
    query = DirectQuery(plan, tmp_path, 1, 2 * PARTITIONS, memory=0, spill="probe")
    most, cleaned = Counter(), Counter()
    for epoch in range(70):
        if epoch == 5:
            ask_to_freeze(query, *range(PARTITIONS))
        query.run([second_of(s, epoch) for s in plan.sources])
        most |= rows_by_input(query)
        cleaned.update(d.unit for d in query.epochs.record.decisions if d.action == "clean up")
    assert set(cleaned) == set(range(PARTITIONS)) and max(cleaned.values()) <= 3, cleaned
    assert all(most[input_] <= 2.5 * 3 * KEYS for input_ in plan.inputs_of(1)), most
    query.close()


def test_a_frozen_unit_keeps_no_rows_of_other_units(tmp_path):
    """It stays frozen, as there is no memory: rows of its bounded side wait; those of other units do not."""
    spec = join([stream("a"), stream("b")], (LONGEST, 10 * SECOND))
    query = DirectQuery(spec, tmp_path, 1, PARTITIONS, memory=0, spill="probe")
    most = np.zeros(PARTITIONS, dtype=np.int64)
    for epoch in range(60):
        if epoch == 20:
            ask_to_freeze(query, 0)
        query.run([second_of(s, epoch) for s in spec.streams])
        (manifest,) = query.epochs.record.manifests
        most = np.maximum(most, unit_rows((run for run in manifest if run.segment.input == 0), PARTITIONS))
    assert query.epochs.record.missing_units == (0,)
    needed = np.bincount(Directory(PARTITIONS).unit_of(hash_keys([pa.array(range(KEYS))])), minlength=PARTITIONS) * 11
    assert most[0] > 2.5 * needed[0] and (most[1:] <= 2.5 * needed[1:]).all(), (most, needed)
    query.close()


def test_memory_and_time_go_to_the_levels_that_need_them(tmp_path):
    """A large join, and windows over its results that keep little: all of the join's state fits in, as it would not
    into half of the memory."""
    a, b = (source(name, delay=0) for name in "ab")
    bars = a.join(b, on="k", within="unbounded").groupBy("b_v").window("1 second").agg(n=("*", "count"))
    plan = plan_of([bars.relation])
    query = DirectQuery(plan, tmp_path / "roomy", 1, PARTITIONS)
    for epoch in range(12):
        query.run([second_of(s, epoch) for s in plan.sources])
    state = sum(run.bytes for run in query.epochs.record.manifests[0])
    query.close()
    query = DirectQuery(plan, tmp_path / "tight", 1, PARTITIONS, memory=round(1.4 * state), seconds=1e9)
    for epoch in range(12):
        query.run([second_of(s, epoch) for s in plan.sources])
    (stats,) = query.epochs.record.stats.sites
    assert stats.spilled_units == 0 and stats.disk_bytes == 0 and stats.memory_bytes > 0.5 * stats.memory_limit
    query.close()


@pytest.mark.parametrize("sites", [1, 2])
def test_an_epoch_keeps_none_of_its_own_rows_that_have_met_all_their_partners(tmp_path, sites):
    """Epochs are ten times as long as the window: of each, the last second is kept."""
    spec = join([stream("a"), stream("b")], (SECOND, SECOND))
    query, seen = DirectQuery(spec, tmp_path, sites, PARTITIONS), [[], []]
    for epoch in range(6):
        long = [pa.concat_tables(second_of(s, 10 * epoch + second) for second in range(10)) for s in spec.streams]
        for kept, table in zip(seen, long, strict=True):
            kept.append(table)
        query.run(long)
        assert max(rows_by_input(query).values()) <= 2.5 * KEYS, epoch
    query.close()
    assert multiset(query.results()) == multiset(batch_join(spec, [pa.concat_tables(tables) for tables in seen]))


@pytest.mark.parametrize("length", [1, 10])
def test_runs_that_nobody_needs_any_more_leave_unread(tmp_path, length):
    """Of epochs as long as the window, or longer, one has no rows that the next one but one needs."""
    spec = join([stream("a"), stream("b")], (SECOND, SECOND))
    query, merged = DirectQuery(spec, tmp_path, 1, PARTITIONS), 0
    for epoch in range(10):
        seconds = range(length * epoch, length * (epoch + 1))
        query.run([pa.concat_tables(second_of(s, second) for second in seconds) for s in spec.streams])
        merged += query.epochs.record.stats.sites[0].merged_rows
        assert query.epochs.record.stats.sites[0].segments <= 4
    assert merged == 0
    query.close()


def test_a_closed_window_is_not_written(tmp_path):
    bars = source("a", delay=0).groupBy("k").window("1 second").agg(n=("*", "count"))
    plan = plan_of([bars.relation])
    query = DirectQuery(plan, tmp_path, 1, PARTITIONS)
    query.run([pa.concat_tables(second_of(s, second) for second in range(10)) for s in plan.sources])
    assert rows_by_input(query) == {0: KEYS}
    query.close()
