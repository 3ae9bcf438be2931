"""An epoch's job on Spark: what runs, what crosses the shuffle, and what becomes of blobs that are lost."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from engine_harness import DirectQuery
from oracle import batch_join, multiset
from pyspark import cloudpickle
from specs import SECOND, TIME, handle, join, stream

from sluice.control.site_assignment import spread
from sluice.engine.blobs import REFERENCE, Blob, SentBlob
from sluice.engine.file_log import NewFile, NewFiles
from sluice.engine.host_delivery import BlobReference, HostDelivery
from sluice.engine.split import FileFormat
from sluice.model.codec import decode
from sluice.model.errors import QueryError
from sluice.model.identity import FILES
from sluice.model.ids import Unit
from sluice.model.plan.planning import plan_of
from sluice.sources.input_files import InputFile
from sluice.spark import exchange, map_tasks
from sluice.spark.anchors import place
from sluice.spark.epoch_job import EpochJob
from sluice.spark.exchange import Sites
from sluice.spark.frames import begin_map_tasks
from sluice.verbs.move import Move

pytestmark = pytest.mark.spark
A, B = stream("a"), stream("b")
SPEC = join([A, B])
ROWS = 50_000


class OnSpark:
    """A query over files, whose exchange is Spark's."""

    def __init__(self, spark: Any, plan: Any, root: Path, sites: int = 2) -> None:
        self.query, self.root, self.tables = DirectQuery(plan, root, sites=sites, input=FILES), root, []
        self.query.epochs.reading = tuple(FileFormat("parquet") for _ in self.query.plan.sources)
        self.files: list[tuple[Sequence[pa.Table], list[InputFile]]] = []
        self.sites = Sites(spark, sites, places=self.query.places)

    def run(self, tables: Sequence[pa.Table], ahead: Sequence[pa.Table] | None = None) -> None:
        """An epoch; the rows `ahead` are those of the next one, as far as is known by now."""
        files, next_files = self.write(tables), self.write(ahead) if ahead else []
        self.tables.append(tables)
        content = NewFiles(tuple(NewFile(file.source, file.path, 0) for file in files), (None,) * len(files))
        look_ahead = partial(self.sites.read_ahead, files=next_files) if ahead else None
        exchange = self.sites.exchange(files)
        self.query.epochs.run_with_files(content, self.sites.site_keys, exchange, look_ahead=look_ahead)

    def write(self, tables: Sequence[pa.Table]) -> list[InputFile]:
        """The files of these very tables, written once."""
        for known, files in self.files:
            if known is tables:
                return files
        files = []
        for source, table in enumerate(tables):
            path = self.root / f"{source}-{len(self.files)}.parquet"
            pq.write_table(table, path)
            files.append(InputFile(source, str(path), path.stat().st_size))
        self.files.append((tables, files))
        return files

    def assert_exact(self) -> None:
        tables = [pa.concat_tables(tables) for tables in zip(*self.tables, strict=True)]
        assert multiset(self.query.results()) == multiset(batch_join(SPEC, tables))

    def close(self) -> None:
        self.sites.close(self.query.workspace(self.query.places))
        assert not list(self.root.glob("*/sluice-*"))


def rows(epoch: int, count: int = ROWS) -> list[pa.Table]:
    rng = np.random.default_rng(epoch)
    times = pa.array(epoch * SECOND + np.sort(rng.integers(0, SECOND, count)), TIME)
    return [pa.table([rng.integers(0, 4 * count, count), times, np.arange(count)], schema=s.schema) for s in (A, B)]


class Watched:
    """The stages of jobs that are run here."""

    def __init__(self, spark: Any, group: str) -> None:
        self.context, self.group = spark.sparkContext, group

    def __enter__(self) -> Watched:
        self.context.setJobGroup(self.group, self.group)
        return self

    def __exit__(self, *_: object) -> None:
        self.context._jsc.clearJobGroup()
        self.context._jsc.sc().listenerBus().waitUntilEmpty()
        tracker, store = self.context.statusTracker(), self.context._jsc.sc().statusStore()
        self.jobs = sorted(tracker.getJobIdsForGroup(self.group))
        ids = sorted({stage for job in self.jobs for stage in tracker.getJobInfo(job).stageIds})
        stages = [store.lastStageAttempt(stage) for stage in ids]
        run = [stage for stage in stages if str(stage.status()) == "COMPLETE"]
        self.stages = [(str(stage.name()), int(stage.numTasks())) for stage in run]
        self.shuffled = sum(int(stage.shuffleWriteBytes()) for stage in run)


