"""Where results go, how a query is started, watched and stopped, and that nothing of it stays behind."""

from __future__ import annotations

import shutil
import threading
import time
from collections import Counter
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from arrivals import arrive, fingerprint, ticks, workspaces
from oracle import batch_join, connect_duckdb, multiset

from sluice import CheckpointError, Flow
from sluice.cli.main import main
from sluice.engine.part_writer import PartWriter, Staging
from sluice.model.epoch.results import Part, Results
from sluice.spark import sinks
from sluice.state.files.storage import watch

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("nothing_stays")]

A = [ticks([1, 2, 3], [0, 1, 2]), ticks([1, 1, 4], [3, 4, 5]), ticks([2, 4], [6, 6])]
B = [ticks([1, 2], [0.5, 1.5]), ticks([1, 3, 3], [3, 4, 5]), ticks([2, 2], [6, 7])]
SPEED = {"sites": 2, "partitions": 8}
INTEGERS = pa.int8(), pa.int16(), pa.int32(), pa.int64()


def inputs(root: Path, epochs: int, first: int = 0) -> Path:
    """Files of both streams for some epochs."""
    arrive(root / "a", *A[first : first + epochs])
    arrive(root / "b", *B[first : first + epochs])
    return root


def joined(spark: Any, root: Path, within: str = "2 seconds") -> Any:
    """The join of the files at `root`, one file of each stream an epoch."""
    flow = Flow(spark, "pairs")
    a = flow.readFiles("a", str(root / "a"), eventTime="ts", maxFilesPerTrigger=1)
    b = flow.readFiles("b", str(root / "b"), eventTime="ts", maxFilesPerTrigger=1)
    return a.join(b, on="k", within=within)


def joined_by_spark(spark: Any, root: Path) -> Any:
    """The same, driven by Structured Streaming, since one of the streams is a DataFrame."""
    flow = Flow(spark, "pairs")
    a = flow.readFiles("a", str(root / "a"), eventTime="ts", maxFilesPerTrigger=1)
    rows = spark.readStream.schema("k bigint, ts timestamp, v bigint").option("maxFilesPerTrigger", 1)
    b = flow.readStream("b", rows.parquet(str(root / "b")), eventTime="ts")
    return a.join(b, on="k", within="2 seconds")


def finish(writer: Any) -> Any:
    query = writer.options(**SPEED).trigger(availableNow=True).start()
    query.awaitTermination()
    return query


def expected(spark: Any, root: Path, epochs: int) -> Counter:
    tables = [pa.concat_tables(side[:epochs]) for side in (A, B)]
    return multiset(batch_join(joined(spark, root).relation.origin.spec, tables))


def one_of_each_type() -> pa.Table:
    """A row with a value of each type, and one of nulls."""
    moment = datetime(2024, 3, 31, 1, 30, 0, 123456)
    values = {
        "flag": (True, pa.bool_()),
        "small": (-1, pa.int8()),
        "whole": (1 << 62, pa.int64()),
        "real": (0.1, pa.float32()),
        "exact": (Decimal("12345.67"), pa.decimal128(20, 2)),
        "text": ("ä", pa.string()),
        "bytes": (b"\x00\xff", pa.binary()),
        "day": (moment.date(), pa.date32()),
        "instant": (moment.replace(tzinfo=timezone.utc), pa.timestamp("us", "UTC")),
        "clock": (moment, pa.timestamp("us")),
        "length": (timedelta(days=-1, microseconds=1), pa.duration("us")),
        "several": ([1, None], pa.list_(pa.int32())),
        "pair": (
            {"x": 1, "at": moment.replace(tzinfo=timezone.utc)},
            pa.struct({"x": pa.int16(), "at": pa.timestamp("us", "UTC")}),
        ),
        "named": ([("a", 1.5)], pa.map_(pa.string(), pa.float64())),
    }
    return pa.table({name: pa.array([value, None], kind) for name, (value, kind) in values.items()})


def rows_of(frame: Any) -> Counter:
    return multiset(frame.toArrow())


