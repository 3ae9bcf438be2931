"""Frozen units: what is found at once and what is found later is the batch query, under any sequence of freezes,
cleanups, moves, restarts and short memory."""

from __future__ import annotations

import json
import logging
import re
import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from chaos_flows import drawn
from chaos_flows import rows as flow_rows
from disturbed import FAST, PARTITIONS
from disturbed import check as check_disturbed
from engine_harness import DirectQuery
from group_by_oracle import source
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import batch_join, multiset, rounded
from specs import SECOND, TIME, join, rows, self_join, stream

from examples import one_in
from sluice.cli.inspection import inspect
from sluice.engine import cleaning, freezing
from sluice.kernels.hashing import hash_keys
from sluice.model.columns import unpack_texts
from sluice.model.durations import LONGEST
from sluice.model.epoch.segments import RunRef
from sluice.model.plan.join import JoinSpec
from sluice.model.plan.planning import plan_of
from sluice.model.plan.stream import Stream
from sluice.model.routing.directory import Directory
from sluice.policies.planning.freezing import ORDERS, Freezing
from sluice.state import segment
from sluice.state.durable import DurableSegments
from sluice.state.generations import Generations
from sluice.testing.clocks import CountingClock
from sluice.verbs import Action
from sluice.verbs.freeze import CleanUp, Freeze


def frozen_by_hand(data: st.DataObject) -> list[Action]:
    units = st.lists(st.integers(0, PARTITIONS - 1), max_size=3)
    freezes = [Freeze(unit, "to see") for unit in data.draw(units)]
    return [*freezes, *(CleanUp(unit, "to see") for unit in data.draw(units))]


