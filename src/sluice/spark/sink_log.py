"""The list of files that Spark's readers take as the content of an output directory, in the format of Spark's own sink.

`spark.read` and `spark.readStream` look into `_spark_metadata` first and see only files listed there. An epoch's files
are listed by one atomic put, so such a reader sees all of an epoch or nothing of it.
"""

from __future__ import annotations

import json
import time
from urllib.parse import quote

from sluice.model.epoch import Part
from sluice.model.errors import StorageError
from sluice.state.storage import Storage

DIRECTORY = "_spark_metadata"
VERSION = "v1"
EVERY = 10
"""Spark expects every tenth list to be a `.compact` one that repeats everything before it."""


class SinkLog:
    """The file lists of one output directory."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage

    def add(self, parts: tuple[Part, ...]) -> None:
        """List an epoch's files, unless they are listed already."""
        if not parts:
            return
        self.storage.make_dir(DIRECTORY)
        newest = max(self._numbers(), default=-1)
        if newest >= 0 and any(e["path"] == self._uri(parts[0].name) for e in self._entries(newest)):
            return
        entries = [self._entry(part) for part in parts]
        number = newest + 1
        if _is_compact(number):
            earlier = range(max(0, number - EVERY), number)
            before = [e for n in earlier for e in self._entries(n) if n == number - EVERY or not _is_compact(n)]
            entries = before + entries
        text = "\n".join([VERSION, *(json.dumps(e, separators=(",", ":")) for e in entries)])
        if not self.storage.put_if_absent(_name(number), text.encode()):
            raise StorageError(f"another query is writing to {self.storage.uri}; give each its own path")
        if _is_compact(number):
            for old in self._numbers():
                if old < number - EVERY:
                    self.storage.delete(_name(old))

    def tidy(self) -> None:
        """Remove drafts that a killed driver left."""
        for entry in self.storage.files(DIRECTORY):
            if entry.name.endswith(".tmp"):
                self.storage.delete(f"{DIRECTORY}/{entry.name}")

    def _numbers(self) -> list[int]:
        names = (e.name.removesuffix(".compact") for e in self.storage.files(DIRECTORY))
        return sorted(int(n) for n in names if n.isdigit())

    def _entries(self, number: int) -> list[dict[str, object]]:
        lines = self.storage.read(_name(number)).to_pybytes().decode().splitlines()
        return [json.loads(line) for line in lines[1:]]

    def _entry(self, part: Part) -> dict[str, object]:
        return {
            "path": self._uri(part.name),
            "size": part.bytes,
            "isDir": False,
            "modificationTime": int(time.time() * 1000),
            "blockReplication": 1,
            "blockSize": 32 << 20,
            "action": "add",
        }

    def _uri(self, name: str) -> str:
        if self.storage.local:
            return "file://" + quote(self.storage.path(name))
        return f"{self.storage.uri.rstrip('/')}/{quote(name)}"


def _is_compact(number: int) -> bool:
    return (number + 1) % EVERY == 0


def _name(number: int) -> str:
    return f"{DIRECTORY}/{number}.compact" if _is_compact(number) else f"{DIRECTORY}/{number}"
