"""Which runs and micro-batches of a contender count."""

from __future__ import annotations

import pytest

from benchmarks import measure
from benchmarks.measure import Batch, run_warm, streamed, time_warm


class Clock:
    """The time, which passes as batches run."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.runs = 0.0, 0
        monkeypatch.setattr(measure.time, "monotonic", lambda: self.now)

    def run(self, *batches: Batch) -> list[Batch]:
        self.runs += 1
        self.now += sum(batch.seconds for batch in batches)
        return list(batches)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def test_rows_are_taken_in_again_until_the_first_batch_that_counts_begins_warm(clock):
    run = run_warm(lambda: clock.run(Batch(10, 4), Batch(10, 1 + clock.runs), Batch(10, 2)), fill_rows=0)
    assert clock.runs == 4  # those before took 7, 8 and 9 s
    assert [batch.seconds for batch in run] == [4, 4, 2]
    assert streamed(run, fill_rows=0)["warm_rate"] == (10 / 4 + 10 / 2) / 2


def test_who_fills_the_state_for_long_is_warm_at_once(clock):
    assert run_warm(lambda: clock.run(Batch(10, 15), Batch(10, 5), Batch(10, 5)), fill_rows=20)
    assert clock.runs == 1


def test_a_run_without_batches_that_count_ends(clock):
    with pytest.raises(SystemExit, match="filling the state"):
        run_warm(lambda: clock.run(Batch(10, 1)), fill_rows=20)


def test_runs_that_are_timed_as_a_whole_begin_warm():
    seconds = iter([9.0, 6.0, 5.0, 4.0, 3.0])
    assert time_warm(lambda: next(seconds), times=2, worked=8.0) == [5.0, 4.0]
