"""The end of all input, `closeAtEnd`: windows close and rows without a partner appear, once; what comes later is
refused."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from crash_flow import epoch_rows
from dying_process import dies_before
from engine_harness import DirectQuery
from oracle import multiset
from specs import SECOND, handle, stream

from sluice import Flow, FlowError, QueryError, testing
from sluice.api.checking import check_request
from sluice.api.request import read_request
from sluice.model.epoch.times import ENDED
from sluice.model.plan.planning import plan_of

TRADES, QUOTES = "symbol string, ts timestamp, price double", "symbol string, ts timestamp, ask double"
A, B = stream("a", delay=5 * SECOND), stream("b", delay=5 * SECOND)
LEFT = handle(A).join(handle(B), on="k", within="3 seconds", how="left")
COUNTS = LEFT.groupBy("a_k").window("10 seconds", "5 seconds").agg(n=("*", "count"), partners=("b_v", "count"))
NEWEST = handle(B).groupBy("k").last(3).agg(total=("v", "sum"))
PLAN = plan_of([LEFT.relation, COUNTS.relation, NEWEST.relation])
OUTPUTS = range(3)


def row(second: int, **values: Any) -> dict[str, Any]:
    return {"symbol": "A", "ts": f"2026-01-01 09:30:{second:02d}", **values}


def desk() -> tuple[Any, Any]:
    flow = Flow(name="desk")
    trades = flow.readStream("trades", TRADES, eventTime="ts", delay="1 hour")
    return trades, flow.readStream("quotes", QUOTES, eventTime="ts", delay="1 hour")


def closing(rows: Any) -> Any:
    return rows.writeStream.option("closeAtEnd", True)


def test_windows_close_in_an_epoch_of_their_own():
    trades, _ = desk()
    bars = trades.groupBy("symbol").window("1 minute").agg(high=("price", "max"))
    rows = {"trades": [[row(1, price=3.0)], [row(2, price=4.0)]]}
    assert testing.run(bars, rows).rows() == []
    outcome = testing.run(closing(bars), rows)
    assert [epoch.results["query-1"].num_rows for epoch in outcome.epochs] == [0, 0, 1]
    assert [r["high"] for r in outcome.rows()] == [4.0]
    last = outcome.epochs[-1].progress
    assert last.stats.catch_up and last.batch == 1 and last.watermarks[0].has_ended


def test_rows_wait_no_longer_for_partners_or_their_turn_and_levels_close_in_order():
    trades, quotes = desk()
    left = trades.join(quotes, on="symbol", within="5 seconds", how="left")
    counted = left.groupBy("trades_symbol").window("10 seconds").agg(n=("*", "count"))
    newest = trades.groupBy("symbol").last(2).agg(total=("price", "sum"))
    anti = trades.join(quotes, on="symbol", within="5 seconds", how="anti")
    tested = {"left": left, "counted": counted, "newest": newest, "anti": anti}
    rows = {"trades": [row(1, price=1.0), row(21, price=2.0)], "quotes": [row(3, ask=9.0)]}
    writers = [closing(result).queryName(name) for name, result in tested.items()]
    outcome = testing.run(writers, rows)
    assert sorted(str(r["quotes_ask"]) for r in outcome.rows("left")) == ["9.0", "None"]
    assert [r["n"] for r in outcome.rows("counted")] == [1, 1]
    assert [r["total"] for r in outcome.rows("newest")] == [1.0, 3.0]
    assert [r["trades_price"] for r in outcome.rows("anti")] == [2.0]
    for seed in range(4):
        disturbed = testing.run(writers, rows, disturb=seed)
        for name in tested:
            assert multiset(disturbed.results(name)) == multiset(outcome.results(name)), disturbed.disturbances


def test_a_join_without_bounds_shows_rows_without_a_partner_at_the_end():
    trades, quotes = desk()
    left = trades.join(quotes, on="symbol", within="unbounded", how="left")
    rows = {"trades": [row(1, price=1.0), row(2, price=2.0, symbol="B")], "quotes": [row(59, ask=9.0)]}
    with pytest.raises(FlowError, match=r"may come at any time.*closeAtEnd"):
        testing.run(left, rows)
    for seed in (None, 1, 2):
        found = testing.run(closing(left), rows, disturb=seed).rows()
        assert sorted((r["trades_price"], r["quotes_ask"]) for r in found) == [(1.0, 9.0), (2.0, None)]


def test_windows_over_windows_end_too_whichever_time_they_go_by():
    """What waits for partners among their results, however much later these are, waits no longer."""
    trades, quotes = desk()
    bars = quotes.groupBy("symbol").window("5 seconds").agg(high=("ask", "max"))
    rows = {"trades": [row(1, price=1.0), row(2, price=2.0, symbol="B")], "quotes": [row(59, ask=9.0)]}
    for by in ("window_time", "window_start", "window_end"):
        longer = bars.groupBy("symbol").window("10 seconds", by=by).agg(high=("high", "max")).alias("longer")
        found = testing.run(closing(trades.join(longer, on="symbol", within="unbounded", how="left")), rows).rows()
        assert sorted((r["trades_price"], r["longer_high"]) for r in found) == [(1.0, 9.0), (2.0, None)], by


def test_a_stream_that_nothing_came_of_ends_too():
    trades, quotes = desk()
    left = trades.join(quotes, on="symbol", within="5 seconds", how="left")
    assert len(testing.run(closing(left), {"trades": [row(1, price=1.0)]}).rows()) == 1


def test_closeAtEnd_needs_a_run_that_ends():
    trades, _ = desk()
    writer = closing(trades).format("noop").trigger(processingTime="1 second")
    with pytest.raises(FlowError, match=r"closeAtEnd says that no input comes after this run.*availableNow=True"):
        check_request(read_request([writer.choices()]))


@pytest.fixture(scope="module")
def before() -> Iterator[Path]:
    """A query with some history, whose input is about to end."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None) as directory:
        root = Path(directory) / "before"
        query = start(root)
        for epoch in range(4):
            query.run(few_partners(epoch))
        query.drain()
        query.close()
        yield root


