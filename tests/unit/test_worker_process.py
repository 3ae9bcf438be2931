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
