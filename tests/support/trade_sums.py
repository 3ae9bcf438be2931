"""Trades in files, their rolling sums by a flow on Spark, and the same by DuckDB."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from arrivals import ticks
from oracle import connect_duckdb, multiset

from sluice import Flow

EPOCHS = 8
TRADES = [
    ticks([f"k{i % 13}" for i in range(80)], [e * 10 + i / 8 for i in range(80)], range(80)) for e in range(EPOCHS)
]
SUMS = """SELECT k, ts, CAST(sum(v) OVER w AS BIGINT) AS total FROM trades
    WINDOW w AS (PARTITION BY k ORDER BY ts ROWS BETWEEN 29 PRECEDING AND CURRENT ROW)"""


def sums(spark: Any, root: Path) -> Any:
    flow = Flow(spark, "desk")
    trades = flow.readFiles("trades", str(root / "trades"), eventTime="ts", maxFilesPerTrigger=1)
    result = trades.groupBy("k").last(30).agg(total=("v", "sum"))
    writer = result.writeStream.format("parquet").option("path", root / "out").option("checkpointLocation", root / "ck")
    return writer.options(sites=2, partitions=16)


def assert_exact(root: Path) -> None:
    found = pa.concat_tables([pq.read_table(p) for p in sorted((root / "out").glob("*.parquet"))])
    with connect_duckdb() as db:
        db.register("trades", pa.concat_tables(TRADES))
        assert multiset(found) == multiset(db.sql(SUMS).to_arrow_table())