def check(data: st.DataObject, spec: JoinSpec, epochs: int = 6, where: str | None = None) -> None:
    limited = {
        "memory": data.draw(st.sampled_from([0, 3000, 20_000, 1 << 30])),
        "spill": data.draw(st.sampled_from(["unit", "probe"])),
        "seconds": data.draw(st.sampled_from([None, 1e-6, 1e9])),
        "freezing": data.draw(
            st.none() | st.builds(Freezing, st.sampled_from([0.1, 0.5, 1.0]), st.sampled_from(ORDERS))
        ),
    }
    by_name = data.draw(st.sampled_from(["static", "lazy-disk"]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cleaning, "BYTES_AT_ONCE", data.draw(st.sampled_from([1, 3000, 32 << 20])))
        patch.setattr(cleaning, "MOST_GENERATIONS", data.draw(st.sampled_from([2, 32])))
        check_disturbed(
            data,
            spec,
            lambda s, around, spread: data.draw(rows(s, st.integers(0, 3), around, spread)),
            lambda query: frozen_by_hand(data),
            limited,
            where,
            epochs,
            by_name,
        )


@given(st.data(), st.sampled_from([(LONGEST, 0), (0, LONGEST), (10 * SECOND, LONGEST)]), st.sampled_from([0, None]))
def test_joins_that_are_bounded_on_one_side(data, within, delay):
    check(data, join([stream("a", delay=delay), stream("b", delay=delay)], within), epochs=5)


delays = st.sampled_from([0, 5 * SECOND, 60 * SECOND, None])


@pytest.mark.parametrize("within", [10 * SECOND, LONGEST])
@given(st.data(), st.integers(2, 5), delays)
def test_joins_of_several_streams(within, data, count, delay):
    check(data, join([stream(name, delay=delay) for name in "abcde"[:count]], within), epochs=5)


@given(st.data(), delays)
def test_a_join_with_a_condition(data, delay):
    where = "a.v > b.v OR a.k = 1"
    check(data, join([stream("a", delay=delay), stream("b", delay=delay)], LONGEST, where), where=where)


@given(st.data(), delays)
def test_a_stream_with_itself(data, delay):
    check(data, self_join(stream("a", delay=delay), other_key=data.draw(st.sampled_from(["k", "v"]))))


def check_flow(data: st.DataObject, name: str) -> None:
    """A flow with operators above the join: they wait with their watermarks."""
    rng = np.random.default_rng(data.draw(st.integers(0, 10**9)))
    flow = drawn(name, rng)
    seen: list[list[pa.Table]] = [[] for _ in flow.plan.sources]
    freezing = data.draw(st.none() | st.just(Freezing(0.5)))
    with tempfile.TemporaryDirectory(dir=FAST) as directory:
        query = DirectQuery(
            flow.plan, Path(directory), 2, PARTITIONS, memory=3000 if freezing else 1 << 30, freezing=freezing
        )
        for epoch in range(8):
            new = [flow_rows(rng, 40, epoch * 8 * SECOND, 8 * SECOND, 4, True) for _ in flow.plan.sources]
            for kept, table in zip(seen, new, strict=True):
                kept.append(table)
            for action in frozen_by_hand(data):
                query.epochs.settings.controller.ask(action)
            query.run(new)
        query.drain()
        expected, _ = flow.expected(seen)
        assert [rounded(query.results(i)) for i in range(len(expected))] == expected
        query.close()


@pytest.mark.parametrize(
    "name", ["compared", "joined_then_windows", "joined_then_by_another_key", "two_outputs", "three_levels"]
)
@settings(max_examples=one_in(4))
@given(st.data())
def test_operators_above_wait(name, data):
    check_flow(data, name)


def some(s, times: list[int]) -> pa.Table:
    times = [t * SECOND for t in times]
    return pa.table([[t % 7 for t in range(len(times))], pa.array(times, s.schema.field(1).type), times], s.schema)


def test_what_is_frozen_is_not_probed_and_comes_later(tmp_path):
    a, b = stream("a"), stream("b")
    query = DirectQuery(join([a, b], LONGEST), tmp_path, partitions=PARTITIONS)
    for unit in range(PARTITIONS):
        query.epochs.settings.controller.ask(Freeze(unit, "to see"))
    query.run([some(a, list(range(14))), some(b, [])])  # there is nothing before it to decide after
    query.run([some(a, [15]), some(b, [])])
    record = query.epochs.record
    assert {run.generation for manifest in record.manifests for run in manifest} == {1}
    assert sum(site.frozen_rows for site in record.stats.sites) == 15
    assert sum(site.memory_bytes for site in record.stats.sites) == 0
    assert [d.action for d in record.decisions] == ["freeze"] * PARTITIONS
    assert not record.missing_units  # nothing can be, as long as nothing came
    query.run([some(a, []), some(b, [20])])
    assert query.results().num_rows == 0 and len(query.epochs.record.missing_units) == 1
    query.run([some(a, [21]), some(b, [])])
    assert query.results().num_rows == 1  # among themselves
    query.drain()
    assert query.results().num_rows == 1 + 3
    assert query.epochs.record.stats.catch_up and not query.epochs.record.missing_units
    assert sum(site.late_results for site in query.epochs.record.stats.sites) == 3
    query.run([some(a, [22]), some(b, [])])
    assert query.results().num_rows == 5  # in memory again
    query.close()


def _unit(key: int) -> int:
    return int(Directory(8).unit_of(hash_keys([pa.array([key])]))[0])


def _table(s, keys: list[int], epoch: int) -> pa.Table:
    times = [epoch * SECOND + i for i in range(len(keys))]
    return pa.table([keys, pa.array(times, s.schema.field(1).type), times], s.schema)


def test_memory_stays_within_its_limit_and_the_least_productive_go_first(tmp_path):
    a, b = stream("a"), stream("b")
    limit = 60_000
    query = DirectQuery(join([a, b], LONGEST), tmp_path, 1, 8, memory=limit, freezing=Freezing(0.3))
    keys = {unit: key for key in range(200) for unit in [_unit(key)]}
    seen: list[list[pa.Table]] = [[], []]
    for epoch in range(12):
        mine, theirs = [], []
        for unit in range(8):  # those from 4 on find nothing
            mine += [keys[unit]] * 40
            theirs += [keys[unit]] * 2 if unit < 4 else []
        new = [_table(a, mine, epoch), _table(b, theirs, epoch)]
        for kept, table in zip(seen, new, strict=True):
            kept.append(table)
        query.run(new)
        assert all(site.memory_bytes <= limit for site in query.epochs.record.stats.sites)
    frozen = [d.unit for r in query.epochs.history() for d in r.decisions if d.action == "freeze"]
    assert frozen and set(frozen[:2]) <= {4, 5, 6, 7}
    query.drain()
    expected = batch_join(join([a, b], LONGEST), [pa.concat_tables(tables) for tables in seen])
    assert multiset(query.results()) == multiset(expected)
    query.close()


def keyed(s: Stream, keys, epoch: int) -> pa.Table:
    """A row for each key, in one second."""
    values = {"k": list(keys), "v": list(keys), "w": [0.5] * len(keys)}
    values["ts"] = pa.array([epoch * SECOND + i for i in range(len(keys))], TIME)
    return pa.table([pa.array(values[f.name], f.type) for f in s.schema], s.schema)


def freeze_all(query: DirectQuery, units: int) -> None:
    for unit in range(units):
        query.epochs.settings.controller.ask(Freeze(unit, "to see"))


def test_results_that_meet_frozen_state_above_are_found_too(tmp_path):
    a, b, c = (source(name, delay=0) for name in "abc")
    pairs = a.join(b, on="k", within="unbounded").select("a_k AS k", "a_v AS v", "b_v AS u").alias("pairs")
    plan = plan_of([pairs.join(c, on="k", within="unbounded").relation])
    new, none = keyed(a.stream, range(6), 1), keyed(a.stream, [], 1)
    query = DirectQuery(plan, tmp_path, 1, PARTITIONS)
    query.run([new, none, new])
    freeze_all(query, PARTITIONS)
    query.run([none, none, none])
    query.run([none, keyed(b.stream, range(6), 2), none])
    assert query.results().num_rows == 0
    query.drain()
    assert query.results().num_rows == 6
    query.close()


def test_input_that_waits_may_miss_something_too(tmp_path):
    a, b = stream("a"), stream("b")
    query = DirectQuery(join([a, b], LONGEST), tmp_path, 1, 8, seconds=1e-6)
    query.run([keyed(a, range(40), 1), keyed(b, [], 1)])
    query.drain()
    freeze_all(query, 8)
    query.run([keyed(a, [], 2), keyed(b, [], 2)])
    slow = [replace(site, rows_done=40, busy_seconds=1.0) for site in query.epochs.measured.sites]
    query.epochs.standing.measured = replace(query.epochs.measured, sites=tuple(slow))
    query.run([keyed(a, [], 3), keyed(b, range(40), 3)])
    assert query.epochs.record.lagging
    query.drain()
    assert query.results().num_rows == 40
    query.close()


def test_with_little_time_all_units_are_cleaned_up_in_turn(tmp_path):
    a, b = stream("a"), stream("b")
    query = DirectQuery(join([a, b], 10 * SECOND), tmp_path, 1, PARTITIONS, seconds=1e-6, backlog=0.0, memory=0)
    query.run([keyed(a, range(40), 1), keyed(b, range(40), 1)])
    freeze_all(query, PARTITIONS)
    for epoch in range(2, 40):
        query.run([keyed(a, range(40), epoch), keyed(b, range(40), epoch)])
    cleaned = Counter(d.unit for r in query.epochs.history() for d in r.decisions if d.action == "clean up")
    assert set(cleaned) == set(range(PARTITIONS)) and max(cleaned.values()) <= 2 * min(cleaned.values())
    kept = sum(site.rows + site.frozen_rows for site in query.epochs.record.stats.sites)
    assert kept < 80 * 2.5 * 10  # what is needed for a window of ten epochs, and as much again and a half
    query.close()


def test_results_are_handed_over_once_after_a_clean_stop(tmp_path):
    a, b = stream("a"), stream("b")
    shown = []

    def start() -> DirectQuery:
        query = DirectQuery(join([a, b], LONGEST), tmp_path, 1, PARTITIONS)
        real = query.sinks[0].deliver
        query.sinks[0].deliver = lambda results: (shown.append(results.epoch), real(results))
        return query

    query = start()
    query.run([keyed(a, range(10), 1), keyed(b, [], 1)])
    freeze_all(query, PARTITIONS)
    query.run([keyed(a, [], 2), keyed(b, [], 2)])
    query.run([keyed(a, range(10), 3), keyed(b, range(10), 3)])
    query.epochs.close()
    query.close()
    query = start()
    query.drain()
    assert shown == list(range(query.epochs.record.number + 1)) and query.results().num_rows == 20
    query.close()


def test_units_without_rows_are_not_frozen_and_yields_are_counted_once(tmp_path):
    a, b, c = (source(name, delay=0) for name in "abc")
    pairs = a.join(b, on="k", within="unbounded").select("a_k AS k", "a_v AS v", "b_v AS u").alias("pairs")
    plan = plan_of([pairs.join(c, on="k", within="unbounded").relation])
    query = DirectQuery(plan, tmp_path, 1, 16)
    for epoch in range(1, 30, 3):
        query.run([keyed(s, [1, 2], epoch) for s in plan.sources])
        total = query.epochs.record.stats.units.results_produced.sum()
        query.run([keyed(s, [], epoch + 1) for s in plan.sources])
        assert query.epochs.record.stats.units.results_produced.sum() == total
        freeze_all(query, 16)
        query.run([keyed(s, [], epoch + 2) for s in plan.sources])
        assert query.epochs.record.stats.units.results_produced.sum() == 0
        assert all(run.rows for manifest in query.epochs.record.manifests for run in manifest if run.generation)
        query.drain()
    assert not query.epochs.record.missing_units
    query.close()


def frozen_runs(query: DirectQuery) -> int:
    return sum(run.generation > 0 for manifest in query.epochs.record.manifests for run in manifest)


def test_a_unit_that_is_frozen_over_and_over_has_few_runs(tmp_path, monkeypatch):
    monkeypatch.setattr(cleaning, "MOST_GENERATIONS", 8)
    a, b = stream("a"), stream("b")
    query = DirectQuery(join([a, b], LONGEST), tmp_path, 1, PARTITIONS, memory=0)
    most = files = 0
    for epoch in range(75):  # many times as many
        freeze_all(query, PARTITIONS)
        query.run([keyed(a, [epoch % 7, 8], epoch), keyed(b, [epoch % 11], epoch)])
        most = max(most, frozen_runs(query))
        files = max(files, len(query.epochs.record.files()))
    assert most <= 2 * cleaning.MOST_GENERATIONS * 4 and files <= 2 * cleaning.MOST_GENERATIONS
    query.drain()
    expected = sum(1 for x in range(75) for key in (x % 7, 8) for y in range(75) if y % 11 == key)
    assert query.results().num_rows == expected
    query.close()


def test_units_come_back_together(tmp_path, monkeypatch):
    """What is said of frozen runs is gone through once for all that fit, not once for each unit."""
    a, b = stream("a"), stream("b")
    units, keys = 64, range(500)
    query = DirectQuery(join([a, b], LONGEST), tmp_path, 1, units)
    query.run([keyed(a, keys, 1), keyed(b, [], 1)])
    for first in range(2):
        for unit in range(first, units, 2):
            query.epochs.settings.controller.ask(Freeze(unit, "to see"))
        query.run([keyed(a, [], 2 + first), keyed(b, [], 2 + first)])
    query.run([keyed(a, [], 4), keyed(b, keys[:250], 4)])
    calls = []
    real = Generations.thaw
    monkeypatch.setattr(Generations, "thaw", lambda *given: (calls.append(given[1:]), real(*given))[1])
    query.drain()
    assert len(calls) <= 2 and query.results().num_rows == 250
    assert sum(site.frozen_units for site in query.epochs.record.stats.sites) < 5  # those that missed nothing
    query.run([keyed(a, [], 5), keyed(b, keys[250:], 5)])
    query.drain()
    assert query.results().num_rows == 500
    query.close()


def test_under_advice_nothing_is_frozen_and_units_are_paged_as_ever(tmp_path):
    """What would be frozen is a decision that is refused; state, files and results are those of `static`."""
    a, b = stream("a"), stream("b")
    advised = {"wanted": "no-relocation", "freezing": Freezing(), "advise": True}
    seen = []
    for name, how in [("advised", advised), ("static", {"wanted": "static"})]:
        (tmp_path / name).mkdir()
        query = DirectQuery(
            join([a, b], LONGEST), tmp_path / name, 1, PARTITIONS, memory=3000, clock=CountingClock(), **how
        )
        for epoch in range(10):
            query.run([keyed(a, range(20), epoch), keyed(b, range(20), epoch)])
        assert not query.epochs.record.missing_units and not frozen_runs(query)
        history = query.epochs.history()
        decisions = [d for record in history for d in record.decisions]
        paged = [(d.epoch, d.action, d.unit) for d in decisions if d.policy == "rotation"]
        query.drain()
        seen.append((paged, [r.stats.sites[0].memory_bytes for r in history], multiset(query.results())))
        freezes = [d for d in decisions if d.action == "freeze"]
        assert {(d.policy, d.refused) for d in freezes} == (
            {("no-relocation", "the policy only advises")} if how is advised else set()
        )
        assert len({(d.epoch, d.unit) for d in freezes}) == len(freezes)
        query.close()
    assert seen[0] == seen[1]
    assert seen[0][0], "units were paged"


def test_what_is_frozen_comes_back_when_there_is_room(tmp_path):
    a, b = stream("a"), stream("b")
    query = DirectQuery(join([a, b], LONGEST), tmp_path, 1, PARTITIONS, memory=3000, freezing=Freezing())
    for epoch in range(10):
        query.run([keyed(a, range(20), epoch), keyed(b, range(20), epoch)])
    assert query.epochs.record.missing_units and query.results().num_rows < 2000
    query.epochs.settings.controller.memory.set(0, 1 << 30)
    query.run([keyed(a, [], 10), keyed(b, [], 10)])
    assert not query.epochs.record.missing_units and not frozen_runs(query)
    assert query.results().num_rows == 20 * 10 * 10
    query.close()


def test_cleaning_up_goes_by_epochs_and_tells_how_far_it_has_come(tmp_path, caplog):
    caplog.set_level(logging.INFO, logger="sluice.engine")
    a, b = stream("a"), stream("b")
    query = DirectQuery(join([a, b], LONGEST), tmp_path, 1, PARTITIONS, memory=0)
    query.run([keyed(a, range(40), 1), keyed(b, range(40), 1)])
    freeze_all(query, PARTITIONS)
    query.run([keyed(a, [], 2), keyed(b, [], 2)])
    assert query.epochs.record.stats.frozen == (PARTITIONS, 80, query.epochs.record.stats.frozen.bytes, 0)
    query.run([keyed(a, range(40), 3), keyed(b, [], 3)])
    before = query.epochs.record.stats
    assert before.clean_up is None and before.frozen.missing == len(query.epochs.record.missing_units) == PARTITIONS
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cleaning, "BYTES_AT_ONCE", 1)
        patch.setattr(freezing, "CLEANING_SECONDS", 1e-6)
        query.drain()
    assert query.results().num_rows == 80
    told = [r.stats.clean_up for r in query.epochs.history() if r.stats.clean_up]
    assert len(told) == PARTITIONS  # there was time for one unit in each epoch
    assert [done.rows_done + done.rows_left for done in told] == [120] * PARTITIONS
    assert [done.rows_left for done in told] == sorted((done.rows_left for done in told), reverse=True)
    assert told[-1].rows_left == 0 and told[-1].results == 40 and told[-1].rows_per_second > 0
    messages = [message for message in caplog.messages if "cleaning up" in message]
    assert messages[0] == f"epoch 3: cleaning up {PARTITIONS} units begins, of 120 rows"
    assert messages[-1].startswith("epoch 6: cleaning up: 120 rows done, 0 left; 40 results found; ")
    assert len(messages) == 1 + PARTITIONS
    query.run([keyed(a, [], 4), keyed(b, [], 4)])
    assert query.epochs.record.stats.clean_up is None
    query.close()


