"""The compiled core of a simulated join: every tuple is routed, joined with what its unit has in memory, and stored.

All compiled functions and the arrays they work on are in this one file, because Numba's cache of compiled code does not
notice a change in another. What happens seldom (messages, relocations, spills) is done in Python between two calls of
`advance`, which returns when its time has come or a site's memory is full.

A tuple is stored when it reaches its site; its results are counted when the site has come to it. Sites do everything in
the order in which it came, so what is frozen or extracted leaves behind all tuples that were there before.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from sluice.sim.worlds.lazy_disk.scenario import Streams

NOBODY = -1

_I, _F, _B = np.int64, np.float64, np.bool_

UNIT = np.dtype(
    [
        ("stored", _I),  # tuples in memory
        ("yielded", _I),  # results that these have given
        ("received", _I),  # tuples that ever came
        ("results", _I),  # results ever found while running
        ("first_waiting", _I),  # tuples that wait at the splits while the unit moves: a linked list
        ("last_waiting", _I),
    ]
)
SITE = np.dtype(
    [
        ("busy_until", _F),
        ("worked", _F),  # seconds of work that were ever taken on
        ("stored", _I),
        ("limit", _I),  # tuples that fit into its memory
        ("may_spill", _B),
    ]
)

compiled = njit(cache=True, boundscheck=False)


class Costs(NamedTuple):
    """Seconds."""

    arrival: float
    process: float
    result: float
    interval: float


class Cluster(NamedTuple):
    """Every array of the simulation. T moments, M inputs, K join values, U units, S sites, B intervals."""

    now: np.ndarray
    cursor: np.ndarray  # how many tuples have come
    values: np.ndarray  # (T, M)
    unit_of: np.ndarray  # (K,)
    counts: np.ndarray  # (K, M) tuples in memory
    unit: np.ndarray  # (U,)
    site: np.ndarray  # (S,)
    holder: np.ndarray  # (M, U) where each input's split sends tuples
    stalled: np.ndarray  # (M, U)
    after: np.ndarray  # (T * M,) the tuple that waits behind this one
    output: np.ndarray  # (B + 1, S) results; the last row has those that come after the end
    peak: np.ndarray  # (B, S) the most tuples in memory


def new_cluster(streams: Streams, holders: np.ndarray, sites: int, limit: int, bins: int) -> Cluster:
    """A cluster before its first tuple."""
    moments, inputs = streams.values.shape
    units = len(holders)
    cluster = Cluster(
        now=np.zeros(1),
        cursor=np.zeros(1, dtype=_I),
        values=streams.values,
        unit_of=streams.unit_of,
        counts=np.zeros((len(streams.unit_of), inputs), dtype=_I),
        unit=np.zeros(units, dtype=UNIT),
        site=np.zeros(sites, dtype=SITE),
        holder=np.tile(holders.astype(np.int32), (inputs, 1)),
        stalled=np.zeros((inputs, units), dtype=_B),
        after=np.full(moments * inputs, NOBODY, dtype=np.int32),
        output=np.zeros((bins + 1, sites), dtype=_I),
        peak=np.zeros((bins, sites), dtype=_I),
    )
    cluster.unit["first_waiting"] = cluster.unit["last_waiting"] = NOBODY
    cluster.site["limit"], cluster.site["may_spill"] = limit, True
    return cluster


@compiled
def advance(w: Cluster, costs: Costs, until: float) -> int:
    """Has tuples come until a time; returns earlier, with the site, when one has more in memory than fits."""
    inputs = w.values.shape[1]
    end = w.values.shape[0] * inputs
    while w.cursor[0] < end:
        number = w.cursor[0]
        moment = (number // inputs + 1) * costs.arrival
        if moment > until:
            break
        w.now[0] = moment
        w.cursor[0] += 1
        input_ = number % inputs
        unit = w.unit_of[w.values[number // inputs, input_]]
        if w.stalled[input_, unit]:
            _wait(w, number, unit)
            continue
        site = int(w.holder[input_, unit])
        _store(w, costs, number, unit, site)
        if w.site[site].may_spill and w.site[site].stored > w.site[site].limit:
            return site
    w.now[0] = max(w.now[0], until)
    return NOBODY


@compiled
def release(w: Cluster, costs: Costs, unit: int, site: int) -> None:
    """The tuples of a unit that waited at the splits go to this site, in the order in which they came."""
    number = w.unit[unit].first_waiting
    while number != NOBODY:
        _store(w, costs, number, unit, site)
        number = w.after[number]
    w.unit[unit].first_waiting = NOBODY
    w.unit[unit].last_waiting = NOBODY


@compiled
def _wait(w: Cluster, number: int, unit: int) -> None:
    if w.unit[unit].first_waiting == NOBODY:
        w.unit[unit].first_waiting = number
    else:
        w.after[w.unit[unit].last_waiting] = number
    w.unit[unit].last_waiting = number


@compiled
def _store(w: Cluster, costs: Costs, number: int, unit: int, site: int) -> None:
    """Joins a tuple with those of the other inputs that have its value, and stores it."""
    inputs = w.values.shape[1]
    input_ = number % inputs
    value = w.values[number // inputs, input_]
    results = 1
    for other in range(inputs):
        if other != input_:
            results *= w.counts[value, other]
    w.counts[value, input_] += 1
    w.unit[unit].stored += 1
    w.unit[unit].received += 1
    w.unit[unit].yielded += results
    w.unit[unit].results += results
    work = costs.process + results * costs.result
    done = max(w.site[site].busy_until, w.now[0]) + work
    w.site[site].busy_until = done
    w.site[site].worked += work
    w.site[site].stored += 1
    last = w.output.shape[0] - 1
    w.output[min(int(done / costs.interval), last), site] += results
    bin_ = min(int(w.now[0] / costs.interval), last - 1)
    w.peak[bin_, site] = max(w.peak[bin_, site], w.site[site].stored)
