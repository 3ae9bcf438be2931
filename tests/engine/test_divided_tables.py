"""Tables whose rows are state, divided among units: the answer is that of the batch join, under random cuts, moves,
splits, kills and restarts. The table is read once, by map tasks, in the epoch that begins the state."""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from engine_harness import DirectQuery, limits
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import connect_duckdb, multiset, on_time
from specs import KEYS, SECOND, TIME, rows, stream
from table_joins import FAST, Killed, TableLookups, describe, die, expected, kinds, table, table_rows

from examples import one_in
from sluice import CheckpointError, Flow, FlowError, StorageError, readState, testing
from sluice.cli.verification import verify
from sluice.control.journal import Journal
from sluice.engine.file_log import NewFile, NewFiles
from sluice.engine.split import SplitTask
from sluice.model.identity import FILES
from sluice.model.plan.planning import plan_of
from sluice.record.epoch import EpochRecord
from sluice.sources import table_files
from sluice.sources.tables import TableFiles
from sluice.testing.clocks import CountingClock


@settings(max_examples=one_in(2))
@given(st.data(), kinds, st.sampled_from(sorted(KEYS)), st.sampled_from([None, "a.v > t.p"]), st.integers(0, 1000))
def test_any_kind_and_key_on_any_day(data, kind, key, where, seed):
    type_, values = KEYS[key]
    a = stream("a", type_)
    content = data.draw(table_rows(type_, values))
    flow = Flow(name="flow")
    joined = describe(flow, a).join(flow.table("t", content, divided=True), on="k", how=kind, where=where)
    epochs = [data.draw(rows(a, values, epoch * 20 * SECOND, 40 * SECOND)) for epoch in range(4)]
    outcome = testing.run(joined, {"a": epochs}, disturb=data.draw(st.sampled_from([None, seed, seed])))
    good, late = on_time(epochs, "ts", 5 * SECOND)
    assert multiset(outcome.results()) == expected(kind, good, content, where or "true")
    assert outcome.late("a").num_rows == late


class Lookups(TableLookups):
    """A stream joined with a divided table, and drivers one after the other."""

    def __init__(
        self, root: Path, content: Any, kind: str = "left", refresh: str | None = None, **options: Any
    ) -> None:
        self.root, self.flow, self.a, self.options = root, Flow(name="flow"), stream("a"), options
        self.table = self.flow.table("t", content, divided=True, refresh=refresh)
        self.rows = describe(self.flow, self.a)
        self.relation = self.rows.join(self.table, on="k", how=kind).relation
        self.query = self.start()

    def start(self) -> DirectQuery:
        return DirectQuery(plan_of([self.relation]), self.root, tables=self.flow._registry.tables, **self.options)

    def restart(self, **options: Any) -> None:
        self.query.close()
        self.options |= options
        self.query = self.start()

    @property
    def record(self) -> EpochRecord:
        return self.query.epochs.record

    @property
    def staged(self) -> list[str]:
        directory = self.root / "checkpoint" / "tables"
        return sorted(os.listdir(directory)) if directory.exists() else []


@settings(max_examples=one_in(2))
@given(st.data(), kinds)
def test_units_that_are_behind_meet_the_whole_table(data, kind):
    """With little memory and less time: rows of the table and of the stream wait, together or not."""
    type_, values = KEYS["long"]
    content = data.draw(table_rows(type_, values))
    seen: list[pa.Table] = []
    with tempfile.TemporaryDirectory(dir=FAST) as directory:
        lookups = Lookups(Path(directory), content, kind, **limits(data))
        for epoch in range(data.draw(st.integers(1, 5))):
            seen.append(data.draw(rows(lookups.a, values, epoch * 20 * SECOND, 5 * SECOND)))
            lookups.query.run([seen[-1]])
            if data.draw(st.integers(0, 2)) == 0:
                lookups.restart(sites=data.draw(st.integers(1, 3)))
        lookups.query.drain()
        good, _ = on_time(seen, "ts", 5 * SECOND)
        assert multiset(lookups.query.results()) == expected(kind, good, content)
        lookups.query.close()


class ChangingTable:
    """A table that somebody changes while queries run; `read` is what was last read of it."""

    def __init__(self, content: pa.Table) -> None:
        self.rows = self.read = content

    def __call__(self) -> pa.Table:
        self.read = self.rows
        return self.read


