"""Which executors are asked for and given back, with a Spark that only remembers what it was told."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JError

from sluice.control.site_assignment import Executor
from sluice.spark.pool import ExecutorPool


class RememberingSpark:
    """The parts of a SparkContext that a pool uses; executors are there until it is said that they are gone."""

    def __init__(self, master: str = "spark://host:7077", count: int = 3, **conf: str) -> None:
        self.master, self.conf = master, conf
        self.there = [Executor(str(number), "host", 2) for number in range(count)]
        self.busy: set[str] = set()
        self.asked: list[int] = []
        self.killed: list[str] = []
        self._jsc: Any = SimpleNamespace(sc=lambda: self)
        self._jvm = SimpleNamespace(PythonUtils=SimpleNamespace(toScalaMap=dict, toSeq=list))

    def getConf(self) -> dict[str, str]:
        return {f"spark.{name.replace('_', '.')}": value for name, value in self.conf.items()}

    def requestTotalExecutors(self, total: int, _: int, __: dict[str, int]) -> bool:
        self.asked.append(total)
        return True

    def killExecutors(self, ids: list[str]) -> bool:
        self.killed += ids
        return True

    def statusStore(self) -> Any:
        def summary(executor: Executor) -> Any:
            busy = int(executor.id in self.busy)
            return SimpleNamespace(id=lambda: executor.id, activeTasks=lambda: busy)

        found = [summary(executor) for executor in self.there]
        return SimpleNamespace(
            executorList=lambda _: SimpleNamespace(size=lambda: len(found), apply=lambda number: found[number])
        )


@pytest.fixture
def spark(monkeypatch):
    def made(*arguments: Any, **options: Any) -> tuple[RememberingSpark, ExecutorPool]:
        remembering = RememberingSpark(*arguments, **options)
        monkeypatch.setattr(
            "sluice.spark.pool.Cluster", lambda context: SimpleNamespace(look=lambda: tuple(context.there))
        )
        return remembering, ExecutorPool(remembering)

    return made


def test_executors_without_a_site_go_back_and_the_manager_knows_how_many_stay(spark):
    """A standalone manager that was told no number would take the first kill for a wish to have none at all."""
    told, pool = spark()
    pool.use("q", ["0", "0", "1", "1"])
    assert [e.id for e in pool.give_back("q")] == ["2"]
    assert (told.asked, told.killed) == ([3], ["2"])
    assert [e.id for e in pool.look()] == ["0", "1"]  # though Spark lists it for some seconds yet
    assert pool.give_back("q") == ()
    assert (told.asked, told.killed) == ([3], ["2"])


def test_nobody_loses_an_executor_that_is_used(spark):
    told, pool = spark()
    pool.use("q", ["0"])
    pool.use("other", ["1"])
    told.busy = {"2"}
    assert pool.give_back("q") == ()
    told.busy = set()
    with pool.running("other"):  # blobs of its epoch may lie on any executor
        assert pool.give_back("q") == ()
    with pool.running("q"):
        pass
    assert [e.id for e in pool.give_back("q")] == ["2"]
    pool.leave("other")
    assert [e.id for e in pool.give_back("q")] == ["1"]
    assert told.killed == ["2", "1"]


def test_executors_are_asked_for_once_and_given_up_when_they_are_not_awaited_any_more(spark):
    told, pool = spark(count=1)
    pool.use("q", ["0"])
    pool.ask("q", 3, "for 6 sites")
    pool.ask("q", 3, "for 6 sites")
    assert told.asked == [3]
    told.there.append(Executor("7", "host", 2))
    pool.use("q", ["0", "7"])
    pool.ask("q", 3, "for 6 sites")
    assert told.asked == [3]
    pool.give_back("q")
    assert (told.asked, told.killed) == ([3, 2], [])


def test_what_one_query_awaits_another_does_not_give_back(spark):
    told, pool = spark(count=2)
    pool.use("q", ["0"])
    pool.use("other", ["0"])
    pool.ask("other", 3, "for 6 sites")
    assert pool.give_back("q") == ()
    told.there.append(Executor("2", "host", 2))
    pool.ask("other", 3, "for 6 sites")  # it has come, and has no site yet
    assert pool.give_back("q") == ()
    pool.use("other", ["0", "2"])
    pool.give_back("other")
    assert (told.asked, told.killed) == ([3, 3], ["1"])


def test_executors_that_nobody_needs_go_back_though_another_query_waits_for_some(spark):
    told, pool = spark(count=5)
    pool.use("q", ["0"])
    pool.use("other", ["1"])
    pool.ask("other", 3, "for 6 sites")  # they are there, and it has no site on them yet
    assert [e.id for e in pool.give_back("q")] == ["4", "3"]
    assert (told.asked, told.killed) == ([5], ["4", "3"])
    assert pool.give_back("q") == ()
    pool.give_back("other")
    assert told.killed == ["4", "3", "2"]


@pytest.mark.parametrize(
    ("master", "conf", "wanted"),
    [
        ("spark://host:7077", {"executor_instances": "3"}, 2**31 - 1),
        ("local-cluster[3,1,512]", {}, 2**31 - 1),
        ("yarn", {"executor_instances": "8"}, 8),
        ("k8s://https://host", {}, 2),
    ],
)
def test_after_the_last_query_there_are_as_many_executors_as_at_the_start(spark, master, conf, wanted):
    told, pool = spark(master, **conf)
    for query in ("q", "other"):
        pool.use(query, ["0"])
    pool.give_back("q")
    pool.ask("other", 2, "for 4 sites")
    pool.leave("q")
    assert told.asked == [3, 2]
    pool.leave("other")
    assert told.asked == [3, 2, wanted]
    pool.leave("other")
    assert told.asked == [3, 2, wanted]


def test_a_query_that_changes_nothing_asks_for_nothing(spark):
    told, pool = spark()
    pool.use("q", ["0", "1", "2"])
    pool.give_back("q")
    pool.leave("q")
    assert (told.asked, told.killed) == ([], [])


@pytest.mark.parametrize(("master", "conf"), [("local[4]", {}), ("yarn", {"dynamicAllocation_enabled": "true"})])
def test_where_there_is_nothing_to_give_back_or_spark_does_it_nothing_is_told(spark, master, conf):
    told, pool = spark(master, **conf)
    pool.use("q", ["0"])
    pool.ask("q", 6, "for 8 sites")
    assert pool.give_back("q") == ()
    pool.leave("q")
    assert (told.asked, told.killed) == ([], [])


def test_where_all_executors_were_lost_the_manager_is_left_to_replace_them(spark):
    told, pool = spark(count=2)
    pool.use("q", ["0"])
    pool.give_back("q")
    assert told.asked == [2]
    told.there.clear()
    pool.give_back("q")
    pool.ask("q", 2, "for 3 sites")
    assert told.asked == [2]


@pytest.mark.parametrize("request_name", ["requestTotalExecutors", "killExecutors"])
def test_a_manager_that_does_not_answer_or_refuses_is_asked_again(spark, monkeypatch, request_name):
    told, pool = spark()
    pool.use("q", ["0", "1"])

    def out_of_reach(*_: Any) -> bool:
        raise Py4JError("no answer")

    for answer in (out_of_reach, lambda *_: False):
        with monkeypatch.context() as patched:
            patched.setattr(told, request_name, answer, raising=False)
            assert pool.give_back("q") == ()
            pool.ask("q", 4, "for 4 sites")
        assert len(pool.look()) == 3
    assert [e.id for e in pool.give_back("q")] == ["2"]


def test_executors_that_are_gone_are_forgotten(spark):
    told, pool = spark()
    pool.use("q", ["0", "1"])
    pool.give_back("q")
    assert pool._given_back == {"2"}
    told.there.pop()
    assert len(pool.look()) == 2 and not pool._given_back
