"""Watches a sink as a reader does: which files of it are results, and since when they can be read."""

from __future__ import annotations

import json
import os
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote, urlsplit

import pyarrow.parquet as pq

LOOK_SECONDS = 0.01


class SinkFormat(Protocol):
    """How the results of a directory are told from what is not one yet."""

    def new_files(self) -> list[Path]:
        """The files with results that were not there before."""


class SparkLog:
    """Files listed in `_spark_metadata`, as Spark's readers see them: a file that is not listed may be half
    written."""

    def __init__(self, directory: Path) -> None:
        self._log = directory / "_spark_metadata"
        self._lists: set[str] = set()
        self._files: set[Path] = set()

    def new_files(self) -> list[Path]:
        try:
            lists = {name for name in os.listdir(self._log) if name.removesuffix(".compact").isdecimal()} - self._lists
        except FileNotFoundError:
            return []
        listed = {path for name in lists for path in self._paths(name)} - self._files
        self._lists |= lists
        self._files |= listed
        return sorted(listed)

    def _paths(self, name: str) -> list[Path]:
        try:
            lines = (self._log / name).read_text().splitlines()[1:]  # after the version
        except FileNotFoundError:
            return []  # outdated: a compact list has its files
        return [Path(unquote(urlsplit(json.loads(line)["path"]).path)) for line in lines]


class WholeFiles:
    """Parquet files that are renamed into the directory when they are complete."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._files: set[str] = set()

    def new_files(self) -> list[Path]:
        try:
            names = {name for name in os.listdir(self._directory) if name.endswith(".parquet")} - self._files
        except FileNotFoundError:
            return []
        self._files |= names
        return [self._directory / name for name in sorted(names)]


@dataclass(frozen=True)
class Shown:
    """A file with results, its rows, and when it could be read."""

    path: Path
    rows: int
    at: float


class SinkReader(threading.Thread):
    """Looks again and again until it is told to stop."""

    def __init__(self, sink: SinkFormat) -> None:
        super().__init__(daemon=True)
        self._sink = sink
        self._stopped = threading.Event()
        self.shown: list[Shown] = []
        self.rows = 0

    def run(self) -> None:
        while not self._stopped.wait(LOOK_SECONDS):
            self.look()

    def look(self) -> None:
        files, at = self._sink.new_files(), time.monotonic()
        for path in files:
            shown = Shown(path, pq.read_metadata(path).num_rows, at)
            self.shown.append(shown)
            self.rows += shown.rows

    def stop(self) -> None:
        self._stopped.set()
        self.join()