def test_what_is_written_anew_in_an_epoch_is_bounded(tmp_path, monkeypatch):
    a, b = stream("a"), stream("b")
    query = DirectQuery(join([a, b], LONGEST), tmp_path, 1, PARTITIONS, memory=0)
    query.run([keyed(a, range(40), 1), keyed(b, [], 1)])
    freeze_all(query, PARTITIONS)
    query.run([keyed(a, [], 2), keyed(b, [], 2)])
    query.run([keyed(a, [], 3), keyed(b, range(40), 3)])
    monkeypatch.setattr(cleaning, "BYTES_AT_ONCE", 1)
    monkeypatch.setattr(cleaning, "BYTES_AN_EPOCH", 1)
    query.drain()
    told = [r.stats.clean_up for r in query.epochs.history() if r.stats.clean_up]
    assert len(told) == PARTITIONS  # one unit in each epoch, whatever time there is
    assert query.results().num_rows == 40 and not query.epochs.record.missing_units
    query.close()


def test_rows_that_come_while_units_are_cleaned_up_are_for_the_next_time(tmp_path):
    a, b = stream("a"), stream("b")
    query = DirectQuery(join([a, b], LONGEST), tmp_path, 1, PARTITIONS, memory=0)
    query.run([keyed(a, range(40), 1), keyed(b, [], 1)])
    freeze_all(query, PARTITIONS)
    query.run([keyed(a, [], 2), keyed(b, [], 2)])
    query.run([keyed(a, [], 3), keyed(b, range(40), 3)])
    query.epochs.clean_up()
    query.run([keyed(a, [], 4), keyed(b, range(40), 4)])
    done, stats = query.epochs.record.stats.clean_up, query.epochs.record.stats
    assert (done.rows_done, done.rows_left, done.results) == (80, 0, 40)
    assert stats.frozen.units == stats.frozen.missing == PARTITIONS  # there is no room for them in memory
    query.epochs.clean_up()
    query.run([keyed(a, [], 5), keyed(b, [], 5)])
    done = query.epochs.record.stats.clean_up
    assert (done.rows_done, done.rows_left, done.results) == (120, 0, 40)  # begun anew
    query.close()


