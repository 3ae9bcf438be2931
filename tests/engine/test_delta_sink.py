"""Delta tables as sinks: an epoch is one version of the table, once, whenever a driver dies; read back by others."""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from engine_harness import DirectQuery
from oracle import connect_duckdb, multiset
from specs import SECOND, TIME

from sluice import CheckpointError, Flow, FlowError, StorageError
from sluice.cli.verification import verify
from sluice.model.partitions import read_partition
from sluice.model.plan.planning import plan_of
from sluice.spark.delta_sink import DeltaSink
from sluice.state.files.storage import Storage

deltalake = pytest.importorskip("deltalake")

SCHEMA = pa.schema([("day", pa.string()), ("ts", TIME), ("v", pa.int64())])


def rows(epoch: int) -> pa.Table:
    days = ["mon", "tue/wed 50% é+", None, "mon"]
    return pa.table([pa.array(days), pa.array([epoch * SECOND] * 4, TIME), pa.array(range(4))], schema=SCHEMA)


def all_rows(epochs: int) -> Counter:
    return multiset(pa.concat_tables([rows(epoch) for epoch in range(epochs)]))


def start(root: Path, *partition_by: str, columns: str = "*", out: str = "out", new_id: str = "0" * 16) -> DirectQuery:
    flow = Flow(name="flow")
    relation = flow.readStream("a", SCHEMA, eventTime="ts", delay="1 hour").select(*columns.split(", ")).relation

    def delta_sink(path: str, schema: pa.Schema) -> DeltaSink:
        return DeltaSink(str(root / out), "snappy", partition_by, schema)

    return DirectQuery(plan_of([relation]), root, make_sink=delta_sink, new_id=new_id)


def read(out: Path) -> Counter:
    """What DuckDB finds in the table."""
    table = deltalake.DeltaTable(str(out)).to_pyarrow_dataset()
    with connect_duckdb() as db:
        db.register("t", table)
        return multiset(db.sql("SELECT day, ts, v FROM t").to_arrow_table())


def read_log(out: Path) -> Counter:
    """What a reader finds that knows of nothing but the table's log, as its protocol has it."""
    files: dict[str, Any] = {}
    for entry in sorted((out / "_delta_log").glob("*.json")):
        for action in map(json.loads, entry.read_text().splitlines()):
            if "add" in action:
                files[action["add"]["path"]] = action["add"]
            if "remove" in action:
                del files[action["remove"]["path"]]
    content: Counter = Counter()
    for path, added in files.items():
        data = (out / unquote(path)).read_bytes()
        table = pq.read_table(pa.BufferReader(data))
        assert added["size"] == len(data)
        assert json.loads(added["stats"])["numRecords"] == table.num_rows
        for column, value in added["partitionValues"].items():
            table = table.append_column(column, pa.array([value] * table.num_rows, SCHEMA.field(column).type))
        content += multiset(table.select(SCHEMA.names))
    return content


def problems_of_results(root: Path) -> list[str]:
    return [problem for problem in verify(str(root / "checkpoint")).problems if problem.startswith("results: ")]


@pytest.mark.parametrize("partition_by", [(), ("day",)])
def test_a_table_is_made_and_read_back(tmp_path, partition_by):
    query = start(tmp_path, *partition_by)
    for epoch in range(3):
        query.run([rows(epoch)])
    query.run([SCHEMA.empty_table()])
    assert read(tmp_path / "out") == read_log(tmp_path / "out") == all_rows(3)
    table = deltalake.DeltaTable(str(tmp_path / "out"))
    assert table.version() == 3, "one for each epoch with results, after the empty table"
    assert table.transaction_version(f"sluice-{query.query}") == 2
    assert table.metadata().partition_columns == list(partition_by)
    assert not problems_of_results(tmp_path)


def test_a_table_that_is_there_is_appended_to(tmp_path):
    deltalake.write_deltalake(str(tmp_path / "out"), rows(0))
    query = start(tmp_path)
    query.run([rows(1)])
    deltalake.write_deltalake(str(tmp_path / "out"), rows(2), mode="append")
    query.run([rows(3)])
    assert read(tmp_path / "out") == all_rows(4)


class Killed(Exception):
    """The driver dies here."""


def die(*given: Any) -> None:
    raise Killed


