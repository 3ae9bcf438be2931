"""Units move while a query runs on Spark: by hand and by a policy, and the answer is the batch query's."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from arrivals import arrive
from trade_sums import EPOCHS, TRADES, assert_exact, sums

from sluice import FlowError, Policy, QueryError
from sluice.experiments import slowDisk, slowDown

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("nothing_stays")]


class Restless(Policy):
    """Sends a unit back and forth, whatever it sees."""

    name = "restless"

    def decide(self, view: Any) -> tuple[Any, ...]:
        from sluice.verbs.move import Move

        assert view.units.rows.sum() > 0 and view.units.bytes.sum() > 0
        return (Move(3, 1 - int(view.units.site[3]), "for the sake of it"),)


def test_a_policy_moves_units_and_the_answer_stays(spark: Any, tmp_path: Path) -> None:
    arrive(tmp_path / "trades", *TRADES)
    writer = sums(spark, tmp_path).trigger(availableNow=True).policy(Restless(), collect="1 millisecond")
    query = writer.start()
    query.awaitTermination()
    assert_exact(tmp_path)
    moved = [d for d in query.decisions() if not d.refused]
    assert moved
    assert {(d.policy, d.unit, d.reason) for d in moved} == {("restless", 3, "for the sake of it")}


def test_a_unit_moved_by_hand_is_where_it_was_sent(spark: Any, tmp_path: Path) -> None:
    arrive(tmp_path / "trades", *TRADES[:3])
    query = sums(spark, tmp_path).trigger(processingTime="0 seconds").start()
    query.processAllAvailable()
    assert query.routing()[2] == 0
    with pytest.raises(QueryError, match="cannot move unit 2 to site 5: there is no site 5"):
        query.move(2, 5)
    with pytest.raises(FlowError, match="a unit is given by its number, not by '2'"):
        query.move("2", 1)
    with pytest.raises(QueryError, match="there is no site 2; they are numbered from 0 to 1"):
        query.setSiteMemory(2, "1m")
    with pytest.raises(FlowError, match="size is not a size: 'much'"):
        query.setSiteMemory(1, "much")
    with pytest.raises(FlowError, match="a site is given by its number, not by None"):
        slowDown(query, None, "1 second")
    with pytest.raises(FlowError, match="perSecond is not a size: 'slow'"):
        slowDisk(query, "slow")
    with pytest.raises(FlowError, match="a disk of 0 bytes a second would take for ever"):
        slowDisk(query, 0)
    slowDisk(query, "50m")
    slowDisk(query, None)
    query.move(unit=np.int64(2), site=1)
    assert [d.policy for d in query.decisions()] == ["you"]
    for table in TRADES[3:]:
        arrive(tmp_path / "trades", table)
        query.processAllAvailable()
    assert query.routing()[2] == 1
    (move,) = query.decisions()
    assert (move.outcome, move.refused, move.abandoned) == ("done", None, None)
    holders = {record.number: record.routing.holders[2] for record in query._running.epochs.history()}
    assert (holders[move.done - 1], holders[move.done]) == (0, 1)
    query.stop()
    for late in (
        lambda: query.move(2, 0),
        lambda: query.setSiteMemory(0, "1m"),
        lambda: slowDown(query, 0, "1 second"),
        lambda: slowDisk(query, "50m"),
    ):
        with pytest.raises(QueryError, match="the query has ended"):
            late()
    assert_exact(tmp_path)


def records(query: Any) -> list[Any]:
    return query._running.epochs.history()


def waits(query: Any) -> bool:
    """Whether input waits, by the newest epoch."""
    return bool(query._running.epochs.record.lagging)


def until(what: str, condition: Callable[[], bool], seconds: float = 300) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"no {what} in {seconds} seconds"
        time.sleep(0.02)


def behind(spark: Any, root: Path) -> Any:
    """A query that did not get through all rows in the time it has for an epoch."""
    arrive(root / "trades", TRADES[0])
    writer = sums(spark, root).options(epochBudget="20 milliseconds").trigger(processingTime="0 seconds")
    query = writer.start()
    slowDown(query, 0, "3 milliseconds")
    arrive(root / "trades", *TRADES[1:])
    until("backlog", lambda: waits(query) and rows_in(query) == EPOCHS * 80)
    return query


def test_budget_memory_and_moves_at_once(spark: Any, tmp_path: Path) -> None:
    arrive(tmp_path / "trades", TRADES[0])
    writer = sums(spark, tmp_path).options(epochBudget="20 milliseconds", backlog="20k", spill="unit", siteMemory="8k")
    query = writer.trigger(processingTime="0 seconds").start()
    query.processAllAvailable()
    for number, limit in enumerate(("0", "64m", "4k")):
        slowDown(query, number % 2, "1 millisecond")
        query.setSiteMemory(number % 2, limit)
        query.move(number, 1 - query.routing()[number])
        arrive(tmp_path / "trades", *TRADES[1 + 2 * number : 3 + 2 * number])
        until("more rows", lambda: rows_in(query) == (3 + 2 * number) * 80)  # noqa: B023
    arrive(tmp_path / "trades", *TRADES[7:])
    query.processAllAvailable()
    assert query.lastProgress["backlogRows"] == 0 and not waits(query)
    found = records(query)
    query.stop()
    assert_exact(tmp_path)
    for count in ("backlog_rows", "moves", "spills", "fetches"):
        assert sum(getattr(r.stats, count) for r in found), count
    limits = {site.memory_limit for r in found for site in r.stats.sites}
    assert limits == {8 << 10, 0, 64 << 20, 4 << 10}


def test_a_query_without_new_input_catches_up_by_itself(spark: Any, tmp_path: Path) -> None:
    query = behind(spark, tmp_path)
    slowDown(query, 0, "0 seconds")
    until("end of the backlog", lambda: not waits(query))
    assert any(r.stats.catch_up for r in records(query))
    query.stop()
    assert_exact(tmp_path)


def test_input_that_waits_has_epochs_between_a_triggers_batches_and_these_come_in_time(
    spark: Any, tmp_path: Path
) -> None:
    arrive(tmp_path / "trades", TRADES[0])
    writer = sums(spark, tmp_path).options(epochBudget="200 milliseconds").trigger(processingTime="1 second")
    query = writer.start()
    slowDown(query, 0, "20 milliseconds")  # so that what a batch brings takes the site some epochs
    arrive(tmp_path / "trades", TRADES[1])
    until("slow epoch", lambda: rows_in(query) == 160)  # from which sites tell how long a row takes now
    for number, table in enumerate(TRADES[2:5], start=3):
        arrive(tmp_path / "trades", table)
        until("more rows", lambda: rows_in(query) == number * 80)  # noqa: B023
        until("epoch between batches", lambda: records(query)[-1].stats.catch_up)
    slowDown(query, 0, "0 seconds")
    arrive(tmp_path / "trades", *TRADES[5:])
    query.processAllAvailable()
    query.stop()
    assert_exact(tmp_path)


def test_a_query_that_is_stopped_while_input_waits_loses_nothing(spark: Any, tmp_path: Path) -> None:
    query = behind(spark, tmp_path)
    query.stop()
    assert waits(query)
    sums(spark, tmp_path).trigger(availableNow=True).start().awaitTermination()
    assert_exact(tmp_path)


def rows_in(query: Any) -> int:
    return sum(r.stats.rows_in for r in records(query))