def test_what_is_missing_is_found_beside_input_that_always_waits(tmp_path):
    """With so little time that never all input is taken in."""
    a, b = stream("a"), stream("b")
    query = DirectQuery(join([a, b], LONGEST), tmp_path, 1, PARTITIONS, memory=0, seconds=1e-6, spill="probe")
    query.run([keyed(a, range(40), 1), keyed(b, [], 1)])
    while query.catch_up():
        pass
    freeze_all(query, PARTITIONS)
    epoch = 2
    for keys in ([], range(40)):
        query.run([keyed(a, [], epoch), keyed(b, keys, epoch)])
        epoch += 1
    missing = 0
    for _ in range(2):  # what waited when it was asked for is taken in, and then found
        asked_after = query.epochs.clean_up()
        assert query.epochs.is_cleaning_up(asked_after)
        while query.epochs.is_cleaning_up(asked_after):
            query.run([keyed(a, [], epoch), keyed(b, range(40), epoch)])
            missing += sum(site.late_results for site in query.epochs.record.stats.sites)
            assert query.epochs.record.lagging and epoch < 60
            epoch += 1
    assert missing >= 40  # of the first rows that were missing something, one for each key
    query.drain()
    assert query.results().num_rows == 40 * (epoch - 3)
    query.close()


def test_units_of_several_levels_count_once(tmp_path):
    a, b, c = (source(name, delay=0) for name in "abc")
    pairs = a.join(b, on="k", within="unbounded").select("a_k AS k", "a_v AS v", "b_v AS u").alias("pairs")
    plan = plan_of([pairs.join(c, on="k", within="unbounded").relation])
    new, none = keyed(a.stream, range(6), 1), keyed(a.stream, [], 1)
    query = DirectQuery(plan, tmp_path, 1, PARTITIONS, memory=0)
    query.run([new, new, new])
    freeze_all(query, PARTITIONS)
    query.run([none, none, none])
    query.run([keyed(a.stream, range(6), 2), none, keyed(c.stream, range(6), 2)])
    record = query.epochs.record
    units = len({int(Directory(PARTITIONS).unit_of(hash_keys([pa.array([k])]))[0]) for k in range(6)})
    assert record.stats.frozen.units == record.stats.frozen.missing == len(record.missing_units) == units
    query.drain()
    assert query.results().num_rows == 6 * 2 * 2
    first, second = (r.stats.clean_up for r in query.epochs.history() if r.stats.clean_up)
    assert first.rows_done == 6 * 3 + 6 * 3  # of both joins: three rows by key at each
    assert first.rows_left == second.rows_done - first.rows_done == 6 * 4  # above, with the pairs that were found late
    assert second.rows_left == 0
    query.close()


