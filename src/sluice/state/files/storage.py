"""The one seam to files: state, journal, local tiers and results all go through here.

A checkpoint may lie on a local or mounted disk, on HDFS, or in an object store; what each of them does differently is
in `file_system`, `hadoop` and `object_store`. `watch` lets a test see, and fail, every single operation.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pyarrow as pa

from sluice.model.errors import StorageError
from sluice.state.files.backend import SIDE_BY_SIDE, FileEntry, Files
from sluice.state.files.file_system import LocalDisk
from sluice.state.files.object_uri import HADOOP_NAMES, OBJECT_SCHEMES, parse

__all__ = ["HADOOP_NAMES", "FileEntry", "Storage", "about_to", "watch"]

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


def about_to(operation: str, path: str) -> None:
    """Tell those who watch of a file operation."""
    for watcher in _watchers:
        watcher(operation, path)


class Storage:
    """A directory tree at a URI or local path. Paths inside are relative, with '/'."""

    def __init__(self, uri: str) -> None:
        self.uri = uri
        try:
            self._files = _open(uri)
        except (OSError, ValueError, ImportError, pa.ArrowException) as problem:
            raise StorageError(f"cannot open {uri!r}: {problem}") from problem
        self.local, self.root = self._files.local, self._files.root
        self._exclusive = False

    def path(self, name: str) -> str:
        return self._files.path(name)

    def make_dir(self, name: str = "") -> None:
        with self._announce("make_dir", name):
            self._files.make_dir(name)

    def files(self, name: str = "") -> list[FileEntry]:
        """The files (not directories) directly inside; nothing if the directory is not there."""
        with self._announce("list", name):
            return self._files.list(name).files

    def files_in(self, directory: str) -> set[str]:
        """The same by their names as seen from the root."""
        return {f"{directory}/{entry.name}" for entry in self.files(directory)}

    def names(self) -> list[str]:
        """Everything directly inside the root, files and directories."""
        with self._announce("list", ""):
            listing = self._files.list("")
            return [f.name for f in listing.files] + listing.directories

    def size(self, name: str) -> int | None:
        """A file's size, None if it is not there."""
        with self._announce("size", name):
            return self._files.size(name)

    def read(self, name: str, offset: int = 0, length: int | None = None) -> pa.Buffer:
        with self._announce("read", name):
            data = self._files.read(name, offset, length)
            if length is not None and len(data) < length:
                raise StorageError(f"{self.path(name)} ends too early: {len(data)} of {length} bytes; it is damaged")
            return data

    def write(self, name: str, pieces: Iterable[Any]) -> int:
        """Write a file; it is there whole or not at all. Returns its size."""
        with self._announce("write", name), self._files.open_writer(name, self._finishing(name)) as out:
            size = 0
            for piece in pieces:
                out.write(piece)
                size += len(piece)
            return size

    @contextmanager
    def open_writer(self, name: str) -> Iterator[Any]:
        """An output stream to a file that nobody refers to yet."""
        with self._announce("write", name), self._files.open_stream(name, self._finishing(name)) as out:
            yield out

    def put_if_absent(self, name: str, data: bytes) -> bool:
        """Create a file with this content in one atomic step; False if it was there already.

        Of any number of drivers that try at the same time, exactly one gets True. A store that cannot promise it is
        refused at the first try.
        """
        if not self._exclusive:
            with self._announce("probe", ""):
                self._files.check_exclusive()
            self._exclusive = True
        with self._announce("put", name):
            return self._files.put_if_absent(name, data, self._finishing(name))

    def move(self, source: str, target: str) -> None:
        """Rename a file; done already (source gone, target there) counts as done."""
        self.move_all([(source, target)])

    def move_all(self, pairs: Sequence[tuple[str, str]]) -> None:
        """Rename many files; on anything but a local disk side by side, since each is at least one round trip."""
        if self.local or len(pairs) == 1:
            for source, target in pairs:
                with self._announce("move", source):
                    self._move(source, target)
            return
        with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
            started = []
            for source, target in pairs:
                about_to("move", self.path(source))
                started.append((source, pool.submit(self._move, source, target)))
            for source, move in started:
                with self._translate_errors("move", source):
                    move.result()

    def _move(self, source: str, target: str) -> None:
        try:
            self._files.move(source, target, self._finishing(target))
        except OSError:
            if self._files.size(source) is not None or self._files.size(target) is None:
                raise

    def sync(self, names: Sequence[str]) -> None:
        """Have files that another program wrote outlast a power cut, and their directories; those that are not there
        are passed over."""
        for name in names:
            about_to("sync", self.path(name))
        with self._translate_errors("sync", names[0] if names else ""):
            self._files.sync(names)

    def delete(self, name: str) -> None:
        """Remove a file; gone already counts as removed."""
        with self._announce("delete", name):
            self._files.delete(name)

    def delete_all(self, names: Iterable[str]) -> None:
        """Remove many files; on an object store in a few requests."""
        if self.local:
            for name in names:
                self.delete(name)
            return
        names = list(names)
        for name in names:
            about_to("delete", self.path(name))
        if names:
            with self._translate_errors("delete", names[0]):
                self._files.delete_all(names)

    def delete_tree(self, name: str = "") -> None:
        with self._announce("delete_tree", name):
            self._files.delete_tree(name)

    def _finishing(self, name: str) -> Callable[[], None]:
        return lambda: about_to("finish", self.path(name))

    def _announce(self, operation: str, name: str) -> AbstractContextManager[None]:
        about_to(operation, self.path(name))
        return self._translate_errors(operation, name)

    def _translate_errors(self, operation: str, name: str) -> AbstractContextManager[None]:
        return _TranslatedErrors(operation, self.path(name))


class _TranslatedErrors(AbstractContextManager[None]):
    """Says of an error of the system in which operation on which file it was."""

    __slots__ = ("_operation", "_path")

    def __init__(self, operation: str, path: str) -> None:
        self._operation, self._path = operation, path

    def __exit__(self, kind: object, problem: BaseException | None, trace: object) -> None:
        if isinstance(problem, OSError):
            raise StorageError.of(self._operation, self._path, problem) from problem


def _open(uri: str) -> Files:
    """The files at a URI, a local path, or Hadoop's one-slash form 'file:/dir'."""
    if uri.startswith("file:"):
        uri = "/" + uri.removeprefix("file:").lstrip("/")
    if "://" not in uri:
        return LocalDisk(os.path.abspath(uri))
    scheme = uri.split("://", 1)[0]
    # What a local checkpoint never uses is not imported for it.
    if HADOOP_NAMES.get(scheme, scheme) in OBJECT_SCHEMES:
        from sluice.state.files.object_store import ObjectStoreFiles

        return ObjectStoreFiles(*parse(uri))
    from sluice.state.files.hadoop import HadoopFiles

    return HadoopFiles.at(uri)
