"""The files of one site in one local tier: for this user alone, and verified before they are used.

A file's name carries the checksum of its bytes, so that a flipped bit, a torn write or another file's bytes are noticed
whoever has written it. Reading all of a mapped file to verify it would make an epoch cost what the state does: so a
process verifies a file when it opens it for the first time, and again when it has been written to since.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa

from sluice.model.codec import checksum
from sluice.state.files.disk_speed import DiskSpeed
from sluice.state.files.private import make_private_directory, open_private
from sluice.state.files.storage import FileEntry, Storage

_verified: dict[tuple[int, int], tuple[int, int, int, int]] = {}
"""The files that this process has verified: by device and inode their size, times of change and checksum."""
MOST_VERIFIED = 100_000
SETTLED = 50_000_000
"""Nanoseconds after which a change of a file shows in its times: a clock's tick is some milliseconds."""


class LocalFiles(Storage):
    """A directory of local files; made for this user alone if it is not there.

    `wall_clock` is the one by which the host notes when files change, in nanoseconds; `speed` is that of a disk that is
    slow on purpose.
    """

    def __init__(
        self, directory: str, wall_clock: Callable[[], int] = time.time_ns, speed: DiskSpeed | None = None
    ) -> None:
        super().__init__(directory)
        self._wall_clock, self._speed = wall_clock, speed
        with self._announce("make_dir", ""):
            make_private_directory(Path(self.root))

    def files(self, name: str = "") -> list[FileEntry]:
        """The files directly inside; what is none, a link say, is not ours and not looked at."""
        listed = []
        with self._announce("list", name), os.scandir(self.path(name)) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):  # another attempt has moved it
                    if entry.is_file(follow_symlinks=False):
                        listed.append(FileEntry(entry.name, entry.stat(follow_symlinks=False).st_size))
        return listed

    def write(self, name: str, pieces: Iterable[Any]) -> int:
        """Write a file; it is there whole or not at all. Returns its size."""
        draft, size = f"{self.path(name)}.{uuid.uuid4().hex[:8]}.tmp", 0
        with self._announce("write", name):
            try:
                with open_private(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL) as descriptor:
                    for piece in pieces:
                        size += len(piece)
                        left = memoryview(piece)
                        while left:
                            left = left[os.write(descriptor, left) :]
                with self._announce("finish", name):
                    os.replace(draft, self.path(name))
                self._spend(size)
                return size
            except Exception:
                with suppress(OSError):
                    os.unlink(draft)
                raise

    def map(self, name: str, expected: int, again: bool = False) -> pa.Buffer | None:
        """A file's bytes, shared with every process that maps it, or None where they do not have this checksum.

        They stay readable after a delete. `again` verifies them also if this process has done so before.
        """
        with self._announce("map", name), open_private(self.path(name), os.O_RDONLY) as descriptor:
            stat, now = os.fstat(descriptor), self._wall_clock()
            if not stat.st_size:  # nothing to map
                return None
            with pa.memory_map(f"/dev/fd/{descriptor}") as file:
                data = file.read_buffer()
        self._spend(stat.st_size)
        which, state = (stat.st_dev, stat.st_ino), (stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, expected)
        if not again and _verified.get(which) == state:
            return data
        if checksum(data) != expected:
            return None
        if now - max(stat.st_mtime_ns, stat.st_ctime_ns) > SETTLED:  # else it might change within the same tick
            if len(_verified) >= MOST_VERIFIED:
                _verified.clear()
            _verified[which] = state
        return data

    def _spend(self, size: int) -> None:
        if self._speed is not None:
            self._speed.spend(size)
