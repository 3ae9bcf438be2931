"""The directories of the local tiers, and how they disappear again whatever happens to the processes.

A workspace belongs to one run of a query and to one process, its owner: on Spark the executor's JVM. Its name carries
the owner's pid and start time, so anyone can tell whether the owner still lives. It goes when the query stops; when the
owner dies, a small shell process that waits for this removes it; and where even that process was killed, the next
workspace opened on the host sweeps it away.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import tempfile
import uuid
import zlib
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from sluice.model.ids import Level, Site
from sluice.state.files.private import belongs_to_us, make_private_directory

_NAME = re.compile(
    r"sluice-(?P<host>[0-9a-f]+)\.(?P<boot>[0-9a-f]+)\.(?P<space>[0-9a-f]+)-(?P<pid>\d+)-(?P<born>\d+)-(?P<whose>[-\w]+)"
)
_OF_ONE_EXECUTOR = re.compile(r"(blockmgr|executor|spark)-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
# A workspace that its living owner has closed is no longer this process's: the owner may open it again at any moment.
# A Python worker may go on writing for a moment after its executor was killed, so the directories are removed twice.
_REAPER = (
    'while kill -0 "$1" 2>/dev/null; do [ -d "$2" ] || exit 0; sleep 1; done; '
    'rm -rf "$2" "$3"; sleep 2; rm -rf "$2" "$3"'
)


@dataclass(frozen=True)
class Places:
    """Where the local tiers may put their directories; None is the host's own choice."""

    memory: str | None = None
    disk: str | None = None

    def roots(self) -> tuple[Path, Path]:
        """The directories to put those of the memory and of the disk tier into."""
        disk = Path(self.disk) if self.disk else _local_dirs()[0]
        shared = Path("/dev/shm")
        usable = shared.is_dir() and os.access(shared, os.W_OK)
        return Path(self.memory) if self.memory else shared if usable else disk, disk

    def all_roots(self) -> set[Path]:
        """Every directory in which another executor of this host may have put some."""
        return {*self.roots(), *([] if self.disk else _local_dirs())}


ANYWHERE = Places()


@dataclass(frozen=True)
class Workspace:
    """What one run of a query has in the local tiers of this host. Another run has its own, on the same host too."""

    places: Places
    query: str
    run: str

    def open(self) -> tuple[str, str]:
        """The memory and the disk directory, made if need be."""
        memory, disk = self.places.roots()
        owner = _owner()
        name = f"{_prefix(owner)}-{self.query}-{self.run}"
        here = memory / f"{name}-memory", disk / f"{name}-disk"
        if not here[0].is_dir() or not here[1].is_dir():
            for root in self.places.all_roots():
                sweep(root)
            for directory in here:
                directory.parent.mkdir(parents=True, exist_ok=True)
                make_private_directory(directory)
            subprocess.Popen(
                ["sh", "-c", _REAPER, "sluice-reaper", str(owner), str(here[0]), str(here[1])],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                cwd="/",
            )
        for directory in here:
            make_private_directory(directory)
        return str(here[0]), str(here[1])

    def open_level(self, site: Site, level: Level, levels: int) -> tuple[str, str]:
        """The memory and the disk directory of a level of a site. Those of levels that the plan does not have any more,
        of so many `levels`, are removed with the last one."""
        roots = self.open()
        if level == levels - 1:
            left = levels
            while any(os.path.isdir(f"{root}/{_level_name(site, left)}") for root in roots):
                for root in roots:
                    shutil.rmtree(f"{root}/{_level_name(site, left)}", ignore_errors=True)
                left += 1
        memory, disk = (f"{root}/{_level_name(site, level)}" for root in roots)
        return memory, disk

    def close(self) -> None:
        """Remove the directories of this run on this host, whichever executor owns them."""
        for path in self.directories():
            shutil.rmtree(path, ignore_errors=True)

    def let_go(self, sites: Collection[Site]) -> None:
        """Remove what this executor has of the query's sites, except of these: the others are elsewhere now."""
        own_prefix = f"{_prefix(_owner())}-"
        for path in self.directories():
            for part in path.glob("site-*") if path.name.startswith(own_prefix) else ():
                if int(part.name.split("-")[1]) not in sites:
                    shutil.rmtree(part, ignore_errors=True)

    def directories(self) -> list[Path]:
        """The directories of this run on this host, of all executors."""
        whose = {f"{self.query}-{self.run}-{tier}" for tier in ("memory", "disk")}
        candidates = (
            (path, _NAME.fullmatch(path.name)) for root in self.places.all_roots() for path in _workspaces(root)
        )
        return [path for path, match in candidates if match and match["whose"] in whose]


