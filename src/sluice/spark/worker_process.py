"""What a Python worker of Spark is set to when Sluice's tasks come: its defaults are for processes of another kind."""

from __future__ import annotations

import ctypes
import gc
from collections import Counter

import pyarrow as pa

_TRIM_THRESHOLD, _MAP_THRESHOLD = -1, -3
"""Parameters of glibc's mallopt."""
_LARGEST_REUSED = 32 << 20
"""Bytes of the largest allocation that is taken from memory that was freed before; glibc allows no more."""
_MOST_KEPT = 128 << 20
"""Bytes that a process keeps when they are free, about."""
_tasks_begun: Counter[type] = Counter()


def begin_task(kind: type) -> None:
    """To be called when a task of some kind begins in a Python worker."""
    _tasks_begun[kind] += 1
    if _tasks_begun.total() == 1:
        _reuse_memory()
    if _tasks_begun[kind] == 2:
        _exempt_modules()


def _reuse_memory() -> None:
    """Columns of an epoch are freed and allocated again all the time. By their defaults glibc and Arrow give the memory
    back to the system in between: then the system clears and maps every page anew, which takes a fourth of the time of
    a site's task."""
    try:
        set_option = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):  # another C library
        return
    if set_option(_MAP_THRESHOLD, _LARGEST_REUSED) and set_option(_TRIM_THRESHOLD, _MOST_KEPT):
        pa.set_memory_pool(pa.system_memory_pool())


def _exempt_modules() -> None:
    """PySpark's worker collects garbage after every task, before it takes the next one. It goes through all objects
    that there are, 60 ms for those of the modules, and the next stage waits. When a process begins its second task of a
    kind, everything that such tasks import is there, and garbage has just been collected: what there is now is left out
    from then on. Once a kind, so that nothing of later tasks stays for good."""
    gc.freeze()
