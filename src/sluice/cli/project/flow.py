"""Trades and quotes joined by symbol, and the pairs summed up for every symbol and minute."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sluice import Flow

HERE = Path(__file__).parent
COLUMNS = {
    "trades": "symbol string, ts timestamp, price double, size long",
    "quotes": "symbol string, ts timestamp, bid double, ask double",
}


def define(spark: Any) -> Any:
    """What `sluice run flow.py` runs: it returns a writer and leaves the start to the command."""
    flow = Flow(spark, name="desk")
    trades = read(flow, "trades")
    quotes = read(flow, "quotes")

    # Every trade with every quote of its symbol at most 10 seconds before or after it.
    # The columns are called trades_symbol, trades_price, quotes_bid, ...
    pairs = trades.join(quotes, on="symbol", within="10 seconds")

    # One row a symbol and minute, written once no row of that minute can come any more.
    bars = (
        pairs.withColumn("symbol", "trades_symbol")
        .withColumn("spread", "quotes_ask - quotes_bid")
        .groupBy("symbol")
        .window("1 minute")
        .agg(pairs=("*", "count"), high=("trades_price", "max"), spread=("spread", "avg"))
    )

    return (
        bars.writeStream.format("parquet")
        .option("path", str(HERE / "out"))
        .option("checkpointLocation", str(HERE / "checkpoint"))
        .trigger(processingTime="1 second")
    )


def read(flow: Flow, name: str) -> Any:
    """A stream of Parquet files as they arrive. Rows more than 5 seconds behind are late: dropped and counted."""
    return flow.readFiles(
        name,
        str(HERE / "data" / name),
        format="parquet",
        eventTime="ts",
        delay="5 seconds",
        schema=COLUMNS[name],
        maxFilesPerTrigger=5,
    )
