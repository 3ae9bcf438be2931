"""Files of a local disk or of HDFS, by way of pyarrow.fs."""

from __future__ import annotations

import errno
import os
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import pyarrow as pa
from pyarrow import fs as arrow_fs

from sluice.state.files.backend import Contents, FileEntry, Finish


class FileSystemFiles:
    """What a local disk and HDFS have in common: directories, and a rename that is one step."""

    local = False

    def __init__(self, filesystem: arrow_fs.FileSystem, root: str) -> None:
        self.fs, self.root = filesystem, root

    def path(self, name: str) -> str:
        return f"{self.root.rstrip('/')}/{name}" if name else self.root

    def make_dir(self, name: str) -> None:
        self.fs.create_dir(self.path(name), recursive=True)

    def list(self, name: str) -> Contents:
        inside = self.fs.get_file_info(arrow_fs.FileSelector(self.path(name), allow_not_found=True))
        files = [FileEntry(i.base_name, i.size or 0) for i in inside if i.type == arrow_fs.FileType.File]
        return Contents(files, [i.base_name for i in inside if i.type != arrow_fs.FileType.File])

    def size(self, name: str) -> int | None:
        info = self.fs.get_file_info(self.path(name))
        return int(info.size) if info.type == arrow_fs.FileType.File else None

    def read(self, name: str, offset: int, length: int | None) -> pa.Buffer:
        with self.fs.open_input_file(self.path(name)) as file:
            return pa.py_buffer(file.read_at(file.size() - offset if length is None else length, offset))

    @contextmanager
    def open_writer(self, name: str, finish: Finish) -> Iterator[Any]:
        draft = draft_of(self.path(name))
        try:
            with self.fs.open_output_stream(draft) as out:
                yield out
            finish()
            self._replace(draft, self.path(name))
        except Exception:
            with suppress(OSError):
                self.fs.delete_file(draft)
            raise

    @contextmanager
    def open_stream(self, name: str, finish: Finish) -> Iterator[Any]:
        with self.fs.open_output_stream(self.path(name)) as out:
            yield out
            finish()

    def sync(self, names: Sequence[str]) -> None:
        """HDFS has what is written on several machines."""

    def move(self, source: str, target: str, finish: Finish) -> None:
        self.fs.move(self.path(source), self.path(target))

    def delete(self, name: str) -> None:
        with suppress(FileNotFoundError):
            self.fs.delete_file(self.path(name))

    def delete_tree(self, name: str) -> None:
        with suppress(FileNotFoundError):
            self.fs.delete_dir(self.path(name))

    def _replace(self, draft: str, target: str) -> None:
        self.fs.move(draft, target)


class LocalDisk(FileSystemFiles):
    """A directory of this machine, or one that is mounted on it."""

    local = True

    def __init__(self, root: str) -> None:
        super().__init__(arrow_fs.LocalFileSystem(), root)

    def check_exclusive(self) -> None:
        """A hard link is made, or refused since the name is taken, in one step."""

    def put_if_absent(self, name: str, data: bytes, finish: Finish) -> bool:
        target = self.path(name)
        draft = draft_of(target)
        try:
            with open(draft, "xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            finish()
            os.link(draft, target)
            _sync_directory(os.path.dirname(target))
            return True
        except FileExistsError:
            # On NFS a link whose answer was lost is asked for again and finds itself.
            with suppress(FileNotFoundError):
                return os.path.samefile(draft, target)
            return False
        finally:
            with suppress(OSError):
                os.unlink(draft)

    def sync(self, names: Sequence[str]) -> None:
        directories: set[str] = set()
        for name in names:
            with suppress(FileNotFoundError), open(self.path(name), "rb") as file:
                os.fsync(file.fileno())
                above = name.split("/")[:-1]
                directories |= {"/".join(above[:depth]) for depth in range(len(above) + 1)}
        for directory in sorted(directories, reverse=True):
            _sync_directory(self.path(directory))

    def delete_all(self, names: Sequence[str]) -> None:
        for name in names:
            self.delete(name)

    def _replace(self, draft: str, target: str) -> None:
        os.replace(draft, target)


def _sync_directory(path: str) -> None:
    """Have the names in a directory outlast a power cut, where its file system can be asked for it."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError as problem:
        if problem.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)


def draft_of(target: str) -> str:
    return f"{target}.{uuid.uuid4().hex[:8]}.tmp"
