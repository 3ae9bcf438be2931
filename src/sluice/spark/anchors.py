"""Pinning sites to executors: a small cached DataFrame, one partition a site, each cached on the site's executor.

It stands left of a cogroup, and Spark runs every cogroup task where that partition is cached. A site's key is a number
whose Spark hash falls on the site's partition, so sites and partitions are one to one.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession

from sluice.control.site_assignment import Executor
from sluice.model.errors import QueryError
from sluice.model.identity import VERSION
from sluice.model.ids import Site, SiteKey
from sluice.spark.executors import do_at
from sluice.state.files.workspace import Workspace

_MAX_PLACEMENTS = 2
Arrangement = Callable[[Sequence[str | None], Sequence[Executor]], tuple[str | None, ...]]
"""Which executor each site is on, by where they were and which there are: `spread` or `pack`."""


@dataclass(frozen=True)
class Anchors:
    """The sites on their executors: ids as Spark has them, and the processes that said they are there."""

    frame: DataFrame
    site_keys: tuple[SiteKey, ...]
    homes: tuple[str | None, ...]
    processes: tuple[str, ...]

    @property
    def as_arranged(self) -> bool:
        """Whether every site is where it was meant to be: one process for each executor."""
        pairs = set(zip(self.homes, self.processes, strict=True))
        return len(pairs) == len(set(self.homes)) == len(set(self.processes)) or None in self.homes


def place(
    session: SparkSession,
    count: int,
    executors: Sequence[Executor],
    arrange: Arrangement,
    before: Anchors | None = None,
) -> Anchors:
    """So many sites on the executors; those that are well placed stay where they were."""
    homes_before = before.homes[:count] if before else ()
    homes = arrange([*homes_before, *[None] * (count - len(homes_before))], executors)
    if before and homes == before.homes:
        return before
    site_keys = before.site_keys if before and len(before.site_keys) == count else _site_keys(session, count)
    for _ in range(_MAX_PLACEMENTS):
        anchors = _cache_anchors(session, site_keys, homes, {e.id: e for e in executors})
        if anchors.as_arranged:
            return anchors
        anchors.frame.unpersist()  # tasks went elsewhere, because their executors were busy for too long
    return _cache_anchors(session, site_keys, homes, {e.id: e for e in executors})


def let_go(
    session: SparkSession, processes: Sequence[str], executors: Sequence[Executor], workspace: Workspace
) -> None:
    """Have executors remove what they still have of sites that are on others now; there is a process for each site."""
    sites_by_process: dict[str, set[Site]] = {}
    for site, process in enumerate(processes):
        sites_by_process.setdefault(process, set()).add(Site(site))

    def clean() -> tuple[()]:
        from sluice.state.files.workspace import executor

        workspace.let_go(sites_by_process.get(executor(), ()))
        return ()

    do_at(session.sparkContext, executors, clean)


def _cache_anchors(
    session: SparkSession, site_keys: tuple[SiteKey, ...], homes: tuple[str | None, ...], executors: dict[str, Executor]
) -> Anchors:
    """Caches each partition by a task on its executor, which also sees that the Python there has what a site needs."""

    def settle() -> list[tuple[str, str]]:
        try:
            import sluice.engine.site  # noqa: F401  # with all that a site's task needs
            from sluice.model.identity import VERSION as THERE
            from sluice.state.files.workspace import executor

            return [(THERE, executor())]
        except ImportError as problem:
            return [(str(problem), "")]

    salt = uuid.uuid4().int >> 66  # Spark takes two frames of one plan for the same and would cache them once
    rows = session.range(salt, salt + 1, 1, 1).selectExpr(f"explode(array({', '.join(map(str, site_keys))})) AS site")
    frame = rows.repartition(len(site_keys), "site").cache()
    context = session.sparkContext
    try:
        answers = do_at(context, [executors[home] if home else None for home in homes], settle, beside=frame.rdd)
        _check_versions({version for version, _ in answers}, context.pythonExec)
    except BaseException:
        frame.unpersist()
        raise
    return Anchors(frame, site_keys, homes, tuple(process for _, process in answers))


def _check_versions(versions: set[str], python: str) -> None:
    """See that a flow can run on the executors, before an epoch fails on it."""
    for version in versions - {VERSION}:
        raise QueryError(
            f"the executors' Python ({python}) cannot run this flow: {version}. Install "
            f"sluice {VERSION} there, or set PYSPARK_PYTHON to an interpreter that has it"
        )


def _site_keys(session: SparkSession, count: int) -> tuple[SiteKey, ...]:
    """One number a site whose hash falls on that site's partition."""
    keys: dict[int, int] = {}
    start, step = 0, 100 * count
    while len(keys) < count:
        sites = f"transform(sequence({start}, {start + step - 1}), n -> pmod(hash(n), {count}))"
        rows = session.sql(f"SELECT {sites} FROM VALUES (0)").collect()  # of constants: Spark folds it without a job
        for number, site in enumerate(rows[0][0], start):
            keys.setdefault(site, number)
        start += step
    return tuple(SiteKey(keys[i]) for i in range(count))
