"""Map tasks over files: they are given their files, split the rows, and send blobs to the sites.

They are a job of Spark's of their own, so that they can run before the rest of an epoch's job has been made: the next
epoch's, too, while the sites work on this one, and it commits and shows its results.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from pyspark import SparkContext

from sluice.engine.host_delivery import HostDelivery
from sluice.engine.small_epochs import can_skip_exchange
from sluice.engine.split import SplitTask
from sluice.model.plan.plan import Plan
from sluice.sources.input_files import InputFile
from sluice.spark.anchors import Anchors
from sluice.spark.epoch_tasks import FileSplit, TableSplit
from sluice.spark.frames import as_pairs, begin_map_tasks, parallelize, run_tasks, wait_for_map_tasks
from sluice.spark.shipping import Shipment

MAP_TASK_BYTES = 1 << 20
"""Bytes of files for which another map task is worth its start-up."""
CALL_SITE = "callSite.short"
"""By this local property Spark names stages, and jobs."""


@dataclass(frozen=True)
class BegunMapTasks:
    """Map tasks that run, or are done. Jobs over their `blobs` take what is there, and wait for the rest."""

    blobs: Any
    """Pairs of the JVM, one partition a site."""
    future: Any
    """Spark's, of the job."""

    def wait(self, context: SparkContext) -> bool:
        """Until they are done; whether none failed."""
        return wait_for_map_tasks(context, self.future)

    def cancel(self) -> None:
        """Nobody wants what they send."""
        with suppress(Exception):  # it has ended, or Spark has been stopped
            self.future.cancel()

    @contextmanager
    def cancelled_on_failure(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self.cancel()
            raise


@dataclass(frozen=True)
class MapSide:
    """How the files of one epoch are split on the way to its sites."""

    context: SparkContext
    anchors: Anchors
    split: Shipment[SplitTask]
    delivery: HostDelivery | None
    """How blobs reach sites of the sender's host; None if their bytes always go through Spark like those of others."""
    number: int
    """The epoch's."""

    def begin(self, files: Sequence[InputFile], table_files: Sequence[InputFile] = ()) -> BegunMapTasks | None:
        """Have map tasks run over these files, and over those of tables that become state; None if there are none."""
        sent = []
        if files:
            sent.append(self._read(files, FileSplit(self.split, self.delivery), "split"))
        if table_files:
            sent.append(self.load(table_files))
        if not sent:
            return None
        if len(sent) > 1:
            self.name("split, tables")
        blobs = (sent[0].union(sent[1]) if len(sent) > 1 else sent[0]).partitionBy(self.anchors.partitioner)
        return BegunMapTasks(blobs, begin_map_tasks(self.context, blobs))

    def load(self, table_files: Sequence[InputFile]) -> Any:
        """The pairs that map tasks send of tables."""
        return self._read(table_files, TableSplit(self.split, self.delivery), "tables")

    def name(self, stage: str) -> str:
        """Under which name Spark's page shows what is made and run from now on."""
        name = f"epoch {self.number}: {stage}"
        self.context.setLocalProperty(CALL_SITE, name)
        return name

    def _read(self, files: Sequence[InputFile], work: FileSplit | TableSplit, stage: str) -> Any:
        """The pairs that map tasks send which are given these files."""
        name = self.name(stage)
        lists = divide_by_bytes(files, self.context.defaultParallelism)
        frames = parallelize(self.context, map(pickle.dumps, lists), len(lists))
        return as_pairs(self.context, run_tasks(self.context, frames, work, name))


def needs_no_map_tasks(context: SparkContext, plan: Plan, sites: int, files: Sequence[InputFile]) -> bool:
    """Whether an epoch's files are so few and small that each site reads them all."""
    if not files or not can_skip_exchange(plan, sites):
        return False
    tasks = divide_by_bytes(files, context.defaultParallelism)
    return len(tasks) == 1 and (sites == 1 or sites * sum(file.size for file in files) < 2 * MAP_TASK_BYTES)


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


@contextmanager
def restored(context: SparkContext, *keys: str) -> Iterator[None]:
    """Jobs that are run here may be told other things by these local properties; those after it are told what they were
    before."""
    before = {key: context.getLocalProperty(key) for key in keys}
    try:
        yield
    finally:
        for key, value in before.items():
            context.setLocalProperty(key, value)  # type: ignore[arg-type]
