"""The handle of a query, without Spark: what it tells of epochs that Spark has no part in, and what it refuses."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from engine_harness import single
from epoch_factory import record
from specs import join, stream

from sluice.api.options import QueryOptions
from sluice.api.query import Query
from sluice.api.writer import DataStreamWriter
from sluice.control.controller import Controller
from sluice.engine.site_task import Spill
from sluice.model.errors import FlowError, QueryError
from sluice.policies import policy
from sluice.record.epoch import EpochRecord
from sluice.record.progress import EpochProgress
from sluice.spark.sinks import SinkKind

PLAN = single(join([stream("a"), stream("b")], 5))


def caught_up(number: int, batch: int) -> EpochRecord:
    """An epoch that took in nothing."""
    epoch = record(number, batch=batch)
    return replace(epoch, stats=replace(epoch.stats, catch_up=True))


def handle(*epochs: EpochRecord, batches: tuple[int, ...] = (), draining: bool = False) -> Query:
    """The handle of a query with these epochs, whose feed has made its part of some batches known."""
    progress = {
        b: {"batchId": b, "id": "7", "durationMs": {"triggerExecution": 500}, "numInputRows": 1} for b in batches
    }
    running: Any = SimpleNamespace(
        feed=SimpleNamespace(id="7", run_id="9", name="pairs", is_active=not draining, progress=progress),
        epochs=SimpleNamespace(
            standing=SimpleNamespace(
                plan_of=lambda record: PLAN,
                recent_records=lambda: [replace(e, newest=(None, None)) for e in epochs],
            ),
            record=record(9),
        ),
        settings=SimpleNamespace(controller=Controller(policy("static"), 1 << 20, capabilities=PLAN.capabilities)),
        plan=PLAN,
        draining=draining,
    )
    return Query(running, {})


def numbers(query: Query) -> list[int]:
    return [p["epoch"] for p in query.recentProgress]


class TestProgress:
    def test_of_epochs_over_what_waited_before_a_restart(self) -> None:
        """Spark has had no batch in this run, and says nothing."""
        query = handle(caught_up(7, batch=3), caught_up(8, batch=3))
        assert numbers(query) == [7, 8]
        last = query.lastProgress
        assert last is not None
        assert (last["id"], last["runId"], last["name"]) == ("7", "9", "pairs")
        assert last["batchId"] == 3
        assert last["numOutputRows"] == 200

    def test_has_the_names_that_users_know(self) -> None:
        last = handle(record(0, batch=0), batches=(0,)).lastProgress
        assert last is not None
        assert " ".join(last) == (
            "batchId id durationMs numInputRows epoch committedAt processedRowsPerSecond numOutputRows lateRows "
            "nullRows outOfRangeRows missingFiles corruptFiles units moves spills fetches backlogRows sharedUnits "
            "copiedRows copiedBytes exchangedBytes bytesBetweenSites remiss missingUnits cleanUp imbalance scaling "
            "streams watermarks silentStreams operators phaseSeconds sites"
        )
        assert [set(operator) for operator in last["operators"]] == [{"operator", "rowsIn", "rowsOut"}]
        assert json.loads(json.dumps(last)) == last

    def test_is_a_value_until_then(self) -> None:
        epoch = replace(record(3, batch=2), newest=(90_000_000, None))
        progress = EpochProgress.of(epoch, PLAN, seconds=4.0)
        assert progress == EpochProgress.of(epoch, PLAN, seconds=4.0)
        assert (progress.epoch, progress.batch, progress.units) == (3, 2, epoch.routing.units)
        assert progress.rows_per_second == epoch.stats.rows_in / 4.0
        assert [mark.stream for mark in progress.watermarks] == ["a", "b"]
        assert progress.scaling is None and EpochProgress.of(epoch, PLAN, seconds=0.0).rows_per_second == 0.0

    def test_comes_in_the_order_of_epochs(self) -> None:
        """Who asks for those after the newest it has seen misses none."""
        epochs = record(0, batch=0), caught_up(1, batch=0), record(2, batch=1), caught_up(3, batch=1)
        assert numbers(handle(*epochs, batches=(0,))) == [0, 1]
        assert numbers(handle(*epochs, batches=(0, 1))) == [0, 1, 2, 3]


REQUESTS = {
    "freeze unit 1": lambda query: query.freeze(1),
    "move unit 1 to site 1": lambda query: query.move(1, 1),
    "share unit 1 with site 1": lambda query: query.share(1, 1),
    "release unit 1 from site 1": lambda query: query.release(1, 1),
    "split unit 1": lambda query: query.split(1),
    "merge unit 1": lambda query: query.merge(1),
}


@pytest.mark.parametrize("what", REQUESTS)
def test_a_query_that_only_finishes_what_waits_takes_no_requests(what: str) -> None:
    """A loop that freezes would keep it from ending."""
    query = handle(draining=True)
    with pytest.raises(QueryError, match=rf"cannot {what}: the query has taken in all there was, and only finishes"):
        REQUESTS[what](query)


def test_what_a_writer_is_told_last_is_its_sink() -> None:
    rows: Any = SimpleNamespace()
    writer = DataStreamWriter(rows).foreachBatch(print)
    assert writer.choices().format is SinkKind.FOREACH_BATCH
    assert writer.format("noop").choices().format is SinkKind.NOOP
    with pytest.raises(
        FlowError, match="there is no sink 'foreachBatch'; known: parquet, memory, console, noop, delta, "
    ):
        writer.format("foreachBatch")


def test_spill_is_one_of_two_and_no_text() -> None:
    assert QueryOptions.read({}).spill is Spill.UNIT
    assert QueryOptions.read({"spill": "PROBE"}).spill is Spill.PROBE
    with pytest.raises(FlowError, match="option 'spill' must be one of unit, probe, not 'all'"):
        QueryOptions.read({"spill": "all"})
