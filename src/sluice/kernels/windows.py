"""The newest k rows of a group, for many rows at once, at a cost that does not depend on k.

Each group is cut into stretches of k rows, counted from its first. A window then lies in one stretch, or ends in one
and begins in the one before: it is a running result from the cut forwards and one from the cut backwards, combined.
Running results that start at many cuts are taken step by step, each step for all of them at once. (This is the method
of van Herk and of Gil and Werman for running minima, for any aggregate that can be combined.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

CELLS_AT_ONCE = 1 << 18
SHORT_ROW_CELLS = 256

Arrays = Sequence[np.ndarray]
Scan = Callable[[Arrays], Arrays]
"""From the values at each step (rows) of each run (columns) to the running results, in the same shape."""


@dataclass(frozen=True)
class Windows:
    """For each wanted row, its window: rows `first` to `last` (itself), and the cut, where its newer part begins."""

    first: np.ndarray
    last: np.ndarray
    cut: np.ndarray
    longest: int

    @classmethod
    def newest(cls, starts: np.ndarray, at: np.ndarray, k: int) -> Windows:
        """The windows of the `at` rows (ascending), given where the groups start, and end at last."""
        start = starts[np.searchsorted(starts, at, side="right") - 1]
        first = np.maximum(start, at - (k - 1))
        cut = at - (at - start) % k
        return cls(first, at, cut, int((at - first).max(initial=0)) + 1)

    def __len__(self) -> int:
        return len(self.last)

    @property
    def sizes(self) -> np.ndarray:
        sizes: np.ndarray = self.last - self.first + 1
        return sizes

    def between(self, values: np.ndarray, start: np.ndarray, stop: np.ndarray) -> np.ndarray:
        """The sums of integer values of the rows from start up to stop; integers lose nothing in a difference."""
        running = np.zeros(len(values) + 1, dtype=np.int64)
        np.cumsum(values, out=running[1:])
        sums: np.ndarray = running[stop] - running[start]
        return sums

    def sum(self, values: np.ndarray) -> np.ndarray:
        """Each window's sum of integer values."""
        return self.between(values, self.first, self.last + 1)

    def running(self, values: Arrays, scan: Scan) -> tuple[Arrays, Arrays, np.ndarray]:
        """Each window's result from its cut on, then that before the cut for those windows that reach back over it."""
        reaching = np.flatnonzero(self.first < self.cut)
        forwards = _Runs.of(self.cut, self.last - self.cut, 1)
        before = self.cut[reaching] - 1
        backwards = _Runs.of(before, before - self.first[reaching], -1)
        return forwards.results(values, scan), backwards.results(values, scan), reaching

    def accumulate(self, ufunc: np.ufunc, values: np.ndarray) -> np.ndarray:
        """Each window's values, combined by an associative and commutative function."""
        (newer,), (older,), reaching = self.running([values], lambda cells: [_accumulate(ufunc, cells[0])])
        newer[reaching] = ufunc(older, newer[reaching])
        return newer


@dataclass(frozen=True)
class _Runs:
    """Runs over rows from an origin, forwards or backwards, and the steps at which their results are asked for.

    The answers to the questions `asked[r]` to `asked[r + 1]` are those of run r.
    """

    origins: np.ndarray
    lengths: np.ndarray
    direction: int
    asked: np.ndarray
    steps: np.ndarray

    @classmethod
    def of(cls, origins: np.ndarray, steps: np.ndarray, direction: int) -> _Runs:
        """From the origin and the step of each question; equal origins are neighbours."""
        if len(origins) == 0:
            return cls(origins, steps, direction, np.zeros(1, dtype=np.int64), steps)
        begin = np.append(0, np.flatnonzero(origins[1:] != origins[:-1]) + 1)
        lengths = np.maximum.reduceat(steps, begin) + 1
        return cls(origins[begin], lengths, direction, np.append(begin, len(origins)), steps)

    def results(self, values: Arrays, scan: Scan) -> Arrays:
        """The answer to each question, for each array that the scan yields."""
        answers: list[np.ndarray] = []
        for cells, questions, places in self._pieces():
            scanned = scan([np.take(array, cells, mode="clip") for array in values])
            if not answers:
                answers = [np.empty(len(self.steps), dtype=array.dtype) for array in scanned]
            for answer, array in zip(answers, scanned, strict=True):
                answer[questions] = array[places]
        if not answers:
            return [array.reshape(0) for array in scan([array[:0].reshape(0, 0) for array in values])]
        return answers

    def _pieces(self) -> Iterator[tuple[np.ndarray, np.ndarray, tuple[np.ndarray, np.ndarray]]]:
        """Runs of like length: the rows of each step (steps below each other), the questions, where the answers are.

        The rows below the end of a shorter run are not its own; nobody asks for them.
        """
        longest_first = np.argsort(-self.lengths, kind="stable")
        asked = np.diff(self.asked)
        done = 0
        while done < len(longest_first):
            width = int(self.lengths[longest_first[done]])
            piece = longest_first[done : done + max(1, CELLS_AT_ONCE // width)]
            cells = self.origins[piece] + self.direction * np.arange(width)[:, None]
            column = np.repeat(np.arange(len(piece)), asked[piece])
            offset = self.asked[piece] - (np.cumsum(asked[piece]) - asked[piece])
            questions = np.arange(len(column)) + offset[column]
            yield cells, questions, (self.steps[questions], column)
            done += len(piece)


def _accumulate(ufunc: np.ufunc, cells: np.ndarray) -> np.ndarray:
    if len(cells) and cells.shape[1] < SHORT_ROW_CELLS:
        result: np.ndarray = ufunc.accumulate(cells, axis=0)
        return result
    for step in range(1, len(cells)):
        ufunc(cells[step - 1], cells[step], out=cells[step])
    return cells
