"""Processes on cores of their own choice: executors with their Python workers, and processes that only burn time."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from benchmarks.footprint import tree


def executors() -> list[int]:
    """The executor JVMs below this process, by their Spark ids."""
    found = {}
    for pid in tree(os.getpid()):
        with suppress(OSError):
            command = Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
            id_ = re.search(r"CoarseGrainedExecutorBackend.* --executor-id (\d+)", command)
            if id_ and Path(f"/proc/{pid}/comm").read_text().strip() == "java":
                found[int(id_[1])] = pid
    return [found[id_] for id_ in sorted(found)]


@contextmanager
def pinned(pid: int, cores: set[int]) -> Iterator[None]:
    """A process and all below it on these cores; threads and processes still to come are born there too."""
    everywhere = os.sched_getaffinity(pid)
    pin(pid, cores)
    try:
        yield
    finally:
        pin(pid, everywhere)


def pin(root: int, cores: set[int]) -> None:
    for pid in tree(root):
        with suppress(OSError):
            for thread in os.listdir(f"/proc/{pid}/task"):
                with suppress(OSError):  # it ended just now
                    os.sched_setaffinity(int(thread), cores)


@contextmanager
def burning(count: int, core: int) -> Iterator[None]:
    """Processes that keep a core busy."""
    started = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        for process in started:
            os.sched_setaffinity(process.pid, {core})
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()
