"""Which files of a `readFiles` stream come next: each is taken in once, by its path, in the order of their times."""

from __future__ import annotations

import posixpath
from collections import deque
from collections.abc import Iterable
from itertools import islice

from sluice.sources.directory_tree import ListedFile
from sluice.sources.file_search import FileSearch
from sluice.sources.listing_options import ListingOptions

_TOO_OLD_AT_LEAST = 10_000
"""Files of which it is remembered, at the least, that they are too old."""


class FileTracker:
    """The files of one stream: those that were taken in, as far as they matter, and those that wait.

    A file that is older than the newest one taken in by more than `maxFileAge` is not taken in any more, and those that
    were are forgotten. `forgotten` is the newest time of files that were forgotten for good: a file as old as that may
    have been taken in.
    """

    def __init__(self, search: FileSearch, options: ListingOptions, forgotten: int | None = None) -> None:
        self._search, self._options, self._forgotten = search, options, forgotten
        self._taken: dict[str, int] = {}
        """When each was modified that was taken in."""
        self._by_time: deque[tuple[int, str]] = deque()
        """The same, in the order in which they were taken in, to forget the oldest of them."""
        self._newest: int | None = None
        self._waiting: deque[ListedFile] = deque()
        """What the last look has left, in the order in which it is to be taken in."""
        self._waiting_bytes = 0
        self._looks = True
        self._too_old: set[str] = set()
        """Files that are there, and need not be looked at again."""
        self._too_old_at_most = _TOO_OLD_AT_LEAST

    @property
    def poll_s(self) -> float:
        """Seconds after which it makes sense to look again, at the soonest."""
        return self._search.tree.poll_s

    @property
    def keep_from(self) -> int | None:
        """The time from which on files matter that were taken in; None if all do."""
        if self._newest is None or self._options.max_age_ms is None:
            return None
        return self._newest - self._options.max_age_ms

    @property
    def remembered(self) -> int:
        """How many files it has in mind that were taken in."""
        return len(self._taken)

    def look_for_the_last_time(self) -> None:
        """Look for files now, and never again."""
        self._look()
        self._looks = False

    def next_files(self) -> list[ListedFile]:
        """The files that the next epoch is to take in. As long as enough are left of an earlier look there is no other
        one, unless the latest come first."""
        if self._will_look(0):
            self._look()
        return self._up_to_the_limit(0)

    def files_after(self, taken: int) -> list[ListedFile] | None:
        """The files of the epoch after the next one, which takes so many in; None if there is another look before."""
        return None if self._will_look(taken) else self._up_to_the_limit(taken)

    def take(self, files: Iterable[ListedFile]) -> None:
        """An epoch has taken in the first of the files that wait."""
        for file in files:
            assert self._waiting[0] == file, "files are taken in as they come next"
            self._waiting.popleft()
            self._waiting_bytes -= file.size
            self._search.forget(file.path)
            self._remember(file.path, file.modified)
        self._forget_old()

    def restore(self, taken: Iterable[tuple[str, int]]) -> None:
        """Files that were taken in before this run, and when they were modified."""
        for path, modified in taken:
            self._remember(path, modified)
        self._forget_old()

    def _look(self) -> None:
        files = []
        for file in self._search.new_files(self._is_new):
            if self._is_young(file.modified):
                files.append(file)
            else:
                self._too_old.add(file.path)
                self._search.forget(file.path)
        if len(self._too_old) > self._too_old_at_most:  # many may be gone by now: those that are not are found again
            self._too_old_at_most = max(2 * len(self._too_old), _TOO_OLD_AT_LEAST)
            self._too_old.clear()
        if self._options.file_name_only:
            files = list({self._key(file.path): file for file in sorted(files, key=_age, reverse=True)}.values())
        files.sort(key=_age, reverse=self._options.latest_first)
        self._waiting = deque(files)
        self._waiting_bytes = sum(file.size for file in files)

    def _will_look(self, taken: int) -> bool:
        """Whether there is another look before the next files, once so many of those that wait have been taken in."""
        return self._looks and (self._options.latest_first or not self._has_enough(taken))

    def _has_enough(self, taken: int) -> bool:
        if self._options.max_files is not None:
            return len(self._waiting) - taken >= self._options.max_files
        left = self._waiting_bytes - sum(file.size for file in islice(self._waiting, taken))
        return self._options.max_bytes is not None and left > self._options.max_bytes

    def _up_to_the_limit(self, taken: int) -> list[ListedFile]:
        files: list[ListedFile] = []
        size = 0
        for file in islice(self._waiting, taken, None):
            size += file.size
            too_many = self._options.max_files is not None and len(files) == self._options.max_files
            too_large = self._options.max_bytes is not None and size > self._options.max_bytes
            if files and (too_many or too_large):
                break
            files.append(file)
        return files

    def _key(self, path: str) -> str:
        return posixpath.basename(path) if self._options.file_name_only else path

    def _is_new(self, path: str) -> bool:
        return self._key(path) not in self._taken and path not in self._too_old

    def _is_young(self, modified: int) -> bool:
        keep_from = self.keep_from
        return (keep_from is None or modified >= keep_from) and (self._forgotten is None or modified > self._forgotten)

    def _remember(self, path: str, modified: int) -> None:
        key = self._key(path)
        self._taken[key] = modified
        self._by_time.append((modified, key))
        self._newest = modified if self._newest is None else max(self._newest, modified)

    def _forget_old(self) -> None:
        """Files that are too old now, the ones that came first; one that came late is forgotten when its turn comes."""
        keep_from = self.keep_from
        while keep_from is not None and self._by_time and self._by_time[0][0] < keep_from:
            modified, key = self._by_time.popleft()
            if self._taken.get(key) == modified:
                del self._taken[key]


def _age(file: ListedFile) -> tuple[int, str]:
    return file.modified, file.path