@settings(max_examples=one_in(2))
@given(st.data(), kinds)
def test_a_table_that_changes_is_joined_as_each_epoch_had_it(data, kind):
    """Also by rows that wait meanwhile, and whatever becomes of drivers."""
    type_, values = KEYS["long"]
    content = ChangingTable(data.draw(table_rows(type_, values)))
    contents: dict[int, pa.Table] = {}
    wanted: Counter = Counter()
    seen: list[pa.Table] = []
    with tempfile.TemporaryDirectory(dir=FAST) as directory:
        lookups = Lookups(Path(directory), content, kind, "0 seconds", **limits(data))
        for epoch in range(data.draw(st.integers(1, 6))):
            new = data.draw(rows(lookups.a, values, epoch * 20 * SECOND, 5 * SECOND))
            before = on_time(seen, "ts", 5 * SECOND)[0].num_rows if seen else 0
            seen.append(new)
            if data.draw(st.integers(0, 2)) == 0:
                with pytest.raises(Killed):
                    lookups.query.run([new], before_commit=die)
                content.rows = data.draw(table_rows(type_, values))
                if data.draw(st.booleans()):
                    lookups.restart(sites=data.draw(st.integers(1, 3)))
            lookups.query.run([new])
            (version,) = lookups.record.tables
            if version.since == lookups.record.number:
                contents[version.since] = content.read
            assert version.rows == contents[version.since].num_rows
            good, _ = on_time(seen, "ts", 5 * SECOND)
            wanted += expected(kind, good.slice(before), contents[version.since])
            if data.draw(st.booleans()):
                content.rows = data.draw(table_rows(type_, values))
            if data.draw(st.integers(0, 3)) == 0:
                lookups.restart()
            if data.draw(st.integers(0, 3)) == 0:
                lookups.query.drain()
        lookups.query.drain()
        assert multiset(lookups.query.results()) == wanted
        assert sum(site.rows for site in lookups.record.stats.sites) <= version.rows
        lookups.query.close()


def test_a_table_is_read_once_and_kept_over_restarts(tmp_path):
    path = tmp_path / "ref"
    path.mkdir()
    for number, content in enumerate([table(k1=1), table(k1=2, k2=3)]):
        pq.write_table(content, path / f"{number}.parquet")
    lookups = Lookups(tmp_path, str(path))
    lookups.run(1)
    (version,) = lookups.record.tables
    assert (version.name, version.rows, version.since, version.file) == ("t", 3, 0, "")
    for file in path.iterdir():
        file.unlink()
    lookups.run(2)
    lookups.restart(sites=3)
    lookups.run(2, 3)
    assert lookups.record.tables == (version,)
    kept = readState(str(tmp_path / "checkpoint"), input="t").select(["k", "p"])
    assert sorted(kept.to_pylist(), key=str) == [{"k": 1, "p": 1}, {"k": 1, "p": 2}, {"k": 2, "p": 3}]
    assert lookups.partners() == [(0, 1, 1), (0, 1, 2), (1, 2, 3), (2, 2, 3), (2, 3, None)]
    problems = verify(str(tmp_path / "checkpoint")).problems
    assert not any(problem.startswith(("table", "state")) for problem in problems)


@settings(max_examples=one_in(2))
@given(st.integers(0, 100_000))
def test_rows_of_an_epoch_meet_one_content_on_any_day(seed):
    """Each time it is read the table has another number for every key; all rows of a batch meet the same one."""
    numbers = iter(range(1_000_000))

    def content() -> pa.Table:
        return pa.table({"k": pa.array(range(12), pa.int64()), "p": pa.array([next(numbers)] * 12, pa.int64())})

    flow, a = Flow(name="flow"), stream("a")
    joined = describe(flow, a).join(flow.table("t", content, refresh="0 seconds", divided=True), on="k", how="left")
    batches = [
        pa.table([pa.array(range(13)), pa.array([b * SECOND] * 13, TIME), pa.array([b] * 13)], schema=a.schema)
        for b in range(6)
    ]
    shown = testing.run(joined, {"a": batches}, disturb=seed).results().to_pylist()
    assert sorted((r["a_v"], r["a_k"]) for r in shown) == [(batch, key) for batch in range(6) for key in range(13)]
    met = [{r["t_p"] for r in shown if r["a_v"] == batch and r["a_k"] != 12} for batch in range(6)]
    assert all(len(numbers_met) == 1 for numbers_met in met), met
    assert [r["t_p"] for r in shown if r["a_k"] == 12] == [None] * 6
    assert sorted(met, key=min) == met


