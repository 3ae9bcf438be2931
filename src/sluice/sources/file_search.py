"""The files of a `readFiles` stream that are there and new, found as Spark's file source finds them.

A path is a directory, a file, or a pattern for some of them. The files directly in a directory count. Those further
below do if there are partition directories (`day=1`) among its own, or with `recursiveFileLookup`. What a streaming
sink of Spark's or of Sluice's has written is found by the sink's own lists.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from sluice.model.errors import StorageError
from sluice.sources.directory_tree import Directory, IsNew, ListedFile, LocalTree, RemoteTree, Tree, is_hidden
from sluice.sources.file_paths import locate, without_braces
from sluice.sources.sink_lists import SINK_LISTS, SinkLists

_WILD = re.compile(r"[*?\[]")


class FileSearch:
    """Looks for the new files at a path. What it was told once, it does not ask for again."""

    def __init__(self, path: str, name_filter: str = "*", recursive: bool = False, tree: Tree | None = None) -> None:
        self.path, self._recursive = path, recursive
        self._names = without_braces(name_filter)
        places = [(locate(base), base, steps) for base, steps in map(_split_at_wildcards, without_braces(path))]
        self._patterns = [(place.inner if place.is_local else base, steps) for place, base, steps in places]
        first, base, _ = places[0]
        self.tree = tree or (LocalTree() if first.is_local else RemoteTree(base, first))
        self._has_sink_lists = False if len(places) > 1 or places[0][2] else None
        self._sink_lists: SinkLists | None = None

    def new_files(self, is_new: IsNew) -> list[ListedFile]:
        """The files that are there and new, in no order."""
        try:
            files = self._by_sink_lists(is_new)
            if files is None:
                files = self._by_directories(is_new)
        except (pa.ArrowException, OSError) as problem:
            raise StorageError(f"cannot list {self.path!r}: {problem}") from problem
        return [file for file in files if is_new(file.path) and self._has_name(file.path)]

    def forget(self, path: str) -> None:
        """A file was taken in."""
        self.tree.forget(path)
        if self._sink_lists is not None:
            self._sink_lists.forget(path)

    def _by_sink_lists(self, is_new: IsNew) -> list[ListedFile] | None:
        """The files in the lists of a streaming sink; None if none writes there. Once there are files without such
        lists, these are what counts."""
        if self._has_sink_lists is None:
            path = self._patterns[0][0]
            root = self.tree.read(path, is_new)
            if root is not None and any(_name(child) == SINK_LISTS for child in root.directories):
                self._has_sink_lists, self._sink_lists = True, SinkLists(path)
            elif root is None or root.has_files:
                self._has_sink_lists = None if root is None else False
        return None if self._sink_lists is None else self._sink_lists.files()

    def _by_directories(self, is_new: IsNew) -> list[ListedFile]:
        files: dict[str, ListedFile] = {}
        leaves: dict[str, _Leaf] = {}
        for base, steps in self._patterns:
            for match in self._matches(base, steps, is_new):
                if isinstance(match, ListedFile):
                    files[match.path] = match
                    continue
                directory = self.tree.read(match, is_new)
                if directory is not None:
                    leaves.update((leaf.path, leaf) for leaf in self._leaves(match, match, directory, is_new))
                elif is_new(match) and not is_hidden(_name(match)):
                    file = self.tree.file(match)
                    files.update({} if file is None else {match: file})
        below = leaves.values()
        whole = self._recursive or self._is_partitioned([*below])
        chosen = [leaf for leaf in below if whole or leaf.is_base]
        return [*files.values(), *(file for leaf in chosen for file in leaf.directory.new_files.values())]

    def _matches(self, at: str, steps: list[str], is_new: IsNew) -> Iterator[str | ListedFile]:
        """What a pattern stands for: paths, and files that were seen on the way. Steps are matched one directory at a
        time, so that no more is read than needed."""
        if not steps:
            yield at
            return
        first, *more = steps
        if not _WILD.search(first):
            yield from self._matches(f"{at.rstrip('/')}/{first}", more, is_new)
            return
        directory = self.tree.read(at, is_new)
        if directory is None:
            return
        for path in directory.directories:
            if _has_name(path, first):
                yield from self._matches(path, more, is_new)
        if not more:
            yield from (file for file in directory.new_files.values() if _has_name(file.path, first))

    def _leaves(self, base: str, path: str, directory: Directory, is_new: IsNew) -> Iterator[_Leaf]:
        """The directories with files in them, from a base on."""
        if directory.has_files:
            yield _Leaf(base, path, directory)
        for child in directory.directories:
            content = None if is_hidden(_name(child)) else self.tree.read(child, is_new)
            if content is not None:
                yield from self._leaves(base, child, content, is_new)

    def _is_partitioned(self, leaves: list[_Leaf]) -> bool:
        """Whether there are partition directories; those that differ in their columns, or in where they begin, are
        refused, as by Spark."""
        columns = {"/".join(leaf.columns) for leaf in leaves if leaf.columns}
        if not columns:
            return False
        begins = {leaf.partition_base for leaf in leaves}
        if len(columns) > 1 or len(begins) > 1:
            ways = " and ".join(sorted(columns if len(columns) > 1 else begins))
            raise StorageError(
                f"the directories below {self.path!r} are partitioned in different ways ({ways}); "
                "read each by a readFiles of its own, or give the option recursiveFileLookup=True"
            )
        return True

    def _has_name(self, path: str) -> bool:
        return any(_has_name(path, name) for name in self._names)


@dataclass(frozen=True)
class _Leaf:
    """A directory with files in it, and the base that it was found from."""

    base: str
    path: str
    directory: Directory

    @property
    def is_base(self) -> bool:
        return self.path == self.base

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of its partition: of the last steps that name any, one after the other."""
        steps = self._steps
        return tuple(step.partition("=")[0] for step in steps[_first_column(steps) :] if "=" in step)

    @property
    def partition_base(self) -> str:
        """Where its partition begins."""
        steps = self._steps
        return "/".join([self.base, *steps[: _first_column(steps)]] if self.columns else [self.base])

    @property
    def _steps(self) -> list[str]:
        return [step for step in self.path[len(self.base) :].split("/") if step]


def _first_column(steps: list[str]) -> int:
    """
    >>> _first_column(["x", "a=1", "b=2", "y"])
    1
    """
    at = max((i for i, step in enumerate(steps) if "=" in step), default=0)
    while at > 0 and "=" in steps[at - 1]:
        at -= 1
    return at


def _split_at_wildcards(pattern: str) -> tuple[str, list[str]]:
    """
    >>> _split_at_wildcards("/data/*/x/y?"), _split_at_wildcards("/data/x/")
    (('/data', ['*', 'x', 'y?']), ('/data/x', []))
    """
    steps = pattern.rstrip("/").split("/")
    wild = next((i for i, step in enumerate(steps) if _WILD.search(step)), len(steps))
    return "/".join(steps[:wild]) or "/", [step for step in steps[wild:] if step]


def _has_name(path: str, pattern: str) -> bool:
    return fnmatch.fnmatchcase(_name(path), pattern.replace("[^", "[!"))


def _name(path: str) -> str:
    return path.rpartition("/")[2]
