"""Exact under chaos: whatever happens to units, sites, executors and drivers, the answer is the batch query's.

A failure names its seed: `pytest tests/test_chaos.py -k "[17]"` runs it again, and prints what happened in it.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import chaos
import pytest

FAST = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
QUICK, THOROUGH = 60, 640


def run(seed: int) -> None:
    with tempfile.TemporaryDirectory(dir=FAST) as directory:
        chaos.run(seed, Path(directory))


@pytest.mark.parametrize("seed", range(QUICK))
def test_exact_under_chaos(seed):
    run(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(QUICK, QUICK + THOROUGH))
def test_exact_under_more_chaos(seed):
    run(seed)
