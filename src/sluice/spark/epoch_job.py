"""One epoch on Spark: split in the map tasks, blobs through Spark's shuffle, each site on its own executor.

It runs over RDDs of the JVM, of the same shape every time, so that nothing has to be planned: a stage of map tasks, and
one for each level of operators. Only rows of Spark come out of a DataFrame.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark import SparkContext
from pyspark.sql import DataFrame
from pyspark.sql.types import ArrayType, BinaryType, DataType, MapType, StringType, StructType, VariantType

from sluice.engine.blobs import UNUSABLE, InputUnusable
from sluice.engine.site_task import SiteTask
from sluice.model.codec import decode
from sluice.model.ids import Level
from sluice.model.plan.plan import Plan
from sluice.record.reports import SiteReport
from sluice.sources.input_files import InputFile
from sluice.spark.anchors import Anchors
from sluice.spark.epoch_tasks import RowSplit, SiteWork, SmallEpoch
from sluice.spark.frames import COLUMN, as_pairs, collect, read_frames, run_tasks
from sluice.spark.map_tasks import CALL_SITE, BegunMapTasks, MapSide, needs_no_map_tasks, restored
from sluice.spark.shipping import Shipment

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

    map_side: MapSide
    site: Shipment[SiteTask]
    plan: Plan
    empty: DataFrame | None = None

    @property
    def context(self) -> SparkContext:
        return self.map_side.context

    @property
    def anchors(self) -> Anchors:
        return self.map_side.anchors

    def run(
        self,
        epoch_input: EpochInput,
        table_files: Sequence[InputFile] = (),
        begun: BegunMapTasks | None = None,
        when_split: Callable[[], None] = lambda: None,
    ) -> list[SiteReport]:
        """The reports of all sites, of each level; `InputUnusable` if a site could not use what it was sent. With the
        input the files of tables are read that become state. The map tasks over all of this may have `begun`.
        `when_split` is called when map tasks over files are done, and the sites alone have work to do."""
        with restored(self.context, CALL_SITE, _BATCH_BYTES):
            if isinstance(epoch_input, DataFrame):
                return self._run_sites(self._split(epoch_input, table_files))
            files = epoch_input or ()
            sites = len(self.anchors.homes)
            if begun is None and not table_files and needs_no_map_tasks(self.context, self.plan, sites, files):
                return self._run_in_one_stage(files)
            begun = begun or self.map_side.begin(files, table_files)
            if begun is None:
                return self._run_sites(None)
            map_tasks = begun

            def wait_for_map_tasks() -> None:
                if map_tasks.wait(self.context):
                    when_split()

            with map_tasks.cancelled_on_failure():
                return self._run_sites(map_tasks.blobs, wait_for_map_tasks)

    def _split(self, batch: DataFrame, table_files: Sequence[InputFile]) -> Any:
        """The pairs that map tasks send of rows of Spark. They are part of the sites' job: a DataFrame may have no
        partitions, or give other rows when a lost one is made again, and Spark knows what to do about both inside of
        one job only."""
        self.map_side.name("split")
        self.context.setLocalProperty(_BATCH_BYTES, _NO_LIMIT)
        blobs = as_pairs(self.context, self._split_rows(batch))
        if table_files:
            blobs = blobs.union(self.map_side.load(table_files))
            self.map_side.name("split, tables")
        return blobs

    def _run_sites(self, blobs: Any | None, meanwhile: Callable[[], None] = lambda: None) -> list[SiteReport]:
        """The reports of all sites, to which these blobs are sent; what is begun `meanwhile` comes after their
        tasks."""
        levels = self.plan.levels
        for level in range(levels - 1):
            blobs = as_pairs(self.context, self._at_sites(blobs, level, f"sites, level {level}"))
        name = f"sites, level {levels - 1}" if levels > 1 else "sites"
        return read_reports(collect(self.context, self._at_sites(blobs, levels - 1, name), meanwhile))

    def _at_sites(self, blobs: Any | None, level: int, stage: str) -> Any:
        """What the sites' tasks of a level give."""
        name = self.map_side.name(stage)
        work = SiteWork(self.site, self.map_side.delivery, Level(level), is_last=level == self.plan.levels - 1)
        return run_tasks(self.context, self.anchors.pin(blobs), work, name)

    def _run_in_one_stage(self, files: Sequence[InputFile]) -> list[SiteReport]:
        name = self.map_side.name("split and sites")
        in_order = tuple(sorted(files, key=lambda file: file.source))
        work = SmallEpoch(self.map_side.split, self.site, self.map_side.delivery, in_order)
        return read_reports(collect(self.context, run_tasks(self.context, self.anchors.pin(None), work, name)))

    def _split_rows(self, batch: DataFrame) -> Any:
        assert self.empty is not None, "rows come from a DataFrame"
        split, jvm = RowSplit(self.map_side.split, self.map_side.delivery), self.context._jvm

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
        if number == UNUSABLE:
            raise InputUnusable(payload.to_pybytes().decode())
        reports.append(decode(payload.to_pybytes(), SiteReport))
    return reports


def _has_fixed_width(kind: DataType) -> bool:
    if isinstance(kind, StructType):
        return all(_has_fixed_width(field.dataType) for field in kind.fields)
    return not isinstance(kind, (StringType, BinaryType, ArrayType, MapType, VariantType))
