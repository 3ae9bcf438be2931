"""How long a policy thinks: the time of one decision, for every policy and several states of the cluster.

    python -m benchmarks.decisions

A decision is made between two epochs while nothing else runs, so its time is added to the epoch's.
"""

from __future__ import annotations

import platform
import sys
import time
from dataclasses import replace
from importlib.metadata import version
from statistics import median

import numpy as np

from benchmarks import report
from sluice.model.view import ClusterView, Period
from sluice.policies import policy

SIZES = ((32, 2_048), (1_000, 64_000))
POLICIES = ("static", "load", "memory", "hybrid")
REPEATS = 20
UNIT_BYTES = 6 << 20


def balanced(sites: int, units: int) -> ClusterView:
    """All sites and units alike: the first pair fails its test."""
    return view(np.full(sites, 0.7), np.full(units, 1000), np.full(units, UNIT_BYTES), np.full(sites, 1.5))


def skewed(sites: int, units: int) -> ClusterView:
    """A few units get most rows, a tenth of the sites is overloaded and short of memory, with units on disk."""
    rows = 100_000 / (1 + np.random.default_rng(1).permutation(units))
    overloaded = np.arange(sites) % 10 == 0
    busy = np.where(overloaded, 1.0, 0.3 + 0.4 * np.random.default_rng(2).random(sites))
    return view(busy, rows.astype(np.int64), uneven(units), np.where(overloaded, 0.7, 1.5))


def all_pairs_move(sites: int, units: int) -> ClusterView:
    """Half of the sites overloaded, the others nearly idle: every pair passes its test and every donor is searched."""
    overloaded = np.arange(sites) % 2 == 0
    rows = np.random.default_rng(3).integers(500, 1500, units)
    return view(np.where(overloaded, 1.0, 0.3), rows, uneven(units), np.where(overloaded, 1.1, 2.0))


def uneven(units: int) -> np.ndarray:
    return UNIT_BYTES + np.random.default_rng(4).integers(0, UNIT_BYTES // 4, units)


def view(busy: np.ndarray, rows: np.ndarray, size: np.ndarray, room: np.ndarray) -> ClusterView:
    """As many units at each site as at any other, scattered; `room` is a site's memory as a multiple of an even share.

    Where it is below one, some units are on disk.
    """
    sites, units = len(busy), len(rows)
    site = np.random.default_rng(5).permutation(units) % sites
    on_disk = (room[site] < 1) & (np.arange(units) % 4 == 0)
    return replace(
        ClusterView.at_rest(site, room * float(size.sum()) / sites)
        .with_units(rows=rows, bytes=size, spilled=on_disk, pending=np.where(on_disk, rows, 0))
        .with_sites(idle=1 - busy),
        period=Period(working_seconds=1.0),
    )


def timed(name: str, shown: ClusterView) -> list[str]:
    """Moves, median and longest milliseconds of one policy's decisions on one view."""
    by, took = policy(name), []
    for _ in range(REPEATS):
        start = time.perf_counter()
        moves = by.decide(shown)
        took.append((time.perf_counter() - start) * 1000)
    return [f"{len(moves):,}", f"{median(took):.2f}", f"{max(took):.2f}"]


def main() -> int:
    report.facts("versions", {"python": platform.python_version(), "numpy": version("numpy")})
    report.facts("machine", report.machine())
    for sites, units in SIZES:
        rows = [
            [case.__name__.replace("_", " "), name, *timed(name, case(sites, units))]
            for case in (balanced, skewed, all_pairs_move)
            for name in POLICIES
        ]
        title = f"Decisions over {sites:,} sites and {units:,} units ({REPEATS} each)"
        report.table(title, ["view", "policy", "moves", "median ms", "max ms"], rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
