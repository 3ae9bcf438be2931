"""Results in directories by the values of columns: what Spark's and DuckDB's readers make of them, and kills."""

from __future__ import annotations

import gc
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from engine_harness import DirectQuery
from hypothesis import given
from hypothesis import strategies as st
from oracle import connect_duckdb, multiset
from specs import SECOND, TIME

from sluice import Flow, FlowError
from sluice.api.request import choose_sink
from sluice.cli.verification import verify
from sluice.engine import part_writer
from sluice.engine.part_writer import PartWriter, Staging, split_by_partition
from sluice.model.errors import StorageError
from sluice.model.partitions import name_partition, read_partition
from sluice.model.plan.planning import plan_of
from sluice.spark.sinks import ParquetSink
from sluice.state.files import storage

SCHEMA = pa.schema([("day", pa.string()), ("n", pa.int64()), ("ts", TIME), ("v", pa.int64())])


def rows(epoch: int, count: int = 20) -> pa.Table:
    """Rows of one epoch, of three days and of none, and of two numbers."""
    days = [["mon", "tue/wed", "50% é", None][i % 4] for i in range(count)]
    times = pa.array([epoch * SECOND + i for i in range(count)], TIME)
    return pa.table(
        [pa.array(days), pa.array([i % 2 for i in range(count)]), times, pa.array(range(count))], schema=SCHEMA
    )


def start(root: Path) -> DirectQuery:
    flow = Flow(name="flow")
    stream = flow.readStream("a", SCHEMA, eventTime="ts", delay="1 minute")
    plan = plan_of([stream.filter("v >= 0").relation])
    return DirectQuery(plan, root, make_sink=lambda path, schema: ParquetSink(path, "snappy", ("day", "n")))


def read(out: Path) -> Counter:
    """What a reader finds that knows of partitions."""
    partitioning = ds.partitioning(pa.schema([("day", pa.string()), ("n", pa.int64())]), flavor="hive")
    files = [str(file) for file in out.rglob("*.parquet") if not file.relative_to(out).parts[0].startswith("_")]
    table = ds.dataset(files, schema=SCHEMA, partitioning=partitioning, partition_base_dir=str(out)).to_table()
    return multiset(table.select(SCHEMA.names))


def problems_of_results(root: Path) -> list[str]:
    return [problem for problem in verify(str(root / "checkpoint")).problems if problem.startswith("results: ")]


def test_files_lie_in_directories_and_have_all_rows(tmp_path):
    query = start(tmp_path)
    for epoch in range(3):
        query.run([rows(epoch)])
    out = tmp_path / "out"
    assert (out / "day=tue%2Fwed" / "n=1").is_dir() and (out / "day=__HIVE_DEFAULT_PARTITION__").is_dir()
    wanted = multiset(pa.concat_tables([rows(epoch) for epoch in range(3)]))
    assert read(out) == wanted
    with connect_duckdb() as db:
        counted = db.sql(
            f"SELECT count(*), sum(n) FROM read_parquet('{out}/day=*/*/*.parquet', hive_partitioning=true)"
        )
        assert counted.fetchall() == [(60, 30)]
    assert not problems_of_results(tmp_path)
    next((out / "day=mon").rglob("*.parquet")).unlink()
    (problem,) = problems_of_results(tmp_path)
    assert "day=mon" in problem and "is gone" in problem


@pytest.mark.parametrize("operation", ["move", "make_dir", "write", "put"])
def test_a_driver_that_dies_anywhere_shows_each_row_once(tmp_path, operation):
    query = start(tmp_path)
    query.run([rows(0)])
    for place in range(12):
        seen = 0

        def die(what: str, path: str, place: int = place) -> None:
            nonlocal seen
            seen += what == operation
            if what == operation and seen == place + 1:
                raise OSError("the driver dies")

        batch = query.next
        with storage.watch(die):
            try:
                query.run([rows(batch)], number=batch)
                died = False
            except Exception:
                died = True
        if not died and seen <= place:
            break
        query.close()
        query = start(tmp_path)
        query.run([rows(batch)], number=batch)
    wanted = multiset(pa.concat_tables([rows(epoch) for epoch in range(query.next)]))
    assert read(tmp_path / "out") == wanted


