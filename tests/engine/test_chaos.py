"""Exact under chaos: whatever happens to units, sites, executors and drivers, the answer is the batch query's.

A failure names its seed: `CHAOS_SEEDS=17 pytest tests/engine/test_chaos.py` runs it again, and prints what happened in
it. `CHAOS_SEEDS=2000:2500` runs as many as there is time for.
"""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from pathlib import Path

import chaos
import pytest

from sluice.policies import NAMES

FAST = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
QUICK, THOROUGH = 50, 1000
runs: list[Counter[str]] = []


def wanted_seeds() -> range:
    """Those that were asked for, or a few."""
    first, _, end = os.environ.get("CHAOS_SEEDS", f"0:{QUICK}").partition(":")
    return range(int(first), int(end or int(first) + 1))


def run(seed: int) -> None:
    with tempfile.TemporaryDirectory(dir=FAST) as directory:
        runs.append(chaos.run(seed, Path(directory)))


@pytest.mark.parametrize("seed", wanted_seeds())
def test_exact_under_chaos(seed):
    run(seed)


def test_there_was_chaos():
    """Each kind of it in some of the runs, or they show nothing."""
    if len(runs) < QUICK:
        pytest.skip("only some of the runs were asked for")
    in_runs = Counter(what for happened in runs for what, times in happened.items() if times)
    kinds = [f"death: {kind}" for kind in ("task", "job", "epoch", "durable", "commit", "report", "start")]
    others = ("takeover", "refused", "zombie", "executor's death", "flipped bit", "two attempts", "restart", "resize")
    others += ("freeze", "clean up", "split", "merge", "sites joined", "sites left", "replayed")
    others += ("added", "dropped", "restart with others", "ended")
    others += tuple(f"policy: {name}" for name in (*NAMES, "wanderer"))
    for what in (*chaos.COUNTS, *chaos.SHARING, *kinds, *others):
        assert in_runs[what], in_runs


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(QUICK, QUICK + THOROUGH))
def test_exact_under_more_chaos(seed):
    run(seed)
