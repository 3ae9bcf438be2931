"""Shared by all tests: Hypothesis settings, one Spark session, and a watch for anything left behind."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

SUPPORT = Path(__file__).parent / "support"
sys.path.insert(0, str(SUPPORT))  # what test files share
pytest.register_assert_rewrite(*(module.stem for module in SUPPORT.glob("*.py")))  # failures there tell values, too
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # tests start many processes: none compiles what another one has
sys.dont_write_bytecode = False
MEMORY = "/dev/shm"
if os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > 4 << 30:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", MEMORY)  # of `tmp_path`: there, no test waits for a disk

for profile, max_examples in (("default", 12), ("long", 50), ("thorough", 1000)):
    # every run draws other examples, and `make test-slow` runs the same properties again with "long"
    settings.register_profile(
        profile, deadline=None, suppress_health_check=list(HealthCheck), max_examples=max_examples
    )
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


LONG = ("test_kills.py", "test_crashes.py", "test_sites.py", "test_suspended_drivers.py", "test_files_as_spark.py")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files of few tests that take long come first, or one process would be left with them at the end."""
    items.sort(key=lambda item: LONG.index(item.path.name) if item.path.name in LONG else len(LONG))


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """One local session for all tests that need Spark."""
    from pyspark.sql import SparkSession
    from quick_jvm import INTERPRETED, quick_to_start

    session = (
        SparkSession.builder.master("local[2]")
        .appName("sluice-tests")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.extraJavaOptions", quick_to_start())
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config(map=INTERPRETED)
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture(scope="module")
def compiled_queries(spark: Any) -> Iterator[None]:
    """Spark compiles expressions, as it does for users: for tests whose oracle they are."""
    from quick_jvm import COMPILED, INTERPRETED

    for setting, value in COMPILED.items():
        spark.conf.set(setting, value)
    yield
    for setting, value in INTERPRETED.items():
        spark.conf.set(setting, value)


@pytest.fixture
def nothing_stays(spark: Any) -> Iterator[None]:
    """After a test no query runs, and no directory of a local tier is left."""
    from arrivals import workspaces

    before = workspaces(spark)
    yield
    for query in spark.streams.active:
        query.stop()
    assert workspaces(spark) == before