class TestParquet:
    def test_results_appear_with_their_commit_and_once(self, spark: Any, tmp_path: Path) -> None:
        """Three runs on one checkpoint: two epochs; a third that fails between commit and showing; and its repair."""
        inputs(tmp_path, 2)
        out, journal = tmp_path / "out", tmp_path / "ck" / "journal"
        seen: list[tuple[str, int, int]] = []  # what happens, the entries put by then, the files visible by then

        def watcher(operation: str, path: str) -> None:
            if (operation == "put" and "/journal/" in path) or operation == "move":
                seen.append((operation, len(list(journal.glob("*.json"))), len(list(out.glob("*.parquet")))))

        def run() -> Any:
            writer = joined(spark, tmp_path).writeStream.format("parquet").option("compression", "zstd")
            return finish(writer.option("path", out).option("checkpointLocation", tmp_path / "ck"))

        with watch(watcher):
            run()
        entries = [entries for what, entries, _ in seen if what == "put"]
        assert entries == [0, 1, 2], "an entry for the owner, and one for each epoch"
        assert seen[1] == ("put", 1, 0), "nothing was visible before the first commit"
        assert seen[2] == ("move", 2, 0), "and the first result only after it"
        assert rows_of(spark.read.parquet(str(out))) == expected(spark, tmp_path, 2)
        assert spark.read.parquet(str(out)).schema.simpleString() == (
            "struct<a_k:bigint,a_ts:timestamp,a_v:bigint,b_k:bigint,b_ts:timestamp,b_v:bigint>"
        )

        def fail(operation: str, path: str) -> None:
            if operation == "move":
                raise RuntimeError("the power went out")

        inputs(tmp_path, 1, first=2)
        with watch(fail), pytest.raises(Exception, match="the power went out"):
            run()
        assert len(list(journal.glob("*.json"))) == 5, "three epochs, two owners"
        assert rows_of(spark.read.parquet(str(out))) == expected(spark, tmp_path, 2)

        run()
        run()
        with connect_duckdb() as db:
            shown = db.sql(f"SELECT * FROM '{out}/*.parquet'").to_arrow_table()
        assert multiset(shown) == expected(spark, tmp_path, 3)
        assert rows_of(spark.read.parquet(str(out))) == expected(spark, tmp_path, 3)
        assert not [p for p in out.rglob("_sluice-*/*")], "no part waits any more"

    def test_the_checkpoint_can_be_inspected(
        self, spark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        inputs(tmp_path, 1)
        writer = joined(spark, tmp_path).writeStream.format("parquet")
        finish(writer.option("checkpointLocation", tmp_path / "ck").option("path", tmp_path / "out"))
        assert main(["inspect", str(tmp_path / "ck")]) == 0
        page = capsys.readouterr().out
        for words in ("Flow       'pairs'", "1 committed", "8 units at 2 sites", "Last epochs"):
            assert words in page

    @pytest.mark.parametrize("distinct", [3, 5000])
    @pytest.mark.parametrize("nested", [False, True])
    def test_spark_reads_every_type_as_it_was_however_often_values_repeat(
        self, spark: Any, tmp_path: Path, distinct: int, nested: bool
    ) -> None:
        rng = np.random.default_rng(distinct)
        places, missing = rng.integers(0, distinct, 9000), rng.random(9000) < 0.1

        def column(kind: pa.DataType, low: int, high: int) -> pa.Array:
            values = np.append(rng.integers(low, high, distinct - 2, dtype=np.int64), [low, high])
            return pa.array(values[places], mask=missing).cast(kind)

        whole = {f"int{bits}": (kind, 2 ** (bits - 1)) for bits, kind in zip((8, 16, 32, 64), INTEGERS, strict=True)}
        columns = {name: column(kind, -most, most - 1) for name, (kind, most) in whole.items()}
        columns |= {
            "day": column(pa.int32(), -10_000, 40_000).cast(pa.date32()),
            "ts": column(pa.timestamp("us", "UTC"), -(10**15), 10**16),
            "local": column(pa.timestamp("us"), -(10**15), 10**16),
            "price": column(pa.decimal128(19, 0), -(10**17), 10**17),
            "ratio": column(pa.float64(), -(2**50), 2**50),
            "text": column(pa.string(), 0, 10**12),
            "flag": column(pa.int64(), 0, 1).cast(pa.bool_()),
        }
        if nested:
            columns["list"] = pa.FixedSizeListArray.from_arrays(columns["int64"], 1).cast(pa.list_(pa.int64()))
        rows = pa.table(columns)
        writer = PartWriter(Staging(str(tmp_path), ".", "snappy", ()), "part-0.parquet", rows.schema)
        for batch in rows.to_batches(max_chunksize=4000):
            writer.add(batch)
        writer.close()
        (file,) = tmp_path.glob("*.parquet")
        assert spark.read.parquet(str(file)).toArrow().cast(rows.schema).equals(rows)
        with connect_duckdb() as db:
            assert db.read_parquet(str(file)).to_arrow_table().cast(rows.schema).equals(rows)
        encodings = {c.path_in_schema: c.encodings for c in map(pq.read_metadata(file).row_group(0).column, range(11))}
        delta = {name for name, used in encodings.items() if "DELTA_BINARY_PACKED" in used}
        assert delta == (set() if nested or distinct == 3 else {"int32", "int64", "int16", "day", "ts", "local"})


class TestMemory:
    def test_the_view_has_all_results_also_after_the_end(self, spark: Any, tmp_path: Path) -> None:
        inputs(tmp_path, 1)
        for epochs in (1, 2):
            writer = joined(spark, tmp_path).writeStream.format("memory").queryName("pairs_seen")
            finish(writer.option("checkpointLocation", tmp_path / "ck"))
            assert rows_of(spark.table("pairs_seen")) == expected(spark, tmp_path, epochs)
            inputs(tmp_path, 1, first=epochs)

    def test_an_epoch_does_not_list_the_parts_of_those_before(self, spark: Any, tmp_path: Path) -> None:
        """The view is made when there are the first results, and looks for more by itself."""
        inputs(tmp_path, 3)
        writer = joined(spark, tmp_path).writeStream.format("memory").queryName("pairs_flat")
        writer = writer.option("checkpointLocation", tmp_path / "ck")
        query = writer.options(**SPEED).trigger(availableNow=True).start()
        sink = query._running.epochs.standing.flow.sinks[0]
        made: list[bool] = []
        make = sink._show
        sink._show = lambda any_results: (made.append(any_results), make(any_results))
        query.awaitTermination()
        assert query._running.epochs.record.number == 2
        assert len(made) <= 1
        assert rows_of(spark.table("pairs_flat")) == expected(spark, tmp_path, 3)
        assert [f.name for f in spark.table("pairs_flat").schema] == ["a_k", "a_ts", "a_v", "b_k", "b_ts", "b_v"]

    def test_types_that_files_do_not_tell_are_as_meant(self, spark: Any, tmp_path: Path) -> None:
        inputs(tmp_path, 3)
        files = spark.readStream.schema("k long, ts timestamp, v long").option("maxFilesPerTrigger", 1)
        frame = files.parquet(str(tmp_path / "a")).selectExpr("*", "make_dt_interval(0, 0, 0, v) AS length")
        flow = Flow(spark, "lengths")
        b = flow.readFiles("b", str(tmp_path / "b"), eventTime="ts", maxFilesPerTrigger=1)
        pairs = flow.readStream("a", frame, eventTime="ts").join(b, on="k", within="2 seconds")
        writer = pairs.writeStream.format("memory").queryName("lengths")
        finish(writer.option("checkpointLocation", tmp_path / "ck"))
        view = spark.table("lengths")
        assert dict(view.dtypes)["a_length"].startswith("interval day")
        assert rows_of(view.drop("a_length")) == expected(spark, tmp_path, 3)

    def test_a_part_of_a_failed_attempt_is_never_shown(self, spark: Any, tmp_path: Path) -> None:
        inputs(tmp_path, 2)
        writer = joined(spark, tmp_path).writeStream.format("memory").queryName("pairs_once")
        seen = []

        def fail(operation: str, path: str) -> None:
            if operation == "put" and path.endswith("journal/000000000002.json") and not seen:
                seen.append(path)
                raise RuntimeError("the power went out")

        writer.option("checkpointLocation", tmp_path / "ck")
        with watch(fail), pytest.raises(Exception, match="the power went out"):
            finish(writer)
        part = next((tmp_path / "ck" / "results" / "pairs_once" / "shown").glob("*.parquet"))
        stray = part.name.replace("part-000000000000", "part-000000000001")
        shutil.copy(part, tmp_path / "ck" / "results" / "pairs_once" / stray)  # as if the attempt had been killed
        finish(writer)
        assert seen
        assert rows_of(spark.table("pairs_once")) == expected(spark, tmp_path, 2)
        assert not list((tmp_path / "ck" / "results" / "pairs_once").glob("*.parquet"))

    def test_without_a_checkpoint(self, spark: Any, tmp_path: Path) -> None:
        """Its results outlive the query, so that they can be looked at; they go with the process."""
        before = workspaces(spark)
        inputs(tmp_path, 1)
        query = finish(joined(spark, tmp_path).writeStream.format("memory").queryName("pairs_in_passing"))
        assert not query.isActive
        assert rows_of(spark.table("pairs_in_passing")) == expected(spark, tmp_path, 1)
        kept = workspaces(spark) - before
        assert kept and not any(path.startswith("/dev/shm") for path in kept)
        for path in kept:
            assert Path(path, "results").is_dir()
            shutil.rmtree(path)


def test_console_prints_each_epoch(spark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    inputs(tmp_path, 2)
    finish(joined(spark, tmp_path).writeStream.format("console").option("numRows", 1).option("truncate", False))
    shown = capsys.readouterr().out
    assert shown.index("Epoch: 0") < shown.index("a_k") < shown.index("Epoch: 1")
    assert "1970-01-01 00:00:00.5" in shown
    assert shown.count("only showing top 1 row") == 2


class TestForeachBatch:
    def test_each_epoch_once_and_again_if_it_failed(self, spark: Any, tmp_path: Path) -> None:
        inputs(tmp_path, 2)
        handed: list[tuple[int, Counter]] = []

        def collect(frame: Any, epoch: int) -> None:
            handed.append((epoch, rows_of(frame)))
            if len(handed) == 2:
                raise ArithmeticError("the ledger does not add up")

        def start() -> Any:
            writer = joined(spark, tmp_path).writeStream.foreachBatch(collect).options(**SPEED)
            return writer.option("checkpointLocation", tmp_path / "ck").trigger(availableNow=True).start()

        query = start()
        with pytest.raises(Exception, match="the ledger does not add up"):
            query.awaitTermination()
        assert not query.isActive
        assert "the ledger does not add up" in str(query.exception())
        assert [epoch for epoch, _ in handed] == [0, 1]

        inputs(tmp_path, 1, first=2)
        again = start()
        again.awaitTermination()
        assert again.exception() is None
        assert [epoch for epoch, _ in handed] == [0, 1, 1, 2]
        assert handed[2] == handed[1]
        assert handed[0][1] + handed[1][1] + handed[3][1] == expected(spark, tmp_path, 3)

    def test_a_frame_that_is_kept_says_until_when_it_can_be_read(
        self, spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sinks, "SMALL_BYTES", 0)
        inputs(tmp_path, 2)
        kept: list[Any] = []
        seen: list[Counter] = []

        def keep(frame: Any, epoch: int) -> None:
            kept.append(frame.select("*"))
            seen.extend(rows_of(one) for one in kept)

        writer = joined(spark, tmp_path).writeStream.foreachBatch(keep)
        finish(writer.option("checkpointLocation", tmp_path / "ck"))
        assert seen[0] == seen[1], "that of the epoch before can still be read"
        assert rows_of(kept[1]) == seen[2]
        with pytest.raises(Exception, match=r"until-the-next-epoch/part-0000"):
            kept[0].collect()

    def test_few_results_come_as_rows_of_the_same_types_as_many(
        self, spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        rows = one_of_each_type()
        handed: list[tuple[Any, pa.Table, str]] = []

        def keep(frame: Any, epoch: int) -> None:
            handed.append((frame.schema, frame.toArrow(), frame._jdf.queryExecution().executedPlan().toString()))

        sink = sinks.BatchSink(spark, str(tmp_path), rows.schema, "types", keep)
        sink.open("a query", Results(0, ()))
        for epoch, small_bytes in enumerate([sinks.SMALL_BYTES, 0]):
            monkeypatch.setattr(sinks, "SMALL_BYTES", small_bytes)
            parts: list[Part] = []
            for site in range(2):
                writer = PartWriter(sink.staging, f"part-{epoch:08d}-{site}", rows.schema)
                writer.add(rows.to_batches()[0])
                parts += writer.close()
            sink.deliver(Results(epoch, tuple(parts)))
        (schema, few, plan), (same_schema, many, scan) = handed
        assert (schema, "LocalTableScan" in plan, "FileScan" in scan) == (same_schema, True, True)
        assert few.num_rows == 4 and few.to_pylist() == many.to_pylist()

    def test_an_epoch_without_results_is_handed_over_too(self, spark: Any, tmp_path: Path) -> None:
        arrive(tmp_path / "a", ticks([1], [0]), ticks([1], [1]))
        arrive(tmp_path / "b", ticks([2], [0]), ticks([1], [1]))
        handed: list[tuple[int, int, list[str]]] = []
        join = joined(spark, tmp_path)
        finish(join.writeStream.foreachBatch(lambda frame, epoch: handed.append((epoch, frame.count(), frame.columns))))
        assert handed == [(0, 0, join.columns), (1, 2, join.columns)]


@pytest.fixture(scope="module")
def ended(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A query of three epochs that has ended by itself."""
    root = inputs(tmp_path_factory.mktemp("ended"), 3)
    return finish(joined(spark, root).writeStream.format("noop").queryName("ended"))


class TestQuery:
    def test_progress(self, ended: Any) -> None:
        assert [p["batchId"] for p in ended.recentProgress] == [0, 1, 2]
        assert sum(p["numInputRows"] for p in ended.recentProgress) == sum(t.num_rows for t in A + B)
        last = ended.lastProgress
        assert last == ended.recentProgress[-1]
        assert last["name"] == "ended"
        assert {"id", "runId", "timestamp", "batchId", "durationMs", "processedRowsPerSecond"} <= set(last)
        assert (last["numInputRows"], last["lateRows"], last["nullRows"]) == (4, 0, 0)
        assert last["numOutputRows"] == 2
        assert last["watermarks"] == {"a": "1970-01-01T00:00:06+00:00", "b": "1970-01-01T00:00:07+00:00"}
        assert [(s["name"], s["rows"], s["late"]) for s in last["streams"]] == [("a", 2, 0), ("b", 2, 0)]

    def test_progress_of_the_sites(self, ended: Any) -> None:
        sites = ended.lastProgress["sites"]
        assert [s["site"] for s in sites] == [0, 1]
        assert sum(s["rowsOut"] for s in sites) == 2
        assert sum(s["units"] for s in sites) == 8
        assert sum(s["memoryBytes"] for s in sites) > 0
        assert sum(s["durableBytes"] for s in sites) > 0
        assert all(s["diskBytes"] == 0 for s in sites)

    def test_progress_of_the_phases(self, ended: Any) -> None:
        progress = ended.lastProgress
        phases = progress["phaseSeconds"]
        assert set(phases) == {"read", "crossing", "split", "exchange", "kernel", "durable", "sink", "commit", "spark"}
        assert all(seconds >= 0 for seconds in phases.values())
        assert 0 < sum(phases.values()) <= progress["durationMs"]["triggerExecution"] / 1000 * 1.5

    def test_routing(self, ended: Any) -> None:
        assert ended.routing() == {unit: unit // 4 for unit in range(8)}

    def test_explain(self, ended: Any, capsys: pytest.CaptureFixture[str]) -> None:
        ended.explain()
        said = capsys.readouterr().out
        for words in (
            "'a' on (k)",
            "event time 'ts'",
            "2 seconds",
            "Units: 8 at 2 sites",
            "static",
            "parquet files as Arrow",
        ):
            assert words in said
        assert "Last epoch: 2" in said

    def test_names_and_state_after_the_end(self, ended: Any) -> None:
        assert ended.name == "ended"
        assert len(ended.id) == len(ended.runId) == 36
        assert not ended.isActive
        assert ended.exception() is None
        assert ended.awaitTermination(1) is True
        assert ended.awaitTermination() is None
        assert ended.status["isTriggerActive"] is False
        ended.stop()


def test_a_running_query_takes_what_arrives_until_it_is_stopped(spark: Any, tmp_path: Path) -> None:
    before = workspaces(spark)
    inputs(tmp_path, 1)
    handed: list[Counter] = []
    writer = joined(spark, tmp_path).writeStream.foreachBatch(lambda frame, epoch: handed.append(rows_of(frame)))
    query = writer.options(**SPEED).queryName("running").trigger(processingTime="300 milliseconds").start()
    assert query.isActive
    assert query.name == "running"
    query.processAllAvailable()
    assert sum(handed, Counter()) == expected(spark, tmp_path, 1)
    inputs(tmp_path, 2, first=1)
    query.processAllAvailable()
    assert sum(handed, Counter()) == expected(spark, tmp_path, 3)
    assert query.awaitTermination(0.1) is False
    assert query.isActive
    assert set(query.status) >= {"message", "isDataAvailable", "isTriggerActive"}
    owned = workspaces(spark) - before
    assert any(path.startswith("/dev/shm") for path in owned), "the memory tier is in the tmpfs while the query runs"
    query.stop()
    assert not query.isActive
    assert query.awaitTermination(5) is True
    assert query.exception() is None
    assert workspaces(spark) == before, "neither the tiers nor the temporary checkpoint stay"


def test_stop_in_the_middle_of_an_epoch(spark: Any, tmp_path: Path) -> None:
    inputs(tmp_path, 3)
    began, handed = threading.Event(), []

    def slow(frame: Any, epoch: int) -> None:
        handed.append(rows_of(frame))
        began.set()
        time.sleep(0.5)

    writer = joined(spark, tmp_path).writeStream.foreachBatch(slow).options(**SPEED)
    writer = writer.option("checkpointLocation", tmp_path / "ck")
    query = writer.start()
    assert began.wait(60)
    query.stop()
    assert not query.isActive
    assert query.exception() is None
    handed.clear()
    finish(writer)
    assert len(handed) in (2, 3), "epoch 0 may be handed over again, the others come now"
    assert sum(handed[-2:], Counter()) == expected(spark, tmp_path, 3) - expected(spark, tmp_path, 1)


@pytest.mark.parametrize(("every", "micros"), [("200 ms", 200_000), ("1 minute 1 second", 61_000_000)])
def test_processing_time_in_the_words_of_every_other_duration(
    spark: Any, tmp_path: Path, every: str, micros: int
) -> None:
    inputs(tmp_path, 1)
    writer = joined(spark, tmp_path).writeStream.format("noop").options(**SPEED).trigger(processingTime=every)
    query = writer.start()
    try:
        assert query.isActive
        assert f"{micros} microseconds" in str(writer._trigger)
    finally:
        query.stop()


def test_no_room_in_memory(spark: Any, tmp_path: Path) -> None:
    """State is on disk then, but for the unit that had the last turn at a site, and the answer is the same."""
    inputs(tmp_path, 3)
    handed: list[Counter] = []
    writer = joined(spark, tmp_path).writeStream.foreachBatch(lambda frame, epoch: handed.append(rows_of(frame)))
    query = finish(writer.option("siteMemory", 0).option("memoryDir", tmp_path / "m").option("diskDir", tmp_path / "d"))
    assert sum(handed, Counter()) == expected(spark, tmp_path, 3)
    sites = query.lastProgress["sites"]
    for site in sites:
        in_memory = site["units"] - site["spilledUnits"]
        assert in_memory <= 1 and (in_memory or not site["memoryBytes"]), site
    assert any(site["diskBytes"] for site in sites)  # a site may have no state but that unit's
    local = sum(s["memoryBytes"] + s["diskBytes"] for s in sites)
    assert local >= sum(s["durableBytes"] for s in sites) > 0  # in pages, a file a unit
    assert not list((tmp_path / "m").iterdir()) and not list((tmp_path / "d").iterdir())


def test_a_failed_epoch_names_the_file(spark: Any, tmp_path: Path) -> None:
    inputs(tmp_path, 1)
    join = joined(spark, tmp_path)
    (tmp_path / "a" / "0001.parquet").write_bytes(b"PAR1 this is no parquet file PAR1")
    query = join.writeStream.format("noop").options(**SPEED).trigger(availableNow=True).start()
    with pytest.raises(Exception, match=r"0001\.parquet"):
        query.awaitTermination()


def test_a_query_started_again_takes_over_from_the_one_that_runs(spark: Any, tmp_path: Path) -> None:
    """As in a notebook: the cell with start() is run again."""
    inputs(tmp_path, 1)
    handed: list[Counter] = []
    writer = joined(spark, tmp_path).writeStream.foreachBatch(lambda frame, epoch: handed.append(rows_of(frame)))
    writer = writer.options(**SPEED).option("checkpointLocation", tmp_path / "ck")
    first = writer.start()
    first.processAllAvailable()
    second = writer.start()
    assert not first.isActive and first.exception() is None
    inputs(tmp_path, 2, first=1)
    second.processAllAvailable()
    second.stop()
    assert sum(handed, Counter()) == expected(spark, tmp_path, 3)


@pytest.mark.parametrize(("join", "parts"), [(joined, ["journal"]), (joined_by_spark, ["journal", "spark"])])
def test_a_checkpoint_with_a_part_missing_is_refused_untouched(
    spark: Any, tmp_path: Path, join: Any, parts: list[str]
) -> None:
    inputs(tmp_path, 2)
    writer = join(spark, tmp_path).writeStream.format("noop").option("checkpointLocation", tmp_path / "ck")
    finish(writer)
    assert (tmp_path / "ck" / "spark").exists() == ("spark" in parts)
    for lost in parts:
        (tmp_path / "ck" / lost).rename(tmp_path / "elsewhere")
        before = sorted(p for p in (tmp_path / "ck").rglob("*") if p.is_file())
        with pytest.raises(CheckpointError, match="part of it was deleted or restored"):
            finish(writer)
        assert sorted(p for p in (tmp_path / "ck").rglob("*") if p.is_file()) == before
        (tmp_path / "elsewhere").rename(tmp_path / "ck" / lost)
    inputs(tmp_path, 1, first=2)
    finish(writer)


LOST = (
    ["offsets/1"],
    ["offsets/1", "commits/1"],
    ["offsets/1", "commits/1", "sources/0/1", "sources/1/1"],
    ["sources/1/1"],
)


def test_a_checkpoint_without_sparks_newest_files_is_refused_untouched(spark: Any, tmp_path: Path) -> None:
    """As after a power cut. Spark would put the new files into a batch that the journal takes for processed."""
    inputs(tmp_path, 2)
    writer = joined_by_spark(spark, tmp_path).writeStream.format("parquet").option("path", tmp_path / "out")
    writer = writer.option("checkpointLocation", tmp_path / "ck")
    finish(writer)
    inputs(tmp_path, 1, first=2)
    for lost in LOST:
        for name in lost:
            (tmp_path / "ck" / "spark" / name).rename(tmp_path / name.replace("/", "-"))
        before = fingerprint(tmp_path)
        with pytest.raises(CheckpointError, match=rf"lacks spark/{lost[0]}, .* part of it was deleted or restored"):
            finish(writer)
        assert fingerprint(tmp_path) == before, lost
        for name in lost:
            (tmp_path / name.replace("/", "-")).rename(tmp_path / "ck" / "spark" / name)
    finish(writer)
    assert rows_of(spark.read.parquet(str(tmp_path / "out"))) == expected(spark, tmp_path, 3)


def test_what_spark_plans_is_on_disk_before_its_epoch_is_committed(spark: Any, tmp_path: Path) -> None:
    inputs(tmp_path, 2)
    steps: list[str] = []

    def watcher(operation: str, path: str) -> None:
        if operation in ("sync", "put"):
            steps.append(f"{operation} {Path(path).relative_to(tmp_path / 'ck')}")

    with watch(watcher):
        finish(
            joined_by_spark(spark, tmp_path).writeStream.format("noop").option("checkpointLocation", tmp_path / "ck")
        )
    for batch in range(2):
        commit = steps.index(f"put journal/{batch + 1:012d}.json")
        for name in ("offsets", "sources/0", "sources/1"):
            assert steps.index(f"sync spark/{name}/{batch}") < commit


def test_a_checkpoint_is_driven_in_one_way_for_good(spark: Any, tmp_path: Path) -> None:
    inputs(tmp_path, 1)
    for first, other in ((joined, joined_by_spark), (joined_by_spark, joined)):
        location = tmp_path / first.__name__
        finish(first(spark, tmp_path).writeStream.format("noop").option("checkpointLocation", location))
        before = fingerprint(location)
        with pytest.raises(CheckpointError, match=r"belongs to another flow: .*Structured Streaming drives it"):
            finish(other(spark, tmp_path).writeStream.format("noop").option("checkpointLocation", location))
        assert fingerprint(location) == before
