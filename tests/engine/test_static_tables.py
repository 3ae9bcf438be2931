"""Streams joined with tables: the answer is that of the batch join with the table as each epoch had it, under random
cuts, moves, kills and restarts, and whatever becomes of the table meanwhile."""

from __future__ import annotations

import logging
import os
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from engine_harness import DirectQuery
from hypothesis import given, settings
from hypothesis import strategies as st
from month import MonthlyQuery
from oracle import connect_duckdb, multiset, on_time
from specs import KEYS, SECOND, TIME, rows, stream
from table_joins import FAST, Killed, TableLookups, describe, die, expected, kinds, table, table_rows

from examples import one_in
from sluice import CheckpointError, Flow, FlowError, SqlError, StorageError, testing
from sluice.cli.verification import verify
from sluice.engine import epoch_tables, filtered_rows
from sluice.kernels.key_index import KeyIndex
from sluice.model.plan.planning import plan_of
from sluice.sources.tables import TableFiles
from sluice.testing.clocks import CountingClock


@given(st.data(), kinds, st.sampled_from(sorted(KEYS)), st.sampled_from([None, "a.v > t.p"]), st.integers(0, 1000))
def test_any_kind_and_key_on_any_day(data, kind, key, where, seed):
    type_, values = KEYS[key]
    a = stream("a", type_)
    table = data.draw(table_rows(type_, values))
    flow = Flow(name="flow")
    joined = describe(flow, a).join(flow.table("t", table), on="k", how=kind, where=where)
    epochs = [data.draw(rows(a, values, epoch * 20 * SECOND, 40 * SECOND)) for epoch in range(4)]
    outcome = testing.run(joined, {"a": epochs}, disturb=data.draw(st.sampled_from([None, seed])))
    good, late = on_time(epochs, "ts", 5 * SECOND)
    assert multiset(outcome.results()) == expected(kind, good, table, where or "true")
    assert outcome.late("a").num_rows == late


class ChangingTable:
    """A table that somebody changes while queries run."""

    def __init__(self, rows_: pa.Table) -> None:
        self.rows, self.reads = rows_, 0

    def __call__(self) -> pa.Table:
        self.reads += 1
        return self.rows


class Lookups(TableLookups):
    """A stream joined with a table that changes, and drivers one after the other."""

    def __init__(self, root: Path, content: Any, kind: str = "left", refresh: str | None = "0 seconds", **given: Any):
        self.root, self.flow, self.a = root, Flow(name="flow"), stream("a")
        self.clock = given.pop("clock", None)
        self.table = self.flow.table("t", content, refresh=refresh, **given)
        self.relation = describe(self.flow, self.a).join(self.table, on="k", how=kind).relation
        self.query = self.start()

    def start(self, kind: type[DirectQuery] = DirectQuery) -> Any:
        clock = {"clock": self.clock} if self.clock else {}  # a kind of query may have its own
        return kind(plan_of([self.relation]), self.root, tables=self.flow._registry.tables, **clock)

    def restart(self) -> None:
        self.query.close()
        epoch_tables._open_tables.clear()
        self.query = self.start()

    @property
    def files(self) -> list[str]:
        return sorted(os.listdir(self.root / "checkpoint" / "tables"))


@settings(max_examples=one_in(2))
@given(st.data(), kinds)
def test_a_table_that_changes_is_joined_as_each_epoch_had_it(data, kind):
    type_, values = KEYS["long"]
    content = ChangingTable(data.draw(table_rows(type_, values)))
    wanted: Counter = Counter()
    seen: list[pa.Table] = []
    with tempfile.TemporaryDirectory(dir=FAST) as directory:
        lookups = Lookups(Path(directory), content, kind)
        for epoch in range(data.draw(st.integers(1, 6))):
            new = data.draw(rows(lookups.a, values, epoch * 20 * SECOND, 5 * SECOND))
            seen.append(new)
            used = content.rows
            if data.draw(st.integers(0, 2)) == 0:
                with pytest.raises(Killed):
                    lookups.query.run([new], before_commit=die)
                content.rows = data.draw(table_rows(type_, values))
                if data.draw(st.booleans()):
                    lookups.restart()
                    used = content.rows
            lookups.query.run([new])
            good, _ = on_time(seen, "ts", 5 * SECOND)
            before, _ = on_time(seen[:-1], "ts", 5 * SECOND) if epoch else (new.slice(0, 0), 0)
            wanted += expected(kind, good.slice(before.num_rows), used)
            if data.draw(st.booleans()):
                content.rows = data.draw(table_rows(type_, values))
            if data.draw(st.integers(0, 3)) == 0:
                lookups.restart()
        assert multiset(lookups.query.results()) == wanted
        lookups.query.close()


