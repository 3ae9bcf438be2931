"""Texts that Spark takes: the same columns, by names and types, and the same rows as its batch query gives."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from specs import SECOND, TIME

from sluice import Flow, testing
from sluice.model.plan.relation import plan_of
from sluice.spark.types import spark_schema

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("compiled_queries")]


def times(*seconds: int) -> pa.Array:
    return pa.array([second * SECOND for second in seconds], TIME)


ROWS = {
    "a": pa.table(
        {
            "k": pa.array([1, 1, 1, 2, 2, 3, None], pa.int64()),
            "j": ["x", "x", "y", "x", "y", None, "x"],
            "v": pa.array([10, 10, 20, 5, None, 100, 7], pa.int32()),
            "d": [1.5, -0.5, 2.5, None, 4.5, 0.25, 3.0],
            "ts": times(1, 2, 3, 61, 62, 62, 130),
        }
    ),
}

GROUPS = {
    "operands in another order": "SELECT v + k AS s, count(*) AS n FROM a GROUP BY k + v",
    "within an expression": "SELECT (v + k) * 2 + 1 AS s, count(*) AS n FROM a GROUP BY k + v",
    "comparisons and AND": """SELECT v > k AND j = 'x' AND d < 3 AS c, count(*) AS n FROM a
        GROUP BY (3 > d AND 'x' = j) AND k < v""",
    "mixed types": "SELECT v * d AS p, count(*) AS n FROM a GROUP BY d * v",
    "greatest": "SELECT greatest(v, k) AS g, count(*) AS n FROM a GROUP BY greatest(k, v)",
    "not equal": "SELECT v <> k AS u, v <=> k AS e, count(*) AS n FROM a GROUP BY k != v, k <=> v",
}


def assert_as_spark(spark: Any, text: str, within: str | None = None) -> None:
    flow = Flow()
    for name, rows in ROWS.items():
        flow.readStream(name, rows.schema, eventTime="ts", delay="1 hour")
        spark.createDataFrame(rows).createOrReplaceTempView(name)
    result = flow.sql(text, within=within)
    # groups that never end are looked at as a whole
    groups_go_on = "GROUP BY" in text and "window(" not in text
    writer = result.writeStream.outputMode("complete" if groups_go_on else "append").option("closeAtEnd", True)
    outcome = testing.run(writer, {source.name: ROWS[source.name] for source in plan_of([result.relation]).sources})
    answer = outcome.results() if not groups_go_on else next(iter(outcome.epochs[-1].results.values()))
    batch = spark.sql(text)
    assert columns_of(spark_schema(answer.schema)) == columns_of(batch.schema)
    assert rows_of(answer) == rows_of(batch.toArrow())


def columns_of(schema: Any) -> list[tuple[str, str]]:
    return [(field.name, field.dataType.simpleString()) for field in schema]


def rows_of(table: pa.Table) -> Counter[str]:
    return Counter(repr(list(row.values())) for row in table.to_pylist())


@pytest.mark.parametrize("text", GROUPS.values(), ids=GROUPS)
def test_groups(spark: Any, text: str) -> None:
    assert_as_spark(spark, text)