def test_what_sites_and_units_yield(tmp_path):
    a, b = stream("a"), stream("b")
    query = DirectQuery(join([a, b], LONGEST), tmp_path, 1, PARTITIONS)
    query.run([keyed(a, range(40), 1), keyed(b, list(range(40)) * 3, 1)])
    stats = query.epochs.record.stats
    (site_,) = stats.sites
    assert site_.results_per_unit == 120 / PARTITIONS
    assert site_.productivity == pytest.approx(120 / stats.units.memory.sum())
    assert stats.units.productivity == pytest.approx(stats.units.results / stats.units.memory)
    freeze_all(query, PARTITIONS)
    query.run([keyed(a, [], 2), keyed(b, [], 2)])
    (site_,) = query.epochs.record.stats.sites
    assert site_.results_per_unit == site_.productivity == 0
    query.close()


def test_only_state_that_can_be_frozen_is_ranked(tmp_path):
    a, b = (source(name, delay=0) for name in "ab")
    sums = a.join(b, on="k", within="unbounded").groupBy("a_v").window("1 minute").agg(n=("*", "count"))
    query = DirectQuery(plan_of([sums.relation]), tmp_path, 1, 2 * PARTITIONS)
    query.run([keyed(a.stream, range(40), 1), keyed(b.stream, range(40), 1)])
    stats = query.epochs.record.stats
    assert stats.units.memory[PARTITIONS:].sum() > 0  # of the group-by
    assert stats.sites[0].productivity == pytest.approx(40 / stats.units.memory[:PARTITIONS].sum())
    told = inspect(str(tmp_path / "checkpoint"))
    (least,) = [line for line in told.splitlines() if "units that yield least" in line]
    assert sorted(int(unit) for unit in re.findall(r"(\d+) \(", least)) == list(range(PARTITIONS))


