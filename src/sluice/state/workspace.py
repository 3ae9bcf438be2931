"""The directories of the local tiers, and how they disappear again whatever happens to the processes.

A workspace belongs to one process, its owner: on Spark the executor's JVM. Its name carries the owner's pid and start
time, so anyone can tell whether the owner still lives. It goes when the query stops; when the owner dies, a small shell
process that waits for this removes it; and where even that process was killed, the next workspace opened on the host
sweeps it away.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import tempfile
import zlib
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

_NAME = re.compile(r"sluice-(?P<space>\d+)-(?P<pid>\d+)-(?P<born>\d+)-(?P<query>[0-9a-f]+)")
# A workspace that its living owner has closed is no longer this process's: the owner may open it again at any moment.
_REAPER = 'while kill -0 "$1" 2>/dev/null; do [ -d "$2" ] || exit 0; sleep 1; done; rm -rf "$2" "$3"'


@dataclass(frozen=True)
class Places:
    """Where the local tiers may put their directories; None is the host's own choice."""

    memory: str | None = None
    disk: str | None = None

    def roots(self) -> tuple[Path, Path]:
        disk = Path(self.disk or os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0] or tempfile.gettempdir())
        shared = Path("/dev/shm")
        usable = shared.is_dir() and os.access(shared, os.W_OK)
        return Path(self.memory) if self.memory else shared if usable else disk / "memory", disk


def open_workspace(places: Places, query: str) -> tuple[str, str]:
    """The memory and the disk directory of a query on this host, made if need be."""
    memory, disk = places.roots()
    owner = _owner()
    name = f"sluice-{_pid_space()}-{owner}-{_born(owner)}-{query}"
    here = memory / name, disk / name
    if not here[0].is_dir() or not here[1].is_dir():
        sweep(memory)
        sweep(disk)
        for directory in here:
            directory.mkdir(parents=True, exist_ok=True)
        subprocess.Popen(
            ["sh", "-c", _REAPER, "sluice-reaper", str(owner), str(here[0]), str(here[1])],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            cwd="/",
        )
    return str(here[0]), str(here[1])


def executor() -> str:
    """The host and the process that this one works for."""
    return f"{socket.gethostname()}/{_owner()}"


def scratch(name: str) -> str:
    """A directory for this process on the local disk; one left by a process that died is swept with the others."""
    root = Path(tempfile.gettempdir())
    sweep(root)
    directory = root / f"sluice-{_pid_space()}-{os.getpid()}-{_born(os.getpid())}-{name}"
    directory.mkdir(parents=True)
    return str(directory)


def close_workspaces(places: Places, query: str) -> None:
    """Remove the directories of a query on this host, whoever owns them."""
    for root in places.roots():
        for path in _workspaces(root):
            if path.name.endswith(f"-{query}"):
                shutil.rmtree(path, ignore_errors=True)


def let_go(places: Places, query: str, sites: Collection[int]) -> None:
    """Remove what this executor has of a query's sites, except of these: the others are on other executors now."""
    suffix = f"-{_owner()}-{_born(_owner())}-{query}"
    for root in places.roots():
        for path in _workspaces(root):
            for part in path.glob("site-*") if path.name.endswith(suffix) else ():
                if int(part.name.split("-")[1]) not in sites:
                    shutil.rmtree(part, ignore_errors=True)


def sweep(root: Path) -> None:
    """Remove workspaces whose owner is gone. Those of another pid namespace are left alone: nobody here can tell."""
    for path in _workspaces(root):
        match = _NAME.fullmatch(path.name)
        if match and int(match["space"]) == _pid_space() and _born(int(match["pid"])) != int(match["born"]):
            shutil.rmtree(path, ignore_errors=True)


def _workspaces(root: Path) -> list[Path]:
    return [p for p in root.glob("sluice-*") if _NAME.fullmatch(p.name)] if root.is_dir() else []


def _owner() -> int:
    """The nearest JVM above this process (a Python worker hangs below its executor), else this process."""
    pid = os.getpid()
    while pid > 1:
        try:
            status = Path(f"/proc/{pid}/stat").read_text()
        except OSError:
            break
        name, rest = status[status.index("(") + 1 : status.rindex(")")], status[status.rindex(")") + 2 :]
        if name == "java":
            return pid
        pid = int(rest.split()[1])
    return os.getpid()


def _born(pid: int) -> int:
    """A process's start time in clock ticks since boot, 0 if there is no such process."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0
    fields = status[status.rindex(")") + 2 :].split()
    return 0 if fields[0] in "ZX" else int(fields[19])


def _pid_space() -> int:
    """A number for the set of processes that a pid here is one of: the host, since it was booted, and the namespace."""
    try:
        namespace = os.stat("/proc/self/ns/pid").st_ino
        return zlib.crc32(f"{namespace} {Path('/proc/sys/kernel/random/boot_id').read_text()}".encode())
    except OSError:
        return 0
