"""Flows as a program of its own, for tests in which executors come and go: `sites_job.py ROOT MASTER FLOW...` runs one
after the other, each in its directory ROOT/FLOW. A flow joins a with b into out as files arrive, and ends when the file
`end` is there and every file is processed; then there is a file `done`. FLOW=2 has the number of sites asked for, two
at most: a file `scale-2` asks for two of them, and `executors` has Spark's own list of executors."""

from __future__ import annotations

import argparse
import os
import time
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pyspark.sql import SparkSession
from quick_jvm import INTERPRETED, quick_to_start

from sluice import Flow, QueryError
from sluice.spark import exchange, map_tasks

SITE_COUNT = exchange.SiteCount


@dataclass(frozen=True)
class Places:
    """Where the local tiers of all flows are, and what the one that runs reads and writes."""

    root: Path
    flow: Path


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("root", type=Path)
    arguments.add_argument("master")
    arguments.add_argument("flows", nargs="+", metavar="FLOW[=MAX_SITES]")
    arguments.add_argument("--sites", type=int)
    arguments.add_argument("--grace", type=float, help="seconds for which cores may be missing before sites are fewer")
    arguments.add_argument("--executors", type=int, help="how many to wait for")
    arguments.add_argument("--timeout", help="after which Spark takes an executor for lost of which it hears nothing")
    arguments.add_argument("--exchange", action="store_true", help="of small epochs, too: a map task for each file")
    chosen = arguments.parse_args()
    if chosen.exchange:
        map_tasks.MAP_TASK_BYTES = 1
    spark = start_spark(chosen.root, chosen.master, chosen.executors, chosen.timeout)
    for flow in chosen.flows:
        name, _, most = flow.partition("=")
        patient = most or not chosen.grace
        exchange.SiteCount = SITE_COUNT if patient else partial(SITE_COUNT, grace=chosen.grace)
        run(spark, Places(chosen.root, chosen.root / name), chosen.sites, int(most or 0))
    spark.stop()


def start_spark(root: Path, master: str, executors: int | None, timeout: str | None) -> SparkSession:
    builder = SparkSession.builder.master(master).appName("sites")
    for key, value in {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.driver.host": os.environ["SPARK_LOCAL_IP"],
        "spark.driver.extraJavaOptions": quick_to_start(),
        "spark.executor.extraJavaOptions": quick_to_start(),
        "spark.executor.memory": "512m",
        "spark.sql.warehouse.dir": f"{root}/warehouse",
        "spark.task.maxFailures": "20",
        **INTERPRETED,
    }.items():
        builder = builder.config(key, value)
    if executors:
        builder = builder.config("spark.executor.cores", 1).config("spark.executor.instances", executors)
    if timeout:
        builder = builder.config("spark.network.timeout", timeout).config("spark.network.timeoutInterval", "5s")
        builder = builder.config("spark.executor.heartbeatInterval", "2s")
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("WARN")
    return spark


def run(spark: SparkSession, places: Places, sites: int | None, max_sites: int) -> None:
    """A flow from its start to its end; where sites were asked for, until there are all executors again."""
    root = places.flow
    flow = Flow(spark, name="sites")
    a, b = (flow.readFiles(n, f"{root}/{n}", eventTime="ts", maxFilesPerTrigger=1) for n in ("a", "b"))
    writer = a.join(b, on="k", within="20 seconds").writeStream.format("parquet").option("path", f"{root}/out")
    writer.options(checkpointLocation=f"{root}/ck", memoryDir=f"{places.root}/mem", diskDir=f"{places.root}/disk")
    if sites:
        writer.option("sites", sites)
    if max_sites:
        writer.option("maxSites", max_sites)
    query = writer.trigger(processingTime="0 seconds").start()
    while not (root / "end").exists() and query.isActive:
        for asked in root.glob("scale-*"):
            with suppress(QueryError):  # some are leaving or joining, or there are as many already
                query.scale(int(asked.name.partition("-")[2]))
            asked.unlink()
        list_executors(spark, root)
        time.sleep(0.2)
    if query.isActive:
        query.processAllAvailable()
        query.stop()
    query.awaitTermination()
    while max_sites and list_executors(spark, root) < max_sites:
        time.sleep(0.1)
    (root / "done").touch()


def list_executors(spark: SparkSession, root: Path) -> int:
    """Write the ids of the executors that Spark lists, but for the driver's; how many there are."""
    found = spark.sparkContext._jsc.sc().statusStore().executorList(True)
    ids = {found.apply(number).id() for number in range(found.size())} - {"driver"}
    (root / "executors.new").write_text(" ".join(sorted(ids)))
    (root / "executors.new").replace(root / "executors")
    return len(ids)


if __name__ == "__main__":
    main()
