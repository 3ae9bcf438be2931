"""Queries are added to a running flow and dropped from it, between two epochs: each equals its batch answer for the
time that it was there, and the others do not notice."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from arrivals import fingerprint
from changing_queries import ChangingQuery, History, answers, assert_exact, draw_query, draw_streams, new_of
from chaos_flows import rows
from dying_process import dies_before
from engine_harness import DirectQuery
from specs import SECOND, TIME, handle, stream

from sluice.control import copying
from sluice.control.journal import KEPT, Journal
from sluice.control.replay import layouts_of, records_of_newest_run, replay
from sluice.engine.checkpoint import PlanOnRecord
from sluice.model.epoch.results import Results
from sluice.model.errors import CheckpointError, FlowError, QueryError, StorageError
from sluice.model.plan.relation import Relation
from sluice.policies import policy
from sluice.spark.sinks import ParquetSink
from sluice.state.files.storage import Storage, watch
from sluice.verbs.freeze import Freeze
from sluice.verbs.move import Move
from sluice.verbs.split import Split


class Changing:
    """A flow whose queries come and go as drawn from a seed."""

    def __init__(self, root: Path, seed: int, **options: object) -> None:
        self.root, self.rng, self.options = root, np.random.default_rng(seed), {"sites": 2, "partitions": 6, **options}
        self.streams = draw_streams(self.rng)
        self.sources = tuple(s.relation.origin for s in self.streams)
        self.all: dict[str, ChangingQuery] = {}
        self.running = [self.draw() for _ in range(int(self.rng.integers(1, 4)))]
        self.history = History.of(self.sources)
        self.seen: list[list[pa.Table]] = [[] for _ in self.sources]
        self.start()

    def draw(self) -> str:
        name = f"q{len(self.all)}"
        self.all[name] = draw_query(self.rng, self.streams)
        return name

    def start(self, confirmed: bool = False) -> None:
        queries = {name: self.all[name].relation for name in self.running}
        self.query = DirectQuery(queries, self.root, streams=self.sources, confirmed=confirmed, **self.options)

    def change(self) -> None:
        """Some go and some come, all at once or one after the other."""
        gone = [name for name in self.running if self.rng.random() < 0.3]
        new = [self.draw() for _ in range(int(self.rng.integers(0, 3)))]
        gone = gone if new else gone[: len(self.running) - 1]
        self.running = [*(name for name in self.running if name not in gone), *new]
        if self.rng.random() < 0.5:
            self.query.change({name: self.all[name].relation for name in new}, gone)
        else:
            for name in new:
                self.query.change({name: self.all[name].relation})
            for name in gone:
                self.query.change(drop=[name])

    def restart_otherwise(self) -> None:
        self.query.close()
        self.running = [*(name for name in self.running if self.rng.random() < 0.7), self.draw()]
        self.rng.shuffle(self.running)
        self.start(confirmed=True)

    def epoch(self) -> None:
        batch = self.query.next
        tables = [
            rows(self.rng, int(self.rng.integers(1, 25)), batch * 4 * SECOND, 4 * SECOND, 3, False) for _ in "abc"
        ]
        for kept, table in zip(self.seen, tables, strict=True):
            kept.append(table)
        self.query.run(tables)
        self.look()

    def look(self) -> None:
        for record, plan in new_of(self.query.epochs.journal, self.history):
            self.history.add(record, plan)

    def compare(self) -> Counter[str]:
        self.query.drain()
        self.look()
        expected, _ = answers(self.history, self.all, self.sources, self.seen)
        return assert_exact(self.history, self.all, expected, self.query.results_of)


@pytest.mark.parametrize("seed", [*range(3), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(3, 5))])
def test_each_query_equals_its_batch_answer_for_the_time_that_it_was_there(tmp_path: Path, seed: int) -> None:
    flow = Changing(tmp_path, seed)
    for _ in range(7):
        if flow.rng.random() < 0.5:
            flow.change()
        elif flow.rng.random() < 0.3:
            flow.restart_otherwise()
        elif flow.rng.random() < 0.2:
            flow.query.close()
            flow.start()
        flow.epoch()
    assert flow.compare()["exact"]
    flow.query.close()


A, B, C = (handle(stream(name)) for name in "abc")
SOURCES = tuple(s.relation.origin for s in (A, B, C))
PAIRS = A.join(B, on="k", within="10 seconds").relation
SHORTER = A.join(B, on="k", within="4 seconds").relation
OTHERS = A.join(C, on="k", within="10 seconds").relation
BY_VALUE = A.join(B, on="v", within="10 seconds").relation
SUMS = C.groupBy("k").last(2).agg(total=("v", "sum")).relation


def started(root: Path, queries: Mapping[str, Relation], **options: Any) -> DirectQuery:
    return DirectQuery(queries, root, streams=SOURCES, **{"sites": 2, "partitions": 4, **options})


def ticks(second: int) -> list[pa.Table]:
    """A row of key 1 in each stream."""
    row = [pa.array([1]), pa.array([second * SECOND], TIME), pa.array([second])]
    return [pa.table(row, schema=s.schema) for s in SOURCES]


def seconds_of(query: DirectQuery, name: str) -> list[tuple[int, ...]]:
    """The values of both rows of each result."""
    table = query.results_of(name)
    return sorted(zip(*(table[c].to_pylist() for c in table.schema.names if c.endswith("_v")), strict=True))


def plan_files(root: Path) -> set[str]:
    return {f"flow/{file.name}" for file in (root / "checkpoint" / "flow").iterdir()}


def test_one_that_attaches_finds_the_partners_that_are_there_in_its_first_epoch(tmp_path: Path) -> None:
    query = started(tmp_path, {"pairs": PAIRS})
    query.run(ticks(1))
    query.run(ticks(2))
    states = set(query.plan.states)
    query.change({"shorter": SHORTER, "others": OTHERS, "by value": BY_VALUE})
    query.run(ticks(3))
    assert seconds_of(query, "shorter") == [(1, 3), (2, 3), (3, 1), (3, 2), (3, 3)], "both rows of some are older"
    assert seconds_of(query, "others") == [(1, 3), (2, 3), (3, 3)], "of `c` nothing was kept"
    assert seconds_of(query, "by value") == [(3, 3)], "nothing was kept by this key"
    assert states < set(query.plan.states) and len(query.plan.states) == 5
    assert len(seconds_of(query, "pairs")) == 9
    query.close()


@pytest.mark.parametrize("how", ["left", "anti", "full"])
def test_no_row_lacks_a_partner_that_came_before_the_query(tmp_path: Path, how: str) -> None:
    """Rows of `a` are kept, those of `c` are not: a row from before is none of the query's."""
    query = started(tmp_path, {"alone": A.join(B, on="k", within="1 second", how=how).relation})
    for second in range(1, 4):
        query.run(ticks(second))
    query.change({"others": A.join(C, on="k", within="500 milliseconds", how=how).relation})
    for second in range(4, 8):
        query.run(ticks(second))
    both = [(second, second) for second in range(4, 8)]
    assert seconds_of(query, "others") == ([] if how == "anti" else both)
    query.close()


