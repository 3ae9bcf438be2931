"""Where a stream's files are: from what Spark or the user calls a path to a file system and a name in it.

Spark (that is, Hadoop) writes paths as `file:/data/x y.parquet`: one slash, and nothing escaped, so `%20` in a
path is those three characters. pyarrow's own URI parser would refuse the one and decode the other.
"""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import pyarrow as pa
from pyarrow import fs

from sluice.model.errors import StorageError
from sluice.state.files.storage import HADOOP_NAMES

_URI = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(?://([^/]*))?(/.*|$)", re.DOTALL)
_WILD = re.compile(r"[*?\[]")
_BRACES = re.compile(r"\{([^{}]*)\}")


@dataclass(frozen=True)
class Place:
    """A file or directory: its file system, its path in there, and the name to call it by in a message."""

    filesystem: fs.FileSystem
    inner: str
    name: str

    @property
    def is_local(self) -> bool:
        return isinstance(self.filesystem, fs.LocalFileSystem)


def locate(path: str) -> Place:
    """The place that a path or URI means; nothing in it counts as a wildcard or an escape.

    >>> locate("file:/data/x y%20.parquet").inner
    '/data/x y%20.parquet'
    """
    uri = _URI.match(path)
    if uri is None or uri[1].lower() == "file":
        inner = os.path.abspath(path) if uri is None else uri[3] or "/"
        return Place(fs.LocalFileSystem(use_mmap=True), inner, path)
    scheme = uri[1].lower()
    try:
        filesystem, root = _remote(HADOOP_NAMES.get(scheme, scheme), uri[2] or "")
    except (pa.ArrowException, OSError) as e:
        raise StorageError(f"cannot reach {path!r}: {e}") from e
    return Place(filesystem, root.rstrip("/") + uri[3], path)


@lru_cache(maxsize=64)
def _remote(scheme: str, authority: str) -> tuple[fs.FileSystem, str]:
    # Kept for the life of the worker: finding an S3 bucket's region costs a round trip each time.
    filesystem, root = fs.FileSystem.from_uri(f"{scheme}://{authority}/")
    return filesystem, root


def find(path: str, name_filter: str = "*") -> Iterator[Place]:
    """The files of a directory, file or glob (`*`, `?`, `[ab]`, `{a,b}`), in the order of their names.

    Names that begin with '_' or '.' are passed over, as Spark does. Sub-directories are entered only where a
    directory holds no file itself.
    """
    names = without_braces(name_filter)
    for pattern in without_braces(path):
        # Steps below the first wildcard are matched one directory at a time, so that no more is listed than needed.
        steps = pattern.split("/")
        wild = next((i for i, step in enumerate(steps) if _WILD.search(step)), len(steps))
        start = locate("/".join(steps[:wild]) or ("/" if pattern.startswith("/") else "."))
        try:
            root = start.filesystem.get_file_info(start.inner)
            for match in _matches(start.filesystem, root, [step for step in steps[wild:] if step]):
                for file in _files(start.filesystem, match):
                    if any(_has_name(file, name) for name in names):
                        yield Place(start.filesystem, file.path, file.path)
        except (pa.ArrowException, OSError) as e:
            raise StorageError(f"cannot list {path!r}: {e}") from e


def is_there(path: str) -> bool:
    """Whether there is such a file or directory; a pattern may come to match later."""
    if _WILD.search(path) or _BRACES.search(path):
        return True
    place = locate(path)
    return bool(place.filesystem.get_file_info(place.inner).type != fs.FileType.NotFound)


def without_braces(pattern: str) -> list[str]:
    """The patterns without braces that one with braces stands for.

    >>> without_braces("a/{b,c}/*")
    ['a/b/*', 'a/c/*']
    """
    group = _BRACES.search(pattern)
    if group is None:
        return [pattern]
    before, after = pattern[: group.start()], pattern[group.end() :]
    return [p for choice in group[1].split(",") for p in without_braces(before + choice + after)]


def _matches(filesystem: fs.FileSystem, at: fs.FileInfo, steps: list[str]) -> Iterator[fs.FileInfo]:
    if not steps:
        yield at
    elif at.type == fs.FileType.Directory:
        for child in _children(filesystem, at):
            if _has_name(child, steps[0]):
                yield from _matches(filesystem, child, steps[1:])


def _files(filesystem: fs.FileSystem, at: fs.FileInfo) -> Iterator[fs.FileInfo]:
    if at.type == fs.FileType.File:
        if not _is_hidden(at.base_name):
            yield at
    elif at.type == fs.FileType.Directory:
        children = [child for child in _children(filesystem, at) if not _is_hidden(child.base_name)]
        files = [child for child in children if child.type == fs.FileType.File]
        for child in files or children:
            yield from _files(filesystem, child)


def _children(filesystem: fs.FileSystem, at: fs.FileInfo) -> list[fs.FileInfo]:
    return sorted(filesystem.get_file_info(fs.FileSelector(at.path)), key=lambda child: str(child.base_name))


def _has_name(file: fs.FileInfo, pattern: str) -> bool:
    return fnmatch.fnmatchcase(file.base_name, pattern.replace("[^", "[!"))


def _is_hidden(name: str) -> bool:
    # `_day=1` is a partition directory of a table whose column is called `_day`.
    return name.startswith(".") or (name.startswith("_") and "=" not in name)