def test_an_epoch_that_is_run_again_has_the_table_it_had(tmp_path):
    content = ChangingTable(table(k1=1))
    lookups = Lookups(tmp_path, content)
    with pytest.raises(Killed):
        lookups.run(1, before_commit=die)
    content.rows = table(k1=2)
    lookups.run(1)
    lookups.run(1)
    assert lookups.partners() == [(0, 1, 1), (1, 1, 2)]


def test_a_restart_reads_the_table_again_and_leaves_results_as_they_are(tmp_path):
    content = ChangingTable(table(k1=1))
    lookups = Lookups(tmp_path, content, refresh=None)
    lookups.run(1)
    content.rows = table(k1=2)
    lookups.run(1)
    lookups.restart()
    lookups.run(1)
    assert lookups.partners() == [(0, 1, 1), (1, 1, 1), (2, 1, 2)]
    assert len(lookups.files) == 1


def test_an_unchanged_table_is_written_once(tmp_path):
    lookups = Lookups(tmp_path, ChangingTable(table(k1=1)))
    lookups.run(1)
    (file,) = lookups.files
    lookups.run(1)
    lookups.restart()
    lookups.run(1)
    assert lookups.files == [file]
    (version,) = lookups.query.epochs.record.tables
    assert version.since == 0 and version.rows == 1


def test_a_table_is_read_again_when_it_is_time(tmp_path):
    content = ChangingTable(table(k1=0))
    lookups = Lookups(tmp_path, content, refresh="1 hour")
    lookups.query.close()
    lookups.query = lookups.start(MonthlyQuery)
    before = content.reads
    for _ in range(13):  # ten minutes each
        lookups.run(1)
    assert content.reads - before == 3, "at the start, after an hour, and after two"


def test_files_are_read_again_when_they_have_changed(tmp_path):
    path = tmp_path / "ref"
    path.mkdir()
    pq.write_table(table(k1=1), path / "a.parquet")
    lookups = Lookups(tmp_path, str(path), refresh="onChange")
    lookups.run(1, 2)
    pq.write_table(table(k2=2), path / "b.parquet")
    lookups.run(1, 2)
    (path / "a.parquet").unlink()
    lookups.run(1, 2)
    assert lookups.partners() == [
        (0, 1, 1), (0, 2, None), (1, 1, 1), (1, 2, 2), (2, 1, None), (2, 2, 2),
    ]  # fmt: skip


def test_a_file_that_vanishes_leaves_the_table_as_it_was(tmp_path, caplog):
    path = tmp_path / "ref.parquet"
    pq.write_table(table(k1=1), path)
    lookups = Lookups(tmp_path, str(path), refresh="onChange")
    lookups.run(1)
    path.unlink()
    with caplog.at_level(logging.WARNING):
        lookups.run(1)
    assert lookups.partners() == [(0, 1, 1), (1, 1, 1)]
    assert "table 't' cannot be read again, and stays as it was: " in caplog.text
    lookups.restart()
    with pytest.raises(StorageError, match=r"table 't': there is no parquet file at .*ref\.parquet"):
        lookups.run(1)


