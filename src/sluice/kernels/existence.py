"""Whether rows have a match in a sorted run at all, without a look at all of their matches."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from sluice.kernels.probe import PAIRS_AT_ONCE, Run, candidate_ranges, expand

Matcher = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""Which of some pairs (place among the probes, place in the run) match, as places among them."""


def find_matched(run: Run, hashes: np.ndarray, low: np.ndarray, high: np.ndarray, matches: Matcher) -> np.ndarray:
    """The probes that match a row of the run with an equal hash, of those inside their range of time or at its ends.

    Of each probe the first candidate is looked at, then two more, then four: most have a match at once, and one with
    none costs what its candidates cost.
    """
    ranges = candidate_ranges(run, hashes, low, high)
    if ranges is None:
        return np.arange(0)
    probes, first, count = ranges
    matched, width = [], 1
    while len(probes):
        looked_at = np.minimum(count, width)
        has_match = np.zeros(len(probes), dtype=bool)
        for which, places in expand(first, looked_at, PAIRS_AT_ONCE):
            has_match[which[matches(probes[which], places)]] = True
        matched.append(probes[has_match])
        left = np.flatnonzero(~has_match & (count > looked_at))
        probes, first, count = probes[left], (first + looked_at)[left], (count - looked_at)[left]
        width *= 2
    return np.concatenate(matched)


def find_candidates(run: Run, hashes: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """The places of the run's rows that may match any of the probes, each once."""
    ranges = candidate_ranges(run, hashes, low, high)
    if ranges is None:
        return np.arange(0)
    _, first, count = ranges
    order = np.argsort(first, kind="stable")
    first, end = first[order], (first + count)[order]
    begin = first.copy()
    begin[1:] = np.maximum(first[1:], np.maximum.accumulate(end)[:-1])  # without what the ranges before have
    length = np.maximum(end - begin, 0)
    used = np.flatnonzero(length)
    return np.concatenate([places for _, places in expand(begin[used], length[used])])
