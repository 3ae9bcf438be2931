"""Names that users of PySpark try: every one is there, or says what it is and what to do instead."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import DataFrame, GroupedData, streaming

from sluice import Flow, FlowError
from sluice.api.spark_names import INSTEAD


def stream() -> Any:
    schema = "symbol string, ts timestamp, price double, count int"
    return Flow(name="desk").readStream("trades", schema, eventTime="ts", delay="5 seconds")


def test_every_name_is_there_or_explained() -> None:
    trades = stream()
    grouped = trades.groupBy("symbol")
    windowed = grouped.window("1 minute")
    asked = [
        (trades, DataFrame),
        (grouped, GroupedData),
        (windowed, GroupedData),
        (trades.writeStream, streaming.DataStreamWriter),
    ]
    missing = 0
    for ours, theirs in asked:
        for name in (name for name in dir(theirs) if not name.startswith("_") and not hasattr(ours, name)):
            missing += 1
            with pytest.raises(AttributeError) as refusal:
                getattr(ours, name)
            message = str(refusal.value)
            assert f"no attribute {name!r}, which PySpark's {theirs.__name__} has" in message
            assert "; " in message and "\n" not in message and ":class:" not in message, message
    assert missing > 50


def test_names_that_something_stands_for_here() -> None:
    trades = stream()
    for name, instead in (
        ("show", r"format\('console'\) prints them"),
        ("limit", r"top\(3, 'price DESC'\)"),
        ("exceptAll", "how='anti'"),
        ("withColumnRenamed", r"select\('symbol', 'price AS cost'\)"),
        ("cache", "leave it out"),
        ("mapInPandas", "do it to the DataFrame before"),
    ):
        with pytest.raises(AttributeError, match=f"PySpark's DataFrame has .*; .*{instead}"):
            getattr(trades, name)
    assert all(hasattr(DataFrame, name) and not hasattr(trades, name) for name in INSTEAD)
    assert trades.groupby("symbol").agg(n=("*", "count")).columns == ["symbol", "n"]


def test_a_name_that_nobody_has() -> None:
    with pytest.raises(AttributeError, match="no attribute 'selekt', perhaps 'select' is meant"):
        stream().selekt("symbol")
    assert not hasattr(stream(), "nonsense") and not hasattr(stream(), "_secret")


def test_a_column_by_its_name_needs_a_session() -> None:
    trades = stream()
    with pytest.raises(AttributeError, match=r"no Spark session.*filter"):
        _ = trades.price
    with pytest.raises(AttributeError, match="PySpark's DataFrame has"):
        _ = trades.count
    with pytest.raises(FlowError, match="stream 'trades' has no column 'cost'; it has symbol"):
        _ = trades["cost"]


def test_schema_and_its_like(capsys: pytest.CaptureFixture[str]) -> None:
    trades = stream()
    assert trades.isStreaming and trades.schema.names == trades.columns
    assert trades.dtypes == [("symbol", "string"), ("ts", "timestamp"), ("price", "double"), ("count", "int")]
    trades.select("price").printSchema()
    assert capsys.readouterr().out == "root\n |-- price: double (nullable = true)\n\n"


def test_refusals_name_what_to_write_instead() -> None:
    trades = stream()
    with pytest.raises(FlowError, match="no trigger 'once' here; availableNow=True takes in all"):
        trades.writeStream.trigger(once=True)
    with pytest.raises(FlowError, match="no trigger 'continuous' here; leave the trigger out"):
        trades.writeStream.trigger(continuous="1 second")
    with pytest.raises(FlowError, match="say there eventTime='ts' and delay='1 minute'"):
        trades.withWatermark("ts", "1 minute")
    with pytest.raises(FlowError, match=r"how='cross' is no kind of join; .* where='true'"):
        trades.join(trades.alias("later"), on="symbol", within="1 second", how="cross")
    with pytest.raises(FlowError, match=r"within='left_outer' is a kind of join.*write how='left_outer'"):
        trades.join(trades.alias("later"), "symbol", "left_outer")


def test_columns_in_a_list_and_in_any_case() -> None:
    trades = stream()
    later = trades.alias("later")
    assert trades.select(["symbol", "price"]).columns == ["symbol", "price"]
    assert trades.groupBy(["symbol", "count"]).window("1 minute").agg(n=("*", "count")).columns[:2] == [
        "symbol",
        "count",
    ]
    for on in ("Symbol", ["SYMBOL"], {"trades": "Symbol", "later": "symbol"}):
        pairs = trades.join(later, on=on, within="1 second")
        assert pairs.relation.origin.spec.inputs[0].keys == ("symbol",)


def test_streams_where_something_else_is_taken() -> None:
    flow = Flow(name="desk")
    trades = flow.readStream("trades", "symbol string, ts timestamp", eventTime="ts")
    streams: Any = trades
    with pytest.raises(FlowError, match=r"flow\.join takes its streams in a list.*not DataStream\(trades"):
        flow.join(streams, on="symbol", within="1 second")


def test_an_outer_join_of_several_streams_is_a_chain() -> None:
    flow = Flow(name="desk")
    schema = "symbol string, ts timestamp"
    trades, quotes, news = (flow.readStream(name, schema, eventTime="ts") for name in ("trades", "quotes", "news"))
    streams = [trades, quotes, news]
    chain = r"write trades\.join\(quotes, on=…, within=…, how='left'\)\.alias\('pair'\)\.join\(news, …\)"
    with pytest.raises(FlowError, match=f"an inner join; how='left' is of two streams: {chain}"):
        flow.join(streams, on="symbol", within="1 second", how="left_outer")
    with pytest.raises(FlowError, match=r"write trades\.join\(quotes, on=…, within=…, how='semi'\)$"):
        flow.join([trades, quotes], on="symbol", within="1 second", how="leftsemi")
    with pytest.raises(FlowError, match="how='sideways' is no kind of join"):
        flow.join(streams, on="symbol", within="1 second", how="sideways")
    assert "news_symbol" in flow.join(streams, on="symbol", within="1 second", how="Inner").columns
