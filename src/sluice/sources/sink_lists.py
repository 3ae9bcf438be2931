"""The files that a streaming sink, Spark's or Sluice's, has shown in its output directory, by the sink's own lists.

A list has the files of one batch, a compact one those of all batches so far. What is in no list is no result.
"""

from __future__ import annotations

import json
from urllib.parse import unquote, urlparse

from sluice.model.errors import StorageError
from sluice.sources.directory_tree import ListedFile
from sluice.state.files.storage import Storage

SINK_LISTS = "_spark_metadata"
_COMPACT = ".compact"


class SinkLists:
    """The lists of one output directory. Each is read once; a compact one only where others are gone."""

    def __init__(self, path: str) -> None:
        self._storage = Storage(path)
        self._next = 0
        """The number of the first list that was not read yet."""
        self._files: dict[str, ListedFile] = {}

    def files(self) -> list[ListedFile]:
        """All files that were listed and are not forgotten."""
        plain, compact = self._numbers()
        while True:
            newest = max((*plain, *compact), default=-1)
            first = max((number for number in compact if number >= self._next), default=self._next)
            if newest < self._next:
                return list(self._files.values())
            try:
                self._read(f"{first}{_COMPACT}" if first in compact else str(first))
                self._next = first + 1
            except StorageError:
                before, (plain, compact) = (plain, compact), self._numbers()
                if (plain, compact) == before:
                    raise

    def forget(self, path: str) -> None:
        """A file was taken in, and is not asked for again."""
        self._files.pop(path, None)

    def _numbers(self) -> tuple[set[int], set[int]]:
        """Of lists, and of compact ones."""
        names = [entry.name for entry in self._storage.files(SINK_LISTS)]
        compact = {name.removesuffix(_COMPACT) for name in names if name.endswith(_COMPACT)}
        return {int(name) for name in names if name.isdecimal()}, {int(name) for name in compact if name.isdecimal()}

    def _read(self, name: str) -> None:
        where = f"{SINK_LISTS}/{name}"
        version, *lines = self._storage.read(where).to_pybytes().decode().split("\n")
        try:
            entries = [json.loads(line) for line in lines if line]
            if not version.startswith("v"):
                raise ValueError("it does not begin with its version")
            for entry in entries:
                path = _path_of(entry["path"])
                if entry.get("action") == "delete":
                    self.forget(path)
                elif not entry.get("isDir"):
                    self._files[path] = ListedFile(path, int(entry["size"]), int(entry["modificationTime"]))
        except (ValueError, KeyError, TypeError) as problem:
            raise StorageError(f"{self._storage.path(where)} is no list of a sink's files: {problem}") from problem


def _path_of(uri: str) -> str:
    """
    >>> _path_of("file:///out/a%20b.parquet"), _path_of("s3a://bucket/out/a.parquet")
    ('/out/a b.parquet', 's3a://bucket/out/a.parquet')
    """
    parsed = urlparse(uri)
    return unquote(parsed.path) if parsed.scheme in ("", "file") else unquote(uri)
