"""A schema in words means the same with a session, where Spark reads it, and without one."""

from __future__ import annotations

from typing import Any

import pytest

from sluice import Flow

TEXTS = (
    "k int, ts timestamp",
    "k: int, ts: timestamp",
    "k STRING NOT NULL COMMENT 'whose, or what', `a b` decimal(9, 2), `c``d` DEC(4), e numeric, ts TIMESTAMP",
    "b byte, t tinyint, s short, m smallint, i integer, l long, g bigint, f float, r real, d double, ts timestamp",
    "o boolean, x binary, y date, n timestamp_ntz, z timestamp_ltz, ts timestamp",
    "a array<array<int>>, m map<string, array<double>>, s struct<f: long, g: struct<h: date>>, ts timestamp",
)


@pytest.mark.spark
@pytest.mark.parametrize("text", TEXTS)
def test_as_spark_reads_it(spark: Any, text: str, tmp_path: Any) -> None:
    with_session, without = (
        flow.readFiles("s", str(tmp_path), eventTime="ts", schema=text).stream.schema for flow in (Flow(spark), Flow())
    )
    assert without == with_session
