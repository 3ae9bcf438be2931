"""How a contender's process and the benchmark speak: `READY` once the query runs, then a file that says `stop`.

Only the standard library is imported here, because the peers' own interpreters read this file too.
"""

from __future__ import annotations

import time
from pathlib import Path

READY = "READY"
RESULTS = "results"


def say_ready() -> None:
    print(READY, flush=True)


def is_stopped(work: Path) -> bool:
    return (work / "stop").exists()


def await_stop(work: Path) -> None:
    while not is_stopped(work):
        time.sleep(0.1)


def tell_to_stop(work: Path) -> None:
    (work / "stop").touch()
