"""Drivers on Spark that are suspended, JVM and workers and all, while another one takes their checkpoint over, and are
woken later: nothing is lost, nothing comes twice, and whoever lost the checkpoint is told to whom.

The slow test is a relay: each driver takes over from the one before, goes on until it is suspended itself, and then
those before it are woken. So every suspended driver costs one start of Spark.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pytest
import spark_listing
from kill_leftovers import assert_nothing_left, local_leftovers, processes
from kill_rows import OUTPUTS, answer_tables, write_files
from kills import Job
from oracle import connect_duckdb
from suspension import names_drivers

from sluice.control.journal import Journal
from sluice.state.files.storage import Storage

ROWS = 100  # of a file


@dataclass(frozen=True)
class Point:
    """Where a driver is suspended: before this operation on such a path, when it comes to it for the so manyth time."""

    name: str
    operation: str
    pattern: str
    count: int = 1
    early: bool = False
    """Whether it may come before the driver has claimed the checkpoint: then it still may when it is woken."""
    epochs: int | None = None
    """After how many it is told to stop, unless it goes on."""


JOURNAL, LOG, OTHER_LOG = r"/ck/journal/", r"/out/_spark_metadata/", r"/bars/_spark_metadata/"
RELAY = (
    Point("commit of the first epoch", "finish", JOURNAL, 2),
    Point("before the claim", "put", JOURNAL, early=True),
    Point("first rename", "move", "/out/"),
    Point("claim drafted", "finish", JOURNAL, early=True),
    Point("second rename", "move", "/out/", 2),
    Point("output opened", "list", r"/out/_spark_metadata$", early=True),
    Point("rename of the second epoch", "move", "/out/", 5),
    Point("rename into the second output", "move", "/bars/"),
    Point("before the first list", "write", LOG),
    Point("first list drafted", "finish", LOG),
    Point("before the list of the second output", "write", OTHER_LOG),
    Point("list of the second output drafted", "finish", OTHER_LOG),
    Point("tidying at the start", "list", r"/ck/state$", early=True),
    Point("before the commit of the second epoch", "put", JOURNAL, 3),
    Point("commit of the second epoch drafted", "finish", JOURNAL, 3),
    Point("first deleted state", "delete", "/ck/state/"),
    Point("third deleted state", "delete", "/ck/state/", 3),
    Point("tidying of results at the start", "list", r"/out/_sluice-[^/]*$", 2, early=True),
    Point("tidying after the first epoch", "list", r"/ck/state$", 2),
    Point("tidying of results after the first epoch", "list", r"/bars/_sluice-[^/]*$", 4),
    Point("before the second list", "write", LOG, 2),
    Point("second list drafted", "finish", LOG, 2),
    Point("before the second list of the second output", "write", OTHER_LOG, 2),
    Point("before all lists become one", "write", r"/out/_spark_metadata/\d+\.compact"),
    Point("checkpoint read", "list", r"/ck/journal$", early=True),
    Point("all lists drafted as one", "finish", r"/bars/_spark_metadata/\d+\.compact"),
    Point("first deleted list", "delete", r"/out/_spark_metadata/\d+(\.compact)?$"),
    Point("fourth deleted list of the second output", "delete", r"/bars/_spark_metadata/\d+(\.compact)?$", 4),
    Point("tidying at the end", "list", r"/ck/state$", 3, epochs=2),
    Point("tidying of results at the end", "list", r"/out/_sluice-[^/]*$", 6, epochs=2),
    Point("last rename of the third epoch", "move", "/bars/", 6),
    Point("first list after the third epoch", "write", LOG, 3),
    Point("deleted record", "delete", r"/ck/journal/\d+\.json$"),
)
FILES = 160  # a stream: enough for all of them, and for the journal to forget its first epochs


class Driver(Job):
    """A driver that is suspended at a point, or at none."""

    def __init__(self, root: Path, number: int, point: Point | None) -> None:
        options = ["--master", "local[2]"]
        if point:
            options += ["--suspend-at", point.operation, point.pattern, str(point.count)]
        epochs = 2 if point and point.early else point and point.epochs
        if epochs:
            options += ["--epochs", str(epochs)]
        super().__init__(root, *options)
        self.point, self.starts = point, number
        self.log = root / f"log-{number}"
        self.start()
        self.pid = self.process.pid

    @property
    def suspended(self) -> bool:
        with suppress(psutil.NoSuchProcess):
            return psutil.Process(self.pid).status() == psutil.STATUS_STOPPED
        return False

    def wake(self) -> None:
        for process in [*psutil.Process(self.pid).children(recursive=True), psutil.Process(self.pid)]:
            with suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGCONT)
        self.wait_for("end after it was woken", lambda: not self.running, ending=True)

    def error(self) -> str:
        file = self.root / f"error-{self.pid}"
        return file.read_text() if file.exists() else ""


class Relay:
    """Drivers on one checkpoint, one after the other."""

    def __init__(self, root: Path, files: int) -> None:
        self.root, self.files = root, files
        self.drivers: list[Driver] = []
        self.waiting: list[Driver] = []
        write_files(root, files, ROWS)

    def hand_over(self, point: Point | None) -> None:
        """The next driver takes over until it is suspended, or done; then those before are woken."""
        driver = Driver(self.root, len(self.drivers), point)
        self.drivers.append(driver)
        driver.wait_for(f"suspension at {point}", lambda: driver.suspended or not driver.running, ending=True)
        if point is None:
            assert driver.process.returncode == 0, driver.tail()
        else:
            assert driver.suspended, driver.ended_before(point)
        if point is None or not point.early:  # else nobody has taken over yet
            before, self.waiting = self.waiting, []
            for one in before:
                self.wake(one)
        if point is not None:
            self.waiting.append(driver)
        self.assert_nothing_twice()

    def wake(self, driver: Driver) -> None:
        driver.wake()
        if not driver.error() and (driver.point.early or driver.point.epochs):
            return  # it took over once more, or had come to its end
        others = [d.pid for d in self.drivers if d is not driver]
        error = driver.error()
        assert any(names_drivers(error, driver.pid, other) for other in others), f"{driver.point}: {error}"

    def assert_nothing_twice(self) -> None:
        for output, answer in zip(OUTPUTS, answer_tables(self.files, ROWS), strict=True):
            for reader in (spark_listing.by_listing, spark_listing.by_metadata):
                shown = spark_listing.read(reader(self.root / output), answer.schema)
                assert beyond(shown, answer) == 0, f"{output} {reader.__name__}"

    def assert_exact(self, spark: Any) -> None:
        self.assert_nothing_twice()
        for output, answer in zip(OUTPUTS, answer_tables(self.files, ROWS), strict=True):
            for reader in (spark_listing.by_listing, spark_listing.by_metadata):
                shown = spark_listing.read(reader(self.root / output), answer.schema)
                assert beyond(answer, shown) == 0, f"{output} {reader.__name__}"
            assert spark.read.parquet(str(self.root / output)).count() == answer.num_rows

    def assert_nothing_left(self) -> None:
        assert_nothing_left(self.root, local_leftovers)
        record = Journal(Storage(str(self.root / "ck"))).newest().record
        assert {f"state/{p.name}" for p in (self.root / "ck" / "state").iterdir()} == record.files()
        for output in OUTPUTS:
            assert not list((self.root / output).glob("_sluice-*/*"))


def beyond(rows: pa.Table, other: pa.Table) -> int:
    """How many of these rows the other does not have, or not so often."""
    with connect_duckdb() as db:
        return db.sql("SELECT count(*) FROM (FROM rows EXCEPT ALL FROM other)").fetchall()[0][0]


def start_relay(root: Path, files: int) -> Iterator[Relay]:
    try:
        yield Relay(root, files)
    finally:
        for process in processes(root):
            with suppress(psutil.NoSuchProcess):
                os.kill(process.pid, signal.SIGKILL)


@pytest.fixture
def short_relay(tmp_path) -> Iterator[Relay]:
    yield from start_relay(tmp_path, 4)


@pytest.fixture(scope="module")
def relay(tmp_path_factory) -> Iterator[Relay]:
    yield from start_relay(tmp_path_factory.mktemp("relay"), FILES)


@pytest.mark.slow
@pytest.mark.spark
def test_a_driver_suspended_while_it_shows_results(short_relay, spark):
    short_relay.hand_over(Point("first rename", "move", "/out/"))
    short_relay.hand_over(None)
    short_relay.assert_exact(spark)
    short_relay.assert_nothing_left()


@pytest.mark.slow
@pytest.mark.parametrize("point", RELAY, ids=lambda point: point.name.replace(" ", "-"))
def test_a_driver_suspended(relay, point):
    relay.hand_over(point)


@pytest.mark.slow
def test_after_all_suspensions(relay, spark):
    relay.hand_over(None)
    relay.assert_exact(spark)
    relay.assert_nothing_left()