def test_map_tasks_run_once_and_their_rows_do_not_cross_the_shuffle(spark, tmp_path):
    query = OnSpark(spark, SPEC, tmp_path)
    query.run(rows(0))
    with Watched(spark, str(tmp_path)) as job:
        query.run(rows(1))
    assert len(job.jobs) == 2  # the map tasks, and the rest, which finds what they gave
    assert job.stages == [("epoch 1: split", 1), ("epoch 1: sites", 2)]  # two small files are for one task
    sent = query.query.epochs.record.stats.traffic.total
    assert sent > 2 * ROWS * 20 and job.shuffled < 20_000
    query.assert_exact()
    assert not list(tmp_path.glob("*/sluice-*/exchange/*"))
    query.close()


def test_map_tasks_are_cancelled_if_their_job_cannot_be_made(spark, tmp_path, monkeypatch):
    query, begun = OnSpark(spark, SPEC, tmp_path), []
    query.run(rows(0))
    with monkeypatch.context() as broken:

        def begin(*args: Any) -> Any:
            begun.append(begin_map_tasks(*args))
            return begun[-1]

        def fail(*_: Any) -> None:
            raise QueryError("no job")

        broken.setattr(map_tasks, "begin_map_tasks", begin)
        broken.setattr(EpochJob, "_at_sites", fail)
        with pytest.raises(QueryError, match="no job"):
            query.run(rows(1))
    (future,) = begun
    assert future.isCancelled()
    query.tables.pop()  # what was not taken in
    query.run(rows(1))
    query.assert_exact()
    query.close()


def test_the_next_epochs_map_tasks_run_once_though_they_are_ahead_of_it(spark, tmp_path):
    query = OnSpark(spark, SPEC, tmp_path)
    query.run(rows(0))
    with Watched(spark, str(tmp_path)) as job:
        second, third = rows(2), rows(3)
        query.run(rows(1), ahead=second)
        query.run(second, ahead=third)
        query.run(third)
    assert job.stages == [
        (f"epoch {n}: {what}", tasks) for n in (1, 2, 3) for what, tasks in (("split", 1), ("sites", 2))
    ]
    query.assert_exact()
    assert not list(tmp_path.glob("*/sluice-*/exchange/*"))
    query.close()


def test_map_tasks_that_are_ahead_come_after_the_sites(spark, tmp_path):
    query = OnSpark(spark, SPEC, tmp_path)
    query.run(rows(0))
    with Watched(spark, str(tmp_path)) as job:
        query.run(rows(1), ahead=rows(2))
        assert query.sites._ahead is not None
        query.sites._ahead.begun.wait(spark.sparkContext)
    assert [name for name, _ in job.stages] == ["epoch 1: split", "epoch 1: sites", "epoch 2: split"]
    assert len(job.jobs) == 3, "by their numbers Spark gives slots to jobs"
    query.close()


def chain() -> Any:
    pairs = handle(A).join(handle(B), on="k", within="2 seconds")
    return plan_of([pairs.groupBy("b_v").last(2).agg(n=("*", "count")).relation])


@pytest.mark.parametrize("plan", [SPEC, chain()], ids=["join", "chain"])
@pytest.mark.parametrize("by_reference", [True, False])
def test_rows_that_were_read_ahead_and_are_late_by_now_are_dropped(spark, tmp_path, plan, by_reference, caplog):
    """The watermark by which rows were split ahead was that of the epoch before."""
    mixed = [pa.concat_tables([one, other]) for one, other in zip(rows(1), rows(2), strict=True)]
    newest = [pc.max(table["ts"]).as_py() for table in rows(1)]
    late = sum(pc.sum(pc.less(table["ts"], time)).as_py() for table, time in zip(mixed, newest, strict=True))
    epochs = [rows(0), rows(1), mixed, rows(3), rows(4), rows(5), rows(6)]
    ahead, plain = OnSpark(spark, plan, tmp_path / "ahead"), OnSpark(spark, plan, tmp_path / "plain")
    for query in (ahead, plain):
        query.sites._by_reference = by_reference
    was_ahead, counts = [], []
    with caplog.at_level("INFO", "sluice"):
        for number, tables in enumerate(epochs):
            was_ahead.append(ahead.sites._ahead is not None)
            ahead.run(tables, *epochs[number + 1 : number + 2])
            plain.run(tables)
            counts.append(ahead.query.epochs.record.stats.late_rows)
    assert (
        caplog.text.count("epoch 2 is run again, and its files are read again") == caplog.text.count("run again") == 1
    )
    assert was_ahead == [False, True, True, False, True, True, True]
    assert counts[2] == late > 0 and sum(counts) == late
    assert multiset(ahead.query.results()) == multiset(plain.query.results())
    for query in (ahead, plain):
        query.close()


