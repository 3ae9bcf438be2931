"""What every kind of storage can do, whatever is underneath: a local disk, HDFS, or an object store.

`Storage` is the one that calls it: it announces each operation and says in words what went wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol

import pyarrow as pa

SIDE_BY_SIDE = 8
"""Requests to a remote store at the same time when many files are moved or deleted."""


class FileEntry(NamedTuple):
    name: str
    size: int


class Contents(NamedTuple):
    files: list[FileEntry]
    directories: list[str]


Finish = Callable[[], None]
"""Called just before the step that makes a file visible, so that a test can fail or stop there."""


class Files(Protocol):
    """A directory tree. Names are relative to its root, with '/'."""

    root: str
    local: bool

    def path(self, name: str) -> str:
        """What to call a file in a message; on a local disk its path."""

    def make_dir(self, name: str) -> None:
        """From now on it is listed, also while it is empty."""

    def list(self, name: str) -> Contents:
        """What is directly inside; nothing if it is not there."""

    def size(self, name: str) -> int | None: ...

    def read(self, name: str, offset: int, length: int | None) -> pa.Buffer:
        """A part of a file, or all from the offset; shorter only where the file ends."""

    def open_writer(self, name: str, finish: Finish) -> AbstractContextManager[Any]:
        """An output stream to a file that is there whole once the context ends well, and else not at all."""

    def open_stream(self, name: str, finish: Finish) -> AbstractContextManager[Any]:
        """As `writing`, but what is half written may show: for a file that nobody refers to yet."""

    def check_exclusive(self) -> None:
        """Refuse a store on which two drivers could both create the same file."""

    def put_if_absent(self, name: str, data: bytes, finish: Finish) -> bool: ...

    def sync(self, names: Sequence[str]) -> None:
        """Have these files outlast a power cut, with the directories they lie in; nothing where a file that is written
        does so anyway."""

    def move(self, source: str, target: str, finish: Finish) -> None:
        """FileNotFoundError if the source is gone."""

    def delete(self, name: str) -> None:
        """Gone already counts as deleted."""

    def delete_all(self, names: Sequence[str]) -> None:
        """As `delete` for each, in as few requests as there can be."""

    def delete_tree(self, name: str) -> None: ...
