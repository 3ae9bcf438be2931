"""One epoch as one Spark job: split in the map tasks, blobs through Spark's shuffle, each site on its own executor.

A site is pinned with public API only: a small cached DataFrame with one row a site stands left of a cogroup, and Spark
runs every cogroup task where that row's block is cached. A site's token is a number whose Spark hash falls on the
site's partition, so sites and partitions are one to one.
"""

from __future__ import annotations

import json
import re
import time
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sluice.model.errors import FlowError, SluiceError
from sluice.model.version import VERSION
from sluice.spark.epochs import Exchange, Report
from sluice.spark.sending import BLOBS_DDL
from sluice.spark.site import SiteTask
from sluice.spark.split import SplitTask
from sluice.state.workspace import Places, close_workspaces

_SETTINGS = {
    "spark.sql.adaptive.enabled": "false",  # it would merge the sites' partitions
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    "spark.sql.autoBroadcastJoinThreshold": "-1",
}
# An executor lost in the middle of an epoch takes blobs with it. Spark makes them again, but not for sites that were
# already through: two runs of a split may differ (in their timings, or because the user's stream does), so it gives up
# the job. An epoch is all or nothing, and can be run again as a whole.
_ATTEMPTS = 4
_EXECUTOR_WAIT = 30.0
_GIVEN_UP = ("with indeterminate output was failed and retried", "has failed the maximum allowable number of times")


class Sites:
    """The sites of a query on a Spark cluster."""

    def __init__(self, spark: SparkSession, count: int) -> None:
        self.count = count
        self.session = spark.newSession()  # so that nothing of the user's own session is changed
        for key, value in _SETTINGS.items():
            self.session.conf.set(key, value)
        self.session.conf.set("spark.sql.shuffle.partitions", count)
        _check_workers(self.session, count)
        self.tokens = self._tokens()
        rows = self.session.createDataFrame([(t,) for t in self.tokens], "site int")
        self.anchor = rows.repartition(count, "site").cache()
        self.anchor.count()

    def _tokens(self) -> tuple[int, ...]:
        """One number a site whose hash falls on that site's partition."""
        found: dict[int, int] = {}
        start = 0
        while len(found) < self.count:
            ids = self.session.range(start, start + 100 * self.count)
            token = F.col("id").cast("int")
            for row in ids.select(token.alias("token"), F.pmod(F.hash(token), F.lit(self.count)).alias("at")).collect():
                found.setdefault(row["at"], row["token"])
            start += 100 * self.count
        return tuple(found[i] for i in range(self.count))

    def exchange(self, batch: DataFrame | None) -> Exchange:
        """The exchange over one micro-batch; without one it is for input that waits at the sites."""

        def run(split: SplitTask, site: SiteTask) -> list[Report]:
            for attempt in range(_ATTEMPTS):
                try:
                    rows = self._job(batch, split, site).collect()
                    break
                except Py4JJavaError as failure:
                    if attempt + 1 == _ATTEMPTS or not _beyond_retries(failure):
                        raise
            if len(rows) != self.count * site.plan.levels:
                raise SluiceError(f"{len(rows)} of {self.count * site.plan.levels} reports of sites arrived")
            return [json.loads(bytes(row["payload"])) for row in rows]

        return run

    def _job(self, batch: DataFrame | None, split: SplitTask, site: SiteTask) -> DataFrame:
        def at_level(level: int) -> Any:
            def at_site(key: tuple[Any, ...], anchor: pa.Table, blobs: pa.Table) -> pa.Table:
                return site(level, key[0].as_py(), blobs)

            return at_site

        def map_side(batches: Any) -> Any:
            return split(batches)

        if batch is None:
            blobs = self.session.createDataFrame([], BLOBS_DDL)
        else:
            # as many map tasks as cores: every further one only adds its start-up and makes the blobs smaller
            blobs = batch.coalesce(self.session.sparkContext.defaultParallelism).mapInArrow(map_side, BLOBS_DDL)
        for level in range(site.plan.levels):
            together = self.anchor.groupBy("site").cogroup(blobs.groupBy("site"))
            blobs = together.applyInArrow(at_level(level), BLOBS_DDL)
        return blobs

    def close(self, places: Places, query: str) -> None:
        """Let go of the pinned sites and remove the local tiers on every executor."""
        try:
            if self.session.sparkContext._jsc is not None:  # else its executors, and with them the tiers, are gone
                self._close_on_executors(places, query)
        finally:
            close_workspaces(places, query)

    def _close_on_executors(self, places: Places, query: str) -> None:
        self.anchor.unpersist()
        context = self.session.sparkContext
        slots = max(context.defaultParallelism, self.count)

        def clean(_: Any) -> Any:
            close_workspaces(places, query)
            time.sleep(0.1)  # so that no executor takes all these tasks
            return iter(())

        context.parallelize(range(slots), slots).mapPartitions(clean).count()


def _beyond_retries(failure: Py4JJavaError) -> bool:
    """Whether the job ended because executors were lost, not because a task failed."""
    return any(reason in str(failure.java_exception) for reason in _GIVEN_UP)


def await_executors(session: SparkSession) -> None:
    """Wait for the executors that were asked for, a little: sites are pinned to those that are there."""
    context = session.sparkContext
    conf, scheduler = context.getConf(), context._jsc.sc()
    cluster = re.match(r"local-cluster\[\s*(\d+)", str(context.master))
    wanted = int(cluster[1]) if cluster else int(conf.get("spark.executor.instances") or 0)
    deadline = time.monotonic() + _EXECUTOR_WAIT
    while scheduler.getExecutorMemoryStatus().size() - 1 < wanted and time.monotonic() < deadline:
        time.sleep(0.1)


def _check_workers(session: SparkSession, tasks: int) -> None:
    """See that the executors' Python has what a site needs, before the first epoch fails on it."""

    def versions(_: Any) -> Any:
        try:
            import sluice.spark.site  # noqa: F401  # with all that a site's task needs
            from sluice.model.version import VERSION as THERE

            yield THERE
        except ImportError as problem:
            yield str(problem)

    context = session.sparkContext
    for found in context.parallelize(range(tasks), tasks).mapPartitions(versions).collect():
        if found != VERSION:
            raise FlowError(
                f"the executors' Python ({context.pythonExec}) cannot run this flow: {found}. Install "
                f"sluice {VERSION} there, or set PYSPARK_PYTHON to an interpreter that has it"
            )
