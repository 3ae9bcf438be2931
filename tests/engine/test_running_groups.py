"""Group-bys without a window: what changes add up to, and what is shown as a whole, is the batch query."""

from __future__ import annotations

import os
from collections import Counter
from datetime import datetime, timedelta, timezone
from typing import Any

import pyarrow as pa
import pytest
from epoch_results import EpochByEpoch
from group_by_oracle import source, sql
from hypothesis import given
from hypothesis import strategies as st
from oracle import connect_duckdb, on_time, rounded
from random_epochs import rows, run_and_look
from specs import KEYS, SECOND, TIME

from sluice import testing
from sluice.api.output_mode import OutputMode, in_mode
from sluice.api.request import read_request
from sluice.api.stream import DataStream
from sluice.kernels import grouping
from sluice.model.errors import FlowError
from sluice.model.plan.planning import plan_of
from sluice.model.plan.relation import Relation
from sluice.operators import running_groups

FAST = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
SOME = {
    "n": ("*", "count"),
    "have": ("v", "count"),
    "total": ("v", "sum"),
    "mean": ("v", "avg"),
    "low": ("v", "min"),
    "sd": ("w", "stddev"),
}
delays = st.sampled_from([None, 0, SECOND, 60 * SECOND])


def in_update_mode(result: DataStream) -> Relation:
    return in_mode(result.relation, OutputMode.UPDATE)


def in_complete_mode(result: DataStream) -> Relation:
    return in_mode(result.relation, OutputMode.COMPLETE)


def batch_groups(epochs: list[pa.Table], delay: int | None, keys: str = "k") -> Counter:
    """The groups of all rows that were not late."""
    with connect_duckdb() as db:
        db.register("a", on_time(epochs, "ts", delay)[0])
        by = f"GROUP BY {keys}" if keys else "HAVING count(*) > 0"
        return rounded(db.sql(f"SELECT {keys + ', ' if keys else ''}{sql(SOME)} FROM a {by}").to_arrow_table())


def groups_of(epochs: list[pa.Table], keys: int) -> Counter:
    """The newest result of each group, of results epoch by epoch; no epoch has two of one."""
    newest: dict[tuple, Any] = {}
    for table in epochs:
        results = rounded(table)
        groups = Counter(row[:keys] for row in results.elements())
        assert not groups or max(groups.values()) == 1
        newest.update({row[:keys]: row for row in results})
    return Counter(newest.values())


def check(data: st.DataObject, a: DataStream, results: list[DataStream], keys: int, values: Any) -> None:
    """Random epochs, moves, restarts; in little memory and time. After each epoch the table is that of the rows that
    were taken in, and in the end both are those of the batch query."""
    plan = plan_of([relation for result in results for relation in (in_update_mode(result), in_complete_mode(result))])
    changes: list[list[pa.Table]] = [[] for _ in results]

    def look(query: EpochByEpoch) -> None:
        for number in range(len(results)):
            changes[number].append(query.results_of_epoch(2 * number))
            table = query.results_of_epoch(2 * number + 1)
            assert rounded(table) == groups_of(changes[number], keys)

    tables = run_and_look(data, plan, lambda epoch: rows(a, values, epoch * SECOND, 2 * SECOND), look)
    for own in changes:
        assert groups_of(own, keys) == batch_groups(tables, a.stream.delay, "k" if keys else "")


@given(st.data(), st.sampled_from(sorted(KEYS)), delays)
def test_groups_of_all_rows_so_far(data, kind, delay):
    key, values = KEYS[kind]
    a = source("a", key, delay)
    check(data, a, [a.groupBy("k").agg(**SOME)], 1, values)


@given(st.data(), delays)
def test_one_group(data, delay):
    a = source("a", delay=delay)
    check(data, a, [a.groupBy().agg(**SOME)], 0, KEYS["long"][1])


@given(st.data(), delays)
def test_groups_that_share_a_hash(data, delay):
    with pytest.MonkeyPatch.context() as patch:
        same = lambda columns, *, rows=None: running_groups.np.zeros(rows or len(columns[0]), dtype="uint32")  # noqa: E731
        patch.setattr(grouping, "hash_group_keys", same)
        a = source("a", pa.string(), delay)
        check(data, a, [a.groupBy("k").agg(**SOME)], 1, KEYS["string"][1])


def moment(second: float) -> datetime:
    return datetime(2026, 1, 2, tzinfo=timezone.utc) + timedelta(seconds=second)


def table_of(a: DataStream, keys: list[int], times: list[int]) -> pa.Table:
    columns = [pa.array(keys), pa.array(times, TIME), pa.array([1] * len(keys)), pa.array([0.5] * len(keys))]
    return pa.table(columns, schema=a.stream.schema)