@pytest.mark.parametrize("how", ["left", "full"])
def test_rows_without_partner_from_before_the_query_appear_if_both_sides_were_kept(tmp_path: Path, how: str) -> None:
    query = started(tmp_path, {"wider": A.join(B, on="k", within="9 seconds", how=how).relation})
    for second in (1, 2):
        a, _, c = ticks(second)
        query.run([a, SOURCES[1].schema.empty_table(), c])
    query.change({"closer": A.join(B, on="k", within="900 milliseconds", how=how).relation})
    query.run(ticks(3))
    values = query.results_of("closer").select(["a_v", "b_v"]).to_pylist()
    assert sorted((row["a_v"], row["b_v"]) for row in values) == [(1, None), (2, None), (3, 3)]
    query.close()


def test_the_state_of_the_others_is_untouched(tmp_path: Path) -> None:
    query = started(tmp_path, {"pairs": PAIRS, "sums": SUMS})
    for second in range(4):
        query.run(ticks(second))
    before = query.epochs.record
    kept = {
        u for u in before.routing.ids.array.tolist() if before.routing.fragment_of(u) == query.plan.nodes[0].fragment
    }
    query.change({"by value": BY_VALUE}, ["sums"])
    query.run(ticks(4))
    after = query.epochs.record
    assert all(after.routing.holders_of(u) == before.routing.holders_of(u) for u in kept)
    assert set(after.routing.ids.array.tolist()) - kept == set(
        range(before.routing.ids.next_id, after.routing.ids.next_id)
    )
    assert not any(site.fetched_bytes for site in after.stats.sites), "no state was read again"
    query.close()


