"""The newest rows of a group with Spark's `transformWithStateInPandas`: a result for every row.

Written to be as fast as the interface lets it. A group's rows are one binary value, so that a group costs one read and
one write of state whatever its history; inside a group everything is numpy; sums and squares are running differences,
taken of values moved to around zero, so that they cancel little. Times cross to Python and back as whole microseconds,
because PySpark makes an object of every timestamp.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
from numpy.lib.stride_tricks import sliding_window_view
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

SCHEMA = "key long, micros long, mean double, spread double, high double, total long"
NOTHING = (np.empty(0), np.empty(0, np.int32))
BYTES = 12  # of a row in the state: a double and an int


class NewestRows(StatefulProcessor):
    """Keeps the newest `count - 1` rows of each group, the values first and the quantities after them."""

    def __init__(self, count: int) -> None:
        self.count = count

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.newest = handle.getValueState("newest", "rows binary")

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:
        parts = list(rows)
        new = parts[0] if len(parts) == 1 else pd.concat(parts)
        at, v, q = new["micros"].to_numpy(), new["v"].to_numpy(), new["q"].to_numpy(np.int32)  # ints arrive as 64 bits
        if (at[1:] < at[:-1]).any():
            order = at.argsort(kind="stable")
            at, v, q = at[order], v[order], q[order]
        held = self.newest.get()
        old_v, old_q = unpacked(held[0]) if held else NOTHING
        v, q = np.concatenate((old_v, v)), np.concatenate((old_q, q))
        kept = slice(max(0, len(v) - self.count + 1), None)
        self.newest.update((v[kept].tobytes() + q[kept].tobytes(),))
        yield self.results(key[0], at, v, q)

    def results(self, key: int, at: np.ndarray, v: np.ndarray, q: np.ndarray) -> pd.DataFrame:
        """Aggregates for the last `len(at)` of the rows, each over the `count` rows that end with it."""
        end = np.arange(len(v) - len(at) + 1, len(v) + 1)
        begin = np.maximum(end - self.count, 0)
        n = end - begin
        middle = v.mean()
        moved = v - middle
        sums, squares = over(moved, begin, end), over(moved * moved, begin, end)
        with np.errstate(divide="ignore", invalid="ignore"):
            spread = np.sqrt(np.maximum(squares - sums * sums / n, 0) / (n - 1))
        padded = np.concatenate((np.full(self.count - 1, -np.inf), v))
        return pd.DataFrame(
            {
                "key": np.full(len(at), key),
                "micros": at,
                "mean": sums / n + middle,
                "spread": spread,
                "high": sliding_window_view(padded, self.count)[-len(at) :].max(axis=1),
                "total": over(q.astype(np.int64), begin, end),
            },
            copy=False,
        )


def unpacked(held: bytes) -> tuple[np.ndarray, np.ndarray]:
    count = len(held) // BYTES
    return np.frombuffer(held, np.float64, count), np.frombuffer(held, np.int32, count, count * 8)


def over(values: np.ndarray, begin: np.ndarray, end: np.ndarray) -> np.ndarray:
    """Sums of values[begin:end], for many of them."""
    running = np.concatenate((np.zeros(1, values.dtype), values.cumsum()))
    summed: np.ndarray = running[end] - running[begin]
    return summed