@pytest.mark.parametrize("rows_at_once", [1, 1000], ids=["on the way", "at the end"])
def test_files_of_results_that_fail_are_left_alone(tmp_path, monkeypatch, rows_at_once):
    """Parquet does not go on with them when Python collects garbage."""
    monkeypatch.setattr(part_writer, "ROWS_AT_ONCE", rows_at_once)
    unraisable: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", unraisable.append)
    (tmp_path / "waiting").mkdir()
    writer = PartWriter(Staging(str(tmp_path), "waiting", "snappy", ("day",)), "part-0.parquet", SCHEMA)
    with monkeypatch.context() as full:
        opened = part_writer.Storage.open_writer
        calls: list[str] = []

        def fail_later(self: Any, name: str) -> Any:
            calls.append(name)
            if len(calls) > 2:
                raise OSError("No space left on device")
            return opened(self, name)

        full.setattr(part_writer.Storage, "open_writer", fail_later)
        with pytest.raises(StorageError, match="No space left"):
            writer.add(rows(0).combine_chunks().to_batches()[0])
            writer.close()
    assert len(calls) == 3
    del writer
    gc.collect()
    assert not unraisable


def test_many_partitions_need_few_open_files(tmp_path, monkeypatch):
    """However many partitions an epoch has, and however often it writes: each row once, and files are closed."""
    monkeypatch.setattr(part_writer, "OPEN_FILES", 3)
    monkeypatch.setattr(part_writer, "ROWS_AT_ONCE", 25)
    most = 0
    opened = part_writer.Storage.open_writer

    @contextmanager
    def count_open(self: Any, name: str) -> Iterator[Any]:
        nonlocal most
        files.add(name)
        most = max(most, len(files))
        with opened(self, name) as out:
            yield out
        files.remove(name)

    files: set[str] = set()
    monkeypatch.setattr(part_writer.Storage, "open_writer", count_open)
    writer = PartWriter(Staging(str(tmp_path), "waiting", "snappy", ("day",)), "part-0.parquet", SCHEMA)
    (tmp_path / "waiting").mkdir()
    batches = [
        pa.RecordBatch.from_pydict(
            {"day": [f"d{i % 10}" for i in range(20)], "n": [k] * 20, "ts": pa.array([0] * 20, TIME), "v": range(20)},
            SCHEMA,
        )
        for k in range(6)
    ]
    for batch in batches:
        writer.add(batch)
    parts = writer.close()
    assert not files and most == 4, "those that stay open, and one"
    assert len({part.name for part in parts}) == len(parts) and sum(part.rows for part in parts) == 120
    assert {part.directory for part in parts} == {f"day=d{i}" for i in range(10)}
    for part in parts:
        table = pq.read_table(pa.BufferReader((tmp_path / "waiting" / part.name).read_bytes()))
        assert table.num_rows == part.rows and table.column_names == ["n", "ts", "v"]
        assert {f"day=d{v % 10}" for v in table["v"].to_pylist()} == {part.directory}


@given(st.lists(st.tuples(st.one_of(st.none(), st.text()), st.one_of(st.none(), st.integers(-2, 2))), max_size=12))
def test_partitions_are_those_of_the_values(values):
    batch = pa.RecordBatch.from_pydict(
        {
            "a": pa.array([text for text, _ in values], pa.string()),
            "b": pa.array([number for _, number in values], pa.int8()),
            "v": pa.array(range(len(values)), pa.int64()),
        }
    )
    parts = dict(split_by_partition(batch, ["a", "b"])) if values else {}
    assert sum(part.num_rows for part in parts.values()) == len(values)
    for directory, part in parts.items():
        names = read_partition(directory)
        for row in part.to_pylist():
            assert names == {"a": row["a"] or None, "b": None if row["b"] is None else str(row["b"])}


def test_characters_that_paths_cannot_have():
    assert name_partition(["a b", "c=d"], ["x/y:z", "é %"]) == "a b=x%2Fy%3Az/c%3Dd=é %25"


@pytest.mark.parametrize(
    ("columns", "why"),
    [
        (["nothing"], "partitionBy: the results have no column 'nothing'; they have day, n, ts, v"),
        (["ts"], r"column 'ts' is timestamp\[us, tz=UTC\], and directories can be named after texts"),
        (["n", "n"], "partitionBy names 'n' twice"),
    ],
)
def test_what_is_refused(columns, why):
    writer = Flow(name="flow").readStream("a", SCHEMA, eventTime="ts").writeStream.format("parquet").option("path", "x")
    with pytest.raises(FlowError, match=why):
        choose_sink(writer.partitionBy(*columns).choices(), "a")


def test_only_files_have_partitions():
    writer: Any = Flow(name="flow").readStream("a", SCHEMA, eventTime="ts").writeStream
    with pytest.raises(FlowError, match="partitionBy is for the parquet and delta sinks, and the console sink has no"):
        choose_sink(writer.format("console").partitionBy("day").choices(), "a")
