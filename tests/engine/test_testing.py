"""`sluice.testing`: users' flows on users' rows, without Spark, calm or on bad days."""

from __future__ import annotations

import runpy
import subprocess
import sys
from collections import Counter
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sluice import Flow, FlowError, testing
from sluice.cli.new import new

TRADES = "symbol string, ts timestamp, price double"
QUOTES = "symbol string, ts timestamp, ask double"


def at(second: int) -> str:
    return f"2026-01-01 09:{30 + second // 60}:{second % 60:02d}"


def trade(symbol: str, second: int, price: float = 1.0) -> dict[str, Any]:
    return {"symbol": symbol, "ts": at(second), "price": price}


def quote(symbol: str, second: int, ask: float = 2.0) -> dict[str, Any]:
    return {"symbol": symbol, "ts": at(second), "ask": ask}


class Desk:
    """Trades and quotes, and what is made of them."""

    def __init__(self) -> None:
        self.flow = Flow(name="desk")
        self.trades = self.flow.readFiles("trades", Path("in/trades"), eventTime="ts", delay="5 seconds", schema=TRADES)
        self.quotes = self.flow.readStream("quotes", QUOTES, eventTime="ts", delay="5 seconds")
        self.pairs = self.trades.join(self.quotes, on="symbol", within="10 seconds")
        by_symbol = self.pairs.withColumn("symbol", "trades_symbol").groupBy("symbol")
        self.bars = by_symbol.window("1 minute").agg(n=("*", "count"), high=("trades_price", "max"))


def counted(rows: pa.Table) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(row.values()) for row in rows.to_pylist())


def test_a_join_of_lists_of_dictionaries():
    desk = Desk()
    outcome = testing.run(
        desk.pairs, {"trades": [trade("A", 0), trade("B", 0)], "quotes": [quote("A", 10), quote("A", 11)]}
    )
    assert [(row["trades_symbol"], row["quotes_ts"]) for row in outcome.rows()] == [
        ("A", datetime(2026, 1, 1, 9, 30, 10, tzinfo=timezone.utc))
    ]
    (epoch,) = outcome.epochs
    assert epoch.progress.stats.rows_in == 4 and epoch.results["query-1"].num_rows == 1


def test_epochs_watermarks_and_late_rows():
    outcome = testing.run(
        Desk().pairs, {"trades": [[trade("A", 0)], [trade("A", 60)], [trade("A", 54), trade("A", 55)]]}
    )
    assert [epoch.progress.stats.late_rows for epoch in outcome.epochs] == [0, 0, 1]
    assert [epoch.late["trades"].num_rows for epoch in outcome.epochs] == [0, 0, 1]
    assert outcome.late("trades")["ts"].to_pylist() == [datetime(2026, 1, 1, 9, 30, 54, tzinfo=timezone.utc)]
    marks = {mark.stream: mark.micros for mark in outcome.epochs[-1].progress.watermarks}
    assert marks["quotes"] is None and marks["trades"] is not None


def test_time_goes_on_without_rows():
    """A window closes when all streams have come far enough, though no row says so; what comes then is late."""
    desk = Desk()
    rows = {"trades": [trade("A", 0, 3.0), trade("A", 1, 4.0)], "quotes": [quote("A", 2)]}
    assert testing.run(desk.bars, rows).rows() == []
    later = testing.Arrival(upTo=at(66))
    outcome = testing.run(
        desk.bars, {"trades": [rows["trades"], later, [trade("A", 60)]], "quotes": [rows["quotes"], later]}
    )
    assert [(row["n"], row["high"]) for row in outcome.rows()] == [(2, 4.0)]
    assert [epoch.results["query-1"].num_rows for epoch in outcome.epochs] == [0, 1, 0]
    assert outcome.late("trades").num_rows == 1 == outcome.epochs[2].progress.stats.late_rows


def test_tables_several_queries_and_sql():
    desk = Desk()
    times = pa.array([1_767_259_800_000_000, 1_767_259_801_000_000], pa.timestamp("us", "UTC"))
    table = pa.table({"price": [1, 5], "ts": times, "symbol": pa.array(["A", "B"], pa.large_string())})
    dear = desk.flow.sql("SELECT symbol, price FROM trades WHERE price > 2")
    outcome = testing.run({"dear": dear, "pairs": desk.pairs}, {"trades": table, "quotes": [quote("B", 3)]})
    assert outcome.rows("dear") == [{"symbol": "B", "price": 5.0}]
    assert outcome.results("pairs").num_rows == 1
    with pytest.raises(FlowError, match="say which query's results; it has dear, pairs"):
        outcome.results()
    with pytest.raises(FlowError, match="no query 'cheap'"):
        outcome.results("cheap")
    with pytest.raises(FlowError, match="no query of this test reads a stream 'bids'"):
        outcome.late("bids")


def test_writers_and_what_defines_them():
    """Writers are taken as they are started elsewhere: with policy and options, but for where their results go."""

    def define(spark: Any) -> Any:
        pairs = Desk().pairs if spark is None else None
        return pairs.writeStream.format("parquet").option("path", "/nowhere").policy("hybrid").option("sites", 3)

    outcome = testing.run(define, {"trades": [trade("A", 0)], "quotes": [quote("A", 1)]})
    assert len(outcome.rows()) == 1 and len(outcome.epochs[0].progress.stats.sites) == 3


