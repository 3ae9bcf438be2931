"""A flow as a program of its own, for tests that kill it: `kill_job.py ROOT` joins ROOT/a with ROOT/b into ROOT/out,
and groups the pairs into ROOT/bars.

It goes on from ROOT/ck and ends once every file is processed. With `--restless` units move, sites get more or less
memory and become slow at random all the time, and epochs have little time; with `--freezing` besides, units are frozen
where memory is short, and others at random. With `--suspend-at` it stops itself, its JVM
and its workers just before a file operation of the driver, to be woken by somebody else. The error it ends with, if
any, is in ROOT/error-PID. Whatever Spark writes (shuffles, logs, temporary files), which it cannot clean up when it is
killed, stays inside ROOT.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import signal
import threading
import time
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from typing import Any

from quick_jvm import CLASS_PATH, INTERPRETED, quick_to_start

UNITS = 32


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("root", type=Path)
    arguments.add_argument("--sites", type=int, default=3)
    arguments.add_argument("--master", default="local-cluster[2,1,1024]")
    arguments.add_argument("--default-places", action="store_true", help="local tiers where Sluice itself puts them")
    arguments.add_argument("--restless", type=int, metavar="SEED")
    arguments.add_argument("--freezing", action="store_true")
    arguments.add_argument("--suspend-at", nargs=3, metavar=("OPERATION", "PATTERN", "COUNT"))
    arguments.add_argument("--epochs", type=int, help="stop the query after so many")
    chosen = arguments.parse_args()
    keep_spark_inside(chosen.root)
    try:
        with suspended_at(*chosen.suspend_at) if chosen.suspend_at else nullcontext():
            run(
                chosen.root,
                chosen.master,
                chosen.sites,
                chosen.default_places,
                chosen.restless,
                chosen.epochs,
                chosen.freezing,
            )
    except Exception as failure:
        (chosen.root / f"error-{os.getpid()}").write_text(f"{type(failure).__name__}: {failure}")
        raise


def run(
    root: Path,
    master: str,
    sites: int,
    default_places: bool,
    restless: int | None,
    epochs: int | None = None,
    freezing: bool = False,
) -> None:
    from sluice import Flow

    spark = start_spark(root, master)
    flow = Flow(spark, name="kills")
    a, b = (flow.readFiles(n, f"{root}/{n}", eventTime="ts", maxFilesPerTrigger=1) for n in ("a", "b"))
    pairs = a.join(b, on="k", within="20 seconds")
    bars = pairs.groupBy("a_k").window("10 seconds", "5 seconds").agg(n=("*", "count"), total=("b_v", "sum"))
    writer = pairs.writeStream.format("parquet").option("path", f"{root}/out")
    writer.options(checkpointLocation=f"{root}/ck", sites=sites, partitions=UNITS, siteMemory="64k")
    if not default_places:
        writer.options(memoryDir=f"{root}/mem", diskDir=f"{root}/disk")
    if restless is not None:
        writer.options(epochBudget="300 milliseconds", backlog="256k", spill="unit")
    if freezing:
        writer.policy("lazy-disk", push=0.3, collect="1 second")
    also = bars.writeStream.format("parquet").option("path", f"{root}/bars")
    query = flow.start(writer.trigger(availableNow=True), also)
    if restless is not None:
        threading.Thread(target=disturb, args=(query, sites, restless, freezing), daemon=True).start()
    if epochs is not None:
        while query.isActive and len(query.recentProgress) < epochs:
            time.sleep(0.02)
        query.stop()
    query.awaitTermination()
    spark.stop()


def start_spark(root: Path, master: str) -> Any:
    """A session that outlives its executors; what it writes stays inside the root."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(master).appName("kills")
    for key, value in {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.local.dir": f"{root}/tmp",
        "spark.sql.warehouse.dir": f"{root}/warehouse",
        "spark.deploy.maxExecutorRetries": "-1",  # executors that keep dying are no reason to give the application up
        "spark.task.maxFailures": "20",
        "spark.network.timeout": "1h",  # however long it was suspended
        "spark.shuffle.io.retryWait": "1s",  # before Spark asks whether an executor that does not answer is dead
        "spark.driver.extraClassPath": CLASS_PATH,  # not by way of SPARK_HOME, which is one of links
        "spark.executor.extraClassPath": CLASS_PATH,
        **INTERPRETED,
    }.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def disturb(query: Any, sites: int, seed: int, freezing: bool) -> None:
    """Whatever a user may ask of a running query, at random moments until it ends."""
    from sluice import QueryError
    from sluice.experiments import slowDown

    rng = random.Random(seed)
    while query.isActive:
        site = rng.randrange(sites)
        with suppress(QueryError):  # the unit is there already, the site is not there yet, or the query has just ended
            if rng.random() < 0.5:
                query.setSiteMemory(site, rng.choice(["0", "16k", "64k", "64m"]))
            if rng.random() < 0.3:
                slowDown(query, site, rng.choice(["0 seconds", "100 microseconds", "400 microseconds"]))
            for _ in range(rng.randrange(4)):
                query.move(rng.randrange(UNITS), rng.randrange(sites))
            if freezing and rng.random() < 0.5:
                query.freeze(rng.randrange(UNITS))
        time.sleep(rng.uniform(0.1, 1.0))


def suspended_at(operation: str, pattern: str, count: str) -> AbstractContextManager[None]:
    """Stop before this operation on such a path, when it is done for the so manyth time."""
    from sluice.state.files import storage

    seen = 0

    def watcher(name: str, path: str) -> None:
        nonlocal seen
        if name == operation and re.search(pattern, path):
            seen += 1
            if seen == int(count):
                suspend()

    return storage.watch(watcher)


def suspend() -> None:
    """This process and all below it, the JVM's Python workers too, at one moment; not the shells that wait for their
    end to remove what they leave, which may soon be below nobody who would wake them."""
    import psutil

    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if process.name() != "sh":
                process.suspend()
    os.kill(os.getpid(), signal.SIGSTOP)


def keep_spark_inside(root: Path) -> None:
    """Point everything that chooses a place to write to below `root`.

    A standalone worker, and so `local-cluster`, puts its executors' logs below SPARK_HOME: it gets one of links.
    """
    import pyspark

    home = root / "spark"
    for directory in (home / "work", root / "tmp"):
        directory.mkdir(parents=True, exist_ok=True)
    for entry in Path(pyspark.__file__).parent.iterdir():
        link = home / entry.name
        if not link.exists():
            link.symlink_to(entry)
    os.environ["SPARK_HOME"] = str(home)
    os.environ["TMPDIR"] = str(root / "tmp")
    os.environ["JAVA_TOOL_OPTIONS"] = f"-Djava.io.tmpdir={root}/tmp {quick_to_start()}"


if __name__ == "__main__":
    main()
