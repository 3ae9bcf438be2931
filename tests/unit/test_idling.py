"""A query to which no input comes: when it has epochs of its own, and that it never stands still unseen."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JError
from pyspark.errors import StreamingQueryException

from sluice.model.clock import SystemClock
from sluice.model.errors import CheckpointError, FlowError, QueryError, StorageError
from sluice.spark import idling, running
from sluice.spark.failures import QueryFailed
from sluice.spark.idling import IDLE_EPOCH_AFTER_S, MAX_IDLE_EPOCHS, Idling
from sluice.spark.running import RunningQuery


class Clock:
    """Time as the test lets it pass."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    def wait(self, seconds: float) -> None:
        self.now += seconds


def made(**known: bool) -> tuple[Idling, SimpleNamespace, Clock]:
    """An idle query, of which this is known."""
    work = SimpleNamespace(**{"is_behind": False, "is_under_way": False, "may_need_fewer_sites": False, **known})
    clock = Clock()
    return Idling(work, interval=5.0, clock=clock), work, clock


def nobody_joins() -> bool:
    return False


@pytest.mark.parametrize("known", ["is_behind", "is_under_way"])
def test_what_is_to_be_done_is_done_a_moment_after_the_last_batch(known):
    query, work, clock = made(**{known: True})
    clock.wait(0.5)
    assert not query.is_epoch_due(nobody_joins)
    clock.wait(1.0)
    assert query.is_epoch_due(nobody_joins)
    setattr(work, known, False)
    assert not query.is_epoch_due(nobody_joins)
    assert query.is_epoch_due(lambda: True), "sites that were asked for can join"


def test_a_policy_is_shown_a_few_times_that_nothing_comes():
    query, _, clock = made(may_need_fewer_sites=True)
    idle_epochs = 0
    for _ in range(1000):
        clock.wait(1.0)
        if query.is_epoch_due(nobody_joins):
            assert query.is_idle_epoch_due
            query.idle_epoch_is_over()
            idle_epochs += 1
    assert idle_epochs == MAX_IDLE_EPOCHS
    query.sites_have_changed()
    assert query.is_idle_epoch_due


def test_what_the_user_asks_for_uses_up_no_rest():
    query, work, clock = made(may_need_fewer_sites=True, is_under_way=True)
    for _ in range(100):
        clock.wait(0.1)
        query.is_epoch_due(nobody_joins)
    work.is_under_way = False
    for _ in range(MAX_IDLE_EPOCHS):
        clock.wait(IDLE_EPOCH_AFTER_S + 6.0)
        assert query.is_idle_epoch_due
        query.idle_epoch_is_over()


class UnreliableFeed:
    """Answers, or does not, as often as it is to."""

    def __init__(self, failures: int) -> None:
        self.failures, self.stopped = failures, False

    def is_input_coming(self) -> bool:
        return False

    @property
    def is_active(self) -> bool:
        self.failures -= 1
        if self.failures >= 0:
            raise Py4JError("no answer")
        return True

    def stop(self) -> None:
        self.stopped = True
        raise Py4JError("no answer")


def behind(failures: int, monkeypatch: Any) -> Any:
    """A query whose input waits, and whose Spark does not answer so many times."""
    monkeypatch.setattr(running, "IDLE", 0.004)
    monkeypatch.setattr(idling, "IDLE", -1.0)
    query = object.__new__(RunningQuery)
    query.id, query.failure, query._interval = "q", None, 0.0
    query._query = SimpleNamespace(title="the query")
    query._closed, query._stopping = threading.Event(), threading.Event()
    query.epochs = SimpleNamespace(is_behind=True, busy=threading.Lock(), clock=SystemClock())
    query.epochs.record, query.epochs.delivery = SimpleNamespace(number=6), SimpleNamespace(failed_epoch=None)
    query._idling = Idling(query.epochs, 0.0)
    query.feed = UnreliableFeed(failures)

    def caught_up() -> bool:
        query.epochs.is_behind = False
        query._closed.set()
        return True

    query._catch_up = caught_up
    return query


def test_an_idle_query_goes_on_though_spark_did_not_answer_once(monkeypatch):
    query = behind(3, monkeypatch)
    query._catch_up_when_idle()
    query.settle()
    assert not query.epochs.is_behind and query.failure is None


def test_nobody_waits_for_a_query_that_cannot_be_looked_after_any_more(monkeypatch):
    monkeypatch.setattr(idling, "UNREACHABLE_S", 0.0)
    query = behind(1_000_000, monkeypatch)
    watching = threading.Thread(target=query._catch_up_when_idle)
    watching.start()
    with pytest.raises(QueryFailed, match="the query failed in epoch 7: Py4JError: no answer"):
        query.settle()
    watching.join()
    assert query.feed.stopped and not query._closed.is_set()


@pytest.mark.parametrize("cause", [FlowError("a unit is given by its number, not by '3'"), StorageError("it is gone")])
def test_what_goes_wrong_while_a_query_runs_is_the_query_s_error(cause, monkeypatch):
    """Also in an epoch of which Spark knows nothing, and whatever a policy or a file raised."""
    query = behind(0, monkeypatch)
    query._fail(cause)
    assert type(query.failure) is QueryFailed
    assert isinstance(query.failure, QueryError) and isinstance(query.failure, StreamingQueryException)
    assert not isinstance(query.failure, FlowError)
    assert str(query.failure) == f"the query failed in epoch 7: {cause}"


def test_a_driver_whose_checkpoint_was_taken_over_says_so(monkeypatch):
    query, taken = behind(0, monkeypatch), CheckpointError("checkpoint ck was taken over")
    query._fail(taken)
    assert query.failure is taken


def test_cleaning_up_ends_though_new_input_always_waits(monkeypatch):
    """What has come since it was asked for does not count."""
    monkeypatch.setattr(running, "POLL_S", 0.0)
    query = behind(0, monkeypatch)
    asked = iter(range(10, 20))
    polled: list[int] = []
    query.epochs.plan = SimpleNamespace(levels=1)
    query.epochs.clean_up = lambda: next(asked)

    def is_cleaning_up(asked_after: int) -> bool:
        polled.append(asked_after)
        return polled.count(asked_after) < 3

    query.epochs.is_cleaning_up = is_cleaning_up
    query.clean_up()
    assert query.epochs.is_behind and polled == [10, 10, 10, 11, 11, 11]