def test_what_cannot_be_is_refused_in_words_and_the_rest_goes_on(tmp_path: Path) -> None:
    query = started(tmp_path, {"pairs": PAIRS, "sums": SUMS})
    query.run(ticks(1))
    refused = [
        (query.change(drop=["pears"]), QueryError, "there is no query 'pears'; they are pairs, sums"),
        (query.change(drop=["pairs", "sums"]), QueryError, "cannot drop 'pairs', 'sums': it is the last query"),
        (query.change({"PAIRS": BY_VALUE}), FlowError, "the running query has the queryName 'PAIRS'"),
    ]
    fine = query.change({"by value": BY_VALUE}, ["sums"])
    again = query.change(drop=["sums"])
    query.run(ticks(2))
    for request, error, words in refused:
        assert request.done.is_set() and isinstance(request.refusal, error) and words in str(request.refusal)
    assert fine.done.is_set() and fine.refusal is None and isinstance(again.refusal, QueryError)
    assert [output.name for output in query.plan.outputs] == ["pairs", "by value"]
    query.close()


def test_an_idle_query_has_an_epoch_for_it(tmp_path: Path) -> None:
    query = started(tmp_path, {"pairs": PAIRS})
    query.run(ticks(1))
    assert not query.catch_up()
    request = query.change({"sums": SUMS})
    assert query.epochs.is_under_way and query.catch_up() and request.done.is_set() and not query.catch_up()
    query.close()