@pytest.mark.parametrize("divided", [False, True])
@pytest.mark.parametrize(
    ("format", "content", "why"),
    [
        ("csv", "k,q\n1,2\n", r"file '.*ref\.csv' has the columns \['k', 'q'\] in its header, the schema is"),
        ("csv", '1,"2\n', "give the option escape=.*flow.table, take its DataFrame"),
        ("json", '{"k": "x", "p": 2}\n', "column 'k': found text, expected int64.*; give a schema= that fits"),
    ],
)
def test_a_file_that_cannot_be_read_is_one_of_the_table(tmp_path, format, content, why, divided):
    path = tmp_path / f"ref.{format}"
    path.write_text(content)
    flow = Flow(name="flow")
    options = {"header": "true"} if content.startswith("k") else {}
    t = flow.table("t", str(path), format=format, schema="k long, p long", divided=divided, **options)
    joined = describe(flow, stream("a")).join(t, on="k")
    with pytest.raises(StorageError, match=f"^table 't' cannot be read: .*{why}") as refusal:
        testing.run(joined, {"a": [{"k": 1, "ts": 0, "v": 1}]})
    assert "stream'" not in str(refusal.value) and "the stream" not in str(refusal.value)


def test_a_table_that_no_longer_fits_leaves_the_table_as_it_was(tmp_path, caplog):
    content = ChangingTable(table(k1=1))
    lookups = Lookups(tmp_path, content)
    lookups.run(1)
    content.rows = table(k1=2).drop_columns(["p"])
    lookups.run(1)
    content.rows = table(k1=3)
    lookups.run(1)
    assert lookups.partners() == [(0, 1, 1), (1, 1, 1), (2, 1, 3)]
    assert "table 't' has no column 'p' any more; it has k" in caplog.text


def test_what_is_kept_of_a_changing_table_does_not_grow(tmp_path):
    content = ChangingTable(table(k1=0))
    lookups = Lookups(tmp_path, content)
    for epoch in range(150):
        content.rows = table(k1=epoch)
        lookups.run(1)
        assert len(lookups.files) == 1
        (open_tables,) = [t for uri, t in epoch_tables._open_tables.items() if uri.startswith(str(tmp_path))]
        assert len(open_tables) == 1
    assert len(lookups.query.epochs.record.tables) == 1
    assert lookups.partners()[-1][2] == 99 or len(lookups.partners()) == 150


def test_what_a_failed_epoch_wrote_of_a_table_goes(tmp_path):
    content = ChangingTable(table(k1=0))
    lookups = Lookups(tmp_path, content)
    lookups.run(1)
    content.rows = table(k1=1)
    with pytest.raises(Killed):
        lookups.run(1, before_commit=die)
    assert len(lookups.files) == 2
    content.rows = table(k1=2)
    lookups.restart()
    lookups.run(1)
    assert len(lookups.files) == 1 and lookups.partners() == [(0, 1, 0), (1, 1, 2)]


def test_a_damaged_table_is_refused_by_name(tmp_path):
    lookups = Lookups(tmp_path, table(k1=1), refresh=None)
    lookups.run(1)
    lookups.restart()
    path = tmp_path / "checkpoint" / "tables" / lookups.files[0]
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(CheckpointError, match=rf"{path.name} is damaged"):
        lookups.run(1)
    problems = verify(str(tmp_path / "checkpoint")).problems
    assert any(problem.startswith("table: ") and path.name in problem for problem in problems)


@pytest.mark.parametrize("divided", [False, True])
def test_a_query_with_a_table_is_added_while_others_run(tmp_path, divided):
    flow, a = Flow(name="flow"), stream("a")
    rows_ = describe(flow, a)
    streams = [rows_.relation.origin]
    query = DirectQuery({"all": rows_.relation}, tmp_path, streams=streams, tables=flow._registry.tables)
    query.run([a.schema.empty_table()])

    def unreadable() -> pa.Table:
        if first_call.pop() is None:
            raise StorageError("the database is away")
        return table(k1=1)

    first_call: list[Any] = [None, "schema"]
    bad, good = flow.table("bad", unreadable, divided=divided), flow.table("t", table(k1=1), divided=divided)
    refused = query.change({"bad": rows_.join(bad, on="k").relation})
    added = query.change({"good": rows_.join(good, on="k").relation})
    new = pa.table([pa.array([1, 2]), pa.array([0, 0], TIME), pa.array([0, 0])], schema=a.schema)
    query.run([new])
    assert "the database is away" in str(refused.refusal) and added.done.is_set() and added.refusal is None
    assert query.results_of("good").num_rows == 1 and query.results_of("all").num_rows == 2
    query.change(drop=["good"])
    query.run([new])
    assert not query.epochs.record.tables and not os.listdir(tmp_path / "checkpoint" / "tables")
    query.close()


