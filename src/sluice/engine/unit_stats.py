"""What each unit took in, gave out and cost in one epoch at one site: columns with an entry a unit."""

from __future__ import annotations

import numpy as np


class UnitStats:
    """Rows that came in, those of them of the first input, rows whose turn came, results, and processor seconds.

    Units that had their turn together share its seconds, by the rows they took in and the results they gave.
    """

    def __init__(self, units: int) -> None:
        self.rows, self.first_rows, self.done, self.results, self.late_results = np.zeros((5, units), dtype=np.int64)
        self.seconds = np.zeros(units)

    def add_results(self, units: np.ndarray) -> None:
        """Results of these units, an entry a result."""
        self.results += np.bincount(units, minlength=len(self.results))

    def add_late_results(self, units: np.ndarray) -> None:
        """Results that were missing, an entry a result."""
        self.late_results += np.bincount(units, minlength=len(self.late_results))

    @property
    def work(self) -> np.ndarray:
        """Rows taken in and results given."""
        return self.done + self.results + self.late_results

    def spend(self, seconds: float, before: np.ndarray, units: np.ndarray) -> None:
        """The processor seconds of a turn of some units; `before` is the work that was done before it."""
        work = (self.work - before)[units]
        if work.sum():
            self.seconds[units] += seconds * work / work.sum()
