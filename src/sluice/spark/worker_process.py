"""What a Python worker of Spark is set to when Sluice's tasks come: its defaults are for processes of another kind."""

from __future__ import annotations

import ctypes
import gc
import os
import socket
import stat
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from ipaddress import ip_address

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
    _send_at_once()
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


def _send_at_once() -> None:
    """Neither side of the connection to the executor waits for the other. Without this the executor keeps a task's few
    bytes back until those before have been acknowledged, and the system acknowledges 40 ms later, in every task of
    little input. The system takes acknowledging at once back now and then, so every task asks for it."""
    quick = getattr(socket, "TCP_QUICKACK", None)  # on Linux
    for number in _connections_to_this_host():
        with suppress(OSError), _borrow(number) as connection:  # an error if it has been closed since
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if quick is not None:
                connection.setsockopt(socket.IPPROTO_TCP, quick, 1)


@cache
def _connections_to_this_host() -> tuple[int, ...]:
    """The files of the process's TCP connections to others of its host: when its first task begins, mostly that to the
    executor alone."""
    connections = []
    with suppress(OSError):  # elsewhere than on Linux
        for number in map(int, os.listdir("/proc/self/fd")):
            with suppress(OSError, ValueError):  # closed by now, or not connected
                if stat.S_ISSOCK(os.fstat(number).st_mode) and _is_to_this_host(number):
                    connections.append(number)
    return tuple(connections)


def _is_to_this_host(number: int) -> bool:
    with _borrow(number) as connection:
        is_tcp = connection.family in (socket.AF_INET, socket.AF_INET6) and connection.type == socket.SOCK_STREAM
        return is_tcp and _is_loopback(connection.getpeername()[0])


@contextmanager
def _borrow(number: int) -> Iterator[socket.socket]:
    """A socket of the process by its file, which stays whose it is: nobody else closes it, or keeps it open."""
    is_blocking = os.get_blocking(number)
    borrowed = socket.socket(fileno=number)
    try:
        yield borrowed
    finally:
        borrowed.detach()
        os.set_blocking(number, is_blocking)  # with a default timeout, Python has changed that


def _is_loopback(host: str) -> bool:
    address = ip_address(host)
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback


def _exempt_modules() -> None:
    """PySpark's worker collects garbage after every task, before it takes the next one. It goes through all objects
    that there are, 60 ms for those of the modules, and the next stage waits. When a process begins its second task of a
    kind, everything that such tasks import is there, and garbage has just been collected: what there is now is left out
    from then on. Once a kind, so that nothing of later tasks stays for good."""
    gc.freeze()
