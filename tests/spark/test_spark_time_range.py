"""Event times outside of the range that Sluice has, in rows that Spark reads and in files that Sluice reads itself."""

from __future__ import annotations

import pyarrow as pa
import pytest
from arrivals import arrive
from specs import TIME

from sluice import Flow
from sluice.model.plan.stream import EARLIEST, LATEST

LEAST, MOST = -(2**63), 2**63 - 1


@pytest.mark.spark
@pytest.mark.usefixtures("nothing_stays")
@pytest.mark.parametrize("by_spark", [True, False])
def test_what_spark_reads_is_bounded_too(spark, tmp_path, by_spark):
    times = [LEAST, EARLIEST - 1, EARLIEST, 0, LATEST, LATEST + 1, MOST]
    arrive(tmp_path / "a", pa.table({"k": [1] * len(times), "ts": pa.array(times, TIME), "v": list(range(len(times)))}))
    flow, where = Flow(spark, "range"), str(tmp_path / "a")
    if by_spark:
        frame = spark.readStream.schema("k bigint, ts timestamp, v bigint").parquet(where)
        rows = flow.readStream("a", frame, eventTime="ts")
    else:
        rows = flow.readFiles("a", where, eventTime="ts")
    handed = []
    writer = (
        rows.groupBy("k")
        .last(2)
        .agg(total=("v", "sum"))
        .writeStream.foreachBatch(
            lambda frame, epoch: handed.extend(frame.selectExpr("unix_micros(ts)", "total").collect())
        )
    )
    query = writer.options(sites=2, partitions=8).trigger(availableNow=True).start()
    query.awaitTermination()
    assert sorted((r[0], r[1]) for r in handed) == [(EARLIEST, 2), (0, 5), (LATEST, 7)]
    assert query.lastProgress["outOfRangeRows"] == 4
    assert query.lastProgress["streams"][0]["outOfRange"] == 4
    assert query.lastProgress["watermarks"] == {"a": "9999-12-31T23:59:59.999999+00:00"}
