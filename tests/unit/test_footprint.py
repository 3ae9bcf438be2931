"""A run's processor time is that of all its processes, of those too that were never seen."""

from __future__ import annotations

import subprocess
import sys
from typing import ClassVar

import pytest

from benchmarks.footprint import Footprint, Times, worked

BURN = "import time\nwhile time.process_time() < 0.3: pass"
RUN_SHORT_ONES = f"""
import subprocess, sys
for _ in range(4):
    subprocess.run([sys.executable, "-c", {BURN!r}])
print("done", flush=True)
sys.stdin.read()
"""


class TestWorked:
    BEFORE: ClassVar[dict[int, Times]] = {1: Times(0, 5.0, 1.0), 2: Times(1, 3.0, 0.5), 3: Times(2, 7.0)}

    def test_children_that_were_never_seen_count(self) -> None:
        assert worked(self.BEFORE, self.BEFORE | {1: Times(0, 6.0, 1.25)}) == 1.25
        assert worked(self.BEFORE, self.BEFORE | {4: Times(1, 0.5, 2.0)}) == 2.5

    def test_a_child_that_was_seen_is_not_counted_again(self) -> None:
        waited_for = {1: self.BEFORE[1], 2: Times(1, 3.0, 0.5 + 7.0 + 0.25)}
        assert worked(self.BEFORE, waited_for) == 0.25
        assert worked(waited_for, {1: Times(0, 5.0, 1.0 + 3.0 + 7.75)}) == 0

    def test_nor_are_a_child_and_its_own_that_end_together(self) -> None:
        assert worked(self.BEFORE, {1: Times(0, 5.0, 1.0 + 3.5 + 7.0 + 0.25)}) == 0.25

    def test_what_nobody_has_waited_for_stays_counted(self) -> None:
        assert worked(self.BEFORE, {1: Times(0, 5.5, 1.0 + 3.5)}) == 0.5


@pytest.mark.parametrize("period", [0.01, 60.0], ids=["seen", "never seen"])
def test_short_commands_are_their_parents(period: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.footprint.PERIOD", period)
    monkeypatch.setattr("benchmarks.footprint.LARGEST_SHARE", 1.0)
    words = [sys.executable, "-c", RUN_SHORT_ONES]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        with Footprint(process.pid) as footprint:
            assert process.stdout.readline() == "done\n"
        footprint._sample()  # of the end, when all have been waited for
    assert 4 * 0.3 <= footprint.cpu_seconds < 4 * 0.3 + 0.6
