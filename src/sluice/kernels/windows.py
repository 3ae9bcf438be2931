"""The newest k rows of a group, for many rows at once, at a cost that does not depend on k.

Each group is cut into stretches of k rows, counted from the first one that a window is asked for. A window then lies in
one stretch, or ends in one and begins in the one before: it is a running result from the cut forwards and one from the
cut backwards, combined. Running results that start at many cuts are taken step by step, each step for all of them at
once. (This is the method of van Herk and of Gil and Werman for running minima, for any aggregate that can be combined.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from sluice.kernels.order import changes

CELLS_AT_ONCE = 1 << 18
SHORT_ROW_CELLS = 256
FEW_COLUMNS = 64
"""So few neighbouring runs that begin equally far behind their cut are not worth a piece of their own."""

Arrays = Sequence[np.ndarray]
Scan = Callable[[Arrays], Arrays]
"""From the values at each step (rows) of each run (columns) to the running results, in the same shape."""
Unite = Callable[[Arrays, np.ndarray, Arrays, np.ndarray], Arrays]
"""From older and newer running results, each with how many rows they are of, to those of both together."""


@dataclass(frozen=True)
class Windows:
    """For each wanted row, its window: rows `first` to `last` (itself), and the cut, where its newer part begins.

    Equal cuts are neighbours; `k` rows lie between two cuts of a group.
    """

    first: np.ndarray
    last: np.ndarray
    cut: np.ndarray
    k: int

    @classmethod
    def newest(cls, starts: np.ndarray, at: np.ndarray, k: int) -> Windows:
        """The windows of the `at` rows (ascending), given where the groups start, and end at last."""
        group = np.repeat(np.arange(len(starts) - 1), np.diff(starts)).take(at)
        asked_first = np.flatnonzero(changes(group))
        origin = np.repeat(at[asked_first], np.diff(np.append(asked_first, len(at))))
        first = np.maximum(starts.take(group), at - (k - 1))
        beyond = at - origin
        return cls(first, at, origin if beyond.max(initial=0) < k else origin + beyond // k * k, k)

    def __len__(self) -> int:
        return len(self.last)

    @property
    def sizes(self) -> np.ndarray:
        sizes: np.ndarray = self.last - self.first + 1
        return sizes

    @property
    def longest(self) -> int:
        """Rows of the longest window; 1 if there is none."""
        return int(self.sizes.max(initial=1))

    def sum(self, values: np.ndarray) -> np.ndarray:
        """Each window's sum of integer values, which lose nothing in a difference of running sums."""
        running = np.zeros(len(values) + 1, dtype=np.int64)
        np.cumsum(values, out=running[1:])
        sums: np.ndarray = running.take(self.last + 1)
        sums -= running.take(self.first)
        return sums

    def accumulate(self, ufunc: np.ufunc, values: np.ndarray) -> np.ndarray:
        """Each window's values, combined by an associative and commutative function."""
        (results,) = self.combine(
            [values],
            lambda cells: [_accumulate(ufunc, cells[0])],
            lambda older, _, newer, __: [ufunc(older[0], newer[0])],
        )
        return results

    def combine(self, values: Arrays, scan: Scan, unite: Unite) -> Arrays:
        """Each window's result, for each array that the scan yields."""
        results: list[np.ndarray] = []
        for piece in self._pieces:
            found = piece.combine(values, scan, unite)
            if not results:
                results = [np.empty(len(self), dtype=array.dtype) for array in found]
            for result, array in zip(results, found, strict=True):
                result[piece.questions] = array
        if not results:
            return [array.reshape(0) for array in scan([array[:0].reshape(0, 0) for array in values])]
        return results

    @cached_property
    def _pieces(self) -> list[_Piece]:
        """The runs from the cuts, so many at a time that their cells are few; those that are alike together."""
        return list(self._cut_into_pieces())

    def _cut_into_pieces(self) -> Iterator[_Piece]:
        if len(self) == 0:
            return
        begin = np.flatnonzero(changes(self.cut))
        asked = np.diff(np.append(begin, len(self)))
        cuts = self.cut[begin]
        depth = cuts - self.first[begin]
        width = self.last[begin + asked - 1] - cuts + 1
        order = _sort_by_shape(depth, width)
        ends_of_depth = np.flatnonzero(np.append(depth[order][1:] != depth[order][:-1], True)) + 1
        done = 0
        while done < len(order):
            deepest = int(depth[order[done]])
            alike = int(ends_of_depth[np.searchsorted(ends_of_depth, done, side="right")]) - done
            count = alike if alike >= FEW_COLUMNS else FEW_COLUMNS
            while True:
                piece = order[done : done + count]
                most = max(1, CELLS_AT_ONCE // (deepest + int(width[piece].max())))
                if len(piece) <= most:
                    break
                count = most
            yield self._piece(begin[piece], asked[piece], cuts[piece], depth[piece], int(width[piece].max()))
            done += len(piece)

    def _piece(self, begin: np.ndarray, asked: np.ndarray, cuts: np.ndarray, depth: np.ndarray, width: int) -> _Piece:
        column = np.repeat(np.arange(len(cuts)), asked)
        questions = np.arange(len(column)) + (begin - (np.cumsum(asked) - asked)).take(column)
        step = self.last.take(questions) - cuts.take(column)
        deepest = int(depth.max())
        forwards = cuts + np.arange(width)[:, None]
        backwards = cuts - 1 - np.arange(deepest)[:, None]
        place = step * len(cuts) + column
        if np.all(depth == deepest):
            reach = np.minimum(deepest, self.k - 1 - np.arange(width))[:, None]
            return _Piece(forwards, backwards, questions, place, reach, None, None)
        reach = np.minimum(depth.take(column), self.k - 1 - step)
        reaching = np.flatnonzero(reach)
        older = (reach[reaching] - 1) * len(cuts) + column[reaching]
        return _Piece(forwards, backwards, questions, place, reach, step, (reaching, older))


@dataclass(frozen=True)
class _Piece:
    """Runs from cuts, side by side: the rows at each step (steps below each other), forwards and backwards, and which
    windows they answer. The rows below the end of a shorter run are not its own; nobody asks for them.

    The newer part of a question's answer is at its `place` among the results forwards. `reach` is how many rows before
    the cut a window has: where all runs go equally far back, by the step, else by the question.
    """

    forwards: np.ndarray
    backwards: np.ndarray
    questions: np.ndarray
    place: np.ndarray
    reach: np.ndarray
    step: np.ndarray | None
    reaching: tuple[np.ndarray, np.ndarray] | None

    def combine(self, values: Arrays, scan: Scan, unite: Unite) -> Arrays:
        """The answers to the questions."""
        newer = scan([values_.take(self.forwards, mode="clip") for values_ in values])
        if len(self.backwards) == 0:
            return [array.reshape(-1).take(self.place) for array in newer]
        older = scan([values_.take(self.backwards, mode="clip") for values_ in values])
        if self.reaching is None or self.step is None:
            steps = int(np.count_nonzero(self.reach))  # those before the last of k
            back = self.reach[:steps, 0] - 1
            ahead = np.arange(1, steps + 1)[:, None]
            both = unite([a[back] for a in older], self.reach[:steps], [a[:steps] for a in newer], ahead)
            for array, united in zip(newer, both, strict=True):
                array[:steps] = united
            return [array.reshape(-1).take(self.place) for array in newer]
        answers = [array.reshape(-1).take(self.place) for array in newer]
        reaching, behind = self.reaching
        both = unite(
            [array.reshape(-1).take(behind) for array in older],
            self.reach[reaching],
            [array[reaching] for array in answers],
            self.step[reaching] + 1,
        )
        for array, united in zip(answers, both, strict=True):
            array[reaching] = united
        return answers


def _sort_by_shape(depth: np.ndarray, width: np.ndarray) -> np.ndarray:
    """The order of runs by how far they go back, and then by how far they go on, longest first."""
    widest = int(width.max())
    key = (int(depth.max()) - depth) * (widest + 1) + (widest - width)
    if int(key.max()) <= np.iinfo(np.uint16).max:
        key = key.astype(np.uint16)  # numpy sorts these by radix
    return np.argsort(key, kind="stable")


def _accumulate(ufunc: np.ufunc, cells: np.ndarray) -> np.ndarray:
    if len(cells) and cells.shape[1] < SHORT_ROW_CELLS:
        result: np.ndarray = ufunc.accumulate(cells, axis=0)
        return result
    for step in range(1, len(cells)):
        ufunc(cells[step - 1], cells[step], out=cells[step])
    return cells
