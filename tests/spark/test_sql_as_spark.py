"""Texts that Spark takes: the same columns, by names and types, and the same rows as its batch query gives."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from specs import SECOND, TIME

from sluice import Flow, testing
from sluice.model.plan.planning import plan_of
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
    "b": pa.table(
        {
            "K": pa.array([1, 1, 2, 4, None, 3], pa.int32()),
            "j": ["x", "y", "x", "y", "x", None],
            "w": [0.5, 1.5, 2.5, None, 4.5, 5.5],
            "ts": times(1, 3, 62, 61, 130, 62),
        }
    ),
    "c": pa.table({"k": pa.array([1, 2, 4, 5], pa.int64()), "z": [1000, 2000, None, 4000], "ts": times(1, 62, 61, 62)}),
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
HAVING = {
    "an aggregate named as a column": "SELECT k, sum(v) AS v FROM a GROUP BY k HAVING v > 20",
    "beside that column's aggregates": "SELECT k, sum(v) AS v FROM a GROUP BY k HAVING v > 10 AND min(v) < 20",
    "computed with": "SELECT k, sum(v) AS v FROM a GROUP BY k HAVING v * 1.5 > 21.5 AND v / 7 < 5",
    "of another type": "SELECT k, avg(v) AS mean FROM a GROUP BY k HAVING mean > 13.3",
    "a group before the name": "SELECT sum(v) AS k FROM a GROUP BY k HAVING k = 1",
    "a group under another name": "SELECT j AS x, sum(v) AS j FROM a GROUP BY j HAVING x = 'x' AND j = 'x'",
    "a group of another name": "SELECT v AS k, count(*) AS n FROM a GROUP BY k, v HAVING k = 1",
    "a group of the same name": "SELECT k, sum(d) AS v FROM a GROUP BY k, v HAVING v = 10",
    "a window's": "SELECT sum(v) AS v FROM a GROUP BY window(ts, '1 minute') HAVING v > 20",
    "an expression's": "SELECT k + 1 AS next, sum(v) AS s FROM a GROUP BY k + 1 HAVING next > 2",
}
WITHOUT_NAMES = {
    "aggregates of windows": "SELECT k, sum(v), count(*), avg(d) / count(*) FROM a GROUP BY k, window(ts, '1 minute')",
    "aggregates of groups": "SELECT j, max(v) - min(v), count(v + 1), upper(j) FROM a GROUP BY j HAVING sum(v) > 0",
    "expressions": "SELECT a.v + k, CAST(v AS bigint), CASE WHEN v > 9 THEN 'much' ELSE j END, d > 1 AND k = 1 FROM a",
    "queries in queries": """SELECT `sum(v)` / `count(1)`, k FROM (SELECT k, sum(v), count(*) FROM a
        GROUP BY k, window(ts, '1 minute')) WHERE `count(1)` > 1""",
}

USING = {
    "inner": "SELECT * FROM a JOIN b USING (k, j, ts)",
    "columns in another order": "SELECT * FROM a JOIN b USING (ts, j, K)",
    "from the other side": "SELECT * FROM b JOIN a USING (ts, k, j)",
    "the key of either side": "SELECT k, a.k AS ak, b.k AS bk, v, w FROM a JOIN b USING (k)",
    "left": "SELECT * FROM a LEFT JOIN b USING (k, j, ts)",
    "right": "SELECT * FROM a RIGHT OUTER JOIN b USING (k, j, ts)",
    "full": "SELECT * FROM a FULL JOIN b USING (k, j, ts)",
    "semi": "SELECT * FROM a LEFT SEMI JOIN b USING (j, ts)",
    "anti": "SELECT * FROM a LEFT ANTI JOIN b USING (ts, k)",
    "a star of the left side": "SELECT a.*, w FROM a FULL JOIN b USING (j, k)",
    "a star of the right side": "SELECT b.*, v FROM a JOIN b USING (j, ts)",
    "a hidden star": "SELECT a.*, w FROM a RIGHT JOIN b USING (ts)",
    "both keys of a full join": "SELECT k, a.k AS ak, b.k AS bk, k + 1, v FROM a FULL JOIN b USING (k, ts) WHERE k > 1",
    "three": "SELECT * FROM a JOIN b USING (k, j, ts) JOIN c USING (k, ts)",
    "three, full": "SELECT k, ts, v, w, z FROM a FULL JOIN b USING (k, ts) FULL JOIN c USING (ts, k)",
    "full, then left": "SELECT k, v, w, z, a.k AS ak, c.k AS ck FROM a FULL JOIN b USING (k) LEFT JOIN c USING (k)",
    "right, then inner": "SELECT k, v, w, z FROM a RIGHT JOIN b USING (k) JOIN c USING (k)",
    "on, then using": "SELECT *, 1 AS one FROM (SELECT k, v FROM a) a JOIN (SELECT K AS l, w FROM b) b ON a.k = b.l "
    "JOIN (SELECT k, z FROM c) c USING (k)",
    "using, then on": "SELECT a.k, v, w, z FROM a JOIN b USING (k) LEFT JOIN c ON c.k = b.k AND z > v",
    "the first of two": "SELECT v, w, z, c.k AS ck FROM a LEFT JOIN b ON a.k = b.k AND w > 1 JOIN c USING (k)",
    "grouped": "SELECT k, count(*), sum(v), max(w) FROM a FULL JOIN b USING (k) GROUP BY k HAVING k < 4",
    "a time of both": "SELECT window.end AS till, count(w) AS n, count(v) FROM a FULL JOIN b USING (j, ts) "
    "GROUP BY window(ts, '1 minute')",
    "a key before a name": "SELECT sum(v) AS k FROM a RIGHT JOIN b USING (k) GROUP BY k HAVING k = 1",
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


@pytest.mark.parametrize("text", USING.values(), ids=USING)
def test_joins_by_using(spark: Any, text: str) -> None:
    assert_as_spark(spark, text, "unbounded")


@pytest.mark.parametrize("text", WITHOUT_NAMES.values(), ids=WITHOUT_NAMES)
def test_columns_without_names(spark: Any, text: str) -> None:
    assert_as_spark(spark, text)


@pytest.mark.parametrize("text", HAVING.values(), ids=HAVING)
def test_names_in_having(spark: Any, text: str) -> None:
    assert_as_spark(spark, text)