@pytest.mark.parametrize("divided", [False, True])
def test_a_table_whose_query_was_dropped_is_read_anew_for_the_next_one(tmp_path, divided):
    flow, a, content = Flow(name="flow"), stream("a"), ChangingTable(table(k1=1))
    rows_ = describe(flow, a)
    joined = rows_.join(flow.table("t", content, divided=divided), on="k").relation
    streams = [rows_.relation.origin]
    query = DirectQuery({"all": rows_.relation}, tmp_path, streams=streams, tables=flow._registry.tables)
    new = pa.table([pa.array([1]), pa.array([0], TIME), pa.array([0])], schema=a.schema)
    for version in range(4):
        content.rows = table(k1=version)
        query.change({f"joined {version}": joined})
        query.run([new])
        query.run([new])
        assert query.results_of(f"joined {version}")["t_p"].to_pylist() == [version] * 2
        query.change(drop=[f"joined {version}"])
        query.run([new])
        assert not query.epochs.record.tables and not os.listdir(tmp_path / "checkpoint" / "tables")
        assert not epoch_tables._open_tables.get(str(tmp_path / "checkpoint")), "no process keeps it"
    query.close()


def test_a_join_that_makes_many_rows_is_done_in_pieces(monkeypatch):
    monkeypatch.setattr(filtered_rows, "PAIRS_AT_ONCE", 50)
    sizes, join_rows = [], epoch_tables.join_rows

    def count_rows(*given: Any) -> pa.RecordBatch:
        joined = join_rows(*given)
        sizes.append(joined.num_rows)
        return joined

    monkeypatch.setattr(epoch_tables, "join_rows", count_rows)
    flow, a = Flow(name="flow"), stream("a")
    many = pa.table({"k": pa.array([1] * 20 + [2], pa.int64()), "p": pa.array(range(21))})
    new = pa.table([pa.array([1, 2] * 30), pa.array(range(60), TIME), pa.array(range(60))], schema=a.schema)
    left = describe(flow, a).join(flow.table("t", many), on="k")
    again = left.alias("l").join(flow.table("u", many), on={"l": "a_k", "u": "k"})
    outcome = testing.run(again, {"a": new})
    assert outcome.results().num_rows == 30 * 400 + 30
    assert max(sizes) <= 400, "what one row makes, and no more than 50 of others"


def test_rows_and_results_meet_tables_wherever_they_are():
    flow = Flow(name="flow")
    a, b = describe(flow, stream("a")), describe(flow, stream("b"))
    t = flow.table("t", table(k1=1, k2=2))
    before = a.join(t, on="k").alias("x").join(b, on={"x": "a_k", "b": "k"}, within="10 seconds")
    after = a.join(b, on="k", within="10 seconds").alias("x").join(t, on={"x": "b_k", "t": "k"})
    counted = a.join(t, on="k").groupBy("t_p").window("1 minute").agg(n=("*", "count"))
    twice = a.join(t, on="k").alias("x").join(t.alias("u"), on={"x": "a_v", "u": "k"}, how="left")
    new = {
        "a": pa.table([pa.array([1, 2, 3]), pa.array([0, 1, 2], TIME), pa.array([2, 9, 1])], schema=stream("a").schema),
        "b": pa.table([pa.array([1, 3]), pa.array([5, 6], TIME), pa.array([0, 0])], schema=stream("b").schema),
    }
    for seed in (None, 5):
        outcome = testing.run({"before": before, "after": after, "twice": twice, "counted": counted}, new, disturb=seed)
        assert [(r["x_a_k"], r["x_t_p"]) for r in outcome.rows("before")] == [(1, 1)]
        assert [(r["x_a_k"], r["t_p"]) for r in outcome.rows("after")] == [(1, 1)]
        assert sorted((r["x_a_k"], r["u_p"] or 0) for r in outcome.rows("twice")) == [(1, 2), (2, 0)]


