"""Queries of filters and projections alone are written by map tasks, each row once, whatever happens to their tasks."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from chaos_flows import rows
from engine_harness import DirectQuery
from forking import fork
from group_by_oracle import source
from hypothesis import given
from hypothesis import strategies as st
from oracle import batch_join, connect_duckdb, multiset, on_time
from specs import SECOND

from sluice.api.stream import DataStream
from sluice.model.errors import EvaluationError
from sluice.model.plan.plan import Plan
from sluice.model.plan.planning import plan_of
from sluice.policies import NAMES
from sluice.sql import translate
from sluice.state.files import storage

A, B = source("a", delay=2 * SECOND), source("b", delay=None)
FAST = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
STATELESS = {
    "SELECT k, v FROM a WHERE v > 2": A.filter("v > 2").select("k", "v"),
    "SELECT * FROM a": A,
    "SELECT v * 2 AS twice, ts FROM a WHERE w > 0 AND k = 1": A.filter("w > 0")
    .filter("k = 1")
    .select("v * 2 AS twice", "ts"),
    "SELECT k FROM b WHERE v IS NULL": B.filter("v IS NULL").select("k"),
    "SELECT k, w FROM b WHERE v BETWEEN 0 AND 4 OR w < 0": B.filter("v BETWEEN 0 AND 4 OR w < 0").select("k", "w"),
}


def plan(streams: list[DataStream]) -> Plan:
    return plan_of([s.relation for s in streams])


def answers(plan: Plan, texts: list[str], seen: dict[str, list[pa.Table]]) -> list:
    """Each text's answer over the rows of the streams that were not late."""
    with connect_duckdb() as db:
        for stream in plan.sources:
            db.register(stream.name, on_time(seen[stream.name], "ts", stream.delay)[0])
        return [multiset(db.sql(text).to_arrow_table()) for text in texts]


def epoch_rows(plan: Plan, epoch: int, seed: int = 0, count: int = 40) -> list[pa.Table]:
    rng = np.random.default_rng((seed, epoch))
    return [rows(rng, count, epoch * 4 * SECOND, 3 * SECOND, 4, nulls=True) for _ in plan.sources]


@given(st.data())
def test_every_row_that_is_not_late_is_written_once(data):
    """Beside a join or not, on any sites and map tasks, with restarts and epochs that are asked for again."""
    texts = data.draw(st.lists(st.sampled_from(sorted(STATELESS)), min_size=1, max_size=5))
    joined = [A.join(B, on="k", within="3 seconds")] if data.draw(st.booleans()) else []
    flow = plan([STATELESS[text] for text in texts] + joined)
    seed, seen = data.draw(st.integers(0, 1000)), {stream.name: [] for stream in flow.sources}
    with tempfile.TemporaryDirectory(dir=FAST) as directory:

        def start() -> DirectQuery:
            sites, map_tasks = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 3))
            return DirectQuery(flow, Path(directory), sites, partitions=4, map_tasks=map_tasks)

        query = start()
        for epoch in range(data.draw(st.integers(1, 5))):
            new = epoch_rows(flow, epoch, seed, data.draw(st.sampled_from([0, 1, 40])))
            query.run(new)
            for stream, table in zip(flow.sources, new, strict=True):
                seen[stream.name].append(table)
            if data.draw(st.integers(0, 2)) == 0:
                query.close()
                query = start()
                query.run(new, number=epoch)
        assert [multiset(query.results(i)) for i in range(len(texts))] == answers(flow, texts, seen)
        assert query.epochs.history()[-1].stats.rows_in == sum(table.num_rows for table in new)
        if joined:
            good = [on_time(seen[s.name], "ts", s.delay)[0] for s in joined[0].relation.origin.spec.streams]
            expected = batch_join(joined[0].relation.origin.spec, good)
            assert multiset(query.results(len(texts))) == multiset(expected)
        query.close()


def test_nothing_crosses_the_exchange_for_them_and_results_are_counted(tmp_path):
    flow = plan([STATELESS["SELECT * FROM a"]])
    query, sent = DirectQuery(flow, tmp_path), []
    split = query.split
    query.split = lambda *of: sent.append(split(*of)) or sent[-1]
    query.run(epoch_rows(flow, 0))
    assert {number for _, number, _ in sent[0]} == {-1}  # reports alone
    stats = query.epochs.record.stats
    assert stats.rows_out == query.results().num_rows == stats.rows_in - stats.null_rows > 0
    assert query.epochs.record.routing.units == 0
    query.close()


