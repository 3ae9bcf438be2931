"""Settings of a Python worker, in a process of their own: they stay for good."""

import subprocess
import sys

_FAULTS = """
import gc, resource
import numpy as np
from sluice.spark.worker_process import begin_task

def faults_of_an_epoch():
    def allocate_and_free():
        columns = [np.ones(3 << 19) for _ in range(4)]
    allocate_and_free()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(8):
        allocate_and_free()
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

by_default = faults_of_an_epoch()
begin_task(int)
print(by_default, faults_of_an_epoch(), gc.get_freeze_count())
begin_task(int)
kept = gc.get_freeze_count()
later = [[] for _ in range(100_000)]
begin_task(int)
print(kept, gc.get_freeze_count())
begin_task(str)
begin_task(str)
print(gc.get_freeze_count())
"""


def test_memory_is_reused_and_modules_are_left_out_of_collections_once_a_kind_of_task() -> None:
    out = subprocess.run([sys.executable, "-c", _FAULTS], capture_output=True, text=True, check=True).stdout
    by_default, with_reuse, kept_at_first, kept, kept_later, kept_of_both_kinds = map(int, out.split())
    assert with_reuse < by_default / 20
    assert kept_at_first == 0
    assert kept == kept_later > 10_000
    assert kept_of_both_kinds > kept + 100_000


_CONNECTION = """
import socket
from sluice.spark.worker_process import begin_task

listener = socket.create_server(("127.0.0.1", 0))
connection = socket.create_connection(listener.getsockname())
others = socket.socketpair(), open("/dev/null")
before = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
begin_task(int)
begin_task(str)
print(before, connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
"""

_ANOTHER_CONNECTION = """
import os, socket
from sluice.spark.worker_process import begin_task

listener = socket.create_server(("127.0.0.1", 0))
connection = socket.create_connection(listener.getsockname())
accepted, _ = listener.accept()
socket.setdefaulttimeout(10)
begin_task(int)
print(os.get_blocking(connection.fileno()))
connection.close()
accepted.settimeout(10)
print(accepted.recv(1) == b"")
begin_task(int)
"""


def test_the_connection_to_the_executor_does_not_keep_small_pieces_back() -> None:
    out = subprocess.run([sys.executable, "-c", _CONNECTION], capture_output=True, text=True, check=True).stdout
    before, after = map(int, out.split())
    assert not before and after


def test_other_connections_of_the_process_stay_as_they_are_and_end_when_they_are_closed() -> None:
    run = [sys.executable, "-c", _ANOTHER_CONNECTION]
    assert subprocess.run(run, capture_output=True, text=True, check=True).stdout.split() == ["True", "True"]