TEXTS = {
    "inner": "SELECT a.v, t.p FROM a JOIN t ON a.k = t.k",
    "table first": "SELECT a.v, t.p FROM t JOIN a ON a.k = t.k WHERE t.p > 0",
    "condition": "SELECT a.v, t.p FROM a, t WHERE a.k = t.k AND (a.v > t.p OR t.p = 2)",
    "left": "SELECT a.v, t.p FROM a LEFT JOIN t ON a.k = t.k AND t.p < a.v WHERE coalesce(t.p, 0) < 3",
    "semi": "SELECT a.k, a.v FROM a LEFT SEMI JOIN t ON a.k = t.k",
    "anti": "SELECT a.k, a.v FROM a LEFT ANTI JOIN t ON a.k = t.k WHERE a.v > 1",
    "two tables": "SELECT a.v, t.p, u.p AS q FROM a LEFT JOIN t ON a.k = t.k LEFT JOIN t u ON t.p = u.k",
    "streams and a table": "SELECT a.v, b.v AS w, t.p FROM a JOIN t ON t.k = a.k JOIN b ON t.k = b.k AND a.k = b.k "
    "AND b.ts BETWEEN a.ts - INTERVAL 5 SECONDS AND a.ts + INTERVAL 5 SECONDS",
    "using": "SELECT k, v, p FROM a JOIN t USING (k) WHERE k > 0",
    "left using": "SELECT * FROM a LEFT JOIN t USING (k)",
    "semi using": "SELECT k, v FROM a LEFT SEMI JOIN t USING (k)",
    "streams and a table, using": "SELECT k, ts, a.v, b.v AS w, p FROM a JOIN b USING (k, ts) LEFT JOIN t USING (k)",
    "subquery": "SELECT x.v, t.p FROM (SELECT k, v + 1 AS v, ts FROM a WHERE v > 0) x JOIN t "
    "ON t.k = x.k AND x.v = t.p",
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
@settings(max_examples=one_in(4))
@given(data=st.data())
def test_sql_is_that_of_the_batch_query(text, data):
    flow = Flow(name="flow")
    content = data.draw(table_rows(*KEYS["long"]))
    streams = {name: stream(name) for name in "ab"}
    for s in streams.values():
        describe(flow, s)
    flow.table("t", content)
    used = {name: s for name, s in streams.items() if f"{name}." in text or f"FROM {name} " in text}
    new = {name: [data.draw(rows(s, st.integers(0, 3), 0, 20 * SECOND))] for name, s in used.items()}
    outcome = testing.run(flow.sql(text), new, disturb=data.draw(st.sampled_from([None, 1, 2, 3])))
    with connect_duckdb() as db:
        for name, (table_,) in new.items():
            db.register(name, on_time([table_], "ts", None)[0])
        db.register("t", content)
        words = text.replace("LEFT SEMI", "SEMI").replace("LEFT ANTI", "ANTI")
        assert multiset(outcome.results()) == multiset(db.sql(words).to_arrow_table())


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("SELECT * FROM t", "'t' is a table, of which no rows come; begin FROM with a stream"),
        ("SELECT a.v FROM t LEFT JOIN a ON a.k = t.k", "'t' is a table, of which no rows come"),
        ("SELECT a.v FROM a RIGHT JOIN t ON a.k = t.k", "rows of table 't' never appear by themselves"),
        ("SELECT a.v FROM a FULL JOIN t ON a.k = t.k", "rows of table 't' never appear by themselves"),
        ("SELECT a.v FROM a LEFT JOIN t ON a.v > t.p", "a join with table 't' needs a column of it that equals one"),
        ("SELECT a.v FROM a, t WHERE a.v > t.p", "a join with table 't' needs a column of it that equals one"),
        ("SELECT a.v FROM a JOIN nowhere n ON a.k = n.k", "there is no stream or table 'nowhere' in this flow"),
        ("SELECT a.v FROM a JOIN names n ON a.k = n.name", "cannot be compared; cast one"),
    ],
)
def test_what_sql_refuses(text, why):
    flow = Flow(name="flow")
    describe(flow, stream("a"))
    flow.table("t", table(k1=1))
    flow.table("names", pa.table({"name": ["x"]}))
    with pytest.raises(SqlError, match=why):
        flow.sql(text)