def test_what_is_under_way_for_units_that_end_is_abandoned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is under way for the others is not."""
    monkeypatch.setattr(copying, "MIN_COPY_BYTES", 1)
    monkeypatch.setattr(copying, "COPY_BYTES_PER_SECOND", 1.0)
    query = started(tmp_path, {"pairs": PAIRS, "by value": BY_VALUE}, partitions=2, wanted="static")
    query.run(ticks(1))
    hand = query.epochs.settings.controller
    units = {f: query.epochs.record.routing.directories[f].first for f in range(2)}
    for place in units.values():
        unit = query.epochs.record.routing.unit_at(place)
        hand.ask(Move(unit, 1 - query.epochs.record.routing.holder(unit), "by hand"))
    query.run(ticks(2))
    assert len(query.epochs.record.under_way) == 2
    query.change(drop=["by value"])
    query.run(ticks(3))
    (ended,) = [one for one in query.epochs.outcomes() if one.outcome == "abandoned"]
    assert ended.abandoned == "its query was dropped" and ended.unit == 1
    for second in range(4, 12):
        query.run(ticks(second))
    assert [one.outcome for one in query.epochs.outcomes()] == ["done", "abandoned"]
    query.close()


def test_nothing_joins_units_whose_state_it_could_not_find(tmp_path: Path) -> None:
    """Those that are frozen, or about to be split."""
    for action in (Freeze, Split):
        root = tmp_path / action.__name__
        query = started(root, {"pairs": PAIRS})
        query.run(ticks(1))
        query.epochs.settings.controller.ask(action(0, "by hand"))
        query.run(ticks(2))
        query.change({"shorter": SHORTER})
        query.run(ticks(3))
        assert len(query.plan.labels) == 2 and seconds_of(query, "shorter") == [(3, 3)]
        query.drain()
        assert len(seconds_of(query, "pairs")) == 9
        query.close()


def test_a_driver_that_ends_before_the_commit_leaves_the_state_of_what_it_was_to_drop(tmp_path: Path) -> None:
    query = started(tmp_path, {"pairs": PAIRS, "by value": BY_VALUE})
    for second in range(3):
        query.run(ticks(second))
    plan = query.epochs.record.plan

    def die() -> None:
        raise KeyboardInterrupt

    query.change({"sums": SUMS}, ["by value"])
    with pytest.raises(KeyboardInterrupt):
        query.run(ticks(3), before_commit=die)
    query.epochs.close()
    query.close()
    query = started(tmp_path, {"pairs": PAIRS, "by value": BY_VALUE})
    query.run(ticks(3))
    assert query.epochs.record.plan == plan and plan_files(tmp_path) == {plan}
    assert len(seconds_of(query, "pairs")) == 16 and seconds_of(query, "by value") == [(n, n) for n in range(4)]
    query.close()


def test_an_epoch_that_is_run_again_goes_by_the_plan_that_it_had(tmp_path: Path) -> None:
    query = started(tmp_path, {"pairs": PAIRS})
    query.run(ticks(1))

    def fail() -> None:
        raise RuntimeError("the job failed")

    first = query.change({"sums": SUMS})
    with pytest.raises(RuntimeError):
        query.run(ticks(2), before_commit=fail)
    second = query.change({"by value": BY_VALUE})
    query.run(ticks(2))
    assert first.done.is_set() and not second.done.is_set()
    query.run(ticks(3))
    assert second.done.is_set() and [o.name for o in query.plan.outputs] == ["pairs", "sums", "by value"]
    records = records_of_newest_run(query.epochs.journal)
    replayed = replay(records, query.new_controller(policy("static")), layouts_of(query.epochs.journal, records), 4)
    assert not list(replayed)
    query.close()


def test_a_restart_lists_what_would_change_and_does_it_when_that_is_confirmed(tmp_path: Path) -> None:
    query = started(tmp_path, {"pairs": PAIRS, "sums": SUMS})
    query.run(ticks(1))
    query.close()
    others = {"by value": BY_VALUE, "pairs": PAIRS}
    before = fingerprint(tmp_path / "checkpoint")
    with pytest.raises(CheckpointError, match=r"'by value' would be added .*; 'sums' would be dropped .*changeQueries"):
        started(tmp_path, others)
    assert fingerprint(tmp_path / "checkpoint") == before
    query = started(tmp_path, others, confirmed=True)
    query.run(ticks(2))
    assert len(seconds_of(query, "pairs")) == 4 and seconds_of(query, "by value") == [(2, 2)]
    assert query.results_of("sums").num_rows == 1
    query.close()
    query = started(tmp_path, dict(reversed(others.items())))
    query.run(ticks(3))
    assert len(seconds_of(query, "pairs")) == 9 and len(query.plan.sources) == 3
    query.close()


def test_a_changed_query_begins_anew_and_needs_another_place(tmp_path: Path) -> None:
    query = started(tmp_path, {"pairs": PAIRS, "sums": SUMS})
    query.run(ticks(1))
    query.close()
    with pytest.raises(FlowError, match="out-pairs' holds the results of another query"):
        started(tmp_path, {"pairs": SHORTER, "sums": SUMS}, confirmed=True)
    (tmp_path / "out-pairs").rename(tmp_path / "out-moved")
    with pytest.raises(CheckpointError, match="has none of the results"):
        started(tmp_path, {"pairs": SHORTER, "sums": SUMS}, confirmed=True)


def queries_on_record(root: Path) -> dict[str, Relation]:
    """Those that the checkpoint has, as a driver is started again with."""
    on_record = PlanOnRecord.read(Journal(Storage(str(root / "checkpoint"))))
    assert on_record is not None
    return {query.name: CRASHING[query.name] for query in on_record.plan.queries}


CRASHING = {"pairs": PAIRS, "by value": BY_VALUE, "sums": SUMS}


def crash_at(root: Path, operation: int) -> bool:
    """Start the flow again, in a process of its own, and have it change its queries with an epoch; it dies just before
    the given file operation."""

    def change_queries() -> None:
        query = started(root, queries_on_record(root), sites=1)
        query.change({"sums": SUMS}, ["by value"])
        query.run(ticks(3))

    return dies_before(operation, change_queries, lambda path: "/memory/" not in path and "/disk/" not in path)


def crash_at_each(root: Path, step: int) -> int:
    before = root / "before"
    query = started(before, {"pairs": PAIRS, "by value": BY_VALUE}, sites=1)
    for second in range(3):
        query.run(ticks(second))
    query.epochs.close()
    query.close()
    operation = 0
    while True:
        here = root / str(operation)
        shutil.copytree(before, here)
        crashed = crash_at(here, operation)
        query = started(here, queries_on_record(here), sites=1)
        if "sums" not in queries_on_record(here):
            query.change({"sums": SUMS}, ["by value"])
        for second in (3, 4):
            query.run(ticks(second), number=second)
        query.epochs.close()
        record, journal = query.epochs.record, query.epochs.journal
        assert [output.name for output in query.plan.outputs] == ["pairs", "sums"]
        assert len(seconds_of(query, "pairs")) == 25, f"after a crash at operation {operation}"
        assert seconds_of(query, "by value") == [(n, n) for n in range(3)]
        assert query.results_of("sums")["total"].to_pylist() == [3, 7]
        assert plan_files(here) == record.plans == {one.plan for one in journal.epochs()}
        assert {f"state/{file.name}" for file in (here / "checkpoint" / "state").iterdir()} == record.files()
        query.close()
        shutil.rmtree(here)
        if not crashed:
            return operation
        operation += step


def test_a_crash_at_some_file_operations_of_a_change(tmp_path: Path) -> None:
    assert crash_at_each(tmp_path, step=7) > 20


@pytest.mark.slow
def test_a_crash_at_every_file_operation_of_a_change(tmp_path: Path) -> None:
    assert crash_at_each(tmp_path, step=1) > 20


@pytest.mark.parametrize("changes", [60, pytest.param(2000, marks=pytest.mark.slow)])
def test_nothing_grows_over_many_changes(tmp_path: Path, changes: int) -> None:
    """Neither files nor the record, nor what the driver keeps: one query is added and another dropped with each
    epoch."""
    kinds = [SUMS, BY_VALUE, SHORTER, OTHERS]
    query = started(tmp_path, {"pairs": PAIRS}, sites=1, partitions=2)
    empty = [s.schema.empty_table() for s in SOURCES]
    sizes, files = [], []
    for n in range(changes):
        query.change({f"q{n}": kinds[n % len(kinds)]}, [f"q{n - 1}"] if n else [])
        query.run(ticks(n) if n % 7 == 0 else empty)
        record = query.epochs.record
        sizes.append(query.epochs.storage.size(f"journal/{query.epochs.journal.head.index:012d}.json"))
        directories = ("flow", "state", "journal")
        files.append({name: len(list((tmp_path / "checkpoint" / name).iterdir())) for name in directories})
        assert len(record.routing.ids.runs) <= len(query.plan.labels) <= 3
        assert len(query.epochs.standing._plans) <= 101 and len(query.epochs.delivery._sinks) == 1
        assert plan_files(tmp_path) == record.plans and len(record.former_plans) <= KEPT
    most = max(file["flow"] for file in files)
    assert most <= KEPT + 1 and max(file["journal"] for file in files) <= KEPT
    assert max(file["state"] for file in files) <= 12
    settled = min(changes // 2, KEPT + 20)
    if changes > 2 * KEPT:
        assert max(sizes[settled:]) <= max(sizes[:settled]) + 500
    query.close()


class Broken(ParquetSink):
    """One whose directory cannot be written any more after some epochs."""

    broken = False

    def deliver(self, results: Results) -> None:
        if self.broken:
            raise StorageError("the disk is full")
        super().deliver(results)


def test_a_sink_that_raises_is_set_aside_and_the_others_go_on(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    query = started(tmp_path, {"pairs": PAIRS, "by value": BY_VALUE}, sites=1)
    query.run(ticks(0))
    query.sinks[1].__class__ = Broken
    query.sinks[1].broken = True
    query.run(ticks(1))
    aside = query.epochs.delivery.set_aside["by value"]
    assert str(aside) == "set aside: the results of epoch 1 could not be shown: StorageError: the disk is full"
    assert "query 'by value' is set aside" in caplog.text
    waiting = list((tmp_path / "out-by value").glob("_sluice-*/*.parquet"))
    assert len(waiting) == 1, "the results stay"
    assert query.epochs.is_under_way and query.catch_up()
    query.run(ticks(2))
    query.epochs.close()
    assert [output.name for output in query.plan.outputs] == ["pairs"]
    assert len(seconds_of(query, "pairs")) == 9 and seconds_of(query, "by value") == [(0, 0)]
    assert list((tmp_path / "out-by value").glob("_sluice-*/*.parquet")) == waiting
    assert not list((tmp_path / "checkpoint" / "delivered").glob("*failed*"))
    query.close()


def test_a_query_that_was_set_aside_can_be_added_again_under_its_name(tmp_path: Path) -> None:
    query = started(tmp_path, {"pairs": PAIRS, "by value": BY_VALUE}, sites=1)
    query.sinks[1].__class__ = Broken
    query.sinks[1].broken = True
    query.run(ticks(0))
    assert query.catch_up(), "it is dropped"
    shutil.rmtree(tmp_path / "out-by value")
    request = query.change({"by value": BY_VALUE})
    query.run(ticks(1))
    query.run(ticks(2))
    assert request.done.is_set() and not query.epochs.delivery.set_aside
    assert [output.name for output in query.plan.outputs] == ["pairs", "by value"]
    assert len(seconds_of(query, "by value")) > 0
    query.close()


def test_a_driver_that_dies_before_a_query_is_dropped_shows_its_results_again(tmp_path: Path) -> None:
    """They are not lost, and not shown twice."""
    query = started(tmp_path, {"pairs": PAIRS, "by value": BY_VALUE}, sites=1)
    query.sinks[1].__class__ = Broken
    query.sinks[1].broken = True
    query.run(ticks(0))
    query.close()
    query = started(tmp_path, {"pairs": PAIRS, "by value": BY_VALUE}, sites=1)
    assert not query.epochs.delivery.set_aside and seconds_of(query, "by value") == [(0, 0)]
    query.run(ticks(1))
    assert seconds_of(query, "by value") == [(0, 0), (1, 1)]
    query.close()


@pytest.mark.parametrize("fails_fast", [True, False])
def test_a_sink_that_raises_ends_the_query_if_it_is_the_only_one_or_that_is_wanted(
    tmp_path: Path, fails_fast: bool
) -> None:
    queries = {"pairs": PAIRS, "by value": BY_VALUE} if fails_fast else {"pairs": PAIRS}
    query = started(tmp_path, queries, sites=1)
    query.epochs.delivery.fails_fast = fails_fast
    query.sinks[0].__class__ = Broken
    query.sinks[0].broken = True
    with pytest.raises(StorageError, match="the disk is full"):
        query.run(ticks(0))
    query.close()
    query = started(tmp_path, queries, sites=1)
    query.run(ticks(0), number=0)
    assert seconds_of(query, "pairs") == [(0, 0)]
    query.close()


def test_before_there_was_any_input(tmp_path: Path) -> None:
    query = started(tmp_path, {"pairs": PAIRS})
    request = query.change({"sums": SUMS})
    assert query.catch_up() and request.done.is_set() and query.epochs.record.batch == -1
    query.close()
    query = started(tmp_path, {"pairs": PAIRS, "sums": SUMS})
    query.run(ticks(0))
    query.change({"by value": BY_VALUE}, ["pairs"])
    query.run(ticks(1))
    assert seconds_of(query, "pairs") == [(0, 0)] and seconds_of(query, "by value") == [(1, 1)]
    assert query.results_of("sums").num_rows == 2
    query.close()


def test_no_copy_stays_of_levels_that_are_gone(tmp_path: Path) -> None:
    grouped = A.join(B, on="k", within="10 seconds").groupBy("a_k").window("60 seconds").agg(n=("*", "count"))
    query = started(tmp_path, {"pairs": PAIRS, "grouped": grouped.relation}, sites=1)
    for second in range(3):
        query.run(ticks(second))
    assert {path.name for path in (tmp_path / "memory").glob("*/site-*")} == {"site-0000-0", "site-0000-1"}
    query.change(drop=["grouped"])
    query.run(ticks(3))
    assert {path.name for path in (tmp_path / "memory").glob("*/site-*")} == {"site-0000-0"}
    assert query.epochs.record.stats.sites[0].memory_bytes == sum(
        file.stat().st_size for file in (tmp_path / "memory").glob("*/site-*/*")
    )
    query.close()


def test_a_driver_that_has_lost_the_checkpoint_changes_nothing(tmp_path: Path) -> None:
    suspended = started(tmp_path, {"pairs": PAIRS, "sums": SUMS}, sites=1)
    suspended.run(ticks(0))
    request = suspended.change({"by value": BY_VALUE}, ["pairs"])
    query = started(tmp_path, {"pairs": PAIRS, "sums": SUMS}, sites=1)
    with pytest.raises(CheckpointError, match="taken over"):
        suspended.run(ticks(1))
    assert not request.done.is_set() and len(plan_files(tmp_path)) == 2
    suspended.epochs.close()
    query.run(ticks(1))
    query.epochs.close()
    assert [output.name for output in query.plan.outputs] == ["pairs", "sums"]
    assert len(seconds_of(query, "pairs")) == 4 and plan_files(tmp_path) == {query.epochs.record.plan}
    for one in (suspended, query):
        one.close()


def test_a_dropped_query_still_gets_the_results_that_were_committed(tmp_path: Path) -> None:
    query = started(tmp_path, {"pairs": PAIRS, "by value": BY_VALUE}, sites=1)
    query.run(ticks(0))

    def die(operation: str, path: str) -> None:
        if operation == "move" and "out-by value" in path:
            raise KeyboardInterrupt

    with watch(die), pytest.raises(KeyboardInterrupt):
        query.run(ticks(1))
    query.close()
    assert seconds_of(query, "by value") == [(0, 0)]
    query = started(tmp_path, {"pairs": PAIRS}, sites=1, confirmed=True)
    query.run(ticks(1), number=1)
    query.run(ticks(2), number=2)
    assert seconds_of(query, "by value") == [(0, 0), (1, 1)] and len(seconds_of(query, "pairs")) == 9
    assert not list((tmp_path / "out-by value").glob("_sluice-*/*"))
    query.close()
