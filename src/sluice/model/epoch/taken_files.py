"""The files that epochs took in, as the record of the newest one names them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class TakenFile(NamedTuple):
    """A file: the number of its source in the plan, its path, when it was modified (milliseconds since 1970), and the
    epoch that took it in."""

    source: int
    path: str
    modified: int
    epoch: int


@dataclass(frozen=True)
class FileList:
    """A file of the checkpoint that names files which were taken in: how many, and what its bytes add up to."""

    file: str
    count: int
    checksum: int


@dataclass(frozen=True)
class TakenFiles:
    """All files that were taken in and matter still: the newest by their names, the others in a few lists, the longest
    first."""

    recent: tuple[TakenFile, ...] = ()
    lists: tuple[FileList, ...] = ()
    forgotten: tuple[int | None, ...] = ()
    """For each source the newest time of files that are named no more, since they were too old; none where there is no
    such file, or all are named."""

    def forgotten_of(self, source: int) -> int | None:
        """The same of one source."""
        return self.forgotten[source] if source < len(self.forgotten) else None