def test_no_table_is_read_again_while_input_waits(tmp_path):
    """Rows that wait meet the content of their epoch, though the table has changed meanwhile."""
    content = ChangingTable(pa.table({"k": pa.array(range(40), pa.int64()), "p": pa.array([0] * 40, pa.int64())}))
    lookups = Lookups(tmp_path, content, refresh="0 seconds", seconds=1e-6, clock=CountingClock(1e9))
    for _ in range(2):  # the first one tells what a row costs
        lookups.run(*range(40))
    assert lookups.record.lagging, "else nothing waits"
    (version,) = lookups.record.tables
    content.rows = pa.table({"k": pa.array(range(40), pa.int64()), "p": pa.array([1] * 40, pa.int64())})
    lookups.run(*range(40))
    assert lookups.record.tables == (version,)
    lookups.query.drain()
    assert lookups.partners() == sorted(((epoch, key, 0) for epoch in range(3) for key in range(40)), key=str)
    lookups.run(7)
    assert lookups.record.tables[0].since == lookups.record.number
    lookups.query.drain()
    assert (3, 7, 1) in lookups.partners()


def test_files_are_read_again_when_they_have_changed(tmp_path):
    path = tmp_path / "ref"
    path.mkdir()
    pq.write_table(table(k1=1), path / "a.parquet")
    lookups = Lookups(tmp_path, str(path), refresh="onChange")
    lookups.run(1, 2)
    lookups.run(1, 2)
    assert lookups.record.tables[0].since == 0
    lookups.restart()
    lookups.run(1)
    assert lookups.record.tables[0].since == 0, "the files are those that were read"
    pq.write_table(table(k2=2), path / "b.parquet")
    lookups.restart()
    lookups.run(1, 2)
    assert lookups.record.tables[0].since == 3
    (path / "a.parquet").unlink()
    lookups.run(1, 2)
    assert lookups.partners() == [
        (0, 1, 1), (0, 2, None), (1, 1, 1), (1, 2, None), (2, 1, 1), (3, 1, 1), (3, 2, 2), (4, 1, None), (4, 2, 2),
    ]  # fmt: skip


def test_files_that_vanish_leave_the_table_as_it_was(tmp_path, caplog):
    path = tmp_path / "ref.parquet"
    pq.write_table(table(k1=1), path)
    lookups = Lookups(tmp_path, str(path), refresh="onChange")
    lookups.run(1)
    path.unlink()
    lookups.run(1)
    lookups.restart()
    lookups.run(1)
    assert lookups.partners() == [(0, 1, 1), (1, 1, 1), (2, 1, 1)]
    assert "epoch 1: table 't' cannot be read again, and stays as it was: table 't': there is no" in caplog.text


def test_what_is_kept_of_a_changing_table_does_not_grow(tmp_path):
    content = ChangingTable(table(k1=0, k2=0))
    lookups = Lookups(tmp_path, content, refresh="0 seconds")
    for epoch in range(20):
        content.rows = table(k1=epoch, k2=epoch)
        lookups.run(1)
        sites = lookups.record.stats.sites
        assert sum(site.rows for site in sites) == 2 and sum(site.segments for site in sites) <= 2
        assert len(lookups.record.files()) <= 2 and not lookups.staged
    assert len(lookups.record.tables) == 1
    assert lookups.partners() == sorted(((epoch, 1, epoch) for epoch in range(20)), key=str)


def test_an_epoch_writes_what_its_rows_bring_and_no_more(tmp_path):
    many = pa.table({"k": pa.array(range(20_000), pa.int64()), "p": pa.array(range(20_000), pa.int64())})
    lookups = Lookups(tmp_path, many)
    lookups.run(1)
    assert sum(site.rows for site in lookups.record.stats.sites) == 20_000
    files = lookups.record.files()
    for _ in range(20):
        lookups.run(1, 2)
        sites = lookups.record.stats.sites
        assert lookups.record.files() == files, "nothing of the table is written again"
        assert sum(site.rows_in for site in sites) == 2 and not sum(site.merged_rows for site in sites)
    assert not lookups.staged
    assert len(lookups.partners()) == 41


