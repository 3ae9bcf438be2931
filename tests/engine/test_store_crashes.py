"""A process that dies at any operation on an object store loses and repeats nothing, and what it finds is the oracle's.

The work is done by `store_crashes.py` in a process of its own, because it forks.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from object_servers import SERVERS
from store_crashes import UNAVAILABLE

SCRIPT = Path(__file__).parents[1] / "support" / "store_crashes.py"


def crash(kind: str, step: int) -> int:
    """How many crashes there were, one at every `step`-th operation."""
    command = [sys.executable, str(SCRIPT), kind, "3", str(step)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == UNAVAILABLE:
        pytest.skip(done.stdout.strip())
    assert done.returncode == 0, done.stdout + done.stderr
    return int(done.stdout.split()[0])


@pytest.mark.parametrize("kind", SERVERS)
def test_a_crash_at_some_operations_of_an_epoch(kind):
    assert crash(kind, 67) >= 1


@pytest.mark.slow
@pytest.mark.parametrize("kind", SERVERS)
def test_a_crash_at_every_operation_of_an_epoch(kind):
    assert crash(kind, 1) > 80