@pytest.mark.parametrize("name", NAMES)
def test_any_policy_runs_where_there_is_no_unit(tmp_path, name):
    flow = plan([STATELESS["SELECT * FROM a"]])
    query = DirectQuery(flow, tmp_path, wanted=name, most_sites=3)
    for epoch in range(4):
        query.run(epoch_rows(flow, epoch))
        query.follow()
    query.run_idle_epoch()
    query.drain()
    seen = {"a": [epoch_rows(flow, epoch)[0] for epoch in range(4)]}
    assert [multiset(query.results())] == answers(flow, ["SELECT * FROM a"], seen)
    query.close()


def test_parts_of_attempts_that_the_sites_did_not_take_in_do_not_count(tmp_path):
    """Half of the blobs are of a second attempt at the split: the epoch is run again, and its own parts count."""

    class Unsteady(DirectQuery):
        jobs = 0

        def split(self, split, rows):
            self.jobs += 1
            sent, other = (DirectQuery.split(self, split, rows) for _ in range(2))
            if self.jobs > 2:
                return sent
            first = self.site_keys[0]
            return [*(blob for blob in sent if blob[0] == first), *(blob for blob in other if blob[0] != first)]

    flow = plan([STATELESS["SELECT * FROM a"]])
    query = Unsteady(flow, tmp_path)
    query.run(epoch_rows(flow, 0))
    assert query.jobs == 3
    assert [multiset(query.results())] == answers(flow, ["SELECT * FROM a"], {"a": epoch_rows(flow, 0)})
    query.close()
    waiting = [name for _, _, names in os.walk(tmp_path / "out") for name in names if name.endswith(".parquet")]
    assert len(waiting) == len(query.epochs.record.parts) == 2  # what the other attempts wrote is gone


def test_a_driver_that_dies_at_any_file_operation_loses_and_repeats_nothing(tmp_path):
    """The process dies just before each file operation of an epoch in turn; the next one goes on."""
    texts = ["SELECT k, v FROM a WHERE v > 2", "SELECT k FROM b WHERE v IS NULL"]
    flow = plan([STATELESS[text] for text in texts])
    seen = {stream.name: [epoch_rows(flow, e)[i] for e in (0, 1)] for i, stream in enumerate(flow.sources)}
    expected = answers(flow, texts, seen)
    for operation in range(1000):
        with tempfile.TemporaryDirectory(dir=FAST) as directory:
            died = _die_at(flow, Path(directory), operation)
            query = DirectQuery(flow, Path(directory))
            for epoch in range(query.next, 2):
                query.run(epoch_rows(flow, epoch))
            if query.next == 2:
                query.run(epoch_rows(flow, 1), number=1)
            assert [multiset(query.results(i)) for i in range(2)] == expected, operation
            query.close()
        if not died:
            assert operation > 20
            return


def _die_at(flow: Plan, root: Path, operation: int) -> bool:
    child = fork()
    if child == 0:
        count = 0

        def watcher(name: str, path: str) -> None:
            nonlocal count
            count += 1
            if count > operation:
                os._exit(9)

        query = DirectQuery(flow, root)
        query.run(epoch_rows(flow, 0))
        with storage.watch(watcher):
            query.run(epoch_rows(flow, 1))
        os._exit(0)
    return os.waitpid(child, 0)[1] != 0


def test_sql_text_without_a_join_or_a_group_by(tmp_path):
    text = "SELECT k, v + 1 AS more FROM a WHERE v > 2 AND w > 0"
    flow = plan([translate(text, {"a": A, "b": B}, None, None)])
    query = DirectQuery(flow, tmp_path)
    query.run(epoch_rows(flow, 0))
    assert [multiset(query.results())] == answers(flow, [text], {"a": epoch_rows(flow, 0)})
    query.close()


def test_an_expression_that_fails_names_the_stream(tmp_path):
    flow = plan([A.select("1 div (v - v) AS x")])
    query = DirectQuery(flow, tmp_path)
    with pytest.raises(EvaluationError, match="stream 'a', column 'x'"):
        query.run(epoch_rows(flow, 0))
    query.close()


def test_explain_tells_of_streams_that_are_written_as_they_are():
    flow = plan([STATELESS["SELECT k, v FROM a WHERE v > 2"], STATELESS["SELECT * FROM a"]])
    assert flow.describe() == "Result: stream 'a'; where v > 2; of it k, v\nResult: stream 'a'"
    assert [flow.describe_output(i) for i in range(2)] == ["stream 'a'; where v > 2; of it k, v", "stream 'a'"]