def test_cleaning_up_reads_every_block_once(tmp_path, monkeypatch):
    """Units that are frozen at different times have other generations in the same blocks."""
    a, b = stream("a"), stream("b")
    monkeypatch.setattr(segment, "BLOCK_BYTES", 3000)  # some units each
    query, rng = DirectQuery(join([a, b], LONGEST), tmp_path, 1, 32), np.random.default_rng(1)
    for epoch in range(9):
        for unit in np.flatnonzero(rng.random(32) < 0.7).tolist() if epoch else ():
            query.epochs.settings.controller.ask(Freeze(unit, "to see"))
        query.run([keyed(a, range(400), epoch), keyed(b, range(400), epoch)])
    query.epochs.settings.controller.memory.set(0, 0)  # nothing is brought back
    read: Counter[tuple[str, int]] = Counter()
    fetch = DurableSegments.fetch

    def counted(durable: DurableSegments, run: RunRef) -> list[tuple[int, pa.Buffer]]:
        read.update((run.segment.id, block.offset) for block in run.blocks)
        return fetch(durable, run)

    monkeypatch.setattr(DurableSegments, "fetch", counted)
    query.drain()
    assert len(read) > 10 and set(read.values()) == {1}
    assert query.results().num_rows == 9 * 9 * 400
    query.close()


