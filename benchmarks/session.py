"""The Spark session that Sluice and Spark's own join both run in."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from benchmarks.measure import MEMORY


@contextmanager
def session(master: str, conf: Mapping[str, str]) -> Iterator[SparkSession]:
    builder = SparkSession.builder.master(master).appName("benchmark")
    quiet = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.driver.memory": MEMORY,
    }
    for key, value in (quiet | dict(conf)).items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    try:
        yield spark
    finally:
        spark.stop()


@contextmanager
def scratch(beside: Path) -> Iterator[Path]:
    """A directory for checkpoints and results, on the disk that holds the data."""
    path = Path(tempfile.mkdtemp(prefix="run-", dir=beside))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def schema(columns: tuple[tuple[str, str], ...]) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in columns)
