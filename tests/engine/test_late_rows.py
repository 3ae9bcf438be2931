"""Late rows as a stream: each row that comes too late is written once, whatever happens; the others are not."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from engine_harness import DirectQuery
from exactness import FAST
from hypothesis import given
from hypothesis import strategies as st
from oracle import multiset, on_time
from specs import KEYS, SECOND, handle, rows, stream

from sluice import Flow, FlowError, testing
from sluice.model.plan.planning import plan_of

TRADES, QUOTES = "symbol string, ts timestamp, price double", "symbol string, ts timestamp, ask double"


def desk() -> tuple[Any, Any]:
    flow = Flow(name="desk")
    trades = flow.readStream("trades", TRADES, eventTime="ts", delay="5 seconds")
    return trades, flow.readStream("quotes", QUOTES, eventTime="ts", delay="5 seconds")


def trade(second: int, price: float | None = 1.0) -> dict[str, Any]:
    return {"symbol": "A", "ts": f"2026-01-01 09:30:{second:02d}", "price": price}


EPOCHS = [[trade(30), trade(31)], [trade(25, 2.0), trade(26, 3.0), trade(40)], [trade(34, 4.0), trade(35, 5.0)]]


def prices(rows: list[dict[str, Any]]) -> list[float]:
    return sorted(row["price"] for row in rows)


def test_late_rows_are_written_beside_what_operators_make_of_the_others():
    trades, quotes = desk()
    pairs = trades.join(quotes, on="symbol", within="10 seconds")
    tested = {"pairs": pairs, "late": trades.late(), "rows": trades}
    outcome = testing.run(tested, {"trades": EPOCHS, "quotes": [{"symbol": "A", "ts": "2026-01-01 09:30:30"}]})
    assert prices(outcome.rows("late")) == [2.0, 4.0] and prices(outcome.rows("rows")) == [1.0, 1.0, 1.0, 3.0, 5.0]
    assert multiset(outcome.results("late")) == multiset(outcome.late("trades"))
    assert [epoch.results["late"].num_rows for epoch in outcome.epochs] == [0, 1, 1]
    for seed in range(6):
        disturbed = testing.run(tested, {"trades": EPOCHS}, disturb=seed)
        assert prices(disturbed.rows("late")) == [2.0, 4.0], disturbed.disturbances


def test_they_pass_the_steps_before_and_after():
    trades, _ = desk()
    dear = trades.filter("price > 2").late().select("price * 2 AS price")
    assert prices(testing.run(dear, {"trades": EPOCHS}).rows()) == [8.0]


def test_in_sql_they_have_a_name():
    flow = Flow(name="desk")
    flow.readStream("trades", TRADES, eventTime="ts", delay="5 seconds")
    dear = flow.sql("SELECT symbol, price * 2 AS price FROM late_trades WHERE price > 2")
    assert prices(testing.run(dear, {"trades": EPOCHS}).rows()) == [8.0]
    flow.readStream("late_trades", TRADES, eventTime="ts", delay="5 seconds")
    own = flow.sql("SELECT price FROM late_trades")
    assert prices(testing.run(own, {"late_trades": EPOCHS}).rows()) == [1.0, 1.0, 1.0, 3.0, 5.0]


def test_a_union_may_have_them():
    trades, _ = desk()
    everything = trades.union(trades.late())
    assert prices(testing.run(everything, {"trades": EPOCHS}).rows()) == [1.0, 1.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    with pytest.raises(FlowError, match="late rows of stream 'trades' can be filtered, selected and written"):
        everything.alias("all").join(trades, on="symbol", within="unbounded")


def test_rows_without_a_time_are_not_late():
    trades, _ = desk()
    rows = {"trades": [[trade(30)], [{"symbol": "A", "price": 7.0}, trade(1, 8.0)]]}
    outcome = testing.run(trades.late(), rows)
    assert prices(outcome.rows()) == [8.0] and outcome.epochs[-1].progress.stats.null_rows == 1


def test_what_has_no_meaning_is_refused():
    trades, quotes = desk()
    pairs = trades.join(quotes, on="symbol", within="10 seconds")
    with pytest.raises(FlowError, match=r"this result is no registered stream.*trades\.late\(\)"):
        pairs.late()
    with pytest.raises(FlowError, match="late rows of stream 'trades' can be filtered, selected and written"):
        trades.late().join(quotes, on="symbol", within="unbounded")
    with pytest.raises(FlowError, match="late rows of stream 'trades' can be filtered, selected and written"):
        trades.late().groupBy("symbol").agg(n=("*", "count"))
    patient = Flow().readStream("trades", TRADES, eventTime="ts", delay=None)
    with pytest.raises(FlowError, match="none of its rows is ever late"):
        patient.late()


def test_they_are_another_query_than_the_rows_in_time(capsys: pytest.CaptureFixture[str]):
    trades, _ = desk()
    plan = plan_of([trades.relation, trades.late().relation, trades.filter("price > 2").late().relation])
    assert len({plan.structure_of(output) for output in range(3)}) == 3
    trades.late().explain()
    assert capsys.readouterr().out == "Result: late rows of stream 'trades'\n"


@given(st.data(), st.sampled_from([0, 5 * SECOND]), st.integers(1, 3))
def test_exactly_the_late_rows_however_epochs_cut_the_stream(data, delay, map_tasks):
    a = stream("a", delay=delay)
    plan = plan_of([handle(a).relation, handle(a).late().relation])
    with tempfile.TemporaryDirectory(dir=FAST) as directory:
        query = DirectQuery(plan, Path(directory), map_tasks=map_tasks)
        seen: list[pa.Table] = []
        for epoch in range(data.draw(st.integers(1, 5))):
            seen.append(data.draw(rows(a, KEYS["long"][1], epoch * SECOND, 20 * SECOND)))
            query.run([seen[-1]])
            if data.draw(st.booleans()):
                query.close()
                query = DirectQuery(plan, Path(directory), map_tasks=map_tasks)
                query.run([seen[-1]], number=epoch)  # Spark asks again
        in_time, late = on_time(seen, "ts", delay)
        timed = pa.concat_tables(seen).filter(pa.concat_tables(seen)["ts"].is_valid())
        assert multiset(query.results(0)) == multiset(in_time)
        assert multiset(query.results(1)) == multiset(timed) - multiset(in_time)
        assert query.results(1).num_rows == late
        query.close()


def test_the_progress_of_such_a_query_counts_late_rows(tmp_path):
    a = stream("a", delay=0)
    query = DirectQuery({"late": handle(a).late().relation}, tmp_path, streams=(a,))

    def table(*seconds: int) -> pa.Table:
        return pa.table([[1] * len(seconds), [s * SECOND for s in seconds], [1] * len(seconds)], schema=a.schema)

    query.run([table(10)])
    query.run([table(3, 4, 10, 11)])
    (recorded,) = query.epochs.standing.recorded_plan.queries
    assert recorded.late == (0,) and recorded.says == "late rows of stream 'a'"
    assert Counter(query.results_of("late")["ts"].cast(pa.int64()).to_pylist()) == Counter([3 * SECOND, 4 * SECOND])
    query.close()
