"""Outer, semi and anti joins on Spark: the same rows as Spark SQL's batch joins, said in Python and in SQL."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from arrivals import arrive
from specs import SECOND, TIME

from sluice import Flow

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("nothing_stays", "compiled_queries")]

END = 1000
ON = "t.venue = q.venue AND q.ts BETWEEN t.ts - INTERVAL 3 SECONDS AND t.ts + INTERVAL 5 SECONDS AND t.price > q.ask"
CHAIN = f"""SELECT t.venue, t.price, q.ask, u.price AS later FROM trades t LEFT JOIN quotes q ON {ON}
    LEFT JOIN trades u ON u.venue = q.venue AND u.ts BETWEEN q.ts AND q.ts + INTERVAL 2 SECONDS"""


def ticks(seed: int, epoch: int, price: str, rows: int = 40) -> pa.Table:
    rng = np.random.default_rng([seed, epoch])
    return pa.table(
        {
            "venue": pa.array(rng.choice(list("UVWXYZ"), rows).tolist(), mask=rng.random(rows) < 0.1),
            "ts": pa.array(epoch * 10 * SECOND + rng.integers(0, 10 * SECOND, rows), TIME),
            price: pa.array(rng.normal(10, 2, rows).round(1), mask=rng.random(rows) < 0.1),
        }
    )


def last_tick(price: str) -> pa.Table:
    """A row that matches nothing, and settles all before it."""
    values = pa.array([None], pa.string()), pa.array([END * SECOND], TIME), pa.array([None], pa.float64())
    return pa.table(dict(zip(("venue", "ts", price), values, strict=True)))


@pytest.fixture
def flow(spark: Any, tmp_path: Path) -> Flow:
    flow = Flow(spark, name="outer")
    for name, seed, price in (("trades", 1, "price"), ("quotes", 2, "ask")):
        tables = [*(ticks(seed, epoch, price) for epoch in range(3)), last_tick(price)]
        directory = arrive(tmp_path / name, *tables)
        flow.readFiles(name, str(directory), eventTime="ts", delay="10 seconds", maxFilesPerTrigger=1)
        spark.read.parquet(str(directory)).where(f"ts < timestamp_seconds({END})").createOrReplaceTempView(name)
    return flow


def test_the_answer_is_that_of_sparks_batch_joins(spark: Any, flow: Flow, tmp_path: Path) -> None:
    kinds = {"LEFT": "t.*, q.ask", "RIGHT OUTER": "q.*, t.price", "FULL OUTER": "t.price, q.ask"}
    kinds |= {"LEFT SEMI": "t.*", "LEFT ANTI": "*"}
    texts = {kind: f"SELECT {shown} FROM trades t {kind} JOIN quotes q ON {ON}" for kind, shown in kinds.items()}
    texts["chain"] = CHAIN
    results = {name.replace(" ", "_").lower(): flow.sql(text) for name, text in texts.items()}
    trades, quotes = (flow.sql(f"SELECT * FROM {name}").alias(name[0]) for name in ("trades", "quotes"))
    within = ("3 seconds", "5 seconds")
    results["said in Python"] = trades.join(quotes, on="venue", within=within, where="t.price > q.ask", how="outer")
    texts["said in Python"] = f"""SELECT t.venue, t.ts, t.price, q.venue, q.ts, q.ask
        FROM trades t FULL JOIN quotes q ON {ON}"""
    writers = [
        result.writeStream.format("parquet").option("path", str(tmp_path / name)).queryName(name)
        for name, result in results.items()
    ]
    query = flow.start(*writers, availableNow=True, checkpointLocation=str(tmp_path / "ck"), sites=2, partitions=8)
    query.awaitTermination()
    assert query.lastProgress["lateRows"] == 0
    for name, text in zip(results, texts.values(), strict=True):
        answer = Counter(map(tuple, spark.read.parquet(str(tmp_path / name)).collect()))
        assert answer == Counter(map(tuple, spark.sql(text).collect())), name
        assert any(None in row for row in answer) or name == "left_semi"