def few_partners(epoch: int) -> list[pa.Table]:
    a, b = epoch_rows(epoch)
    return [a, b.slice(0, 3)]


def start(root: Path) -> DirectQuery:
    return DirectQuery(PLAN, root, sites=1, partitions=2, memory=8_000)


def end(root: Path) -> DirectQuery:
    """A run that takes nothing in, and closes at its end."""
    query = start(root)
    query.drain()
    query.end_input()
    query.drain()
    return query


def results(query: DirectQuery) -> list[Counter[Any]]:
    return [multiset(query.results(output)) for output in OUTPUTS]


@pytest.fixture(scope="module")
def answers(before: Path) -> list[Counter[Any]]:
    root = before.parent / "undisturbed"
    shutil.copytree(before, root)
    waiting = results(start(root))
    ended = results(end(root))
    assert all(sum(more.values()) > sum(some.values()) for some, more in zip(waiting, ended, strict=True))
    return ended


@pytest.mark.parametrize("step", [37, pytest.param(5, marks=pytest.mark.slow)])
def test_a_crash_in_the_closing_epoch_is_made_good_by_the_next_run(before, answers, step):
    operation, crashed = 0, True
    while crashed:
        root = before.parent / f"crash-{operation}"
        shutil.copytree(before, root)
        crashed = dies_before(operation, lambda root=root: end(root).close())
        query = end(root)
        assert results(query) == answers, f"after a crash at operation {operation}"
        assert query.epochs.input_has_ended
        query.close()
        shutil.rmtree(root)
        operation += step
    assert operation > 40


def test_a_later_run_without_input_does_nothing_and_one_with_input_is_refused(before, answers):
    root = before.parent / "later"
    shutil.copytree(before, root)
    query = end(root)
    number = query.epochs.record.number
    query.close()
    for _ in range(2):
        query = end(root)
        assert query.epochs.record.number == number and results(query) == answers
        query.close()
    query = start(root)
    query.run([s.schema.empty_table() for s in (A, B)])  # Spark may ask for a batch without rows
    with pytest.raises(QueryError, match="stream 'b' has ended: a run with closeAtEnd"):
        query.run([A.schema.empty_table(), epoch_rows(5)[1]])
    assert query.epochs.record.number == number + 1 and query.epochs.record.stats.late_rows == 0
    assert results(query) == answers and not query.end_input()
    query.close()


def test_where_nothing_was_ever_taken_in_nothing_has_ended(tmp_path):
    query = end(tmp_path)
    assert query.epochs.record.number == -1 and not query.epochs.input_has_ended
    query.run(epoch_rows(0))
    assert query.end_input() and query.epochs.record.newest == (ENDED, ENDED)
    query.close()