def refusals() -> dict[str, tuple[Callable[[Flow, Any, Any], Any], str]]:
    some = table(k1=1)
    return {
        "within": (
            lambda f, a, t: a.join(t, on="k", within="1 minute"),
            "has no event time, so a join with it takes no",
        ),
        "right": (lambda f, a, t: a.join(t, on="k", how="right"), "how='right': rows of table 't' never appear"),
        "no key": (lambda f, a, t: a.join(t, where="a.v > t.p"), "a join with table 't' needs on="),
        "types": (lambda f, a, t: a.join(t, on={"a": "ts", "t": "k"}), r"a\.ts \(.*\) and t\.k \(int64\) cannot be"),
        "column": (lambda f, a, t: a.join(t, on={"a": "k", "t": "x"}), "table 't' has no column 'x' to join on"),
        "no name": (lambda f, a, t: a.join(t, on="k").join(t.alias("u"), on="k"), "a result needs a name before"),
        "same name": (lambda f, a, t: a.join(t.alias("a"), on="k"), "'a' stands twice in this join"),
        "Arrow": (lambda f, a, t: a.join(some, on="k"), "not Table; a DataFrame or an Arrow table becomes a table"),
        "flow.join": (lambda f, a, t: f.join([a, t], on="k", within="1 minute"), "takes streams, and 't' is a table"),
        "union": (lambda f, a, t: a.unionByName(t), "unionByName takes a stream, and 't' is a table, of which no rows"),
        "other flow": (lambda f, a, t: a.join(Flow().table("x", some), on="k"), "table 'x' belongs to another Flow"),
        "taken": (lambda f, a, t: f.table("a", some), "there is a stream 'a' in this flow already"),
        "taken too": (lambda f, a, t: f.table("t", some), "there is a table 't' in this flow already"),
        "stream": (lambda f, a, t: f.readStream("t", "k long, ts timestamp", eventTime="ts"), "there is a table 't'"),
        "no table": (lambda f, a, t: f.table("u", 3), "takes a path, an Arrow table, a DataFrame, or a function"),
        "nothing there": (lambda f, a, t: f.table("u", "/nowhere"), "table 'u': there is no file or directory"),
        "format": (lambda f, a, t: f.table("u", "/tmp", format="xls"), "there is no file format 'xls'"),
        "option": (lambda f, a, t: f.table("u", "/tmp", heder=True), "table 'u': parquet files have no option 'heder'"),
        "not files": (lambda f, a, t: f.table("u", some, schema="k long"), "schema= is for files"),
        "Arrow again": (lambda f, a, t: f.table("u", some, refresh="1 hour"), "an Arrow table stays as it is"),
        "onChange": (lambda f, a, t: f.table("u", lambda: some, refresh="onChange"), "only files tell that they have"),
        "twice": (
            lambda f, a, t: f.table("u", pa.table([[1], [2]], ["n", "n"])),
            "table 'u' has two columns 'n'; rename",
        ),
        "hidden": (lambda f, a, t: f.table("u", pa.table({"__time": [1]})), "is taken by Sluice; rename it"),
        "size": (lambda f, a, t: f.table("u", some, maxSize="3g"), "at least one byte and less than 2g, not '3g'"),
        "alias": (lambda f, a, t: t.alias("no name"), "an alias must be a plain word"),
    }


