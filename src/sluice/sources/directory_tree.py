"""Directories as a search for new files sees them: what is in each, without asking again for what has not changed.

On a local disk a directory is read again when its time has changed. The clock of a file system may be coarse: what
comes right after a look can have the time that was seen before. So a directory is read again a moment after its time
was first seen, and once more when even the coarsest clocks have gone on. Where directories have no times that tell,
each is read again from time to time, at a small share of the processor's.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import takewhile
from typing import NamedTuple, Protocol

from pyarrow import fs

from sluice.sources.file_paths import Place

_FINE_CLOCK_S, _COARSE_CLOCK_S = 0.05, 3.0
"""Seconds within which a second change may leave a directory's time as it is, on most file systems and on any."""
_READ_AGAIN_S, _READ_AGAIN_SHARE = 2.0, 0.005
"""Seconds after which a directory is read again in any case, and the share of the time that this may take."""


class ListedFile(NamedTuple):
    """A file that is there: its path or URI, its bytes, and when it was modified, in milliseconds since 1970."""

    path: str
    size: int
    modified: int


IsNew = Callable[[str], bool]
"""Whether a file has yet to be taken in, by its path; what has been is not looked at."""


@dataclass
class Directory:
    """What is in a directory, but for files that were taken in before it was read."""

    new_files: dict[str, ListedFile] = field(default_factory=dict)
    directories: tuple[str, ...] = ()
    has_files: bool = False
    """Whether any file with data is in there, a new one or not."""


class Tree(Protocol):
    """A file system, as a search for files needs it. Paths are as users and tasks name them."""

    def read(self, path: str, is_new: IsNew) -> Directory | None:
        """What is in a directory; None if there is no such directory."""

    def file(self, path: str) -> ListedFile | None:
        """A file by its path; None if there is no such file."""

    def forget(self, path: str) -> None:
        """A file was taken in: what was read of its directory may be used again, without it."""

    @property
    def poll_s(self) -> float:
        """Seconds after which it makes sense to look again, at the soonest."""


@dataclass
class _Reading:
    """A directory as it was read. `age` is for how long its time was known then, by our own clock."""

    content: Directory
    modified: int
    first_seen: float
    age: float
    at: float
    seconds: float

    def holds(self, modified: int, now: float) -> bool:
        """Whether it would be read the same now."""
        if modified != self.modified or now - self.at >= max(_READ_AGAIN_S, self.seconds / _READ_AGAIN_SHARE):
            return False
        age = now - self.first_seen
        return not any(self.age < clock <= age for clock in (_FINE_CLOCK_S, _COARSE_CLOCK_S))


class LocalTree:
    """Directories of a local or mounted disk."""

    poll_s = 0.05

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._readings: dict[str, _Reading] = {}

    def read(self, path: str, is_new: IsNew) -> Directory | None:
        now, before = self._clock(), self._readings.get(path)
        try:
            modified = os.stat(path).st_mtime_ns
            if before is not None and before.holds(modified, now):
                return before.content
            content = _scan(path, is_new)
        except (FileNotFoundError, NotADirectoryError):
            self._readings.pop(path, None)
            return None
        first_seen = before.first_seen if before is not None and before.modified == modified else now
        seconds = self._clock() - now
        self._readings[path] = _Reading(content, modified, first_seen, now - first_seen, now, seconds)
        return content

    def file(self, path: str) -> ListedFile | None:
        try:
            status = os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        return _listed(path, status) if stat.S_ISREG(status.st_mode) else None

    def forget(self, path: str) -> None:
        reading = self._readings.get(os.path.dirname(path))
        if reading is not None:
            reading.content.new_files.pop(path, None)


def _scan(path: str, is_new: IsNew) -> Directory:
    content, directories = Directory(), []
    with os.scandir(path) as entries:
        for entry in entries:
            if entry.is_dir():
                directories.append(entry.path)
            elif not is_hidden(entry.name):
                content.has_files = True
                if is_new(entry.path):
                    try:
                        content.new_files[entry.path] = _listed(entry.path, entry.stat())
                    except FileNotFoundError:  # it is gone already
                        continue
    content.directories = tuple(sorted(directories))
    return content


def _listed(path: str, status: os.stat_result) -> ListedFile:
    return ListedFile(path, status.st_size, status.st_mtime_ns // 1_000_000)


class RemoteTree:
    """Directories of HDFS or of an object store, which tells all of a file when it lists it. `at` is where `path` is,
    the path or URI of something in there."""

    poll_s = 1.0

    def __init__(self, path: str, at: Place) -> None:
        self._filesystem = at.filesystem
        pairs = zip(reversed(path), reversed(at.inner), strict=False)
        shared = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
        self._uri, self._inner = path[: len(path) - shared], at.inner[: len(at.inner) - shared]

    def read(self, path: str, is_new: IsNew) -> Directory | None:
        inner = self._inside(path)
        try:
            infos = self._filesystem.get_file_info(fs.FileSelector(inner))
        except (FileNotFoundError, NotADirectoryError):
            return None
        content, directories = Directory(), []
        for info in infos:
            outside = self._uri + info.path.removeprefix(self._inner)
            if info.type == fs.FileType.Directory:
                directories.append(outside)
            elif info.type == fs.FileType.File and not is_hidden(info.base_name):
                content.has_files = True
                if is_new(outside):
                    content.new_files[outside] = _of_info(outside, info)
        content.directories = tuple(sorted(directories))
        return content

    def file(self, path: str) -> ListedFile | None:
        info = self._filesystem.get_file_info(self._inside(path))
        return _of_info(path, info) if info.type == fs.FileType.File else None

    def forget(self, path: str) -> None:
        """Everything is listed anew each time."""

    def _inside(self, path: str) -> str:
        return self._inner + path.removeprefix(self._uri)


def _of_info(path: str, info: fs.FileInfo) -> ListedFile:
    return ListedFile(path, info.size or 0, (info.mtime_ns or 0) // 1_000_000)


def is_hidden(name: str) -> bool:
    """Whether a file or directory is passed over, as in Spark: by its name it is not ready, or no data.

    >>> [is_hidden(name) for name in ("a", "_a", ".a", "_day=1", "a._COPYING_")]
    [False, True, True, False, True]
    """
    return name.startswith(".") or (name.startswith("_") and "=" not in name) or name.endswith("._COPYING_")
