"""Peak memory and processor time of a contender: its whole process tree, sampled from /proc while it runs.

Memory is the proportional set size, so a page that processes share counts once. Pages of tmpfs (state segments in
/dev/shm) are told apart and taken from the file system itself, because a segment that no process maps at the moment
of a sample still takes memory.
"""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

PERIOD = 0.5
LARGEST_SHARE = 0.05  # of one core that sampling may take: reading the pages of a large heap is not free
TICK = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Sample:
    """Megabytes by kind of process at one moment."""

    driver: float = 0.0
    jvm: float = 0.0
    workers: float = 0.0
    tmpfs: float = 0.0

    @property
    def total(self) -> float:
        return self.driver + self.jvm + self.workers + self.tmpfs


NOTHING = Sample()


@dataclass(frozen=True)
class Times:
    """Processor seconds of a process, and of its children that have ended and that it has waited for."""

    parent: int = 0
    own: float = 0.0
    waited: float = 0.0


NEW = Times()


@dataclass
class Footprint:
    """Watches a process tree until told to stop; keeps the sample with the greatest total."""

    root: int
    peak: Sample = NOTHING
    cpu_seconds: float = 0.0
    times: dict[int, Times] = field(default_factory=dict)
    tmpfs_before: float = field(default_factory=lambda: tmpfs_used())
    busy_before: float = field(default_factory=lambda: machine_busy())
    begin: float = field(default_factory=time.monotonic)
    others: float = 0.0  # share of the machine that processes outside the tree took meanwhile
    stopped: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> Footprint:
        self.thread = threading.Thread(target=self._watch, daemon=True)
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stopped.set()
        self.thread.join()
        whole = (time.monotonic() - self.begin) * (os.cpu_count() or 1)
        self.others = max(0.0, machine_busy() - self.busy_before - self.cpu_seconds) / whole

    def _watch(self) -> None:
        pause = PERIOD
        while not self.stopped.wait(pause):
            begin = time.thread_time()
            sample = self._sample()
            if sample.total > self.peak.total:
                self.peak = sample
            pause = max(PERIOD, (time.thread_time() - begin) / LARGEST_SHARE)

    def _sample(self) -> Sample:
        held = {"driver": 0.0, "jvm": 0.0, "workers": 0.0}
        mapped = 0.0
        pids = tree(self.root)
        self._count(pids)
        for pid in pids:
            try:
                command = Path(f"/proc/{pid}/comm").read_text().strip()
                private, shared = resident(pid)
            except (FileNotFoundError, ProcessLookupError, PermissionError):
                continue  # ended between the listing and the look
            kind = "driver" if pid == self.root else "jvm" if command == "java" else "workers"
            held[kind] += private
            mapped += shared
        return Sample(**held, tmpfs=max(mapped, tmpfs_used() - self.tmpfs_before))

    def _count(self, pids: list[int]) -> None:
        """Adds what was worked since the last sample. A process that ends meanwhile stays as it was until the next."""
        ending = {pid: self.times[pid] for pid in pids if pid in self.times}
        times = ending | read_times(pids)
        self.cpu_seconds += worked(self.times, times)
        self.times = times


def tree(root: int) -> list[int]:
    """The process and all its descendants, parents first."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                children.setdefault(int(stat(int(entry))[1]), []).append(int(entry))
            except (FileNotFoundError, ProcessLookupError):
                continue
    found, open_ = [], [root]
    while open_:
        pid = open_.pop()
        found.append(pid)
        open_ += children.get(pid, [])
    return found


def stat(pid: int) -> list[str]:
    """Fields of /proc/<pid>/stat from the state on; the name before it may hold spaces."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def read_times(pids: list[int]) -> dict[int, Times]:
    """Times of those that are there. With parents first, none that is read is in its parent's time already."""
    found = {}
    for pid in pids:
        try:
            fields = stat(pid)
        except (FileNotFoundError, ProcessLookupError):
            continue
        own, waited = (sum(map(int, fields[at : at + 2])) / TICK for at in (11, 13))
        found[pid] = Times(int(fields[1]), own, waited)
    return found


def worked(before: Mapping[int, Times], after: Mapping[int, Times]) -> float:
    """Seconds that processes and children they waited for worked, of which many were never seen.

    The time of one that was seen goes to whoever waited for it, who gets it less what is counted already.
    """
    counted: defaultdict[int, float] = defaultdict(float)
    gone = before.keys() - after.keys()
    for pid in gone:
        heir = before[pid].parent
        while heir in gone:
            heir = before[heir].parent
        counted[heir] += before[pid].own + before[pid].waited
    seconds = 0.0
    for pid, now in after.items():
        then = before.get(pid, NEW)
        seconds += now.own - then.own + max(0.0, now.waited - then.waited - counted[pid])
    return seconds


def machine_busy() -> float:
    """Seconds that all cores together spent working, since the machine started."""
    user, nice, system, _idle, _wait, irq, softirq, steal = map(int, Path("/proc/stat").read_text().split()[1:9])
    return (user + nice + system + irq + softirq + steal) / TICK


def resident(pid: int) -> tuple[float, float]:
    """Megabytes of one process: without tmpfs pages, and its share of tmpfs pages."""
    pss = {"Pss:": 0, "Pss_Shmem:": 0}
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]:
        name, kilobytes = line.split()[:2]
        if name in pss:
            pss[name] = int(kilobytes)
    return (pss["Pss:"] - pss["Pss_Shmem:"]) / 1024, pss["Pss_Shmem:"] / 1024


def tmpfs_used() -> float:
    return shutil.disk_usage("/dev/shm").used / (1 << 20) if os.path.isdir("/dev/shm") else 0.0