def _level_name(site: Site, level: int) -> str:
    return f"site-{site:04d}-{level}"


def executor() -> str:
    """The host and the process that this one works for."""
    return f"{socket.gethostname()}/{_owner()}"


def identify_memory(places: Places) -> str:
    """Which directory of which file system, of which start of which host, the memory tiers are in: what one process has
    written there, another one that says the same can read. "" where there is none; who opens it hears why."""
    memory, _ = places.roots()
    try:
        memory.mkdir(parents=True, exist_ok=True)
        status = memory.stat()
    except OSError:
        return ""
    return f"{_boot()}:{status.st_dev:x}:{status.st_ino:x}:{memory}"


def scratch(name: str, root: Path | None = None) -> str:
    """A directory for this process, on the local disk unless a root is given; one left by a process that died is swept
    with the others."""
    root = Path(tempfile.gettempdir()) if root is None else root
    sweep(root)
    directory = root / f"{_prefix(os.getpid())}-{name}"
    directory.mkdir(mode=0o700)
    return str(directory)


@contextmanager
def temporary_directory(root: Path | None = None) -> Iterator[Path]:
    """A directory of its own for as long as it is needed; if the process is killed before, the next one that needs one
    removes it."""
    directory = scratch(uuid.uuid4().hex[:16], root)
    try:
        yield Path(directory)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def sweep(root: Path) -> None:
    """Remove workspaces whose owner is gone. Those of another pid namespace are left alone: nobody here can tell."""
    host, boot, space = _host(), _boot(), _pid_space()
    for path in _workspaces(root):
        match = _NAME.fullmatch(path.name)
        if not match or match["host"] != host:
            continue
        same_space = (match["boot"], match["space"]) == (boot, space)
        if match["boot"] != boot or (same_space and _born(int(match["pid"])) != int(match["born"])):
            shutil.rmtree(path, ignore_errors=True)


def _workspaces(root: Path) -> list[Path]:
    """Never what is not ours; and a link is no directory of ours, wherever it leads."""
    if not root.is_dir():
        return []
    return [p for p in root.glob("sluice-*") if _NAME.fullmatch(p.name) and belongs_to_us(p)]


def _local_dirs() -> list[Path]:
    """Spark's local directories, else the system's temporary one.

    A Python worker is told those of its executor alone. Nobody looks into them again when that was killed, so it is the
    directories around them: those of the host, on YARN those of the application, on Kubernetes the volume's.
    """
    named = [Path(name) for name in os.environ.get("SPARK_LOCAL_DIRS", "").split(",") if name]
    return [_outlasting_directory(path) for path in named] or [Path(tempfile.gettempdir())]


def _outlasting_directory(directory: Path) -> Path:
    while (
        _OF_ONE_EXECUTOR.fullmatch(directory.name)
        and not os.path.ismount(directory)
        and os.access(directory.parent, os.W_OK)
    ):
        directory = directory.parent
    return directory


def _owner() -> int:
    """The nearest JVM above this process (a Python worker hangs below its executor), else this process."""
    return _nearest_jvm(os.getpid())


@lru_cache(maxsize=1)
def _nearest_jvm(process: int) -> int:
    """The nearest JVM above a process, else the process: it stays the same for as long as this one lives."""
    pid = process
    while pid > 1:
        try:
            status = Path(f"/proc/{pid}/stat").read_text()
        except OSError:
            break
        name, rest = status[status.index("(") + 1 : status.rindex(")")], status[status.rindex(")") + 2 :]
        if name == "java":
            return pid
        pid = int(rest.split()[1])
    return process


def _prefix(owner: int) -> str:
    """What the names of all directories begin with that go with a process."""
    return f"sluice-{_host()}.{_boot()}.{_pid_space()}-{owner}-{_born(owner)}"


def _born(pid: int) -> int:
    """A process's start time in clock ticks since boot, 0 if there is no such process."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0
    fields = status[status.rindex(")") + 2 :].split()
    return 0 if fields[0] in "ZX" else int(fields[19])


def _host() -> str:
    return f"{zlib.crc32(socket.gethostname().encode()):x}"


def _boot() -> str:
    """Which start of the host this is: none of an earlier one's processes lives."""
    try:
        return f"{zlib.crc32(Path('/proc/sys/kernel/random/boot_id').read_bytes()):x}"
    except OSError:
        return "0"


def _pid_space() -> str:
    """The set of processes that a pid here is one of."""
    try:
        return f"{os.stat('/proc/self/ns/pid').st_ino:x}"
    except OSError:
        return "0"
