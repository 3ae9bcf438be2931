"""A user's own writer of rows, as `foreach` takes it: a function of a row, or an object with `process`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from pyspark import TaskContext
from pyspark.sql import DataFrame, Row

from sluice.model.errors import FlowError


def write_each(writer: Any) -> Callable[[DataFrame, int], None]:
    """A function for BatchSink that has executors hand an epoch's rows to a writer, one by one."""
    methods = [getattr(writer, "process", writer), *(getattr(writer, name, print) for name in ("open", "close"))]
    if not all(map(callable, methods)):
        raise FlowError(
            "foreach takes a function of a row, or an object with process(row), and open and close if need be"
        )

    def write(frame: DataFrame, epoch: int) -> None:
        frame.foreachPartition(_Partition(writer, epoch))

    return write


class _Partition:
    """What an executor does with some rows of an epoch."""

    def __init__(self, writer: Any, epoch: int) -> None:
        self._writer, self._epoch = writer, epoch

    def __call__(self, rows: Iterable[Row]) -> None:
        process = getattr(self._writer, "process", self._writer)
        context = TaskContext.get()
        partition = 0 if context is None else context.partitionId()
        is_wanted = not hasattr(self._writer, "open") or self._writer.open(partition, self._epoch)
        problem: Exception | None = None
        try:
            if is_wanted:
                for row in rows:
                    process(row)
        except Exception as raised:
            problem = raised
            raise
        finally:
            if hasattr(self._writer, "close"):
                self._writer.close(problem)
