"""What was counted of operators and of outputs in an epoch: of each that had something to do, at all sites together.

A flow may have hundreds of queries. Those without rows have no entry.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class OperatorWork:
    """What an operator did at one site: what went in (rows, or partial aggregates where it combines them early) and
    came out, the processor seconds that it took, and the time at which the site was through with it."""

    operator: int
    rows_in: int
    rows_out: int
    seconds: float
    through_at: float


@dataclass(frozen=True)
class OutputWork:
    """The rows that one task wrote for an output. Where a map task filtered them, the processor seconds that it took,
    and the time at which it was through."""

    output: int
    rows: int
    seconds: float = 0.0
    through_at: float = 0.0


@dataclass(frozen=True)
class OperatorColumns:
    """An entry for each operator that had something to do: what went in and came out, processor seconds at all sites,
    those at the site that took longest (`longest`), and the seconds from when the epoch's input was seen until the last
    site was through (`delay`)."""

    operator: np.ndarray
    rows_in: np.ndarray
    rows_out: np.ndarray
    seconds: np.ndarray
    longest: np.ndarray
    delay: np.ndarray

    @classmethod
    def of(cls, works: Iterable[OperatorWork], ingested_at: float) -> OperatorColumns:
        """From what sites say.

        >>> columns = OperatorColumns.of([OperatorWork(7, 3, 2, 0.5, 11.0), OperatorWork(7, 1, 0, 0.25, 12.0)], 10.0)
        >>> columns.operator, columns.rows_in, columns.seconds, columns.longest, columns.delay
        (array([7]), array([4]), array([0.75], dtype=float32), array([0.5], dtype=float32), array([2.], dtype=float32))
        """
        listed = list(works)
        operators, at = np.unique(np.array([work.operator for work in listed], dtype=np.int64), return_inverse=True)
        seconds = np.array([work.seconds for work in listed])
        through = np.array([work.through_at for work in listed])
        return cls(
            operators,
            _sum_by(at, np.array([work.rows_in for work in listed], dtype=np.int64), len(operators)),
            _sum_by(at, np.array([work.rows_out for work in listed], dtype=np.int64), len(operators)),
            np.bincount(at, seconds, len(operators)).astype(np.float32),
            _most_by(at, seconds, len(operators)),
            _most_by(at, through - ingested_at, len(operators)),
        )

    @classmethod
    def none(cls) -> OperatorColumns:
        return cls.of([], 0.0)


@dataclass(frozen=True)
class OutputColumns:
    """An entry for each output that got rows: how many; where map tasks filtered them also the seconds that all took,
    those of the task that took longest, and the delay, as of operators."""

    output: np.ndarray
    rows: np.ndarray
    seconds: np.ndarray
    longest: np.ndarray
    delay: np.ndarray

    @classmethod
    def of(cls, works: Iterable[OutputWork], ingested_at: float) -> OutputColumns:
        """From what tasks say.

        >>> OutputColumns.of([OutputWork(1, 3), OutputWork(0, 2, 0.5, 11.0), OutputWork(1, 4)], 10.0).rows
        array([2, 7])
        """
        listed = list(works)
        outputs, at = np.unique(np.array([work.output for work in listed], dtype=np.int64), return_inverse=True)
        seconds = np.array([work.seconds for work in listed])
        through = np.array([work.through_at or ingested_at for work in listed])
        return cls(
            outputs,
            _sum_by(at, np.array([work.rows for work in listed], dtype=np.int64), len(outputs)),
            np.bincount(at, seconds, len(outputs)).astype(np.float32),
            _most_by(at, seconds, len(outputs)),
            _most_by(at, through - ingested_at, len(outputs)),
        )

    @classmethod
    def none(cls) -> OutputColumns:
        return cls.of([], 0.0)


def _sum_by(at: np.ndarray, values: np.ndarray, count: int) -> np.ndarray:
    sums = np.zeros(count, dtype=np.int64)
    np.add.at(sums, at, values)
    return sums


def _most_by(at: np.ndarray, values: np.ndarray, count: int) -> np.ndarray:
    """The greatest value of each, none below 0: clocks of other machines may be a little behind."""
    most = np.zeros(count, dtype=np.float32)
    np.maximum.at(most, at, values.astype(np.float32))
    return most
