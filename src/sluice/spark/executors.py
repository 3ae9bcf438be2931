"""The executors of a Spark application, seen from the driver, and tasks that run on chosen ones."""

from __future__ import annotations

import re
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from pyspark import RDD, SparkContext
from pyspark.serializers import UTF8Deserializer
from pyspark.sql import SparkSession

from sluice.control.site_assignment import Executor

_WAIT = 30.0
_LOOK = 0.25
"""Seconds between two looks for executors that are awaited."""
T = TypeVar("T")


class Cluster:
    """Which executors there are. While they stay the same, looking costs one call."""

    def __init__(self, context: SparkContext) -> None:
        self._scheduler = context._jsc.sc()
        self._addresses: frozenset[str] = frozenset()
        self._executors: tuple[Executor, ...] = ()

    def look(self) -> tuple[Executor, ...]:
        """The executors that are there now, oldest first."""
        addresses = frozenset(self._scheduler.getExecutorMemoryStatus().keySet().mkString(",").split(","))
        if addresses != self._addresses:
            listed = self._list_executors()
            self._executors = tuple(e for address, e in listed if address in addresses and e.slots)
            # Spark's list may lag behind: what it does not know yet is looked for again
            self._addresses = addresses if addresses <= {address for address, _ in listed} else frozenset()
        return self._executors

    def _list_executors(self) -> list[tuple[str, Executor]]:
        """Every executor with its address, the driver among them; where it runs no tasks it has no slots."""
        summaries = self._scheduler.statusStore().executorList(True)
        listed = []
        for number in range(summaries.size()):
            summary = summaries.apply(number)
            address = str(summary.hostPort())
            listed.append((address, Executor(str(summary.id()), address.rpartition(":")[0], int(summary.maxTasks()))))
        return sorted(listed, key=lambda f: (len(f[1].id), f[1].id))


def await_executors(session: SparkSession) -> tuple[Executor, ...]:
    """The executors, after a little wait for those that were asked for, or else for the first."""
    context = session.sparkContext
    in_cluster = re.match(r"local-cluster\[\s*(\d+)", str(context.master))
    expected = int(in_cluster[1]) if in_cluster else int(session.conf.get("spark.executor.instances", "1") or 1)
    cluster = Cluster(context)
    deadline = time.monotonic() + _WAIT
    local = str(context.master).startswith("local") and not in_cluster
    while not local and len(cluster.look()) < expected and time.monotonic() < deadline:
        time.sleep(0.1)
    return cluster.look()


def do_at(
    context: SparkContext,
    homes: Sequence[Executor | None],
    work: Callable[[], Iterable[T]],
    beside: RDD[Any] | None = None,
) -> list[T]:
    """What a task an entry says, each on the given executor as long as that lives and has a slot free in time; None is
    anywhere.

    With `beside`, which has as many partitions of one row, the task computes that partition, too. PySpark has no way to
    say where a task should run, Scala's `makeRDD` has.
    """
    jvm: Any = context._jvm
    rows = []
    for number, home in enumerate(homes):
        # the words in which Spark names one executor of a host
        where = [] if home is None else [f"executor_{home.host}_{home.id}"]
        rows.append(jvm.scala.Tuple2(str(number), jvm.PythonUtils.toSeq(where)))
    text = jvm.scala.reflect.ClassTag.apply(jvm.java.lang.Class.forName("java.lang.String"))
    tasks = context._jsc.sc().makeRDD(jvm.PythonUtils.toSeq(rows), text).toJavaRDD()
    if beside is not None:
        tasks = tasks.zip(beside._jrdd).keys()

    def work_there(rows: Iterable[str]) -> Iterable[T]:
        deque(rows, maxlen=0)  # Spark ends a Python worker that leaves any unread, and all that it has imported is lost
        return work()

    numbered: RDD[str] = RDD(tasks, context, UTF8Deserializer())
    return numbered.mapPartitions(work_there).collect()


class WarmUp:
    """Has executors that joined `rehearse` an epoch, beside the real ones: one that found them cold would wait until
    they have started their Python, and loaded what Python and Java need. Those that are awaited begin with it when they
    come, in the midst of an epoch, too."""

    def __init__(self, look: Callable[[], Sequence[Executor]], rehearse: Callable[[Sequence[Executor]], None]) -> None:
        self._look, self._rehearse, self._warm = look, rehearse, set(look())
        self._running: threading.Thread | None = None
        self._awaited = threading.Event()

    def wait_for_more(self, awaited: bool) -> None:
        """Whether more executors are about to come."""
        if awaited:
            self._awaited.set()
            self._begin()
        else:
            self._awaited.clear()

    def ready(self, executors: Sequence[Executor]) -> tuple[Executor, ...]:
        """Those of the executors that are warm. The others are on their way to it from now on."""
        if any(executor not in self._warm for executor in executors):
            self._begin()
        self._warm &= set(executors)  # those that are gone never come back: another one has another number
        return tuple(executor for executor in executors if executor in self._warm)

    def _begin(self) -> None:
        if self._running is None or not self._running.is_alive():
            self._running = threading.Thread(target=self._watch, name="sluice-warm-up", daemon=True)
            self._running.start()

    def _watch(self) -> None:
        """Warm executors up until all are warm and nobody else is awaited."""
        with suppress(Exception):  # a context that has been stopped has no executors
            while True:
                cold = [executor for executor in self._look() if executor not in self._warm]
                if cold:
                    with suppress(Exception):  # whatever is wrong with them is told when they get a site
                        self._rehearse(cold)
                    self._warm.update(cold)
                elif self._awaited.is_set():
                    time.sleep(_LOOK)
                else:
                    return
