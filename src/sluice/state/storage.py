"""The one seam to files: state, journal, local tiers and results all go through here.

Underneath is pyarrow.fs, so a checkpoint may lie on a local disk, HDFS, S3 or whatever pyarrow can open. `watch` lets a
test see, and fail, every single operation.
"""

from __future__ import annotations

import errno
import os
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

import pyarrow as pa
from pyarrow import fs as arrow_fs

from sluice.model.errors import StorageError

OBJECT_STORES = ("s3", "gcs", "abfs")
HADOOP_NAMES = {"s3a": "s3", "s3n": "s3"}
"""Schemes that Spark's file systems and pyarrow's call differently."""
SIDE_BY_SIDE = 8
"""Requests to a remote store at the same time when many files are moved or deleted."""
Watcher = Callable[[str, str], None]
_watchers: list[Watcher] = []


@contextmanager
def watch(watcher: Watcher) -> Iterator[None]:
    """Call `watcher(operation, path)` before every file operation of this process; what it raises, happens."""
    _watchers.append(watcher)
    try:
        yield
    finally:
        _watchers.remove(watcher)


def _about_to(operation: str, path: str) -> None:
    for watcher in _watchers:
        watcher(operation, path)


class Entry(NamedTuple):
    name: str
    size: int


class Storage:
    """A directory tree at a URI or local path. Paths inside are relative, with '/'."""

    def __init__(self, uri: str) -> None:
        self.uri = uri
        try:
            self.fs, self.root = open_filesystem(uri)
        except (OSError, ValueError, pa.ArrowException) as problem:
            raise StorageError(f"cannot open {uri!r}: {problem}") from problem
        self.local = isinstance(self.fs, arrow_fs.LocalFileSystem)

    def path(self, name: str) -> str:
        return f"{self.root.rstrip('/')}/{name}" if name else self.root

    def make_dir(self, name: str = "") -> None:
        with self._doing("make_dir", name):
            self.fs.create_dir(self.path(name), recursive=True)

    def files(self, name: str = "") -> list[Entry]:
        """The files (not directories) directly inside; nothing if the directory is not there."""
        with self._doing("list", name):
            selector = arrow_fs.FileSelector(self.path(name), allow_not_found=True)
            found = self.fs.get_file_info(selector)
            return [Entry(f.base_name, f.size or 0) for f in found if f.type == arrow_fs.FileType.File]

    def names(self) -> list[str]:
        """Everything directly inside the root, files and directories."""
        with self._doing("list", ""):
            found = self.fs.get_file_info(arrow_fs.FileSelector(self.path(""), allow_not_found=True))
            return [f.base_name for f in found]

    def size(self, name: str) -> int | None:
        """A file's size, None if it is not there."""
        with self._doing("size", name):
            info = self.fs.get_file_info(self.path(name))
            return int(info.size) if info.type == arrow_fs.FileType.File else None

    def read(self, name: str, offset: int = 0, length: int | None = None) -> pa.Buffer:
        with self._doing("read", name), self.fs.open_input_file(self.path(name)) as file:
            if length is None:
                length = file.size() - offset
            data = file.read_at(length, offset)
            if len(data) < length:
                raise StorageError(f"{self.path(name)} ends too early: {len(data)} of {length} bytes; it is damaged")
            return pa.py_buffer(data)

    def map(self, name: str) -> pa.Buffer:
        """A local file's bytes, shared with every process that maps it; they stay readable after a delete."""
        with self._doing("map", name), pa.memory_map(self.path(name)) as file:
            return file.read_buffer()

    def write(self, name: str, pieces: Iterable[Any]) -> int:
        """Write a file; it is there whole or not at all. Returns its size."""
        target = self.path(name)
        draft = f"{target}.{uuid.uuid4().hex[:8]}.tmp" if self.local else target
        with self._doing("write", name):
            try:
                size = 0
                with self.fs.open_output_stream(draft) as out:
                    for piece in pieces:
                        out.write(piece)
                        size += len(piece)
                _about_to("finish", target)
                if draft != target:
                    os.replace(draft, target)
                return size
            except Exception:
                with suppress(OSError):
                    self.fs.delete_file(draft)
                raise

    def put_if_absent(self, name: str, data: bytes) -> bool:
        """Create a file with this content in one atomic step; False if it was there already.

        On a local disk the step is a hard link. Elsewhere it is a look (one driver writes a checkpoint), then on an
        object store a put, which shows the whole object or none, and on other file systems a rename.
        """
        target = self.path(name)
        draft = f"{target}.{uuid.uuid4().hex[:8]}.tmp"
        with self._doing("put", name):
            if not self.local:
                if self.fs.get_file_info(target).type != arrow_fs.FileType.NotFound:
                    return False
                whole = self.fs.type_name in OBJECT_STORES
                with self.fs.open_output_stream(target if whole else draft) as out:
                    out.write(data)
                _about_to("finish", target)
                if not whole:
                    self.fs.move(draft, target)
                return True
            try:
                with open(draft, "xb") as file:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
                _about_to("finish", target)
                os.link(draft, target)
                return True
            except FileExistsError:
                return False
            finally:
                with suppress(OSError):
                    os.unlink(draft)

    @contextmanager
    def writing(self, name: str) -> Iterator[Any]:
        """An output stream to a file that nobody refers to yet."""
        with self._doing("write", name), self.fs.open_output_stream(self.path(name)) as out:
            yield out
            _about_to("finish", self.path(name))

    def move(self, source: str, target: str) -> None:
        """Rename a file; done already (source gone, target there) counts as done."""
        with self._doing("move", source):
            try:
                self.fs.move(self.path(source), self.path(target))
            except OSError:
                if self.fs.get_file_info(self.path(target)).type != arrow_fs.FileType.File:
                    raise

    def move_all(self, pairs: Sequence[tuple[str, str]]) -> None:
        """Rename many files; on anything but a local disk side by side, since each is at least one round trip."""
        self._each(self.move, pairs)

    def delete_all(self, names: Iterable[str]) -> None:
        """Remove many files; on anything but a local disk side by side."""
        self._each(self.delete, [(name,) for name in names])

    def _each(self, do: Callable[..., None], arguments: Sequence[tuple[str, ...]]) -> None:
        if self.local:
            for some in arguments:
                do(*some)
            return
        with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
            for _ in pool.map(lambda some: do(*some), arguments):
                pass

    def delete(self, name: str) -> None:
        """Remove a file; gone already counts as removed."""
        with self._doing("delete", name), suppress(FileNotFoundError):
            self.fs.delete_file(self.path(name))

    def delete_tree(self, name: str = "") -> None:
        with self._doing("delete_tree", name), suppress(FileNotFoundError):
            self.fs.delete_dir(self.path(name))

    @contextmanager
    def _doing(self, operation: str, name: str) -> Iterator[None]:
        path = self.path(name)
        _about_to(operation, path)
        try:
            yield
        except OSError as problem:
            if problem.errno in (errno.ENOSPC, errno.EDQUOT):
                raise StorageError(f"no space left to {operation} {path}: free some or use another place") from problem
            raise StorageError(f"cannot {operation} {path}: {problem}") from problem


def open_filesystem(uri: str) -> tuple[arrow_fs.FileSystem, str]:
    """The filesystem and the path in it of a URI, a local path, or Hadoop's one-slash form 'file:/dir'."""
    if uri.startswith("file:"):
        uri = uri.removeprefix("file:")
        uri = "/" + uri.lstrip("/")
    if "://" not in uri:
        return arrow_fs.LocalFileSystem(), os.path.abspath(uri)
    scheme, rest = uri.split("://", 1)
    filesystem, path = arrow_fs.FileSystem.from_uri(f"{HADOOP_NAMES.get(scheme, scheme)}://{rest}")
    return filesystem, path
