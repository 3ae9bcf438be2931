"""What state yields, as the lazy/active-disk paper measures it: by byte of a unit, by unit of a site (section 5.3)."""

from __future__ import annotations

import numpy as np


def results_by_byte(yielded: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """The productivity of each unit: its results by byte of its state. What has no state has none.

    >>> results_by_byte(np.array([30, 5, 8]), np.array([10, 10, 0]))
    array([3. , 0.5, 0. ])
    """
    found: np.ndarray = np.divide(yielded, sizes, out=np.zeros(len(sizes)), where=sizes > 0)
    return found


def results_by_unit(results: np.ndarray, unit_site: np.ndarray, sites: int) -> np.ndarray:
    """The productivity rate R of each site: the results of its units in some time, by unit.

    >>> results_by_unit(np.array([30, 10, 8]), np.array([0, 0, 1]), sites=3)
    array([20.,  8.,  0.])
    """
    units = np.bincount(unit_site, minlength=sites)
    found: np.ndarray = np.bincount(unit_site, weights=results, minlength=sites) / np.maximum(units, 1)
    return found
