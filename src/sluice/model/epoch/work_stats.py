"""What was counted of operators and of outputs in an epoch: of each that had something to do, at all sites together.

A flow may have hundreds of queries. Those without rows have no entry.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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
        groups = _Groups([work.operator for work in listed])
        return cls(
            groups.numbers,
            groups.sum([work.rows_in for work in listed]),
            groups.sum([work.rows_out for work in listed]),
            groups.sum([work.seconds for work in listed]).astype(np.float32),
            groups.most([work.seconds for work in listed]),
            groups.most([work.through_at - ingested_at for work in listed]),
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
        groups = _Groups([work.output for work in listed])
        return cls(
            groups.numbers,
            groups.sum([work.rows for work in listed]),
            groups.sum([work.seconds for work in listed]).astype(np.float32),
            groups.most([work.seconds for work in listed]),
            groups.most([(work.through_at or ingested_at) - ingested_at for work in listed]),
        )

    @classmethod
    def none(cls) -> OutputColumns:
        return cls.of([], 0.0)


class _Groups:
    """Works by the number of what they are of."""

    def __init__(self, numbers: Sequence[int]) -> None:
        self.numbers, self._at = np.unique(np.array(numbers, dtype=np.int64), return_inverse=True)

    def sum(self, values: Sequence[float]) -> np.ndarray:
        """What the values of each come to; whole numbers stay whole."""
        added = np.array(values) if len(values) else np.zeros(0, dtype=np.int64)
        sums = np.zeros(len(self.numbers), dtype=added.dtype)
        np.add.at(sums, self._at, added)
        return sums

    def most(self, values: Sequence[float]) -> np.ndarray:
        """The greatest value of each, none below 0: clocks of other machines may be a little behind."""
        most = np.zeros(len(self.numbers), dtype=np.float32)
        np.maximum.at(most, self._at, np.array(values, dtype=np.float32))
        return most