def test_an_epoch_that_failed_leaves_nothing_staged(tmp_path):
    lookups = Lookups(tmp_path, table(k1=1))
    with pytest.raises(Killed):
        lookups.run(1, before_commit=die)
    assert len(lookups.staged) == 1
    lookups.restart()
    lookups.run(1)
    assert not lookups.staged and lookups.partners() == [(0, 1, 1)]


def test_a_failed_epoch_is_run_again_with_what_was_staged(tmp_path):
    reads = []

    def content() -> pa.Table:
        reads.append(len(reads))
        return table(k1=len(reads))

    lookups = Lookups(tmp_path, content)
    with pytest.raises(Killed):
        lookups.run(1, before_commit=die)
    lookups.run(1)
    lookups.run(1)
    assert len(reads) == 2, "for its columns, and for its rows"
    assert lookups.partners() == [(0, 1, 2), (1, 1, 2)]


def test_files_that_change_while_they_are_read_are_read_again(tmp_path):
    path = tmp_path / "ref.parquet"
    pq.write_table(table(k1=1), path)
    lookups = Lookups(tmp_path, str(path))
    changes = iter([table(k1=2, k3=3), table(k1=4)])

    def change() -> None:
        content = next(changes, None)
        if content is not None:
            pq.write_table(content, path)
            os.utime(path, (1, content["p"][0].as_py()))

    lookups.run(1, before_commit=change)
    assert lookups.partners() == [(0, 1, 4)]
    (version,) = lookups.record.tables
    assert version.rows == 1


def test_files_that_never_rest_are_refused(tmp_path):
    path = tmp_path / "ref.parquet"
    pq.write_table(table(k1=1), path)
    lookups = Lookups(tmp_path, str(path))
    times = iter(range(100))
    with pytest.raises(StorageError, match="epoch 0: table 't' cannot be read: its files change each time"):
        lookups.run(1, before_commit=lambda: os.utime(path, (1, next(times))))
    lookups.run(1)
    assert lookups.partners() == [(0, 1, 1)]


def test_a_damaged_staged_file_is_refused_by_name(tmp_path):
    lookups = Lookups(tmp_path, table(k1=1))
    with pytest.raises(Killed):
        lookups.run(1, before_commit=die)
    (file,) = lookups.staged
    path = tmp_path / "checkpoint" / "tables" / file
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(CheckpointError, match=rf"{file} is damaged"):
        lookups.run(1)


def test_rows_are_staged_in_files_that_are_not_too_large(tmp_path, monkeypatch):
    monkeypatch.setattr(table_files, "STAGED_BYTES", 1_000)
    many = pa.table({"k": pa.array(range(1_000), pa.int64()), "p": pa.array(range(1_000), pa.int64())})
    lookups = Lookups(tmp_path, many)
    with pytest.raises(Killed):
        lookups.run(1, before_commit=die)
    assert len(lookups.staged) == 16
    lookups.run(1, 999)
    (version,) = lookups.record.tables
    assert version.rows == 1_000 and lookups.partners() == [(0, 1, 1), (0, 999, 999)]


def test_an_empty_table_has_no_partners(tmp_path):
    lookups = Lookups(tmp_path, table().cast(pa.schema([("k", pa.int64()), ("p", pa.int64())])))
    lookups.run(1)
    lookups.run(1)
    assert lookups.partners() == [(0, 1, None), (1, 1, None)]


def test_nothing_there_is_told_before_any_epoch(tmp_path):
    path = tmp_path / "ref.parquet"
    pq.write_table(table(k1=1), path)
    lookups = Lookups(tmp_path, str(path))
    path.unlink()
    with pytest.raises(StorageError, match=r"table 't': there is no parquet file at"):
        lookups.query.epochs.read_tables()


