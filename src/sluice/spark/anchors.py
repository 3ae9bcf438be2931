"""Pinning sites to executors: a small cached RDD, one partition a site, each cached on the site's executor.

It stands left of a join with the blobs, partitioned as they are, and Spark runs every task of the join where that
partition is cached.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark import RDD, SparkContext
from pyspark.serializers import pack_long

from sluice.control.site_assignment import Executor
from sluice.model.errors import QueryError
from sluice.model.ids import Site, SiteKey
from sluice.spark.executors import do_at
from sluice.spark.frames import FRAMES, as_pairs, parallelize
from sluice.state.files.workspace import Places, Workspace
from sluice.version import VERSION

_MAX_PLACEMENTS = 2
Arrangement = Callable[[Sequence[str | None], Sequence[Executor]], tuple[str | None, ...]]
"""Which executor each site is on, by where they were and which there are: `spread` or `pack`."""


@dataclass(frozen=True)
class Anchors:
    """The sites on their executors: ids as Spark has them, and the processes that said they are there."""

    pairs: Any
    """A pair of the JVM for each site: its number, and nothing."""
    partitioner: Any
    """The JVM's, by which a site's number is its partition's."""
    homes: tuple[str | None, ...]
    processes: tuple[str, ...]
    memories: tuple[str, ...]
    """The memory tiers of their hosts."""

    @property
    def site_keys(self) -> tuple[SiteKey, ...]:
        return tuple(SiteKey(site) for site in range(len(self.homes)))

    def pin(self, blobs: Any | None) -> Any:
        """A Java RDD with a partition for each site, on its executor: of its blobs, if any, each beside an empty
        value."""
        return self.pairs.values() if blobs is None else self.pairs.join(blobs, self.partitioner).values()

    def let_go(self) -> None:
        """Pin the sites no more."""
        self.pairs.unpersist()

    @property
    def as_arranged(self) -> bool:
        """Whether every site is where it was meant to be: one process for each executor."""
        pairs = set(zip(self.homes, self.processes, strict=True))
        return len(pairs) == len(set(self.homes)) == len(set(self.processes)) or None in self.homes


def place(
    context: SparkContext,
    count: int,
    executors: Sequence[Executor],
    arrange: Arrangement,
    places: Places,
    before: Anchors | None = None,
) -> Anchors:
    """So many sites on the executors, with their local tiers in these places; those that are well placed stay where
    they were."""
    homes_before = before.homes[:count] if before else ()
    homes = arrange([*homes_before, *[None] * (count - len(homes_before))], executors)
    if before and homes == before.homes:
        return before
    for _ in range(_MAX_PLACEMENTS):
        anchors = _cache_anchors(context, homes, {e.id: e for e in executors}, places)
        if anchors.as_arranged:
            return anchors
        anchors.let_go()  # tasks went elsewhere, because their executors were busy for too long
    return _cache_anchors(context, homes, {e.id: e for e in executors}, places)


def let_go(
    context: SparkContext, processes: Sequence[str], executors: Sequence[Executor], workspace: Workspace
) -> None:
    """Have executors remove what they still have of sites that are on others now; there is a process for each site."""
    sites_by_process: dict[str, set[Site]] = {}
    for site, process in enumerate(processes):
        sites_by_process.setdefault(process, set()).add(Site(site))

    def clean() -> tuple[()]:
        from sluice.state.files.workspace import executor

        workspace.let_go(sites_by_process.get(executor(), ()))
        return ()

    do_at(context, executors, clean)


def _cache_anchors(
    context: SparkContext, homes: tuple[str | None, ...], executors: dict[str, Executor], places: Places
) -> Anchors:
    """Caches each partition by a task on its executor, which also sees that the Python there has what a site needs."""

    def settle() -> list[tuple[str, str, str]]:
        try:
            import sluice.spark.epoch_tasks  # noqa: F401  # with all that tasks need
            from sluice.state.files.workspace import executor, identify_memory
            from sluice.version import VERSION as THERE

            return [(THERE, executor(), identify_memory(places))]
        except ImportError as problem:
            return [(str(problem), "", "")]

    jvm: Any = context._jvm
    partitioner = jvm.org.apache.spark.HashPartitioner(len(homes))
    numbers = (value for site in range(len(homes)) for value in (pack_long(site), b""))
    pairs = as_pairs(context, parallelize(context, numbers, 1)).partitionBy(partitioner).setName("sites").cache()
    try:
        beside: RDD[Any] = RDD(pairs.values(), context, FRAMES)
        answers = do_at(context, [executors[home] if home else None for home in homes], settle, beside=beside)
        _check_versions({version for version, _, _ in answers}, context.pythonExec)
    except BaseException:
        pairs.unpersist()
        raise
    _, processes, memories = zip(*answers, strict=True)
    return Anchors(pairs, partitioner, homes, processes, memories)


def _check_versions(versions: set[str], python: str) -> None:
    """See that a flow can run on the executors, before an epoch fails on it."""
    for version in versions - {VERSION}:
        raise QueryError(
            f"the executors' Python ({python}) cannot run this flow: {version}. Install "
            f"sluice {VERSION} there, or set PYSPARK_PYTHON to an interpreter that has it"
        )
