"""A listener of Spark's hears of flows of files, too: that they start, how many rows epochs had, and how they end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from arrivals import arrive, ticks
from pyspark.sql.streaming import StreamingQueryListener

from sluice import Flow, QueryError

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("nothing_stays")]


class Watch(StreamingQueryListener):
    """Notes what it hears."""

    def __init__(self) -> None:
        self.heard: list[tuple[Any, ...]] = []

    def onQueryStarted(self, event: Any) -> None:
        self.heard.append(("started", event.name, str(event.id)))

    def onQueryProgress(self, event: Any) -> None:
        progress = event.progress
        self.heard.append((progress.batchId, progress.numInputRows, progress.sink.numOutputRows))

    def onQueryIdle(self, event: Any) -> None:
        pass

    def onQueryTerminated(self, event: Any) -> None:
        self.heard.append(("ended", event.exception))


def hear_all(spark: Any) -> None:
    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty(120_000)


def test_rows_are_counted_as_rows(spark: Any, tmp_path: Path) -> None:
    arrive(tmp_path / "in", *(ticks(["a", "b", "a"], [e, e + 1, e + 2], [1, e, 3]) for e in range(2)))
    trades = Flow(spark, "heard").readFiles(
        "trades", str(tmp_path / "in"), eventTime="ts", delay="1 minute", maxFilesPerTrigger=1
    )
    watch = Watch()
    spark.streams.addListener(watch)
    try:
        writer = trades.filter("k = 'a'").writeStream.format("noop").queryName("rows").trigger(availableNow=True)
        query = writer.start()
        query.awaitTermination()
        hear_all(spark)  # that a query starts is heard at once, before what waits on the bus
        broken = trades.withColumn("v", "1 / (v - 1)").writeStream.format("noop").queryName("broken")
        with pytest.raises(QueryError) as failure:
            broken.trigger(availableNow=True).start().awaitTermination()
        hear_all(spark)
    finally:
        spark.streams.removeListener(watch)
    ended = watch.heard.index(("ended", None))
    heard, of_broken = watch.heard[:ended], watch.heard[ended + 1 :]
    assert heard[0] == ("started", "rows", query.id)
    assert [epoch for epoch in heard[1:] if epoch[1]] == [(0, 3, 2), (1, 3, 2)], heard
    assert of_broken[0][:2] == ("started", "broken") and of_broken[-1] == ("ended", str(failure.value))
    assert str(failure.value).startswith("query 'broken' failed in epoch 0: stream 'trades', column 'v': division by")