def test_queries_that_come_later_read_what_no_other_has(tmp_path):
    """By the same key they find the state that is there; by another the table is read again, for them alone."""
    path = tmp_path / "ref.parquet"
    pq.write_table(pa.table({"k": [1, 2], "p": [2, 1]}), path)
    flow, a = Flow(name="flow"), stream("a")
    rows_ = describe(flow, a)
    t = flow.table("t", str(path), divided=True)
    query = DirectQuery(
        {"by key": rows_.join(t, on="k").relation},
        tmp_path,
        streams=[rows_.relation.origin],
        tables=flow._registry.tables,
    )
    new = pa.table([pa.array([1]), pa.array([0], TIME), pa.array([7])], schema=a.schema)
    query.run([new])
    pq.write_table(pa.table({"k": [1], "p": [1]}), path)
    same = query.change({"same": rows_.join(t, on="k", how="semi").relation})
    other = query.change({"other": rows_.join(t, on={"a": "k", "t": "p"}, how="left").relation})
    query.run([new])
    assert same.done.is_set() and other.done.is_set() and same.refusal is None and other.refusal is None
    assert [r["t_p"] for r in query.results_of("by key").to_pylist()] == [2, 2]
    assert query.results_of("same").num_rows == 1
    assert [r["t_k"] for r in query.results_of("other").to_pylist()] == [1]
    assert sorted((version.since, version.rows) for version in query.epochs.record.tables) == [(0, 2), (1, 1)]
    query.change(drop=["other"])
    query.run([new])
    assert [version.since for version in query.epochs.record.tables] == [0]
    path.unlink()
    refused = query.change({"again": rows_.join(t, on={"a": "k", "t": "p"}).relation})
    query.run([new])
    assert "there is no parquet file" in str(refused.refusal)
    query.close()


def test_rows_and_results_meet_divided_tables_wherever_they_are():
    flow = Flow(name="flow")
    a, b = describe(flow, stream("a")), describe(flow, stream("b"))
    t = flow.table("t", table(k1=1, k2=2), divided=True)
    before = a.join(t, on="k").alias("x").join(b, on={"x": "a_k", "b": "k"}, within="10 seconds")
    after = a.join(b, on="k", within="10 seconds").alias("x").join(t, on={"x": "b_k", "t": "k"})
    counted = a.join(t, on="k").groupBy("t_p").window("1 minute").agg(n=("*", "count"))
    twice = a.join(t, on="k").alias("x").join(t.alias("u"), on={"x": "a_v", "u": "k"}, how="left")
    both = a.union(b).alias("x").join(t, on={"x": "k", "t": "k"})
    new = {
        "a": pa.table([pa.array([1, 2, 3]), pa.array([0, 1, 2], TIME), pa.array([2, 9, 1])], schema=stream("a").schema),
        "b": pa.table([pa.array([1, 3]), pa.array([5, 6], TIME), pa.array([0, 0])], schema=stream("b").schema),
    }
    late = [{"k": 0, "ts": "2026-01-01 00:00:00", "v": 0}]
    queries = {"before": before, "after": after, "twice": twice, "counted": counted, "both": both}
    for seed in (None, 5, 6):
        outcome = testing.run(queries, {"a": [new["a"], late], "b": [new["b"]]}, disturb=seed)
        assert [(r["x_a_k"], r["x_t_p"]) for r in outcome.rows("before")] == [(1, 1)]
        assert [(r["x_a_k"], r["t_p"]) for r in outcome.rows("after")] == [(1, 1)]
        assert sorted((r["x_a_k"], r["u_p"] or 0) for r in outcome.rows("twice")) == [(1, 2), (2, 0)]
        assert sorted((r["t_p"], r["n"]) for r in outcome.rows("counted")) == [(1, 1), (2, 1)]
        assert sorted(r["x_k"] for r in outcome.rows("both")) == [1, 1, 2]