def test_a_column_may_have_any_name():
    flow = Flow()
    odd = flow.readStream("odd", "stream int, path string, slot0 int, ts timestamp", eventTime="ts")
    outcome = testing.run(odd.filter("stream > 1"), {"odd": [{"stream": n, "slot0": n, "ts": at(n)} for n in range(3)]})
    assert [(row["stream"], row["slot0"], row["path"]) for row in outcome.rows()] == [(2, 2, None)]


def rows_of_a_minute() -> dict[str, list[list[dict[str, Any]]]]:
    trades = [[trade(s, 6 * e + n, float(n)) for n, s in enumerate("ABCAB")] for e in range(8)]
    quotes = [[quote(s, 6 * e + n) for n, s in enumerate("CABA")] for e in range(8)]
    trades[5].append(trade("A", 0))  # late
    return {"trades": trades, "quotes": quotes}


def test_the_same_on_bad_days():
    desk = Desk()
    newest = desk.trades.groupBy("symbol").last(3).agg(n=("*", "count"))
    queries = {"pairs": desk.pairs, "bars": desk.bars, "newest": newest}
    calm = testing.run(queries, rows_of_a_minute())
    assert not calm.disturbances and calm.late("trades").num_rows == 1
    story: list[str] = []
    for seed in range(5):
        disturbed = testing.run(queries, rows_of_a_minute(), disturb=seed)
        for name in queries:
            assert counted(disturbed.results(name)) == counted(calm.results(name)), disturbed.disturbances
        assert counted(disturbed.late("trades")) == counted(calm.late("trades"))
        assert sum(e.progress.stats.late_rows for e in disturbed.epochs) == 1
        story += disturbed.disturbances
    text = "\n".join(story)
    for what in (
        "asks for Move",
        "asks for Split",
        "asks for Freeze",
        "asks for Scale",
        "executor 0 dies",
        "commit at",
    ):
        assert what in text
    assert text.count("driver with") > 10, "no driver was restarted"


def test_a_seed_means_the_same_run():
    runs = [testing.run(Desk().pairs, rows_of_a_minute(), disturb=11) for _ in range(2)]
    assert runs[0].disturbances == runs[1].disturbances
    assert any("dies" in what or "restart" in what or "asks for" in what for what in runs[0].disturbances)


def test_the_test_of_a_new_project(tmp_path, monkeypatch):
    new(str(tmp_path / "desk"))
    monkeypatch.syspath_prepend(str(tmp_path / "desk"))
    tests = runpy.run_path(str(tmp_path / "desk" / "test_flow.py"))
    names = [name for name in tests if name.startswith("test_")]
    assert len(names) == 2
    for name in names:
        tests[name]()
    sys.modules.pop("flow")


def test_it_needs_no_spark_session():
    code = (
        "from sluice import Flow, testing\n"
        "flow = Flow()\n"
        "t = flow.readStream('t', 'k int, ts timestamp', eventTime='ts')\n"
        "print(testing.run(t.filter('k > 1'), {'t': [{'k': 2, 'ts': 0}]}).rows()[0]['k'])\n"
        "from pyspark import SparkContext\n"
        "assert SparkContext._gateway is None"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "2"


def test_what_is_wrong_is_said_in_words():
    desk = Desk()
    with pytest.raises(FlowError, match="has no Spark session, so it cannot be started"):
        desk.pairs.writeStream.format("noop").start()
    with pytest.raises(FlowError, match="does not say by itself what is written"):
        testing.run(desk.flow, {})
    with pytest.raises(FlowError, match="rows for 'bids', which no query of this test reads; it reads trades, quotes"):
        testing.run(desk.pairs, {"bids": []})
    with pytest.raises(FlowError, match="'trades' has no column 'size'; it has symbol, ts, price"):
        testing.run(desk.pairs, {"trades": [{"size": 3}]})
    with pytest.raises(FlowError, match="column 'price' of stream 'trades' is double"):
        testing.run(desk.pairs, {"trades": [{"price": "dear"}]})
    with pytest.raises(FlowError, match="a table for stream 'trades' has no column 'symbol'"):
        testing.run(desk.pairs, {"trades": pa.table({"price": [1.0]})})
    with pytest.raises(FlowError, match="must be an Arrow table or a list of dictionaries"):
        testing.run(desk.pairs, {"trades": [[1, 2]]})
    with pytest.raises(FlowError, match="a test takes a stream"):
        testing.run([], {})
    for seed in (-1, "seven", 1.5):
        with pytest.raises(FlowError, match=f"disturb={seed!r} is no seed: give a whole number"):
            testing.run(desk.pairs, {}, disturb=seed)


def test_a_schema_in_words_is_read_as_spark_reads_it():
    flow = Flow()
    text = "a STRING NOT NULL COMMENT 'x', `b c` decimal(9,2), d array<int>, e struct<f: long, g: date>, ts timestamp"
    stream = flow.readStream("s", text, eventTime="ts")
    assert stream.stream.schema.field("b c").type == pa.decimal128(9, 2)
    assert stream.stream.schema.field("e").type.field("f").type == pa.int64()
    with pytest.raises(FlowError, match="schema of stream 't' cannot be read"):
        flow.readStream("t", "a b c, (", eventTime="ts")
    with pytest.raises(FlowError, match="without Spark the type VARIANT is not known"):
        flow.readStream("t", "a variant, ts timestamp", eventTime="ts")
