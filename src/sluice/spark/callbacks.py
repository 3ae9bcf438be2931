"""The function that Spark calls for every micro-batch: how it fails, and how nothing of it stays.

py4j answers a call that ends in an `Exception`, and no other: a `SystemExit` ends its thread, and Spark waits for good.
PySpark keeps the function, and for Spark's thread that calls it a Python thread with a socket, until the JVM happens to
collect their other halves: a process that starts many queries would gather them.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from pyspark import SparkContext
from pyspark.sql import DataFrame

from sluice.model.errors import QueryError

_GOODBYE = 5.0
"""Seconds that a thread whose socket is closed gets to end."""


class BatchCallback:
    """A function for `foreachBatch`, until it is released."""

    def __init__(self, context: SparkContext, function: Callable[[DataFrame, int], None]) -> None:
        self._gateway: Any = context._gateway
        self._function = function
        self._caller: tuple[threading.Thread, Any] | None = None

    def __call__(self, batch: DataFrame, number: int) -> None:
        self._caller = threading.current_thread(), self._connection()
        try:
            self._function(batch, number)
        except Exception:
            raise
        except BaseException as failure:
            raise as_error(failure) from failure

    def release(self) -> None:
        """Have PySpark forget the function, and end the thread that called it; Spark calls it no more."""
        pool = self._gateway.gateway_property.pool
        with pool.lock:
            for key in [key for key, proxy in pool.dict.items() if getattr(proxy, "func", None) is self]:
                del pool[key]
        if self._caller is None:
            return
        (thread, connection), self._caller = self._caller, None
        if connection is not None and not connection.initiated_from_client:
            with suppress(OSError, AttributeError):  # it is closed already
                connection.socket.shutdown(socket.SHUT_RDWR)
            thread.join(_GOODBYE)

    def _connection(self) -> Any:
        """The connection over which Spark called; None where threads are not pinned and share theirs."""
        own = getattr(self._gateway._gateway_client, "get_thread_connection", None)
        return own() if own else None


def as_error(failure: BaseException) -> Exception:
    """What ended a query as something that ends nothing else: a `SystemExit` in a user's function is for the query."""
    if isinstance(failure, Exception):
        return failure
    return QueryError(f"the query ended by {type(failure).__name__}({failure}), which a function of yours raised")
