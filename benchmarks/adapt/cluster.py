"""Executor processes on this machine, and everything they write inside one directory that goes at the end."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark
from pyspark import SparkContext
from pyspark.sql import SparkSession

from benchmarks.session import session

LEAVING = 60  # seconds that a JVM has to end
# else Spark lists the files of a batch by a job if there are more than 32
LISTING = {"spark.sql.sources.parallelPartitionDiscovery.threshold": "10000"}


def keep_spark_inside(work: Path) -> None:
    """Have Spark write below `work`; said before its JVM starts.

    The workers of a local cluster put their executors' logs below SPARK_HOME: it gets one of links.
    """
    home, temporary = work / "spark", work / "tmp"
    for directory in (home / "work", temporary):
        directory.mkdir(parents=True)
    for entry in Path(pyspark.__file__).parent.iterdir():
        if entry.name != "work":
            (home / entry.name).symlink_to(entry)
    os.environ |= {"SPARK_HOME": str(home), "TMPDIR": str(temporary)}


@contextmanager
def cluster(master: str, work: Path) -> Iterator[SparkSession]:
    """A session on executors of its own; one slot a site, so all sites of an epoch run at once."""
    inside = {"spark.local.dir": str(work / "tmp"), "spark.sql.warehouse.dir": str(work / "warehouse")}
    try:
        with session(master, {**inside, **LISTING}) as spark:
            yield spark
    finally:
        end_jvm()


def end_jvm() -> None:
    """Wait for Spark's JVM to end: until then its workers may write what has just been cleared away."""
    gateway = SparkContext._gateway
    if gateway is not None:
        SparkContext._gateway = SparkContext._jvm = None
        gateway.shutdown()
        gateway.proc.stdin.close()
        try:
            gateway.proc.wait(LEAVING)
        except subprocess.TimeoutExpired:
            gateway.proc.kill()
            gateway.proc.wait()
