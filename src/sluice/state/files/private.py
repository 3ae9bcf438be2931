"""Files that are nobody else's business: in directories of our own that no other user can look or reach into.

The local tiers lie where everybody may write. So a directory is made for us alone, and one that is there already is
taken only if it is a directory (no link), ours, and closed to others; the same for each file in it.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from sluice.model.errors import StorageError


def make_private_directory(path: Path) -> None:
    """Make a directory for this user alone, or see that the one that is there is that."""
    try:
        with suppress(FileExistsError):
            path.mkdir(mode=0o700)
        status = path.lstat()
    except OSError as problem:
        raise StorageError.of("make", str(path), problem) from problem
    if stat.S_ISLNK(status.st_mode):
        what = "is a link"
    elif not stat.S_ISDIR(status.st_mode):
        what = "is no directory"
    elif status.st_uid != os.geteuid():
        what = f"belongs to another user (uid {status.st_uid})"
    elif status.st_mode & 0o077:
        what = f"is open to other users (mode {stat.S_IMODE(status.st_mode):o})"
    else:
        return
    raise StorageError(
        f"{path} {what}: state is kept only where nobody else can read or change it. Remove it, or set memoryDir "
        "and diskDir to directories of your own"
    )


def belongs_to_us(path: Path) -> bool:
    """Whether this is a directory, no link to one, and this user's."""
    try:
        status = path.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()


@contextmanager
def open_private(path: str, flags: int) -> Iterator[int]:
    """The descriptor of a file of ours; never one that a link leads to. What is made is for this user alone."""
    descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
            raise PermissionError(f"{path} is no file of this user")
        yield descriptor
    finally:
        os.close(descriptor)
