"""Columns without AS: each has the name that Spark gives it, or is refused."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from sluice import Flow, SqlError

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("compiled_queries")]

ROW = """SELECT 1 AS k, 2 AS v, 1.5D AS d, 1.25 AS m, 'x' AS s, true AS b, TIMESTAMP '2024-01-01 00:00:00' AS ts,
    DATE '2024-01-01' AS day, array(1, 2) AS arr, named_struct('City', 'a', 'x', 1) AS o, 3 AS `a b`"""
NAMED = """
    v+1 | (v + 1) | V + K | t.v * `a b` | -v | - -v | -(v+1) | -1.50 | 1 - v - 2 | 1 - (v - 2) | v % 2 = 0 | v div 2 + 1
    v / nullif(k, 0) | d * v + m | v + 00012 | 1.50 + v | '1' | 'it''s' | "x" | TRUE | NULL + 1 | ((v)) + 1
    NOT b | not not b | b AND b AND (b OR b) | b OR NOT b | v==1 | v<>1 | v != k | v <=> 1 | v <= 1 | ts > '2020-01-01'
    v IS NULL | v IS DISTINCT FROM 1 | v IS NOT DISTINCT FROM k | v BETWEEN k AND d + 1 | v NOT BETWEEN 1 AND 2
    v IN (1, -2) | v NOT IN (1,2) | s IN ('a, b', 'c') | s LIKE 'x%' | s NOT LIKE 'x%' | s LIKE '%a%' AND b
    s || 'a' || s | concat(s, ', ', v) | upper(t.s) | UCASE(S) | upper(o.city) | upper(t.o.City) | length(s) + 1
    coalesce(v, d) | nvl(k, v) | ifnull(v, 0) + 1 | nvl2(k, v, 1) | greatest(k, v, 3) | least(v, 1) + 1 | isnull(k)
    isnotnull(k) | isnan(d) | if(v > 1 AND b, s, 'x') | IF(b, v, d) + 1 | abs(-5) | abs(-v) | mod(k, v) | sign(d)
    floor(d) + 1 | ceil(d) | ceiling(d) | round(d) | round(v / 3, 2) | sqrt(d) | exp(d) | signum(d) | ln(d) + 1 | log(d)
    log(2, d) | log10(d) | power(d, 2) | pow(d, 2) | char_length(s) | lcase(s) | trim(upper(s)) | btrim(s) | ltrim(s)
    rtrim(s) | substring(s, 1) | substr(s, 1, 2) | replace(s, 'a') | replace(s, 'a', '') | split_part(s, ',', 1)
    startswith(s, 'a') | endswith(s, 'a') | contains(s, 'a') OR b | rlike(s, 'a') | regexp(s, 'a') | regexp_like(s, 'a')
    regexp_extract(s, '(a)') | year(ts) | weekday(ts) | hour(ts) * 60 + minute(ts) | date_trunc('HOUR', ts)
    datediff(day, day) + 1 | date_add(day, 1) | date_sub(day, 1) | add_months(day, 1) | to_date(s) | to_timestamp(s)
    unix_seconds(ts) + 1 | timestamp_seconds(v) > ts | size(arr) + 1 | cardinality(arr) | element_at(arr, 1)
    CASE WHEN v>1 THEN 'a' WHEN b THEN s END | CASE v WHEN 1 THEN -v ELSE 2 END | CAST(v AS string) | cast(T.V as long)
    CAST(v+1 AS decimal(10,2)) | CAST(CAST(v AS string) AS int) | v::real * 2 | CAST(s AS timestamp_ntz) > ts
    CAST(v AS decimal(5)) | CAST(v AS numeric) + 0 | CAST(v AS boolean) AND b | CAST(s AS date) > day
    sum(v) | SUM(V) | sum(t.v) | sum((v)) | (sum(v)) | count(*) | COUNT(1) | count(v + 1) | count(*) + 1 | avg(m)
    mean(v) | min(v) | max(s) | stddev(v) | std(v) | stddev_samp(v) | stddev_pop(v) + 1 | variance(v) | var_samp(v)
    var_pop(v) | first(v) - last(v) | first_value(s) | last_value(v) | sum(v) / count(*) | -sum(v) | max(v + k) - 1
    round(avg(v), 2) | CAST(sum(v) AS double) | sum(CASE WHEN v>1 THEN 1 END) | sum(if(b,1,0)) | coalesce(sum(v), 0)
    sum(length(s)) | max(v) - min(v) | sum(v) * 1.0 / count(*) | count(o.x) | max(day)
"""
UNNAMED = """
    day + 1 | max(day) - 1 | ts + INTERVAL 1 DAY | ts - ts | v IS NOT NULL | NOT v IS NULL | 1L | 1e3 | +1 + v | r'\\n'
    DATE '2024-01-01' | EXTRACT(YEAR FROM ts) | trim(LEADING 'a' FROM s) | unix_timestamp(ts) | arr[0] | o['x']
    CAST(1 AS string) | s RLIKE 'x' | s LIKE 'a!%' ESCAPE '!' | TRY_CAST(s AS int) | v & 1 | o.x + 1
    sum(v) OVER (ORDER BY ts ROWS 3 PRECEDING)
"""


def entries(listed: str) -> list[str]:
    return [entry.strip() for line in listed.strip().splitlines() for entry in line.replace("||", "¦").split("|")]


@pytest.fixture
def flow(spark: Any) -> Flow:
    frame = spark.sql(ROW)
    frame.createOrReplaceTempView("t")
    flow = Flow(name="names")
    columns: pa.Schema = frame.toArrow().schema
    flow.readStream("t", columns, eventTime="ts")
    return flow


def test_names_are_those_of_spark(spark: Any, flow: Flow) -> None:
    for entry in entries(NAMED):
        text = f"SELECT {entry.replace('¦', '||')} FROM t"
        assert flow.sql(text).columns == spark.sql(text).columns, text


def test_where_the_name_is_not_known_one_has_to_be_given(flow: Flow) -> None:
    for entry in entries(UNNAMED):
        with pytest.raises(SqlError, match="this column needs a name: write AS name after it"):
            flow.sql(f"SELECT {entry} FROM t")