def test_a_table_in_pieces(tmp_path):
    """Of many groups so many at a time as bound the work."""
    a = source("a")
    result = a.groupBy("k").agg(n=("*", "count"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(running_groups, "ROWS_AT_ONCE", 7)
        query = EpochByEpoch(plan_of([in_complete_mode(result)]), tmp_path, sites=1)
        for epoch in range(5):
            query.run([table_of(a, list(range(100)), [epoch * SECOND] * 100)])
            assert rounded(query.results_of_epoch(0)) == Counter((k, epoch + 1) for k in range(100))
        query.close()


def test_state_is_one_partial_for_each_group(tmp_path):
    """Over many epochs it does not grow, and an epoch looks up the groups that it touches alone."""
    a = source("a")
    query = EpochByEpoch(plan_of([in_update_mode(a.groupBy("k").agg(**SOME))]), tmp_path, sites=1)
    for epoch in range(150):
        query.run([table_of(a, list(range(20)), [epoch * SECOND] * 20)])
    stats = query.epochs.record.stats.sites[0]
    assert stats.rows <= 20 * stats.segments
    assert stats.segments <= 16
    assert query.results_of_epoch(0)["n"].to_pylist() == [150] * 20
    query.run([table_of(a, [3], [200 * SECOND])])
    assert query.results_of_epoch(0).select(["k", "n"]).to_pylist() == [{"k": 3, "n": 151}]
    query.close()


def test_changes_and_the_whole_table_read_one_state(tmp_path):
    a = source("a")
    result = a.groupBy("k").agg(n=("*", "count"))
    plan = plan_of([in_update_mode(result), in_complete_mode(result), in_update_mode(result.filter("n > 1"))])
    assert len(plan.nodes) == 2
    assert len(plan.states) == 1


def test_having_is_a_filter_on_changes():
    a = source("a")
    result = a.groupBy("k").agg(n=("*", "count")).filter("n > 1").select("k", "n * 10 AS ten")
    at = [{"k": 1, "ts": moment(second), "v": 1, "w": 0.0} for second in (1, 2, 3)]
    outcome = testing.run(result, {"a": [at[:1], at[1:2], at[2:]]})
    assert outcome.rows() == [{"k": 1, "ten": 20}, {"k": 1, "ten": 30}]


def run_disturbed(seed: int) -> None:
    """Whatever happens, each epoch's table is what the changes so far add up to, and the last one is that of all
    rows."""
    result = source("a", delay=SECOND).groupBy("k").agg(n=("*", "count"), total=("v", "sum"))
    writers = [result.writeStream.queryName(mode).outputMode(mode) for mode in ("update", "complete")]
    batches = [
        [{"k": (i * 7 + batch) % 5, "ts": moment(batch + i / 40), "v": i, "w": 0.0} for i in range(20)]
        for batch in range(6)
    ]
    outcome = testing.run(writers, {"a": batches}, disturb=seed)
    changes = []
    for epoch in outcome.epochs:
        changes.append(epoch.results["update"])
        assert rounded(epoch.results["complete"]) == groups_of(changes, 1)
    of_group = [[row["v"] for batch in batches for row in batch if row["k"] == k] for k in range(5)]
    assert groups_of(changes, 1) == Counter((k, len(values), sum(values)) for k, values in enumerate(of_group))


@pytest.mark.parametrize("seed", range(3))
def test_exact_under_disturbances(seed):
    run_disturbed(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3, 106))
def test_exact_under_more_disturbances(seed):
    run_disturbed(seed)


@pytest.mark.parametrize(
    ("write", "says"),
    [
        (lambda r: r.writeStream.format("noop"), "cannot be appended.*outputMode.'update'.*outputMode.'complete'"),
        (lambda r: r.writeStream.format("parquet").outputMode("update").option("path", "x"), "parquet sink appends"),
        (lambda r: r.writeStream.outputMode("replace"), "no output mode 'replace'; known: append, update, complete"),
        (lambda r: r.groupBy("k").window("1 minute"), "no operator can follow it"),
        (lambda r: r.alias("r").join(source("b"), on="k", within="1 second"), "no operator can follow it"),
        (lambda r: r.distinct(), "no operator can follow it"),
        (lambda r: r.union(r), "no operator can follow it"),
    ],
)
def test_what_is_refused(write, says):
    result = source("a").groupBy("k").agg(n=("*", "count"))
    with pytest.raises(FlowError, match=says):
        written = write(result)
        written = written.agg(n=("*", "count")) if hasattr(written, "agg") else written
        read_request([written.choices()])


def test_final_results_are_appended():
    with pytest.raises(FlowError, match="these results are final, and appended"):
        in_mode(source("a").relation, OutputMode.UPDATE)


def test_a_stream_without_order_can_be_grouped_for_good_alone():
    unordered = source("a", delay=None)
    assert unordered.groupBy("k").agg(n=("*", "count")).columns == ["k", "n"]
    with pytest.raises(FlowError, match=r"agg needs at least one aggregate.*distinct\(\) gives the groups alone"):
        unordered.groupBy("k").agg()
