"""Spark's Structured Streaming gives the answers on record for it, those that Sluice's joins are held to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from arrivals import arrive
from stream_join_cases import CASES, LAST_EPOCH, Case, Result, count_results, table_of

from sluice.model.plan.join_kind import JoinKind

pytestmark = [pytest.mark.spark, pytest.mark.slow]

SPARKS_NAMES = {
    JoinKind.FULL: "full_outer",
    JoinKind.SEMI: "left_semi",
    JoinKind.LEFT: "left_outer",
    JoinKind.RIGHT: "right_outer",
    JoinKind.INNER: "inner",
}
"""Structured Streaming has no anti join of two streams."""


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@pytest.mark.parametrize("kind", SPARKS_NAMES, ids=lambda kind: kind.value)
def test_the_answer_on_record_is_sparks(spark: Any, tmp_path: Path, case: Case, kind: JoinKind) -> None:
    results: list[Result] = []
    runs = sorted({0, *case.restarts})
    epochs = [*case.epochs, LAST_EPOCH]
    for begin, end in zip(runs, [*runs[1:], len(epochs)], strict=True):
        for left, right in epochs[begin:end]:
            arrive(tmp_path / "a", table_of(left))
            arrive(tmp_path / "b", table_of(right))
        _run(spark, tmp_path, case, kind, results)
    on_record = case.spark_full if kind is JoinKind.FULL and case.spark_full else case.spark
    assert count_results(results) == on_record.of_kind(kind)


def _run(spark: Any, root: Path, case: Case, kind: JoinKind, results: list[Result]) -> None:
    def read(name: str, delay: int) -> Any:
        files = spark.readStream.schema("k BIGINT, ts TIMESTAMP, v BIGINT").option("maxFilesPerTrigger", 1)
        columns = [f"{column} AS {name}_{column}" for column in ("k", "ts", "v")]
        rows = files.parquet(str(root / name)).selectExpr(*columns)
        return rows.withWatermark(f"{name}_ts", f"{delay} seconds")

    def collect(frame: Any, epoch: int) -> None:
        results.extend((row["a_v"], None if kind is JoinKind.SEMI else row["b_v"]) for row in frame.collect())

    from pyspark.sql import functions as F

    before, after = case.bounds
    on = f"""a_k = b_k AND b_ts >= a_ts - INTERVAL {before} SECONDS AND b_ts <= a_ts + INTERVAL {after} SECONDS"""
    joined = read("a", case.delays[0]).join(read("b", case.delays[1]), F.expr(on), SPARKS_NAMES[kind])
    writer = joined.writeStream.foreachBatch(collect).trigger(availableNow=True)
    writer.option("checkpointLocation", str(root / "ck")).start().awaitTermination()