def test_joins_are_not_frozen_over_and_over_because_of_state_that_cannot_be(tmp_path, caplog):
    """The newest rows of groups alone are more than the memory; each epoch brings the joins a few rows."""
    a, b, c = (source(name, delay=0) for name in "abc")
    newest = c.groupBy("k").last(3).agg(total=("v", "sum"))
    plan = plan_of([a.join(b, on="k", within="unbounded").relation, newest.relation])
    limit, push = 30_000, 0.3
    query = DirectQuery(plan, tmp_path, 1, PARTITIONS, memory=limit, freezing=Freezing(push))
    frozen, brought = Counter(), 0.0
    for epoch in range(60):
        few, many = keyed(a.stream, range(8), epoch), keyed(c.stream, range(400), epoch)
        query.run([few, few, many])
        brought += 2 * (few.nbytes + 8 * len(few))
        frozen.update(d.unit for d in query.epochs.record.decisions if d.action == "freeze")
    assert brought > push * limit  # so that some are frozen
    assert 0 < max(frozen.values()) <= 2 * brought / (push * limit), frozen
    assert sum(site.unfreezable_excess for site in query.epochs.record.stats.sites) > 0
    assert sum("cannot be frozen" in message for message in caplog.messages) == 1
    query.drain()
    assert query.results().num_rows == 60 * 60 * 8
    query.close()


