"""Files of HDFS: by way of pyarrow.fs, but for the one rename that must not replace anything.

pyarrow's `move` deletes a file that is in its way and tries again. HDFS itself refuses to rename onto a file, in one
step, and so does libhdfs, the library that pyarrow has loaded for its own calls: it is asked directly.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

from pyarrow import fs as arrow_fs

from sluice.model.errors import StorageError
from sluice.state.files.backend import SIDE_BY_SIDE, Finish
from sluice.state.files.file_system import FileSystemFiles, draft_of

SCHEMES = ("hdfs", "viewfs")
LIBRARY = "libhdfs.so"


class HadoopFiles(FileSystemFiles):
    """A directory of HDFS."""

    def __init__(self, filesystem: arrow_fs.FileSystem, root: str, name_node: str) -> None:
        super().__init__(filesystem, root)
        self.name_node = name_node
        self._rename: Rename | None = None

    @classmethod
    def at(cls, uri: str) -> HadoopFiles:
        parts = urlsplit(uri)
        if parts.scheme not in SCHEMES:
            raise ValueError(f"Sluice knows no file system called {parts.scheme!r}")
        filesystem, root = arrow_fs.FileSystem.from_uri(uri)
        return cls(filesystem, root, f"{parts.scheme}://{parts.netloc}")

    def check_exclusive(self) -> None:
        try:
            self._rename = Rename(self.name_node)
        except OSError as problem:
            raise StorageError(
                f"{self.name_node} cannot create a file only if it is absent: {LIBRARY} could not be used ({problem}), "
                "so two drivers could both commit. Set HADOOP_HOME or ARROW_LIBHDFS_DIR to where it lies"
            ) from problem

    def put_if_absent(self, name: str, data: bytes, finish: Finish) -> bool:
        assert self._rename is not None, "check_exclusive comes first"
        draft = draft_of(self.path(name))
        try:
            with self.fs.open_output_stream(draft) as out:
                out.write(data)
            finish()
            if self._rename(draft, self.path(name)):
                return True
            if self.size(name) is None:
                raise OSError(f"the rename of {draft} was refused, although nothing is in its way")
            return False
        finally:
            with suppress(OSError):
                self.fs.delete_file(draft)

    def delete_all(self, names: Sequence[str]) -> None:
        with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
            for _ in pool.map(self.delete, names):
                pass


class Rename:
    """libhdfs's rename: true if it was done, false if it was refused, as it is when the target is there."""

    def __init__(self, name_node: str) -> None:
        self._library = _load()
        builder = self._library.hdfsNewBuilder()
        if not builder:
            raise OSError("it gives no connection")
        self._library.hdfsBuilderSetNameNode(builder, name_node.encode())
        self._connection = self._library.hdfsBuilderConnect(builder)
        if not self._connection:
            raise OSError(f"no connection to {name_node}")

    def __call__(self, source: str, target: str) -> bool:
        return bool(self._library.hdfsRename(self._connection, source.encode(), target.encode()) == 0)


def _load() -> Any:
    """The library from where pyarrow looks for it."""
    homes = [os.environ.get("ARROW_LIBHDFS_DIR", "")]
    if "HADOOP_HOME" in os.environ:
        homes.append(os.path.join(os.environ["HADOOP_HOME"], "lib", "native"))
    places = [os.path.join(home, LIBRARY) for home in homes if home]
    library = ctypes.CDLL(next((place for place in places if os.path.exists(place)), LIBRARY))
    library.hdfsNewBuilder.restype = ctypes.c_void_p
    library.hdfsBuilderSetNameNode.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
    library.hdfsBuilderSetNameNode.restype = None
    library.hdfsBuilderConnect.argtypes = [ctypes.c_void_p]
    library.hdfsBuilderConnect.restype = ctypes.c_void_p
    library.hdfsRename.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p]
    library.hdfsRename.restype = ctypes.c_int
    return library
