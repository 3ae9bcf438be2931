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


@dataclass
class Footprint:
    """Watches a process tree until told to stop; keeps the sample with the greatest total."""

    root: int
    peak: Sample = NOTHING
    cpu: dict[int, float] = field(default_factory=dict)
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

    @property
    def cpu_seconds(self) -> float:
        return sum(self.cpu.values())

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
        for pid in tree(self.root):
            try:
                command = Path(f"/proc/{pid}/comm").read_text().strip()
                private, shared = resident(pid)
                self.cpu[pid] = cpu_seconds(pid)
            except (FileNotFoundError, ProcessLookupError, PermissionError):
                continue  # ended between the listing and the look
            kind = "driver" if pid == self.root else "jvm" if command == "java" else "workers"
            held[kind] += private
            mapped += shared
        return Sample(**held, tmpfs=max(mapped, tmpfs_used() - self.tmpfs_before))


def tree(root: int) -> list[int]:
    """The process and all its descendants."""
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


def cpu_seconds(pid: int) -> float:
    fields = stat(pid)
    return (int(fields[11]) + int(fields[12])) / TICK


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