def test_long_map_tasks_do_not_run_before_sites_of_higher_levels(spark, tmp_path, monkeypatch):
    for plan, is_ahead in ((SPEC, True), (chain(), False)):
        query = OnSpark(spark, plan, tmp_path / str(is_ahead))
        monkeypatch.setattr(exchange, "LONGEST_MAP_TASKS_S", 0.0)
        query.run(rows(0))
        query.run(rows(1), ahead=rows(2))
        assert (query.sites._ahead is not None) == is_ahead
        query.close()


def move(query: OnSpark) -> None:
    holder = query.query.epochs.record.routing.holder(Unit(0))
    query.query.epochs.settings.controller.ask(Move(0, 1 - holder, "to see"))
    for _ in range(3):
        if query.query.epochs.is_under_way:
            query.query.epochs.catch_up(query.sites.site_keys, query.sites.exchange(None))


def place_elsewhere(query: OnSpark) -> None:
    """The same sites, as after an executor was lost and another one came."""
    query.sites.anchors = place(query.sites.context, 2, query.sites.executors, spread, query.query.places)


def idle(query: OnSpark) -> None:
    query.query.epochs.run_idle_epoch(query.sites.site_keys, query.sites.exchange(None))


@pytest.mark.parametrize("change", [move, place_elsewhere, idle])
def test_what_was_read_ahead_is_dropped_if_the_next_epoch_is_another_one(spark, tmp_path, change, caplog):
    query = OnSpark(spark, SPEC, tmp_path)
    query.run(rows(0))
    with caplog.at_level("INFO", "sluice"):
        second = rows(2)
        query.run(rows(1), ahead=second)
        change(query)
        query.run(second)
        assert caplog.text.count("what was read ahead for epoch 2 is dropped") == 1
        query.run(rows(3), ahead=rows(4))
        query.run(rows(5))  # other files
        assert "is dropped: its files changed" in caplog.messages[-1]
    query.run(rows(6))
    query.assert_exact()
    assert not list(tmp_path.glob("*/sluice-*/exchange/*"))
    query.close()


def test_what_cannot_be_read_ahead_fails_with_its_own_epoch(spark, tmp_path):
    query = OnSpark(spark, SPEC, tmp_path)
    query.run(rows(0))
    second = rows(2)
    damaged = Path(query.write(second)[0].path)
    whole = damaged.read_bytes()
    damaged.write_bytes(b"x" * len(whole))
    query.run(rows(1), ahead=second)
    assert query.query.epochs.record.number == 1
    with pytest.raises(Exception, match="cannot read file"):
        query.run(second)
    query.tables.pop()
    damaged.write_bytes(whole)
    query.run(second)
    query.assert_exact()
    query.close()


def test_nothing_is_left_of_what_was_read_ahead_for_an_epoch_that_does_not_come(spark, tmp_path):
    query = OnSpark(spark, SPEC, tmp_path)
    query.run(rows(0))
    query.run(rows(1), ahead=rows(2, 20 * ROWS))
    query.assert_exact()
    ahead = query.sites._ahead
    query.close()
    assert ahead is not None and ahead.begun.future.isCancelled()
    deadline = time.monotonic() + 30
    while spark.sparkContext.statusTracker().getActiveJobsIds() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not spark.sparkContext.statusTracker().getActiveJobsIds()
    assert not list(tmp_path.glob("*/sluice-*"))


def test_rows_of_spark_are_split_by_one_task_a_core(spark, tmp_path):
    query = OnSpark(spark, SPEC, tmp_path)
    query.query.epochs.reading = (("slot0", "slot1", "slot2"),) * 2
    query.tables = [rows(0)]
    names = ["stream", "slot0", "slot1", "slot2"]
    numbered = [
        pa.table([pa.array([stream] * table.num_rows, pa.int32()), *table.columns], names)
        for stream, table in enumerate(query.tables[0])
    ]
    batch = spark.createDataFrame(pa.concat_tables(numbered)).repartition(5)
    with Watched(spark, str(tmp_path)) as job:
        query.query.epochs.run(0, query.sites.site_keys, query.sites.exchange(batch))
    assert job.stages[-2:] == [("epoch 0: split", 2), ("epoch 0: sites", 2)]
    query.assert_exact()
    query.close()