@pytest.mark.parametrize("when", ["before the files are moved", "before the commit", "after the commit"])
@pytest.mark.parametrize("partition_by", [(), ("day",)])
def test_a_driver_that_dies_shows_each_epoch_once(tmp_path, monkeypatch, when, partition_by):
    query = start(tmp_path, *partition_by)
    query.run([rows(0)])

    commit = DeltaSink._commit
    with monkeypatch.context() as patch:
        if when == "before the files are moved":
            patch.setattr("sluice.spark.delta_sink.check_unshown", die)
        else:
            patch.setattr(DeltaSink, "_commit", lambda *given: (when == "after the commit" and commit(*given), die()))
        with pytest.raises(Killed):
            query.run([rows(1)])
    query.close()
    query = start(tmp_path, *partition_by)
    query.run([rows(1)], number=1)
    query.run([rows(2)])
    assert read(tmp_path / "out") == read_log(tmp_path / "out") == all_rows(3)
    assert deltalake.DeltaTable(str(tmp_path / "out")).version() == 3
    assert not list((tmp_path / "out").glob("_sluice-*/*")), "nothing waits"


def test_two_queries_write_to_one_table(tmp_path):
    for name in ("first", "second"):
        query = start(tmp_path / name, out="../out", new_id=f"{name:>16}".replace(" ", "0"))
        query.run([rows(0)])
        query.close()
    assert read(tmp_path / "out") == all_rows(1) + all_rows(1)


def test_what_does_not_fit_is_refused_untouched(tmp_path):
    deltalake.write_deltalake(str(tmp_path / "out"), rows(0))
    with pytest.raises(FlowError, match=r"has other columns than these results: it has day .*, they have v .*"):
        start(tmp_path, columns="v")
    with pytest.raises(FlowError, match=r"is partitioned otherwise than these results: write partitionBy\(\)"):
        start(tmp_path, "day")
    assert deltalake.DeltaTable(str(tmp_path / "out")).version() == 0
    (tmp_path / "files" / "_spark_metadata").mkdir(parents=True)
    with pytest.raises(FlowError, match="holds the results of a parquet sink, and cannot be a Delta table as well"):
        start(tmp_path, out="files")


@pytest.mark.parametrize(
    ("fields", "configuration", "rule"),
    [
        ({}, {"delta.columnMapping.mode": "name"}, "column mapping"),
        ({"v": {"nullable": False}}, {}, "column 'v' that takes no nulls"),
        ({"v": {"metadata": {"delta.generationExpression": "1"}}}, {}, "column 'v' with values of its own rule"),
    ],
)
def test_a_table_with_rules_of_its_own_is_refused(tmp_path, fields, configuration, rule):
    columns = {"day": "string", "ts": "timestamp", "v": "long"}
    schema = deltalake.Schema([deltalake.Field(name, kind, **fields.get(name, {})) for name, kind in columns.items()])
    deltalake.DeltaTable.create(str(tmp_path / "out"), schema=schema, configuration=configuration)
    with pytest.raises(FlowError, match=f"has rules that the delta sink does not follow: {rule}. Write the results"):
        start(tmp_path)


def test_a_table_with_a_constraint_is_refused(tmp_path):
    deltalake.write_deltalake(str(tmp_path / "out"), rows(0))
    deltalake.DeltaTable(str(tmp_path / "out")).alter.add_constraint({"small": "v < 10"})
    with pytest.raises(FlowError, match="has rules that the delta sink does not follow: constraint 'small'"):
        start(tmp_path)


def test_a_query_that_nobody_writes_any_more_shows_what_was_not_shown(tmp_path, monkeypatch):
    query = start(tmp_path, "day")
    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(DeltaSink, "_commit", die)
        query.run([rows(0)])
    results = query.epochs.record.results_of(0)
    query.close()
    former = DeltaSink(str(tmp_path / "out"), "none", (), None)
    former.check(query.query, results)
    former.open(query.query, results)
    former.leave()
    assert read(tmp_path / "out") == all_rows(1)


def test_an_epoch_that_another_driver_showed_meanwhile_is_not_shown_twice(tmp_path):
    query = start(tmp_path)
    query.run([rows(0)])
    (sink,) = query.sinks
    before = sink._table()
    query.run([rows(1)])
    with pytest.raises(StorageError, match=r"did not take the results of epoch 1: .*[Cc]oncurrent transaction"):
        sink._commit(before, query.epochs.record.results_of(0))
    assert read(tmp_path / "out") == all_rows(2)


def test_a_checkpoint_and_a_table_that_do_not_belong_together(tmp_path):
    query = start(tmp_path)
    for epoch in range(2):
        query.run([rows(epoch)])
    query.close()
    with pytest.raises(CheckpointError, match="has none of the results that this checkpoint has shown so far"):
        start(tmp_path, out="elsewhere")
    newest = max((tmp_path / "checkpoint" / "journal").iterdir())
    newest.unlink()
    with pytest.raises(CheckpointError, match="shows results of epoch 1, the checkpoint only goes to epoch 0"):
        start(tmp_path)


