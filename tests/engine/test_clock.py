"""Nothing in the engine looks at the machine's clock: what is measured and noted is by the clock that is handed in."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from engine_harness import DirectQuery
from specs import SECOND, TIME, join, stream

from sluice.model.epoch.stats import EpochStats
from sluice.testing.clocks import CountingClock


def rows(epoch: int) -> list[pa.Table]:
    times = pa.array([epoch * SECOND + i for i in range(100)], TIME)
    return [pa.table([[i % 10 for i in range(100)], times, list(range(100))], stream("a").schema)] * 2


def run_by_counting(root: Path) -> list[EpochStats]:
    """The statistics of a query's epochs, its last one's as they were measured when its results had been shown."""
    root.mkdir()
    query = DirectQuery(join([stream("a"), stream("b")], SECOND), root, clock=CountingClock())
    for epoch in range(3):
        query.run(rows(epoch))
    query.close()
    return [*(record.stats for record in query.epochs.standing.recent), query.epochs.measured]


def test_every_second_of_an_epoch_is_of_the_clock_that_was_handed_in(tmp_path):
    stats = run_by_counting(tmp_path / "once")
    assert [(s.seconds, s.committed_at) for s in stats] == [
        (s.seconds, s.committed_at) for s in run_by_counting(tmp_path / "again")
    ]
    for one in stats:
        assert 0 < one.committed_at < 1e4, "the machine's clock is half a century ahead"
        assert one.seconds.tasks.split > 0 and one.seconds.total >= one.seconds.elapsed > 0