def test_a_batch_may_have_no_partitions(spark, tmp_path):
    query = OnSpark(spark, SPEC, tmp_path)
    query.query.epochs.reading = (("slot0", "slot1", "slot2"),) * 2
    batch = spark.createDataFrame(spark.sparkContext.emptyRDD(), "stream INT, slot0 LONG, slot1 TIMESTAMP, slot2 LONG")
    assert not batch.rdd.getNumPartitions()
    query.query.epochs.run(0, query.sites.site_keys, query.sites.exchange(batch))
    assert query.query.epochs.record.stats.rows_in == 0
    query.tables = [rows(0, 0)]
    query.assert_exact()
    query.close()


def test_a_chain_has_a_stage_for_each_level_and_an_epoch_over_nothing_no_map_tasks(spark, tmp_path):
    pairs = handle(A).join(handle(B), on="k", within="2 seconds")
    query = OnSpark(spark, plan_of([pairs.groupBy("b_v").last(2).agg(n=("*", "count")).relation]), tmp_path)
    with Watched(spark, f"{tmp_path}/files") as job:
        query.run(rows(0))
    assert job.stages == [("epoch 0: split", 1), ("epoch 0: sites, level 0", 2), ("epoch 0: sites, level 1", 2)]
    with Watched(spark, f"{tmp_path}/idle") as job:
        query.query.epochs.run_idle_epoch(query.sites.site_keys, query.sites.exchange(None))
    assert job.stages == [("epoch 1: sites, level 0", 2), ("epoch 1: sites, level 1", 2)]
    query.close()


class LosesBlobs(HostDelivery):
    """How blobs go by reference on a host where somebody removes the files."""

    def send(self, blobs: Iterable[Blob]) -> Iterator[SentBlob]:
        for sent in HostDelivery.send(self, blobs):
            if sent[1] == REFERENCE:
                os.unlink(decode(sent[2].to_pybytes(), BlobReference).path)
            yield sent


def test_an_epoch_that_has_lost_blobs_is_run_again_without_references(spark, tmp_path, monkeypatch, caplog):
    query = OnSpark(spark, SPEC, tmp_path)
    query.run(rows(0))
    deliver = query.sites._deliver

    def lose(site: Any, by_reference: bool) -> HostDelivery:
        delivery = deliver(site, by_reference)
        return LosesBlobs(*(getattr(delivery, field.name) for field in fields(delivery)))

    monkeypatch.setattr(query.sites, "_deliver", lose)
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    try:
        with caplog.at_level("INFO", "sluice"), Watched(spark, str(tmp_path)) as jobs:
            query.run(rows(1))
    finally:
        cloudpickle.unregister_pickle_by_value(sys.modules[__name__])
    assert len(jobs.jobs) == 4 and jobs.shuffled > 2 * ROWS * 10
    assert "epoch 1 is run again, all blobs through Spark" in caplog.text and "is missing or damaged" in caplog.text
    monkeypatch.setattr(query.sites, "_deliver", deliver)
    query.run(rows(2))
    query.assert_exact()
    query.close()


def test_what_epochs_have_in_common_is_shipped_once(spark, tmp_path):
    pairs = handle(A).join(handle(B), on="k", within="2 seconds")
    many = [pairs.where(f"a_v > {limit}").relation for limit in range(40)]
    query = OnSpark(spark, plan_of(many), tmp_path)
    shipped, versions = [], []
    ship = query.sites.shipping.ship

    def note(*tasks: Any) -> Any:
        shipments = ship(*tasks)
        shipped.append([len(shipment.rest) for shipment in shipments])
        versions.append(shipments[0].version)
        return shipments

    query.sites.shipping.ship = note
    for epoch in range(3):
        query.run(rows(epoch, 100))
    assert len(set(versions)) == 1
    assert shipped[-1][0] < 1_000 and shipped[-1][1] < 20_000
    query.close()


def test_few_rows_need_no_second_stage(spark, tmp_path):
    query = OnSpark(spark, SPEC, tmp_path)
    query.run(rows(0))
    with Watched(spark, str(tmp_path)) as job:
        query.run(rows(1, 500))
    assert job.stages == [("epoch 1: split and sites", 2)] and job.shuffled == 0
    query.assert_exact()
    query.close()


def test_few_rows_for_one_site_need_none_for_a_chain_either(spark, tmp_path):
    pairs = handle(A).join(handle(B), on="k", within="2 seconds")
    counts = pairs.groupBy("b_v").last(2).agg(n=("*", "count"))
    query = OnSpark(spark, plan_of([pairs.relation, counts.relation]), tmp_path, sites=1)
    query.run(rows(0, 500))
    with Watched(spark, str(tmp_path)) as job:
        query.run(rows(1, 500))
    assert job.stages == [("epoch 1: split and sites", 1)]
    query.assert_exact()
    assert query.query.results(1).num_rows == query.query.results(0).num_rows > 0
    query.close()
