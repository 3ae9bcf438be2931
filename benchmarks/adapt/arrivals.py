"""Rates of arrival that change with time, and when files are due for them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

STEP = 0.01  # seconds in which a rate is taken to stay


@dataclass(frozen=True)
class Rates:
    """How many rows arrive in a second: as many as it says at these moments, in between along straight lines.

    >>> rates = Rates((0, 10, 20), (100, 100, 300))
    >>> rates.at(np.array([5.0, 15.0])).tolist(), rates.due(rows=500)
    ([100.0, 200.0], (0.0, 5.0, 10.0, 13.66, 16.18, 18.23))
    """

    seconds: tuple[float, ...]
    rows: tuple[float, ...]

    @property
    def last(self) -> float:
        return self.seconds[-1]

    def at(self, moments: np.ndarray) -> np.ndarray:
        """Rows a second at these moments."""
        return np.interp(moments, self.seconds, self.rows)

    def due(self, rows: int) -> tuple[float, ...]:
        """When files of so many rows arrive: each when its first row does."""
        moments = np.arange(0.0, self.last + STEP / 2, STEP)
        rates = self.at(moments)
        so_far = np.concatenate([[0.0], np.cumsum((rates[1:] + rates[:-1]) / 2 * STEP)])
        files = math.ceil(float(so_far[-1]) / rows - 1e-9)
        return tuple(np.interp(np.arange(files) * rows, so_far, moments).round(2).tolist())

    def fewest_sites(self, service: float, begin: float) -> tuple[np.ndarray, np.ndarray]:
        """Moments from `begin` on, a step apart, and how many sites can just take in what arrives then, if a row takes
        a site so many seconds and nothing else takes any.

        >>> Rates((0, 10, 20), (100, 100, 300)).fewest_sites(service=0.009, begin=19.98)[1].tolist()
        [3, 3]
        """
        moments = np.arange(begin, self.last, STEP)
        return moments, np.maximum(1, np.ceil(self.at(moments) * service - 1e-9)).astype(np.int64)