@settings(max_examples=one_in(2))
@given(st.data(), kinds, st.integers(0, 1000))
def test_a_chain_over_a_join_that_waits(data, kind, seed):
    """Results of an outer join, hidden times and all, meet the table in a later level, and windows end behind it."""
    type_, values = KEYS["long"]
    content = data.draw(table_rows(type_, values))
    flow, a, b = Flow(name="flow"), stream("a"), stream("b")
    pairs = describe(flow, a).join(describe(flow, b), on="k", within="5 seconds", how="left").alias("x")
    joined = pairs.join(flow.table("t", content, divided=True), on={"x": "a_v", "t": "k"}, how=kind)
    steps = [[data.draw(rows(s, values, epoch * 20 * SECOND, 10 * SECOND)) for epoch in range(3)] for s in (a, b)]
    calm = testing.run({"pairs": pairs, "joined": joined}, {"a": steps[0], "b": steps[1]})
    hurt = testing.run({"pairs": pairs, "joined": joined}, {"a": steps[0], "b": steps[1]}, disturb=seed)
    shown = ", ".join(f"x.{c} AS x_{c}" for c in calm.results("pairs").column_names)
    shown += ", t.k AS t_k, t.p AS t_p" if kind in ("inner", "left") else ""
    with connect_duckdb() as db:
        db.register("x", calm.results("pairs"))
        db.register("t", content)
        answer: Counter = multiset(db.sql(f"SELECT {shown} FROM x {kind} JOIN t ON x.a_v = t.k").to_arrow_table())
    assert multiset(calm.results("joined")) == answer == multiset(hurt.results("joined"))


def test_sql_takes_a_divided_table_as_any_other():
    flow = Flow(name="flow")
    describe(flow, stream("a"))
    flow.table("t", table(k1=1, k2=2), divided=True)
    joined = flow.sql("SELECT a.v, t.p FROM a LEFT JOIN t ON a.k = t.k WHERE a.v > 0")
    new = pa.table([pa.array([1, 3, 2]), pa.array([0, 1, 2], TIME), pa.array([5, 6, 0])], schema=stream("a").schema)
    assert sorted((r["v"], r["p"]) for r in testing.run(joined, {"a": new}).rows()) == [(5, 1), (6, None)]


def refusals() -> dict[str, tuple[Callable[[Flow, Any], Any], str]]:
    some = table(k1=1)
    return {
        "size": (lambda f, a: f.table("u", some, maxSize="1g", divided=True), "may have any size: leave maxSize out"),
        "late": (
            lambda f, a: a.late().join(f.table("u", some, divided=True), on="k"),
            "the late rows of stream 'a' can be filtered, selected and written",
        ),
        "right": (
            lambda f, a: a.join(f.table("u", some, divided=True), on="k", how="right"),
            "rows of table 'u' never appear by themselves",
        ),
    }


@pytest.mark.parametrize("what", refusals())
def test_what_is_refused(what):
    call, why = refusals()[what]
    flow = Flow(name="flow")
    with pytest.raises(FlowError, match=why):
        call(flow, describe(flow, stream("a")))


def test_a_table_that_is_too_large_names_the_way_out(tmp_path):
    flow, a = Flow(name="flow"), stream("a")
    joined = describe(flow, a).join(flow.table("t", table(k1=1, k2=2), maxSize="8b"), on="k")
    query = DirectQuery(plan_of([joined.relation]), tmp_path, tables=flow._registry.tables)
    with pytest.raises(FlowError, match=r"divided among the sites, as state: flow\.table\(\.\.\., divided=True\)"):
        query.epochs.read_tables()
    query.close()


def test_the_driver_reads_no_row_of_files(tmp_path, monkeypatch):
    path = tmp_path / "ref.parquet"
    pq.write_table(table(k1=1), path)
    monkeypatch.setattr(TableFiles, "read", lambda self: pytest.fail("the driver reads the table"))
    lookups = Lookups(tmp_path, str(path))
    lookups.query.epochs.read_tables()
    lookups.run(1)
    assert lookups.partners() == [(0, 1, 1)]


@pytest.mark.parametrize("refresh", ["1 second", None])
def test_an_epoch_that_was_committed_and_taken_for_failed_reads_the_table_anew(tmp_path, monkeypatch, refresh):
    """The store takes the entry of the journal, and the driver does not hear of it: the epoch is run again from the one
    before, whose state has no rows of the table, or those of before."""
    content, clock, commit = ChangingTable(table(k1=1)), CountingClock(1e9), Journal.commit

    def lose_answer(journal: Journal, record: EpochRecord) -> None:
        commit(journal, record)
        raise StorageError("no answer")

    lookups = Lookups(tmp_path, content, refresh=refresh, clock=clock)
    for epoch in range(2):
        with monkeypatch.context() as patch, pytest.raises(StorageError, match="no answer"):
            patch.setattr(Journal, "commit", lose_answer)
            lookups.run(1)
        lookups.run(1)
        assert lookups.partners()[-1] == (epoch, 1, 1 + epoch if refresh else 1)
        content.rows = table(k1=2)
        clock.sleep(5)
    lookups.query.close()