def test_partition_values_are_those_of_directories():
    assert read_partition("day=tue%2Fwed") == {"day": "tue/wed"}


def test_an_epoch_does_not_list_what_was_shown_before(tmp_path, monkeypatch):
    query = start(tmp_path)
    query.run([rows(0)])
    listed = []
    files = Storage.files
    monkeypatch.setattr(Storage, "files", lambda self, directory="": listed.append(directory) or files(self, directory))
    query.run([rows(1)])
    assert any(directory.startswith("_sluice-") for directory in listed)
    assert "" not in listed
    query.close()


def bytes_read() -> int:
    """What this process has read so far, from files that are not mapped."""
    return int(Path("/proc/self/io").read_text().split()[1])


def test_an_epoch_reads_no_more_of_the_log_than_is_new(tmp_path):
    query = start(tmp_path)
    costs = []
    for epoch in range(60):
        before = bytes_read()
        query.run([rows(epoch)])
        costs.append(bytes_read() - before)
    query.close()
    assert max(costs[40:]) < 1.2 * max(costs[10:30]), costs


def test_a_table_that_is_made_anew_under_the_same_path_is_no_old_one(tmp_path):
    """Another log with as many entries, fewer, or more: results go into the table that is there."""
    query = start(tmp_path)
    for epoch in range(3):
        query.run([rows(epoch)])
    for entries in (1, 8, 2):
        for file in (tmp_path / "out" / "_delta_log").iterdir():
            file.unlink()
        for _ in range(entries):
            deltalake.write_deltalake(str(tmp_path / "out"), rows(100), mode="append")
        new = query.next
        query.run([rows(new)])
        assert deltalake.DeltaTable(str(tmp_path / "out")).version() == entries
        assert read(tmp_path / "out") == multiset(pa.concat_tables([*[rows(100)] * entries, rows(new)]))
    query.close()


@pytest.mark.parametrize("partition_by", [(), ("day",)])
def test_files_that_somebody_compacts_and_removes_are_not_missed(tmp_path, partition_by):
    """By OPTIMIZE, DELETE and VACUUM; but one that the table has is missed, also after that."""
    query = start(tmp_path, *partition_by)
    for epoch in range(3):
        query.run([rows(epoch)])
    table = deltalake.DeltaTable(str(tmp_path / "out"))
    table.optimize.compact()
    table.delete("v = 3")
    assert table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    assert not problems_of_results(tmp_path)
    query.run([rows(3)])
    query.close()
    query = start(tmp_path, *partition_by)
    query.run([rows(4)])
    parts = query.epochs.record.results_of(0).parts
    assert not problems_of_results(tmp_path)
    assert read(tmp_path / "out") == all_rows(5) - multiset(
        pa.concat_tables([rows(epoch).slice(3) for epoch in range(3)])
    )
    (tmp_path / "out" / parts[0].place).unlink()
    assert problems_of_results(tmp_path) == [f"results: {tmp_path / 'out' / parts[0].place} is gone"]
    query.close()


@pytest.mark.parametrize("content", ["", '{"protocol": {"minRea'])
def test_a_log_that_cannot_be_read_is_named(tmp_path, content):
    query = start(tmp_path)
    query.run([rows(0)])
    for file in (tmp_path / "out" / "_delta_log").iterdir():
        file.write_text(content)
    words = f"Delta table {str(tmp_path / 'out')!r} cannot be read: "
    (problem,) = problems_of_results(tmp_path)
    assert problem.startswith(f"results: {words}") and "\n" not in problem
    query.close()
    with pytest.raises(StorageError, match=re.escape(words)):
        start(tmp_path)


def test_a_table_whose_newest_entry_is_cleaned_up_is_opened_anew(tmp_path):
    """Only a checkpoint of the log was left: nothing tells that table from another one under its path."""
    query = start(tmp_path)
    query.run([rows(0)])
    for _ in range(2):
        deltalake.DeltaTable(str(tmp_path / "out")).create_checkpoint()
        for file in (tmp_path / "out" / "_delta_log").glob("*.json"):
            file.unlink()
        assert query.sinks[0]._table().version() == 1
    shutil.rmtree(tmp_path / "out" / "_delta_log")
    deltalake.write_deltalake(str(tmp_path / "out"), rows(100), mode="append")
    assert query.sinks[0]._table().version() == 0
    query.close()
