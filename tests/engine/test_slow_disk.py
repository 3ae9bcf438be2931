"""A disk that is slow on purpose: what lies on the local disk, and what is frozen, takes as long as was asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from engine_harness import DirectQuery
from specs import SECOND, TIME, join, stream

from sluice.model.clock import SystemClock
from sluice.model.codec import checksum
from sluice.model.durations import LONGEST
from sluice.state.files.disk_speed import DiskSpeed
from sluice.state.files.local_files import LocalFiles
from sluice.verbs.freeze import Freeze

UNITS, DELAY = 4, 1e-6
DATA = pa.py_buffer(bytes(5000))


class SleepCounter(SystemClock):
    """Counts the seconds instead of letting them pass."""

    def __init__(self) -> None:
        self.slept = 0.0

    def sleep(self, seconds: float) -> None:
        self.slept += seconds


class SlowDisks(DirectQuery):
    """A query at sites with slow disks that all go by one clock."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.clock = SleepCounter()
        self.epochs.settings.emulation.disk_delay = DELAY

    def slept_bytes(self) -> int:
        """Bytes that were slept for since the last time."""
        slept, self.clock.slept = round(self.clock.slept / DELAY), 0.0
        return slept


def both(epoch: int, rows: int = 500) -> list[pa.Table]:
    """As many rows of both streams."""
    times = pa.array([epoch * SECOND + i for i in range(rows)], TIME)
    return [pa.table([[i % 50 for i in range(rows)], times, list(range(rows))], stream("a").schema)] * 2


def test_a_slow_disk_takes_its_time_for_all_that_is_written_and_read(tmp_path: Path) -> None:
    clock = SleepCounter()
    slow = LocalFiles(str(tmp_path / "disk"), speed=DiskSpeed(clock, DELAY))
    slow.write("a", [DATA, DATA])
    assert clock.slept == pytest.approx(10_000 * DELAY)
    for _ in range(2):  # there is no cache in front of it
        slow.map("a", checksum(pa.py_buffer(bytes(10_000))))
    assert clock.slept == pytest.approx(30_000 * DELAY)


def test_what_is_frozen_is_written_and_read_slowly_and_new_state_is_not(tmp_path: Path) -> None:
    query = SlowDisks(join([stream("a"), stream("b")], LONGEST), tmp_path, 2, UNITS)
    query.run(both(1))
    query.run(both(2))
    assert query.slept_bytes() == 0
    for unit in range(UNITS):
        query.epochs.settings.controller.ask(Freeze(unit, "to see"))
    query.run(both(3, rows=0))
    frozen = sum(site.frozen_bytes for site in query.epochs.record.stats.sites)
    assert frozen > 2 * 2 * 500 * 32 and query.slept_bytes() == frozen
    query.run(both(4))
    assert query.slept_bytes() == 0  # nobody reads it
    query.drain()
    fetched = sum(site.fetched_bytes for r in query.epochs.history() for site in r.stats.sites)
    assert query.slept_bytes() >= fetched >= frozen
    query.close()


def test_units_on_a_slow_disk_are_slow_to_come_and_go(tmp_path: Path) -> None:
    query = SlowDisks(join([stream("a"), stream("b")], LONGEST), tmp_path, 1, UNITS, memory=40_000, spill="unit")
    query.run(both(1))
    query.run(both(2))
    spilled = sum(site.spilled_bytes for site in query.epochs.record.stats.sites)
    assert query.slept_bytes() >= spilled > 0
    query.close()
