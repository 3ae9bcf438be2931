"""What the results of an epoch do to a Delta table: they are added, or replace all rows, or those with their keys."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from sluice.model.codec import checksum, encode
from sluice.model.epoch.results import Listing, Part, Results


class DeltaWrite(str, Enum):
    """What is done to the rows of a table, by the names of output modes."""

    APPEND = "append"
    UPDATE = "update"
    COMPLETE = "complete"


@dataclass(frozen=True)
class DeltaMode:
    """What an epoch does to a table. In update mode `keys` are the columns that say which row a result replaces; where
    there are none, the table is one row."""

    write: DeltaWrite = DeltaWrite.APPEND
    keys: tuple[str, ...] = ()

    @property
    def merges(self) -> bool:
        """Whether rows are merged with those of the table. Else sites write its files."""
        return self.write is DeltaWrite.UPDATE and bool(self.keys)

    @property
    def adds(self) -> bool:
        """Whether all rows of the table stay."""
        return self.write is DeltaWrite.APPEND

    def has_changes(self, results: Results) -> bool:
        """Whether an epoch changes the table. Each epoch has all rows in complete mode, so those before it tell."""
        if self.write is DeltaWrite.COMPLETE:
            return results.listing.checksum != results.before.checksum
        return bool(results.parts)

    def listing_with(self, before: Listing, parts: tuple[Part, ...]) -> Listing:
        """How many files the query has written, and in complete mode what those of the newest epoch add up to."""
        files = before.files + len(parts)
        return Listing(files=files, checksum=_sum_up(parts) if self.write is DeltaWrite.COMPLETE else 0)


def name_application(query: str, write: DeltaWrite) -> str:
    """What a table knows a query's results by."""
    return f"sluice-{query}" if write is DeltaWrite.APPEND else f"sluice-{query}-{write.value}"


def _sum_up(parts: tuple[Part, ...]) -> int:
    """A number for the content of parts, whatever they are called; 0 for none.

    >>> first, again = (Part(name, 1, 10, 77) for name in ("part-1", "part-2"))
    >>> _sum_up((first,)) == _sum_up((again,)) != _sum_up((first, again)), _sum_up(())
    (True, 0)
    """
    content = sorted((part.directory, part.rows, part.bytes, part.checksum) for part in parts)
    return checksum(encode(content)) if content else 0