@pytest.mark.parametrize("what", refusals())
def test_what_is_refused(what):
    call, why = refusals()[what]
    flow = Flow(name="flow")
    with pytest.raises(FlowError, match=why):
        call(flow, describe(flow, stream("a")), flow.table("t", table(k1=1)))


def test_a_table_that_is_too_large_names_the_option(tmp_path):
    lookups = Lookups(tmp_path, table(k1=1, k2=2), refresh=None, maxSize="8b")
    with pytest.raises(FlowError, match=r"table 't' has 0\.0 MiB, .*more than maxSize"):
        lookups.query.epochs.read_tables()


@pytest.mark.parametrize("type_", [pa.int8(), pa.decimal128(10, 2), pa.string(), pa.float32(), pa.bool_()])
def test_no_keys_no_partners(type_):
    index = KeyIndex([pa.array([], type_)])
    assert not list(index.find([pa.array([None], type_)]).pairs())
    assert not list(KeyIndex([pa.array([None, None], type_)]).find([pa.array([], type_)]).pairs())


@pytest.mark.parametrize("divided", [False, True])
@pytest.mark.parametrize("failure", ["raises", "another type", "no column", "no table"])
def test_a_function_that_fails_leaves_the_table_as_it_was(tmp_path, caplog, failure, divided):
    """Whatever it raises or returns: a database that is away must not end the query."""
    answers: dict[str, Callable[[], Any]] = {
        "raises": lambda: {}["no such account"],
        "another type": lambda: pa.table({"k": ["x"], "p": [1]}),
        "no column": lambda: pa.table({"p": [1]}),
        "no table": lambda: 5,
        "good": lambda: table(k1=1),
    }
    answer = ["good"]
    lookups = Lookups(tmp_path, lambda: answers[answer[0]](), divided=divided)
    lookups.run(1)
    answer[0] = failure
    for _ in range(3):
        lookups.run(1)
    answer[0] = "good"
    lookups.run(1)
    assert lookups.partners() == [(epoch, 1, 1) for epoch in range(5)]
    (warning,) = [record.getMessage() for record in caplog.records if "cannot be read again" in record.getMessage()]
    assert warning.startswith("epoch 1: table 't' cannot be read again, and stays as it was: table 't'")


@pytest.mark.parametrize("what", ["half-written", "empty"])
def test_a_file_that_is_not_whole_is_not_read_in_every_epoch(tmp_path, monkeypatch, what):
    path = tmp_path / "ref" / "a.parquet"
    path.parent.mkdir()
    pq.write_table(table(k1=1), path)
    lookups = Lookups(tmp_path, str(path.parent), refresh="onChange", clock=CountingClock(1e9))
    lookups.run(1)
    path.write_bytes(path.read_bytes()[:40] if what == "half-written" else b"")
    reads = []
    read = TableFiles.read
    monkeypatch.setattr(TableFiles, "read", lambda self: reads.append(1) or read(self))
    for _ in range(20):
        lookups.run(1)
    assert 1 < len(reads) <= 10
    path.rename(path.with_name("b.parquet"))
    lookups.run(1)
    assert lookups.partners()[-1][2] == 1, "under another name it is no better"
    pq.write_table(table(k1=2), path.with_name("b.parquet"))
    lookups.run(1)
    assert (22, 1, 2) in lookups.partners()


def test_a_driver_whose_table_another_one_has_removed_is_told_of_that_driver(tmp_path):
    """The content that it wrote is gone with its ownership: the checkpoint lacks nothing."""
    content = ChangingTable(table(k1=1))
    lookups = Lookups(tmp_path, content)
    suspended = lookups.query
    suspended.epochs.read_tables()
    content.rows = table(k1=2)
    lookups.query = lookups.start()
    lookups.run(1)
    epoch_tables._open_tables.clear()
    one = pa.table([pa.array([1]), pa.array([0], TIME), pa.array([0])], schema=lookups.a.schema)
    content.rows = table(k1=1)
    with pytest.raises(CheckpointError, match="was taken over by another driver"):
        suspended.run([one])
    for query in (suspended, lookups.query):
        query.close()
