"""Queries that are added with a divided table whose files cannot be read: tasks find out in the epoch that is to begin
the query. It is refused to who asked for it, and the flow goes on as if nobody had."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq
import pytest
from engine_harness import DirectQuery
from oracle import connect_duckdb, multiset
from specs import SECOND, TIME, stream
from table_joins import Killed, describe, die, expected, table

from sluice import Flow, StorageError
from sluice.control.journal import Journal
from sluice.control.replay import layouts_of, records_of_newest_run, replay
from sluice.engine.plan_changes import ChangeRequest
from sluice.policies import Policy
from sluice.record.epoch import EpochRecord
from sluice.testing.clocks import CountingClock
from sluice.verbs import Action
from sluice.verbs.move import Move


class Idle(Policy):
    """Asks for nothing."""

    name = "idle"

    def decide(self, view: Any) -> tuple[Action, ...]:
        return ()


class Running:
    """A flow over `a` with a query that has all rows and one that joins a divided table `own`. Others are added with a
    table `t` of two files, the second of which may be broken."""

    def __init__(self, root: Path, format: str = "parquet") -> None:
        self.root, self.format, self.flow, self.a = root, format, Flow(name="flow"), stream("a")
        self.files = root / "ref"
        self.files.mkdir()
        (root / "own").mkdir()
        self.write_own(k1=1, k2=2)
        write(table(k1=1), self.files / f"a.{format}")
        self.repair()
        self.rows = describe(self.flow, self.a)
        options: dict[str, Any] = {"schema": "k long, p long"} if format != "parquet" else {}
        options |= {"header": True} if format == "csv" else {}
        self.table = self.flow.table("t", str(self.files), format=format, divided=True, **options)
        self.own = self.flow.table("own", str(root / "own"), refresh="onChange", divided=True)
        self.whole = self.flow.table("whole", table(k2=7), divided=True)
        self.clock, self.seen = CountingClock(1e9), pa.table({})
        self.queries = {"all": self.rows.relation, "owned": self.join(self.own)}
        self.start()

    def start(self) -> None:
        streams, tables = [self.rows.relation.origin], self.flow._registry.tables
        options: dict[str, Any] = {"tables": tables, "wanted": Idle(), "clock": self.clock}
        self.query = DirectQuery(self.queries, self.root, streams=streams, partitions=4, **options)

    def join(self, table_: Any, on: Any = "k") -> Any:
        return self.rows.join(table_, on=on, how="left").relation

    @property
    def broken(self) -> Path:
        return self.files / f"b.{self.format}"

    def repair(self) -> None:
        write(table(k2=2, k3=3), self.broken)

    def write_own(self, **rows: int) -> None:
        pq.write_table(table(**rows), self.root / "own" / "own.parquet")

    def next_rows(self) -> pa.Table:
        second = self.query.next * SECOND
        columns = [pa.array([1, 2, 3]), pa.array([second] * 3, TIME), pa.array([self.query.next] * 3)]
        return pa.table(columns, schema=self.a.schema)

    def run(self, **hooks: Any) -> None:
        new = self.next_rows()
        self.query.run([new], **hooks)
        self.seen = pa.concat_tables([self.seen, new]) if self.seen.num_columns else new

    def assert_answers(self, query: str, content: pa.Table, since: int = 0) -> None:
        """A query has what the batch join of the rows since a batch has."""
        with connect_duckdb() as db:
            db.register("seen", self.seen)
            rows = db.sql(f"SELECT * FROM seen WHERE v >= {since}").to_arrow_table()
        assert multiset(self.query.results_of(query)) == expected("left", rows, content)

    def assert_as_if_not_asked(self, *, has_died: bool = False) -> None:
        """Nothing is left of what was refused, in the journal or anywhere else; a driver that died may leave parts that
        nobody sees."""
        record, names = self.query.epochs.record, [output.name for output in self.query.plan.outputs]
        assert names == list(self.queries) and {version.name for version in record.tables} == {"own"}
        assert len(os.listdir(self.root / "checkpoint" / "flow")) == 1
        parts = list((self.root / "out-bad").rglob("*.parquet"))
        assert not parts or (has_died and all(part.parent.name.startswith("_") for part in parts))
        self.assert_replays()
        assert multiset(self.query.results_of("all")).total() == self.seen.num_rows

    def assert_replays(self) -> None:
        journal = self.query.epochs.journal
        records = records_of_newest_run(journal)
        assert not list(replay(records, self.query.new_controller(Idle()), layouts_of(journal, records), 4))

    def assert_can_be_added(self) -> None:
        """With whole files the query has what there is to have."""
        self.repair()
        since = self.query.next
        request = self.query.change({"bad": self.join(self.table)})
        self.run()
        self.run()
        assert request.done.is_set() and request.refusal is None
        self.assert_answers("bad", table(k1=1, k2=2, k3=3), since)
        self.assert_replays()
        self.query.close()


def write(rows: pa.Table, path: Path) -> None:
    match path.suffix:
        case ".parquet":
            pq.write_table(rows, path)
        case ".csv":
            pc.write_csv(rows, path)
        case ".json":
            path.write_text("".join(f'{{"k":{row["k"]},"p":{row["p"]}}}\n' for row in rows.to_pylist()))


def refused(request: ChangeRequest, *words: str) -> bool:
    assert request.done.is_set() and isinstance(request.refusal, StorageError)
    return all(word in str(request.refusal) for word in words)


def halve(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def garble(path: Path) -> None:
    """The footer is whole, the pages are not."""
    data = path.read_bytes()
    path.write_bytes(data[:4] + bytes(60) + data[64:])


def write_text_for_numbers(path: Path) -> None:
    lines = {".csv": "k,p\n2,2\nthree,3\n", ".json": '{"k":2,"p":2}\n{"k":"three","p":3}\n'}
    path.write_text(lines[path.suffix])


@pytest.mark.parametrize(
    ("format", "spoil"),
    [
        ("parquet", halve),
        ("parquet", garble),
        ("parquet", lambda path: path.write_bytes(b"")),
        ("parquet", lambda path: pq.write_table(pa.table({"k": ["x"], "p": [1]}), path)),
        ("csv", write_text_for_numbers),
        ("json", write_text_for_numbers),
    ],
)
def test_the_query_is_refused_and_the_flow_goes_on(tmp_path: Path, format: str, spoil: Callable[[Path], Any]) -> None:
    running = Running(tmp_path, format)
    running.run()
    plan = running.query.epochs.record.plan
    spoil(running.broken)
    for _ in range(2):
        request = running.query.change({"bad": running.join(running.table)})
        running.run()
        assert refused(request, "table 't' cannot be read: ", running.broken.name)
        assert running.query.epochs.record.plan == plan
        running.run()
    running.assert_as_if_not_asked()
    running.assert_answers("owned", table(k1=1, k2=2))
    running.assert_can_be_added()


def test_a_first_epoch_and_one_without_input_refuse_it_too(tmp_path: Path) -> None:
    running = Running(tmp_path)
    halve(running.broken)
    first = running.query.change({"bad": running.join(running.table)})
    running.run()
    assert refused(first, "'t'")
    second = running.query.change({"bad": running.join(running.table)})
    assert running.query.catch_up() and refused(second, "'t'")
    assert not running.query.epochs.standing.is_changing
    running.assert_as_if_not_asked()
    running.assert_can_be_added()


def test_of_what_is_asked_at_the_same_time_only_that_is_refused_which_needs_the_table(tmp_path: Path) -> None:
    """A request is done as a whole or not at all."""
    running = Running(tmp_path)
    running.run()
    halve(running.broken)
    change, whole = running.query.change, running.join(running.whole)
    requests = [
        change({"good": whole}),
        change({"bad": running.join(running.table)}),
        change({"bad too": running.join(running.table, {"a": "v", "t": "k"}), "beside it": whole}),
        change({"replaced": running.join(running.table)}, ["all"]),
        change({"late": running.rows.relation}, ["owned"]),
    ]
    running.run()
    running.run()
    assert [request.refusal is None for request in requests] == [True, False, False, False, True]
    assert all(refused(request, "'t'", "b.parquet") for request in (*requests[1:3], requests[3]))
    assert [output.name for output in running.query.plan.outputs] == ["all", "good", "late"]
    running.assert_answers("good", table(k2=7), 1)
    assert running.query.results_of("all").num_rows == 9 and running.query.results_of("late").num_rows == 6
    running.assert_replays()
    running.query.close()


@pytest.mark.parametrize("is_whole", [True, False])
def test_tables_that_are_due_are_read_again_in_the_same_epoch(tmp_path: Path, is_whole: bool) -> None:
    running = Running(tmp_path)
    running.run()
    halve(running.broken)
    running.write_own(k1=5)
    if not is_whole:
        halve(tmp_path / "own" / "own.parquet")
    request = running.query.change({"bad": running.join(running.table)})
    running.run()
    assert refused(request, "'t'")
    (version,) = running.query.epochs.record.tables
    assert version.since == (1 if is_whole else 0)
    shown = [row["own_p"] for row in running.query.results_of("owned").to_pylist() if row["a_v"] == 1]
    assert sorted(shown, key=str) == ([5, None, None] if is_whole else [1, 2, None])
    running.assert_as_if_not_asked()
    running.assert_can_be_added()


def test_a_table_that_another_query_has_by_another_key_stays_as_it_was(tmp_path: Path) -> None:
    running = Running(tmp_path)
    running.run()
    halve(tmp_path / "own" / "own.parquet")
    request = running.query.change({"bad": running.join(running.own, {"a": "k", "own": "p"})})
    running.run()
    assert refused(request, "'own'", "own.parquet")
    running.assert_as_if_not_asked()
    running.assert_answers("owned", table(k1=1, k2=2))
    running.assert_can_be_added()


@pytest.mark.parametrize("crash", ["before the refusal", "after it"])
def test_a_driver_that_dies_leaves_nothing_of_the_query(tmp_path: Path, crash: str) -> None:
    running = Running(tmp_path)
    running.run()
    plan = running.query.epochs.record.plan
    if crash == "after it":
        halve(running.broken)
    request = running.query.change({"bad": running.join(running.table)})
    tries: list[int] = []

    def fail() -> None:
        tries.append(1)
        if crash == "before the refusal" or len(tries) == 2:
            die()

    with pytest.raises(Killed):
        running.run(before_commit=fail)
    assert request.done.is_set() == (crash == "after it")
    running.query.close()
    running.start()
    running.run()
    assert running.query.epochs.record.plan == plan
    running.assert_as_if_not_asked(has_died=True)
    running.assert_can_be_added()


@pytest.mark.parametrize("sites", [2, 3])
def test_an_epoch_that_is_run_again_can_still_refuse_it(tmp_path: Path, sites: int) -> None:
    """The files break after a first try, which failed for another reason."""
    running = Running(tmp_path)
    running.run()
    request = running.query.change({"bad": running.join(running.table)})
    with pytest.raises(Killed):
        running.run(before_commit=die)
    halve(running.broken)
    running.query.resize(sites)
    running.run()
    assert refused(request, "'t'") and running.query.epochs.record.routing.sites == sites
    running.assert_as_if_not_asked()
    running.assert_can_be_added()


def test_files_that_are_gone_or_never_rest(tmp_path: Path) -> None:
    running = Running(tmp_path)
    running.run()
    times = iter(range(1000))
    request = running.query.change({"bad": running.join(running.table)})
    running.run(before_commit=lambda: os.utime(running.broken, (1, next(times))))
    assert refused(request, "table 't' cannot be read: its files change each time while they are read")

    def remove() -> None:
        for path in running.files.iterdir():
            path.unlink()

    request = running.query.change({"bad": running.join(running.table)})
    running.run(before_commit=remove)
    assert refused(request, "table 't' cannot be read: ", str(running.files))
    running.assert_as_if_not_asked()
    write(table(k1=1), running.files / "a.parquet")
    running.assert_can_be_added()


def test_what_users_ask_for_meanwhile_is_done(tmp_path: Path) -> None:
    running = Running(tmp_path)
    running.run()
    halve(running.broken)
    routing, controller = running.query.epochs.record.routing, running.query.epochs.settings.controller
    unit = routing.units_at([0])[0]
    target = 1 - routing.holder(unit)
    controller.ask(Move(unit, target, "to see"))
    request = running.query.change({"bad": running.join(running.table)})
    running.run()
    assert refused(request, "'t'") and not controller.loop.requests.waiting()
    for _ in range(4):
        running.run()
    assert running.query.epochs.record.routing.holder(unit) == target
    (outcome,) = [one for one in running.query.epochs.outcomes() if one.unit == unit]
    assert outcome.outcome == "done" and outcome.epoch == 1
    running.assert_as_if_not_asked()
    running.assert_can_be_added()


def test_a_table_that_the_flow_has_from_the_start_ends_it(tmp_path: Path) -> None:
    """There is nothing to go on with; whoever adds a query then hears why."""
    running = Running(tmp_path)
    halve(tmp_path / "own" / "own.parquet")
    request = running.query.change({"good": running.join(running.whole)})
    for _ in range(2):
        with pytest.raises(StorageError, match=r"own\.parquet"):
            running.run()
    assert refused(request, "table 'own' cannot be read", "own.parquet")
    running.write_own(k1=1, k2=2)
    running.run()
    running.assert_as_if_not_asked()
    running.assert_can_be_added()


def test_an_epoch_that_was_committed_and_taken_for_failed_is_not_taken_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The journal has the query: it cannot be said of it that it was refused."""
    running, commit = Running(tmp_path), Journal.commit

    def lose_answer(journal: Journal, record: EpochRecord) -> None:
        commit(journal, record)
        raise StorageError("no answer")

    running.run()
    request = running.query.change({"bad": running.join(running.table)})
    with monkeypatch.context() as patch, pytest.raises(StorageError, match="no answer"):
        patch.setattr(Journal, "commit", lose_answer)
        running.run()
    halve(running.broken)
    with pytest.raises(StorageError, match=r"b\.parquet"):
        running.run()
    assert not request.done.is_set()
    running.repair()
    running.run()
    assert request.done.is_set() and request.refusal is None
    running.assert_answers("bad", table(k1=1, k2=2, k3=3), 1)
    running.query.close()
