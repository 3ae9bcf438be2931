"""What is counted of a flow's queries: rows, results, seconds, delay and state, of each that has something to do."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from engine_harness import DirectQuery
from group_by_oracle import source
from specs import SECOND

from sluice.api.query import Query
from sluice.api.stream import DataStream
from sluice.control.journal import Journal
from sluice.model.clock import SystemClock
from sluice.model.errors import QueryError, StorageError
from sluice.model.ids import Site
from sluice.model.plan.plan import Plan
from sluice.model.plan.planning import plan_of
from sluice.state.files.storage import Storage
from sluice.testing.clocks import CountingClock

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


def test_units_take_the_time_that_an_experiment_has_their_rows_take(tmp_path):
    """As their site and their operators do."""

    class Sleepless(SystemClock):
        def sleep(self, seconds: float) -> None:
            """At once."""

    plan = plan_of([A.groupBy("k").last(2).agg(n=("*", "count")).relation])
    query = DirectQuery(plan, tmp_path, sites=1, map_tasks=1, clock=Sleepless())
    query.epochs.settings.emulation.row_delay[Site(0)] = 10.0
    query.run([rows(1, 2, 3)])
    stats = query.epochs.record.stats
    assert stats.units.seconds.sum() == pytest.approx(30, abs=5)
    assert stats.operators.seconds.sum() == pytest.approx(30, abs=5)
    query.close()


def handle(query: DirectQuery) -> Query:
    """The handle of a query that runs without Spark."""
    running: Any = SimpleNamespace(epochs=query.epochs, plan=query.plan)
    return Query(running, {})


def named(**queries: DataStream) -> Plan:
    return plan_of([stream.relation for stream in queries.values()], tuple(queries))


PAIRS = A.join(B, on="k", within="4 seconds")
CLOSE = A.join(B, on="k", within="2 seconds")
COUNTS = PAIRS.groupBy("a_k").last(2).agg(n=("*", "count"))


def test_an_operator_of_several_queries_is_divided_among_them(tmp_path):
    """Three queries use one join, and a fourth reads its states."""
    plan = named(pairs=PAIRS, same=PAIRS.filter("a_v > 0"), counts=COUNTS, close=CLOSE, large=A.filter("v > 1"))
    query = DirectQuery(plan, tmp_path, sites=2)
    query.run([rows(1, 2, 3), rows(1, 2)])
    query.run([rows(4), rows(9, key=2)])
    pairs, same, counts, close, large = handle(query).queries()
    assert [one.name for one in handle(query).queries()] == ["pairs", "same", "counts", "close", "large"]
    assert pairs.rows_in == same.rows_in == 7 / 3 and close.rows_in == 7
    assert pairs.results == same.results == query.results(0).num_rows > 0
    assert counts.rows_in == 7 / 3 + pairs.results
    assert pairs.own_bytes == 0 and pairs.shared_bytes == same.shared_bytes == close.shared_bytes > 0
    assert counts.own_bytes > 0 and counts.shared_bytes == pairs.shared_bytes
    stored = sum(run.bytes for manifest in query.epochs.record.manifests for run in manifest)
    in_all = sum(one.own_bytes + one.shared_bytes for one in handle(query).queries())
    assert abs(in_all - stored) < 5
    assert (large.rows_in, large.results, large.sites, large.own_bytes) == (4, 0, (), 0)
    assert pairs.delay is not None and pairs.performance_ratio >= 1 and large.delay is None
    total = sum(r.stats.operators.seconds.sum() for r in query.epochs.standing.recent)
    assert abs(sum(one.seconds for one in (pairs, same, counts, close)) - total) < 1e-5
    query.close()


def test_a_query_is_where_its_units_are(tmp_path):
    plan = named(pairs=PAIRS, theta=A.join(B, within="1 second", where="a.v > b.v"))
    query = DirectQuery(plan, tmp_path, sites=3, partitions=8)
    query.run([rows(1), rows(1)])
    pairs, theta = handle(query).queries()
    assert pairs.sites == (0, 1, 2) and len(theta.sites) == 1
    query.close()


def test_explain_of_one_query_says_with_whom_it_shares(tmp_path, capsys):
    others = {f"filtered{i}": PAIRS.filter(f"a_v > {i}") for i in range(8)}
    plan = named(counts=COUNTS, close=CLOSE, large=A.filter("v > 1").select("k"), **others)
    query = DirectQuery(plan, tmp_path, sites=2, partitions=4)
    query.run([rows(1, 2, 3), rows(1, 2)])
    for name in ("COUNTS", "large"):
        handle(query).explain(name)
    said = capsys.readouterr().out
    first = "'filtered0', 'filtered1', 'filtered2', 'filtered3', 'filtered4' and 3 more"
    assert f"Operator 1: Window join; shared with {first}\n" in said
    assert "State of 'b' by (k): " in said and "shared with 'close', 'filtered0'" in said
    assert "Query 'counts', to parquet\n" in said and "Units 0-3 at sites 0, 1\n" in said
    assert "Stream 'a', read by map tasks; no state\nResult: where v > 1\nResult: of it k\n" in said
    with pytest.raises(QueryError, match="no query 'count', perhaps 'counts' is meant; this flow has 'counts'"):
        handle(query).explain("count")
    query.close()


def test_explain_says_why_a_query_was_set_aside(tmp_path, capsys, monkeypatch):
    """While it is in the plan, with all that it has there, and when it is dropped."""
    queries = {"pairs": PAIRS.relation, "large": A.filter("v > 0").relation}
    query = DirectQuery(queries, tmp_path, sites=1, streams=(A.stream, B.stream))

    def refuse(results: object) -> None:
        raise StorageError("the disk is full")

    monkeypatch.setattr(query.sinks[1], "deliver", refuse)
    query.run([rows(1), rows(1)])
    why = "Set aside: the results of epoch 0 could not be shown: StorageError: the disk is full\n"
    handle(query).explain("large")
    assert capsys.readouterr().out.startswith(f"Query 'large', to parquet\n{why}Stream 'a', read by map tasks")
    query.run([rows(2), rows(2)])
    assert [output.name for output in query.plan.outputs] == ["pairs"]
    handle(query).explain("Large")
    assert capsys.readouterr().out == f"Query 'large', to parquet\n{why}"
    query.close()