@pytest.mark.parametrize("given", ["files", "rows"])
@pytest.mark.parametrize("refresh", ["1 hour", None])
def test_queries_that_are_added_put_off_no_refresh(tmp_path, given, refresh):
    """A query with another key reads the table anew, and the others get what it reads; a table that is never read again
    stays in their states as it was."""
    path, clock, content = tmp_path / "ref.parquet", CountingClock(1e9), ChangingTable(table(k1=1))
    pq.write_table(content.rows, path)
    flow, a = Flow(name="flow"), stream("a")
    rows_ = describe(flow, a)
    t = flow.table("t", str(path) if given == "files" else content, divided=True, refresh=refresh)
    by_key, by_value = (rows_.join(t, on=on, how="left").relation for on in ("k", {"a": "k", "t": "p"}))
    streams, tables = [rows_.relation.origin], flow._registry.tables
    query = DirectQuery({"first": by_key}, tmp_path / "query", streams=streams, tables=tables, clock=clock)
    new = pa.table([pa.array([1]), pa.array([0], TIME), pa.array([0])], schema=a.schema)
    for version in range(1, 6):
        content.rows = table(k1=version)
        pq.write_table(content.rows, path)
        query.change({f"added {version}": by_value})
        query.run([new])
        query.change(drop=[f"added {version}"])
        clock.sleep(50 * 60)
        query.run([new])
    query.close()
    shown = query.results_of("first")["t_p"].to_pylist()
    assert shown == ([1, 1, 2, 2, 3, 3, 4, 4, 5, 5] if refresh else [1] * 10)


