"""A flow as a program of its own, for tests in which executors come and go: `sites_job.py ROOT MASTER` joins ROOT/a
with ROOT/b into ROOT/out as files arrive, and ends when ROOT/end exists and every file is processed. Where the number
of sites may change, a file ROOT/scale-2 asks for two of them, and ROOT/executors has Spark's own list of executors."""

from __future__ import annotations

import argparse
import time
from contextlib import suppress
from functools import partial
from pathlib import Path

from pyspark.sql import SparkSession
from quick_jvm import INTERPRETED, quick_to_start


def list_executors(spark: SparkSession, root: Path) -> int:
    """Write the ids of the executors that Spark lists, but for the driver's; how many there are."""
    found = spark.sparkContext._jsc.sc().statusStore().executorList(True)
    ids = {found.apply(number).id() for number in range(found.size())} - {"driver"}
    (root / "executors.new").write_text(" ".join(sorted(ids)))
    (root / "executors.new").replace(root / "executors")
    return len(ids)


def main() -> None:
    from sluice import Flow, QueryError
    from sluice.spark import exchange

    arguments = argparse.ArgumentParser()
    arguments.add_argument("root", type=Path)
    arguments.add_argument("master")
    arguments.add_argument("--sites", type=int)
    arguments.add_argument("--grace", type=float, help="seconds for which cores may be missing before sites are fewer")
    arguments.add_argument("--max-sites", type=int, help="have the number of sites asked for, with executors of a core")
    chosen = arguments.parse_args()
    root = chosen.root
    if chosen.grace:
        exchange.SiteCount = partial(exchange.SiteCount, grace=chosen.grace)
    builder = SparkSession.builder.master(chosen.master).appName("sites")
    for key, value in {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.extraJavaOptions": quick_to_start(),
        "spark.executor.extraJavaOptions": quick_to_start(),
        "spark.executor.memory": "512m",
        "spark.sql.warehouse.dir": f"{root}/warehouse",
        "spark.task.maxFailures": "20",
        **INTERPRETED,
    }.items():
        builder = builder.config(key, value)
    if chosen.max_sites:
        builder = builder.config("spark.executor.cores", 1).config("spark.executor.instances", chosen.max_sites)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("WARN")
    flow = Flow(spark, name="sites")
    a, b = (flow.readFiles(n, f"{root}/{n}", eventTime="ts", maxFilesPerTrigger=1) for n in ("a", "b"))
    writer = a.join(b, on="k", within="20 seconds").writeStream.format("parquet").option("path", f"{root}/out")
    writer.options(checkpointLocation=f"{root}/ck", memoryDir=f"{root}/mem", diskDir=f"{root}/disk")
    if chosen.sites:
        writer.option("sites", chosen.sites)
    if chosen.max_sites:
        writer.option("maxSites", chosen.max_sites)
    query = writer.trigger(processingTime="0 seconds").start()
    while not (root / "end").exists() and query.isActive:
        for asked in root.glob("scale-*"):
            with suppress(QueryError):  # some are leaving or joining, or there are as many already
                query.scale(int(asked.name.partition("-")[2]))
            asked.unlink()
        list_executors(spark, root)
        time.sleep(0.1)
    if query.isActive:
        query.processAllAvailable()
        query.stop()
    query.awaitTermination()
    while chosen.max_sites and list_executors(spark, root) < chosen.max_sites:
        time.sleep(0.1)
    spark.stop()


if __name__ == "__main__":
    main()
