"""The executors of a Spark application as its queries use them: which are there, asked for, and given back.

Executors are asked for and given back through the `SparkContext`, which passes it on to the cluster manager. All
queries of a context say which executors have their sites and when they run an epoch: none is given back that anybody
uses, nor while shuffle files of an epoch may lie on it. What was read ahead for an epoch Spark reads again.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import SparkContext

from sluice.control.site_assignment import Executor
from sluice.spark.executors import Cluster

log = logging.getLogger(__name__)

_EVERYBODY = 2**31 - 1
"""How many executors a standalone master gives an application that says nothing of it."""
_OF_OTHER_MANAGERS = 2
"""How many the others start, likewise."""
_pools: dict[str, ExecutorPool] = {}
_making = threading.Lock()


def pool_of(context: SparkContext) -> ExecutorPool:
    """The one pool of an application."""
    with _making:
        application = str(context.applicationId)
        if application not in _pools:
            _pools.clear()  # a process has one context at a time
            _pools[application] = ExecutorPool(context)
        return _pools[application]


class ExecutorPool:
    """Shared by the queries of one application; each has a name of its own in it."""

    def __init__(self, context: SparkContext) -> None:
        self._context = context
        self._cluster = Cluster(context)
        self._lock = threading.RLock()
        self._used: dict[str, frozenset[str]] = {}
        self._awaited: dict[str, int] = {}
        """How many more executors each query waits for."""
        self._needed: dict[str, int] = {}
        """How many a query needs that waits for some, those that are there included."""
        self._running: set[str] = set()
        self._scaling: set[str] = set()
        """The queries on whose behalf the number of executors is another than at the start."""
        self._wanted: int | None = None
        """How many executors the cluster manager was told to have; None if that is left to it."""
        self._given_back: set[str] = set()
        local = str(context.master).startswith("local") and not str(context.master).startswith("local-cluster")
        by_spark = context.getConf().get("spark.dynamicAllocation.enabled", "false") == "true"
        self.can_ask = not local and not by_spark
        """Whether executors can be asked for and given back: there are others than the driver, and Spark does not do it
        by itself."""

    def look(self) -> tuple[Executor, ...]:
        """The executors that are there and stay, oldest first. One that is given back may be listed for some seconds
        yet."""
        with self._lock:
            there = self._cluster.look()
            self._given_back &= {e.id for e in there}
            return tuple(e for e in there if e.id not in self._given_back)

    def use(self, query: str, executors: Collection[str | None]) -> None:
        """A query has its sites on these executors from now on."""
        with self._lock:
            self._used[query] = frozenset(e for e in executors if e is not None)

    @contextmanager
    def running(self, query: str) -> Iterator[None]:
        """While a query runs an epoch nobody gives an executor back: blobs may lie on any of them."""
        with self._lock:
            self._running.add(query)
        try:
            yield
        finally:
            with self._lock:
                self._running.discard(query)

    def ask(self, query: str, needed: int, why: str) -> None:
        """Have so many executors at least: ask for those that are not there, if they have not been asked for yet. Until
        the query gives some back, as many are left to it."""
        with self._lock:
            if not self.can_ask:
                return
            more = max(0, needed - len(self.look()))
            self._awaited[query], self._needed[query] = more, needed
            if self._request_those_awaited() and more:
                log.info("executors are asked for, %d beside those that are there: %s", more, why)

    def give_back(self, query: str) -> tuple[Executor, ...]:
        """Have the cluster manager take back the executors that nobody uses; which those are. The query awaits none any
        more. As many stay as any other query needs that waits for some.

        Where another query runs an epoch, or something else a task on an executor, that has to wait.
        """
        with self._lock:
            self._stop_waiting(query)
            used = frozenset().union(*self._used.values())
            if not self.can_ask or not used or self._running - {query}:
                return ()
            there = self.look()
            spare = max(0, len(there) - max(self._needed.values(), default=0))
            free = [e for e in reversed(there) if e.id not in used]
            busy = self._busy() if free else set()
            free = [e for e in free if e.id not in busy][:spare]
            if not free:
                self._request_those_awaited()
                return ()
            self._scaling.add(query)
            # Spark is told how many are wanted, else it takes it that none is any more
            return tuple(free) if self._request(len(there)) and self._kill(free) else ()

    def leave(self, query: str) -> None:
        """A query has ended. After the last one that had executors asked for or given back, there are to be as many as
        at the start."""
        with self._lock:
            self._used.pop(query, None)
            self._stop_waiting(query)
            self._scaling.discard(query)
            if self._wanted is None or self._scaling or self._context._jsc is None:
                return
            log.info("executors are asked for as at the start of the application")
            self._request(self._at_the_start)
            self._wanted = None

    def _stop_waiting(self, query: str) -> None:
        self._awaited.pop(query, None)
        self._needed.pop(query, None)

    def _request_those_awaited(self) -> bool:
        """Tell the cluster manager to have as many executors as there are and are awaited, if that is news."""
        awaited, there = max(self._awaited.values(), default=0), len(self.look())
        total = there + awaited
        if not there or total == self._wanted or (self._wanted is None and not awaited):
            return False  # where all were lost, others come in their place
        self._scaling.update(self._awaited)
        return self._request(total)

    @property
    def _at_the_start(self) -> int:
        """How many the cluster manager had in mind when the application began."""
        if str(self._context.master).startswith(("spark://", "local-cluster")):
            return _EVERYBODY
        return int(self._context.getConf().get("spark.executor.instances") or _OF_OTHER_MANAGERS)

    def _request(self, executors: int) -> bool:
        """Tell the cluster manager how many to have; whether it heard that."""
        anywhere = self._jvm.PythonUtils.toScalaMap
        if not self._try_request(lambda: self._spark.requestTotalExecutors(executors, 0, anywhere({}))):
            return False
        self._wanted = executors
        return True

    def _kill(self, executors: Sequence[Executor]) -> bool:
        ids, sequence = [e.id for e in executors], self._jvm.PythonUtils.toSeq
        if not self._try_request(lambda: self._spark.killExecutors(sequence(ids))):
            return False
        for executor in executors:
            log.info("executor %s on %s goes back: no site is on it", executor.id, executor.host)
        self._given_back.update(e.id for e in executors)
        self._wanted = (self._wanted or 0) - len(executors)
        return True

    def _try_request(self, request: Callable[[], bool]) -> bool:
        """Whether the cluster manager did as it was told. If not, the query goes on with what there is, and it is told
        again when that is looked at the next time."""
        try:
            return bool(request())
        except Py4JError as problem:
            log.info("the cluster manager was not reached: %s", problem)
            return False

    def _busy(self) -> set[str]:
        """Executors that run a task."""
        listed = self._spark.statusStore().executorList(True)
        summaries = [listed.apply(number) for number in range(listed.size())]
        return {str(summary.id()) for summary in summaries if int(summary.activeTasks())}

    @property
    def _spark(self) -> Any:
        return self._context._jsc.sc()

    @property
    def _jvm(self) -> Any:
        return self._context._jvm
