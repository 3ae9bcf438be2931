"""What is counted of a flow's queries: rows, results, seconds, delay and state, of each that has something to do."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from engine_harness import CountingClock, DirectQuery
from group_by_oracle import source
from specs import SECOND

from sluice.control.journal import Journal
from sluice.model.plan.relation import plan_of
from sluice.state.files.storage import Storage

A, B = source("a"), source("b")


def rows(*times: float, key: int = 1) -> pa.Table:
    count = len(times)
    columns = [[key] * count, pa.array([int(t * SECOND) for t in times], pa.timestamp("us", "UTC")), [1] * count]
    return pa.table([*columns, [1.0] * count], schema=A.stream.schema)


NOTHING = rows()


def test_what_had_nothing_to_do_has_no_entry(tmp_path):
    queries = [A.groupBy("k").last(2).agg(n=("*", "count")), B.groupBy("k").last(2).agg(n=("*", "count"))]
    query = DirectQuery(plan_of([q.relation for q in [*queries, A.filter("v > 0"), B.filter("v > 0")]]), tmp_path)
    query.run([NOTHING, rows(1, 2, 3)])
    stats = query.epochs.record.stats
    assert stats.operators.operator.tolist() == [1]
    assert (stats.operators.rows_in.tolist(), stats.outputs.output.tolist()) == ([3], [1, 3])
    query.run([NOTHING, NOTHING])
    stats = query.epochs.record.stats
    assert not len(stats.operators.operator) and not len(stats.outputs.output)
    query.run([rows(4, 5), NOTHING])
    stats = query.epochs.record.stats
    assert (stats.operators.operator.tolist(), stats.outputs.rows.tolist()) == ([0], [2, 2])
    again = Journal(Storage(str(tmp_path / "checkpoint"))).epochs()[-1].stats
    assert np.array_equal(again.operators.seconds, stats.operators.seconds)
    query.close()


def test_a_delay_goes_to_the_moment_the_site_was_through_with_the_rows(tmp_path):
    """Not to the end of the epoch, which is the same for all."""
    queries = [A.groupBy("k").last(count).agg(n=("*", "count")) for count in (2, 3, 4)]
    filtered = A.filter("v > 0")
    plan = plan_of([q.relation for q in [*queries, filtered]])
    query = DirectQuery(plan, tmp_path, sites=1, map_tasks=1, clock=CountingClock())
    query.run([rows(1, 2, 3)])
    record = query.epochs.record
    delays = record.stats.operators.delay.tolist()
    assert delays == sorted(delays) and len(set(delays)) == 3
    assert 0 < record.stats.outputs.delay[-1] < delays[0]  # the map task was through before any site began
    assert delays[-1] < record.stats.committed_at - record.turns[-1].now
    assert all(0 < s <= d for s, d in zip(record.stats.operators.longest.tolist(), delays, strict=True))
    query.close()
