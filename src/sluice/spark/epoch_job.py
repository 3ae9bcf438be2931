"""One epoch on Spark: split in the map tasks, blobs through Spark's shuffle, each site on its own executor.

It runs over RDDs of the JVM, of the same shape every time, so that nothing has to be planned: a stage of map tasks that
are given their files, and a stage for each level of operators. Map tasks over files are a job of their own, so that
the other stages are made while they run. Only rows of Spark come out of a DataFrame.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, TypeGuard

import pyarrow as pa
from pyspark import SparkContext
from pyspark.sql import DataFrame
from pyspark.sql.types import ArrayType, BinaryType, DataType, MapType, StringType, StructType, VariantType

from sluice.engine.blobs import LOST
from sluice.engine.host_delivery import BlobsLost, HostDelivery
from sluice.engine.site_task import SiteTask
from sluice.engine.small_epochs import can_skip_exchange
from sluice.engine.split import SplitTask
from sluice.model.codec import decode
from sluice.model.ids import Level
from sluice.model.plan.plan import Plan
from sluice.record.reports import SiteReport
from sluice.sources.input_files import InputFile
from sluice.spark.anchors import Anchors
from sluice.spark.epoch_tasks import FileSplit, RowSplit, SiteWork, SmallEpoch, TableSplit
from sluice.spark.frames import (
    COLUMN,
    as_pairs,
    begin_map_tasks,
    collect,
    parallelize,
    read_frames,
    run_tasks,
)
from sluice.spark.shipping import Shipment

MAP_TASK_BYTES = 1 << 20
"""Bytes of files for which another map task is worth its start-up."""
_CALL_SITE = "callSite.short"
"""By this local property Spark names stages, and jobs."""
_BATCH_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
_NO_LIMIT = str((1 << 31) - 1)
"""As bytes of a batch: any other limit has Spark add up the size of a batch after each of its rows. Tasks of a job over
RDDs know settings of SQL by local properties alone."""
_BATCH_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"
_MANY_ROWS, _SOME_ROWS = 65536, 8192
"""Rows of a batch that Spark hands over: of columns that have a fixed width, and of others."""
EpochInput = DataFrame | Sequence[InputFile] | None
"""What an epoch takes in: a micro-batch of Structured Streaming, files, or nothing."""


@dataclass(frozen=True)
class EpochJob:
    """What is run for one epoch. Where rows come from a DataFrame, `empty` is one without rows, of the session whose
    settings count."""

    context: SparkContext
    anchors: Anchors
    split: Shipment[SplitTask]
    site: Shipment[SiteTask]
    delivery: HostDelivery | None
    """How blobs reach sites of the sender's host; None if their bytes always go through Spark like those of others."""
    number: int
    plan: Plan
    empty: DataFrame | None = None

    def run(self, epoch_input: EpochInput, table_files: Sequence[InputFile] = ()) -> list[SiteReport]:
        """The reports of all sites, of each level; `BlobsLost` if a site could not read what it was sent. With the
        input the files of tables are read that become state."""
        with _restored(self.context, _CALL_SITE, _BATCH_BYTES):
            if not table_files and self._is_small(epoch_input):
                return self._run_in_one_stage(epoch_input)
            return self._run_in_stages(epoch_input, table_files)

    def _run_in_stages(self, epoch_input: EpochInput, table_files: Sequence[InputFile]) -> list[SiteReport]:
        sent = [pairs for pairs in (self._split(epoch_input), self._load(table_files)) if pairs is not None]
        if len(sent) > 1:
            self._name("split, tables")
        blobs = sent[0].union(sent[1]) if len(sent) > 1 else next(iter(sent), None)
        with self._map_tasks_begun(blobs, may_begin=not isinstance(epoch_input, DataFrame)) as blobs:
            levels = self.plan.levels
            for level in range(levels - 1):
                blobs = as_pairs(self.context, self._at_sites(blobs, level, f"sites, level {level}"))
            name = f"sites, level {levels - 1}" if levels > 1 else "sites"
            return read_reports(collect(self.context, self._at_sites(blobs, levels - 1, name)))

    @contextmanager
    def _map_tasks_begun(self, blobs: Any | None, may_begin: bool) -> Iterator[Any | None]:
        """What map tasks send, if there are any. Those over files begin at once: so they run while the rest of the job
        is being made, which finds its first stage under way, or done. A DataFrame may have no partitions, or give other
        rows when a lost one is made again: Spark knows what to do about both inside of one job only."""
        if blobs is None or not may_begin:
            yield blobs
            return
        blobs = blobs.partitionBy(self.anchors.partitioner)
        begun = begin_map_tasks(self.context, blobs)
        try:
            yield blobs
        except BaseException:
            with suppress(Exception):  # it has ended, or Spark has been stopped
                begun.cancel()
            raise

    def _at_sites(self, blobs: Any | None, level: int, stage: str) -> Any:
        """What the sites' tasks of a level give."""
        name = self._name(stage)
        work = SiteWork(self.site, self.delivery, Level(level), is_last=level == self.plan.levels - 1)
        return run_tasks(self.context, self.anchors.pin(blobs), work, name)

    def _name(self, stage: str) -> str:
        """Under which name Spark's page shows what is made and run from now on."""
        name = f"epoch {self.number}: {stage}"
        self.context.setLocalProperty(_CALL_SITE, name)
        return name

    def _is_small(self, epoch_input: EpochInput) -> TypeGuard[Sequence[InputFile]]:
        """Whether the files are so few and small that each site reads them all, and needs no map tasks."""
        sites = len(self.anchors.homes)
        if isinstance(epoch_input, DataFrame) or not epoch_input or not can_skip_exchange(self.plan, sites):
            return False
        tasks = divide_by_bytes(epoch_input, self.context.defaultParallelism)
        return len(tasks) == 1 and (sites == 1 or sites * sum(file.size for file in epoch_input) < 2 * MAP_TASK_BYTES)

    def _run_in_one_stage(self, files: Sequence[InputFile]) -> list[SiteReport]:
        name = self._name("split and sites")
        in_order = tuple(sorted(files, key=lambda file: file.source))
        work = SmallEpoch(self.split, self.site, self.delivery, in_order)
        return read_reports(collect(self.context, run_tasks(self.context, self.anchors.pin(None), work, name)))

    def _split(self, epoch_input: EpochInput) -> Any | None:
        """The pairs that map tasks send; None where there is nothing to split."""
        if isinstance(epoch_input, DataFrame):
            self._name("split")
            self.context.setLocalProperty(_BATCH_BYTES, _NO_LIMIT)
            return as_pairs(self.context, self._split_rows(epoch_input))
        return self._read(epoch_input, FileSplit(self.split, self.delivery), "split") if epoch_input else None

    def _load(self, table_files: Sequence[InputFile]) -> Any | None:
        """The pairs that map tasks send of tables; None where none is read."""
        return self._read(table_files, TableSplit(self.split, self.delivery), "tables") if table_files else None

    def _read(self, files: Sequence[InputFile], work: FileSplit | TableSplit, stage: str) -> Any:
        """The pairs that map tasks send which are given these files."""
        name = self._name(stage)
        lists = divide_by_bytes(files, self.context.defaultParallelism)
        frames = parallelize(self.context, map(pickle.dumps, lists), len(lists))
        return as_pairs(self.context, run_tasks(self.context, frames, work, name))

    def _split_rows(self, batch: DataFrame) -> Any:
        assert self.empty is not None, "rows come from a DataFrame"
        split, jvm = RowSplit(self.split, self.delivery), self.context._jvm

        def map_side(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            return split(batches)

        rows = _MANY_ROWS if all(_has_fixed_width(field.dataType) for field in batch.schema.fields) else _SOME_ROWS
        self.empty.sparkSession.conf.set(_BATCH_ROWS, rows)
        # as many map tasks as cores: every further one only adds its start-up and makes the blobs smaller
        frames = batch.coalesce(self.context.defaultParallelism).mapInArrow(map_side, COLUMN)
        as_bytes = getattr(self.empty.union(frames)._jdf, "as")
        return as_bytes(jvm.org.apache.spark.sql.Encoders.BINARY()).toJavaRDD()  # type: ignore[union-attr]


def read_reports(frames: Iterable[bytes]) -> list[SiteReport]:
    reports = []
    for number, payload in read_frames(frames):
        if number == LOST:
            raise BlobsLost(payload.to_pybytes().decode())
        reports.append(decode(payload.to_pybytes(), SiteReport))
    return reports


def divide_by_bytes(files: Sequence[InputFile], most: int) -> list[list[InputFile]]:
    """The files of each map task, of much the same bytes each, those of a source together; few small files are for one
    task.

    >>> sizes = [3 << 20, 1 << 20, 1 << 20, 1 << 20]
    >>> files = [InputFile(0, str(number), size) for number, size in enumerate(sizes)]
    >>> [[file.path for file in task] for task in divide_by_bytes(files, 2)]
    [['0'], ['1', '2', '3']]
    >>> len(divide_by_bytes(files[:1], 2)), len(divide_by_bytes([InputFile(0, "a", 9)] * 9, 2))
    (1, 1)
    """
    tasks = min(most, len(files), max(1, sum(file.size for file in files) // MAP_TASK_BYTES))
    lists: list[list[int]] = [[] for _ in range(tasks)]
    sizes = [0] * tasks
    for place in sorted(range(len(files)), key=lambda place: -files[place].size):
        least = sizes.index(min(sizes))
        lists[least].append(place)
        sizes[least] += files[place].size
    return [sorted((files[place] for place in sorted(one)), key=lambda file: file.source) for one in lists]


def _has_fixed_width(kind: DataType) -> bool:
    if isinstance(kind, StructType):
        return all(_has_fixed_width(field.dataType) for field in kind.fields)
    return not isinstance(kind, (StringType, BinaryType, ArrayType, MapType, VariantType))


@contextmanager
def _restored(context: SparkContext, *keys: str) -> Iterator[None]:
    """Jobs that are run here may be told other things by these local properties; those after it are told what they were
    before."""
    before = {key: context.getLocalProperty(key) for key in keys}
    try:
        yield
    finally:
        for key, value in before.items():
            context.setLocalProperty(key, value)  # type: ignore[arg-type]
