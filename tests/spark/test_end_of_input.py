"""`closeAtEnd` on Spark: with files that Sluice finds, and with batches that Spark plans."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from arrivals import arrive, ticks

from sluice import Flow, QueryError

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("nothing_stays", "compiled_queries")]

SCHEMA = "k string, ts timestamp, v bigint"
TRADES = [ticks(["a", "b"], [e * 10, e * 10 + 3], range(2)) for e in range(3)]
BATCH = """SELECT k, count(*) AS n, sum(v) AS total FROM all_trades LEFT ANTI JOIN all_quotes USING (k)
    GROUP BY k, window(ts, '15 seconds')"""


def by_files(spark: Any, flow: Flow, name: str, directory: Path) -> Any:
    return flow.readFiles(name, str(directory), eventTime="ts", delay="1 hour", maxFilesPerTrigger=1, schema=SCHEMA)


def by_spark(spark: Any, flow: Flow, name: str, directory: Path) -> Any:
    rows = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(directory))
    return flow.readStream(name, rows, eventTime="ts", delay="1 hour")


@pytest.mark.parametrize("read", [by_files, by_spark])
def test_a_run_closes_all_windows_a_rerun_does_nothing_and_more_input_is_refused(
    spark: Any, tmp_path: Path, read: Callable[..., Any]
) -> None:
    arrive(tmp_path / "trades", *TRADES)
    arrive(tmp_path / "quotes", ticks(["b"], [5], range(1)))
    flow = Flow(spark, "desk")
    trades, quotes = (read(spark, flow, name, tmp_path / name) for name in ("trades", "quotes"))
    alone = trades.join(quotes, on="k", within="1 hour", how="anti").withColumn("k", "trades_k")
    sums = alone.groupBy("k").window("15 seconds").agg(n=("*", "count"), total=("trades_v", "sum"))

    def run(close: bool) -> Any:
        writer = sums.writeStream.format("parquet").option("path", str(tmp_path / "out"))
        writer = writer.options(checkpointLocation=str(tmp_path / "ck"), closeAtEnd=close, sites=2, partitions=4)
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        return query

    def found() -> list[tuple[Any, ...]]:
        return sorted((r.k, r.n, r.total) for r in spark.read.parquet(str(tmp_path / "out")).collect())

    first = run(close=False)
    assert sum(p["numOutputRows"] for p in first.recentProgress) == 0
    closing = run(close=True)
    for name in ("trades", "quotes"):
        spark.read.schema(SCHEMA).parquet(str(tmp_path / name)).createOrReplaceTempView(f"all_{name}")
    answer = sorted((r.k, r.n, r.total) for r in spark.sql(BATCH).collect())
    assert found() == answer and len(answer) == 2
    assert closing.lastProgress["watermarks"] == {"trades": "ended", "quotes": "ended"}
    for close in (True, False):
        assert run(close).lastProgress is None and found() == answer, "nothing is new, so there is no epoch"

    arrive(tmp_path / "trades", TRADES[0])
    for _ in range(2):
        with pytest.raises(QueryError, match=r"stream 'trades' has ended: a run with closeAtEnd"):
            run(close=True)
    assert found() == answer
