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

for profile, max_examples in (("default", 5), ("long", 50), ("thorough", 1000)):
    # every run draws other examples, and `make test-slow` runs the same properties again with "long"
    settings.register_profile(
        profile, deadline=None, suppress_health_check=list(HealthCheck), max_examples=max_examples
    )
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


OWN_CLUSTERS = ("tests/spark/test_kills.py", "tests/spark/test_sites.py", "tests/spark/test_suspended_drivers.py")
"""Files whose tests start Spark themselves, several times."""


def uses_session(file: str) -> bool:
    """Whether a file's tests need the session that they share."""
    return file.startswith("tests/spark/") and file not in OWN_CLUSTERS


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes one process long comes first, or it would be left with that at the end."""

    def rank(item: pytest.Item) -> int:
        file = item.nodeid.partition("::")[0]
        return 0 if uses_session(file) else 1 if file in OWN_CLUSTERS else 2

    items.sort(key=rank)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With `--dist loadfile`, one process has all tests of the shared session: so it is started and warmed up once."""
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class OneSession(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file: str = super()._split_scope(nodeid)
            return "the shared session" if uses_session(file) else file

    return OneSession(config, log)


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

    from sluice.spark.starting import active_queries

    before = workspaces(spark)
    yield
    for running in active_queries():
        running.stop()
    assert workspaces(spark) == before
