"""How a query ends: by any exception, with that exception, and leaving nothing in the process that started it."""

from __future__ import annotations

import gc
import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from arrivals import arrive, ticks
from pyspark import SparkContext
from pyspark.errors import StreamingQueryException

from sluice import Flow
from sluice.model.errors import SluiceError

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("nothing_stays")]

STARTS = 4


def newest(spark: Any, root: Path) -> Any:
    flow = Flow(spark, "ends")
    rows = flow.readFiles("a", str(root / "a"), eventTime="ts", maxFilesPerTrigger=1)
    return rows.groupBy("k").last(3).agg(total=("v", "sum")).writeStream.options(sites=2, partitions=8)


class _Unusual(BaseException):
    pass


@pytest.mark.parametrize("failure", [SystemExit(3), KeyboardInterrupt("enough"), _Unusual("odd")], ids=repr)
def test_whatever_a_users_function_raises_ends_the_query_with_it(spark: Any, tmp_path: Path, failure: Any) -> None:
    arrive(tmp_path / "a", ticks([1, 2], [1, 2]))

    def give_up(frame: Any, epoch: int) -> None:
        raise failure

    query = newest(spark, tmp_path).foreachBatch(give_up).trigger(processingTime="1 second").start()
    said = rf"(?s){type(failure).__name__}.*{failure}"
    with pytest.raises(Exception, match=said):
        query.awaitTermination(600)
    assert not query.isActive
    assert type(failure).__name__ in str(query.exception())


def test_so_does_what_is_raised_while_only_waiting_input_is_processed(spark: Any, tmp_path: Path) -> None:
    batches = 3
    rows = [ticks(list(range(200)), [float(t)] * 200) for t in range(batches)]
    arrive(tmp_path / "a", *rows)
    caught_up = []

    def give_up(frame: Any, epoch: int) -> None:
        if epoch >= batches:
            caught_up.append(epoch)
            raise SystemExit(3)

    writer = newest(spark, tmp_path).foreachBatch(give_up).options(epochBudget="1 microsecond")
    query = writer.trigger(availableNow=True).start()
    with pytest.raises(SluiceError, match=r"SystemExit\(3\)"):
        query.awaitTermination(600)
    assert caught_up == [batches]
    assert not query.isActive
    assert "SystemExit" in str(query.exception())


def test_a_stop_ends_what_an_epoch_is_at_and_that_is_no_failure(spark: Any, tmp_path: Path) -> None:
    arrive(tmp_path / "a", ticks([1, 2], [1, 2]))
    at_work = threading.Event()

    def dawdle(frame: Any, epoch: int) -> None:
        at_work.set()
        frame.sparkSession.range(1 << 60).selectExpr("sum(id % 7)").collect()

    query = newest(spark, tmp_path).foreachBatch(dawdle).start()
    assert at_work.wait(600)
    query.stop()
    assert not query.isActive and query.exception() is None
    assert query.awaitTermination(5) is True


def test_an_expression_that_fails_is_told_first_and_in_the_users_words(spark: Any, tmp_path: Path) -> None:
    arrive(tmp_path / "a", ticks([1, 2], [1, 2], [5, 0]))
    rows = Flow(spark, "ratios").readFiles("trades", str(tmp_path / "a"), eventTime="ts").withColumn("r", "1 / v")
    writer = rows.groupBy("k").last(3).agg(total=("r", "sum")).writeStream.format("memory").queryName("ratios")
    writer = writer.options(sites=2, partitions=8, checkpointLocation=tmp_path / "ck")
    query = writer.trigger(availableNow=True).start()
    said = "query 'ratios' failed in epoch 0: stream 'trades', column 'r': division by zero, in \"1 / v\""
    with pytest.raises(StreamingQueryException) as raised:
        query.awaitTermination(600)
    for failure in (raised.value, query.exception()):
        assert isinstance(failure, SluiceError)
        assert str(failure).splitlines()[0] == said
    assert raised.value.__suppress_context__, "what Spark says is in it, and not before it"


def test_many_starts_leave_no_thread_descriptor_or_callback(spark: Any, tmp_path: Path) -> None:
    arrive(tmp_path / "a", ticks([1, 2], [1, 2]))

    def start_and_stop() -> None:
        query = newest(spark, tmp_path).foreachBatch(lambda frame, epoch: frame.count()).start()
        query.processAllAvailable()
        query.stop()

    def leavings() -> dict[str, int]:
        gc.collect()
        pool = SparkContext._gateway.gateway_property.pool  # type: ignore[union-attr]
        descriptors = len(os.listdir("/proc/self/fd"))
        return {"threads": threading.active_count(), "descriptors": descriptors, "callbacks": len(pool)}

    for _ in range(2):
        start_and_stop()
    before = leavings()
    for _ in range(STARTS):
        start_and_stop()
    deadline = time.monotonic() + 60
    # py4j may meanwhile have opened the one connection of its own on which the JVM says what it has collected
    while any(leavings()[what] > count + 1 for what, count in before.items()) and time.monotonic() < deadline:
        time.sleep(0.1)
    after = leavings()
    assert {what for what, count in before.items() if after[what] > count + 1} == set(), (before, after)
    assert after["callbacks"] <= before["callbacks"]