def test_nothing_is_frozen_for_rows_that_leave_with_their_epoch(tmp_path):
    """Epochs are a hundred times as long as the window: their rows would not fit into memory, those that stay do."""
    spec, limit = join([stream("a"), stream("b")], (SECOND, SECOND)), 40_000
    query = DirectQuery(spec, tmp_path, 1, PARTITIONS, memory=limit, freezing=Freezing(0.3))
    seen: list[list[pa.Table]] = [[], []]
    for epoch in range(3):
        new = [pa.concat_tables(keyed(s, range(40), 100 * epoch + i) for i in range(100)) for s in spec.streams]
        for kept, table in zip(seen, new, strict=True):
            kept.append(table)
        query.run(new)
        (site_,) = query.epochs.record.stats.sites
        assert 0 < site_.memory_bytes < limit < new[0].nbytes
        assert not query.epochs.record.decisions and not query.epochs.record.frozen
    assert multiset(query.results()) == multiset(batch_join(spec, [pa.concat_tables(tables) for tables in seen]))
    query.close()


def test_records_stay_short_however_often_units_are_frozen(tmp_path, monkeypatch):
    """Each epoch freezes some units: they have come to other generations, all in the segments of one file."""
    monkeypatch.setattr(cleaning, "MOST_GENERATIONS", 6)
    a, b = stream("a"), stream("b")
    query, rng = DirectQuery(join([a, b], LONGEST), tmp_path, 1, 12, memory=0, spill="probe"), np.random.default_rng(1)
    lengths, references, shared = [], [], 0
    for epoch in range(60):
        for unit in np.flatnonzero(rng.random(12) < 0.3).tolist():
            query.epochs.settings.controller.ask(Freeze(unit, "to see"))
        query.run([keyed(s, rng.integers(0, 50, 20).tolist(), epoch) for s in (a, b)])
        entry = max((tmp_path / "checkpoint" / "journal").iterdir())
        text = entry.read_text()
        lengths.append(len(text))
        references.append(frozen_runs(query))
        named = unpack_texts(json.loads(text)["content"]["state"]["segments"]["ids"])
        runs = [run for manifest in query.epochs.record.manifests for run in manifest]
        assert sorted(named) == sorted({run.segment.id for run in runs}), "once, however many runs have a part of it"
        shared += len(runs) - len(named)
    assert shared > 60
    assert max(references) <= 2 * cleaning.MOST_GENERATIONS * 4, references
    assert max(lengths[40:]) <= 1.2 * max(lengths[20:40]), lengths
    query.close()
