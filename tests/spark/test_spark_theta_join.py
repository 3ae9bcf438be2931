"""Joins without an equality on Spark: the same rows as Spark SQL's batch join, said in Python and in SQL."""

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

NEAR = "t.ts BETWEEN q.ts - INTERVAL 3 SECONDS AND q.ts + INTERVAL 5 SECONDS"
CONDITION = "t.price > q.ask AND t.venue <> q.venue"
BAND = "abs(t.price - q.ask) <= 0.5"


def ticks(seed: int, epoch: int, price: str, rows: int = 60) -> pa.Table:
    rng = np.random.default_rng([seed, epoch])
    values = np.where(rng.random(rows) < 0.1, np.nan, rng.normal(10, 2, rows).round(1))
    return pa.table(
        {
            "venue": pa.array(rng.choice(["X", "Y", "Z"], rows).tolist(), mask=rng.random(rows) < 0.1),
            "ts": pa.array(epoch * 10 * SECOND + rng.integers(0, 10 * SECOND, rows), TIME),
            price: pa.array(values, mask=rng.random(rows) < 0.1),
        }
    )


@pytest.fixture
def flow(spark: Any, tmp_path: Path) -> Flow:
    flow = Flow(spark, name="theta")
    for name, seed, price in (("trades", 1, "price"), ("quotes", 2, "ask")):
        directory = arrive(tmp_path / name, *(ticks(seed, epoch, price) for epoch in range(3)))
        flow.readFiles(name, str(directory), eventTime="ts", delay="10 seconds", maxFilesPerTrigger=1)
        spark.read.parquet(str(directory)).createOrReplaceTempView(name)
    return flow


def rows_of(frame: Any) -> Counter:
    return Counter(tuple("NaN" if value != value else value for value in row) for row in frame.collect())


def written(spark: Any, result: Any, root: Path, **options: Any) -> Counter:
    writer = result.writeStream.format("parquet").options(sites=2, partitions=8, **options).trigger(availableNow=True)
    query = writer.option("checkpointLocation", root / "ck").start(str(root / "out"))
    query.awaitTermination()
    return rows_of(spark.read.parquet(str(root / "out")))


@pytest.mark.parametrize("condition", [CONDITION, BAND])
def test_the_answer_is_that_of_sparks_batch_join(spark: Any, flow: Flow, tmp_path: Path, condition: str) -> None:
    trades, quotes = (flow.sql(f"SELECT * FROM {name}").alias(name[0]) for name in ("trades", "quotes"))
    joined = trades.join(quotes, where=condition, within=("5 seconds", "3 seconds"))
    expected = rows_of(spark.sql(f"SELECT t.*, q.* FROM trades t JOIN quotes q ON {condition} AND {NEAR}"))
    assert written(spark, joined, tmp_path) == expected
    assert sum(expected.values()) > 100


def test_sql_text_grouped_above(spark: Any, flow: Flow, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    text = f"""SELECT q.venue, window(greatest(t.ts, q.ts), '4 seconds').start AS start, count(*) AS n
               FROM trades t JOIN quotes q ON {CONDITION} AND {NEAR}
               GROUP BY q.venue, window(greatest(t.ts, q.ts), '4 seconds')"""
    ours = text.replace("window(greatest(t.ts, q.ts), '4 seconds').start AS start", "window.start")
    result = flow.sql(ours)
    result.explain()
    assert "Theta join" in capsys.readouterr().out
    found = written(spark, result, tmp_path)
    final = spark.sql(text).where("start < timestamp'1970-01-01 00:00:15'")
    assert found and found <= rows_of(spark.sql(text))
    assert rows_of(final) <= found
