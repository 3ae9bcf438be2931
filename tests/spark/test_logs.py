"""What an operator of a query reads in the log: retries, recoveries, executors that come and go."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from arrivals import arrive, ticks

from sluice import Flow
from sluice.control.site_assignment import Executor
from sluice.spark.exchange import log_changes

COLUMNS = pa.schema([("k", pa.int64()), ("ts", pa.timestamp("us", "UTC")), ("v", pa.int64())])


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, logger="sluice")
    return caplog


def test_executors_that_are_lost_and_join(log: pytest.LogCaptureFixture) -> None:
    stays = Executor("1", "red", 2)
    log_changes([stays, Executor("2", "blue", 2)], [stays, Executor("3", "green", 4)])
    assert log.messages == ["executor 2 on blue is lost", "executor 3 on green has joined, with 4 slots"]


@pytest.mark.spark
def test_a_checkpoint_that_is_taken_over(spark: Any, tmp_path: Path, log: pytest.LogCaptureFixture) -> None:
    arrive(tmp_path / "in", ticks([1, 2], [0, 1]))
    stream = Flow(spark).readFiles("a", str(tmp_path / "in"), eventTime="ts", schema=COLUMNS)
    writer = stream.groupBy("k").last(3).agg(n=("*", "count")).writeStream.format("noop")
    writer.options(checkpointLocation=tmp_path / "ck", partitions=4, sites=1).trigger(availableNow=True)
    query = writer.start()
    query.awaitTermination()
    again = writer.start()
    again.awaitTermination()
    first, second = (m for m in log.messages if "checkpoint" in m)
    assert first.endswith(f"begins on the new checkpoint {tmp_path / 'ck'}")
    assert second.endswith(f"takes over the checkpoint {tmp_path / 'ck'}, from epoch 0 on")