def break_file(path: Path, how: str) -> None:
    """What careless writers do to the files of a table."""
    match how:
        case "half-written":
            data = path.read_bytes()
            path.write_bytes(data[: len(data) // 2])
        case "empty":
            path.write_bytes(b"")
        case "another type":
            pq.write_table(pa.table({"k": ["x", "y"], "p": [1, 2]}), path)
        case "gone":
            path.unlink()


@pytest.mark.parametrize("how", ["half-written", "empty", "another type", "gone"])
def test_a_table_that_cannot_be_read_again_stays_as_it_was(tmp_path, caplog, how):
    """Its files are read by tasks: what is wrong with one must not end the query. The log says it once; the file is not
    tried in every epoch; when it is whole again, it is read."""
    path = tmp_path / "ref" / "a.parquet"
    path.parent.mkdir()
    pq.write_table(table(k1=1), path)
    other = path.with_name("b.parquet")
    pq.write_table(table(k2=1), other)
    lookups = Lookups(tmp_path, str(path.parent), refresh="onChange", clock=CountingClock(1e9))
    lookups.run(1, 2)
    pq.write_table(table(k2=2), other)
    break_file(path, how)
    jobs: list[int] = []
    for _ in range(20):
        lookups.run(1, 2, before_commit=lambda: jobs.append(lookups.query.next))
    since = lookups.record.tables[0].since
    if how == "gone":  # fewer files are another table
        assert since == 1 and lookups.partners()[2:4] == [(1, 1, None), (1, 2, 2)]
        return
    assert since == 0 and lookups.partners() == sorted(((e, k, 1) for e in range(21) for k in (1, 2)), key=str)
    (warning,) = [record.getMessage() for record in caplog.records if "cannot be read again" in record.getMessage()]
    assert warning.startswith("epoch 1: table 't' cannot be read again, and stays as it was: ")
    assert "a.parquet" in warning
    assert 20 < len(jobs) <= 30, "epochs do not try in vain for ever"
    pq.write_table(table(k1=3), path)
    lookups.run(1, 2)
    assert lookups.record.tables[0].since == 21
    assert lookups.partners()[-2:] == [(9, 1, 1), (9, 2, 1)] and (21, 1, 3) in lookups.partners()


def test_a_table_that_cannot_be_read_again_is_looked_at_as_often_as_others(tmp_path, monkeypatch):
    """Also while it is too early to try it again: each look lists all files."""
    path, clock = tmp_path / "ref.parquet", CountingClock(1e9)
    pq.write_table(table(k1=1), path)
    lookups = Lookups(tmp_path, str(path), refresh="1 hour", clock=clock)
    lookups.run(1)
    break_file(path, "half-written")
    looks: list[int] = []
    look = TableFiles.fingerprint
    monkeypatch.setattr(TableFiles, "fingerprint", lambda self: (looks.append(lookups.query.next), look(self))[1])
    for _ in range(40):
        clock.sleep(900)
        lookups.run(1)
    assert 10 <= len(set(looks)) <= 12


def test_a_restart_while_a_table_cannot_be_read_again(tmp_path):
    path = tmp_path / "ref.parquet"
    pq.write_table(table(k1=1), path)
    lookups = Lookups(tmp_path, str(path), refresh="onChange")
    lookups.run(1)
    break_file(path, "half-written")
    with pytest.raises(Killed):
        lookups.run(1, before_commit=die)
    lookups.restart(sites=3)
    lookups.run(1)
    pq.write_table(table(k1=2), path)
    lookups.restart()
    lookups.run(1)
    assert lookups.partners() == [(0, 1, 1), (1, 1, 1), (2, 1, 2)]


def test_files_that_never_rest_leave_the_table_as_it_was(tmp_path, caplog):
    path = tmp_path / "ref.parquet"
    pq.write_table(table(k1=1), path)
    lookups = Lookups(tmp_path, str(path), refresh="onChange")
    lookups.run(1)
    times = iter(range(100))
    pq.write_table(table(k1=2), path)
    lookups.run(1, before_commit=lambda: os.utime(path, (1, next(times))))
    assert next(times) == 4, "three tries, and one without"
    lookups.run(1)
    assert lookups.partners() == [(0, 1, 1), (1, 1, 1), (2, 1, 2)]
    assert "stays as it was: its files change each time while they are read" in caplog.text


def test_a_first_read_of_a_file_that_is_not_whole_is_refused(tmp_path):
    path = tmp_path / "ref.parquet"
    pq.write_table(table(k1=1), path)
    lookups = Lookups(tmp_path, str(path), refresh="onChange")
    break_file(path, "half-written")
    with pytest.raises(StorageError, match=r"ref\.parquet"):
        lookups.run(1)
    pq.write_table(table(k1=2), path)
    lookups.run(1)
    assert lookups.partners() == [(0, 1, 2)]


@pytest.mark.parametrize("by", ["window_time", "window_start"])
def test_windows_over_windows_have_a_table_between_them(by):
    """A row beside its partners has the time that it had: what windows go by is known behind the table, too."""
    shown = []
    for divided in (False, True):
        flow, a = Flow(name="flow"), stream("a")
        bars = describe(flow, a).groupBy("k").window("4 seconds").agg(n=("*", "count")).alias("b")
        joined = bars.join(flow.table("t", table(k1=1, k2=2), divided=divided), on="k")
        longer = joined.groupBy("t_p").window("8 seconds", by=by).agg(n=("b_n", "sum"))
        times = pa.array([second * SECOND for second in range(60)], TIME)
        new = pa.table([pa.array([1, 2] * 30), times, pa.array([0] * 60)], schema=a.schema)
        outcome = testing.run(
            longer.writeStream.option("closeAtEnd", "true").trigger(availableNow=True), {"a": new}, disturb=3
        )
        shown.append(multiset(outcome.results()))
    assert shown[0] == shown[1] and len(shown[0]) >= 14


def test_how_rows_are_split_is_known_ahead_though_tables_are_among_the_state(tmp_path):
    lookups, told, split = Lookups(tmp_path, table(k1=1), input=FILES), list[SplitTask](), list[SplitTask]()
    for number in range(3):
        new = pa.table([[1], pa.array([number * SECOND], TIME), [number]], schema=lookups.a.schema)
        exchange = lookups.query._exchange([new], lambda: None)

        def note(task: SplitTask, site: Any, exchange: Any = exchange) -> Any:
            split.append(task)
            return exchange(task, site)

        files = NewFiles((NewFile(0, f"{number}", number),), (None,))
        lookups.query.epochs.run_with_files(files, lookups.query.site_keys, note, look_ahead=told.append)
    assert split[0].loads and lookups.record.tables
    assert [replace(task, watermarks=None) for task in told[:2]] == [replace(t, watermarks=None) for t in split[1:]]
    lookups.query.close()
