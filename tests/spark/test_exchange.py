"""An epoch's job on Spark: what runs, what crosses the shuffle, and what becomes of blobs that are lost."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from engine_harness import DirectQuery
from oracle import batch_join, multiset
from pyspark import cloudpickle
from specs import SECOND, TIME, handle, join, stream

from sluice.engine.blobs import REFERENCE, Blob, SentBlob
from sluice.engine.host_delivery import BlobReference, HostDelivery
from sluice.engine.split import FileFormat
from sluice.model.codec import decode
from sluice.model.errors import QueryError
from sluice.model.plan.planning import plan_of
from sluice.sources.input_files import InputFile
from sluice.spark import epoch_job
from sluice.spark.epoch_job import EpochJob
from sluice.spark.exchange import Sites
from sluice.spark.frames import begin_map_tasks

pytestmark = pytest.mark.spark
A, B = stream("a"), stream("b")
SPEC = join([A, B])
ROWS = 50_000


class OnSpark:
    """A query over files, whose exchange is Spark's."""

    def __init__(self, spark: Any, plan: Any, root: Path, sites: int = 2) -> None:
        self.query, self.root, self.tables = DirectQuery(plan, root, sites=sites), root, []
        self.query.epochs.reading = tuple(FileFormat("parquet") for _ in self.query.plan.sources)
        self.sites = Sites(spark, sites, places=self.query.places)

    def run(self, tables: Sequence[pa.Table]) -> None:
        files = []
        for source, table in enumerate(tables):
            path = self.root / f"{source}-{len(self.tables)}.parquet"
            pq.write_table(table, path)
            files.append(InputFile(source, str(path), path.stat().st_size))
        self.tables.append(tables)
        self.query.epochs.run(self.query.next, self.sites.site_keys, self.sites.exchange(files))

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

        broken.setattr(epoch_job, "begin_map_tasks", begin)
        broken.setattr(EpochJob, "_at_sites", fail)
        with pytest.raises(QueryError, match="no job"):
            query.run(rows(1))
    (map_tasks,) = begun
    assert map_tasks.isCancelled()
    query.tables.pop()  # what was not taken in
    query.run(rows(1))
    query.assert_exact()
    query.close()


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
