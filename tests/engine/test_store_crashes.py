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


def crash(kind: str, *steps: int) -> int:
    """How many crashes there were: one at every so manyth operation, and at most so many."""
    command = [sys.executable, str(SCRIPT), kind, "3", *map(str, steps)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == UNAVAILABLE:
        pytest.skip(done.stdout.strip())
    assert done.returncode == 0, done.stdout + done.stderr
    return int(done.stdout.split()[0])


@pytest.mark.parametrize(("kind", "crashes"), [("s3", 2), ("azure", 2)])
def test_a_crash_at_some_operations_of_an_epoch(kind, crashes):
    """While the query starts, and in its epoch."""
    assert crash(kind, 67, crashes) == crashes


@pytest.mark.slow
@pytest.mark.parametrize("kind", SERVERS)
def test_a_crash_at_every_operation_of_an_epoch(kind):
    assert crash(kind, 1) > 80
