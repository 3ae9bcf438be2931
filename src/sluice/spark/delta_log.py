"""The log of a Delta table, as far as it has to be read: what the table is now, and which files it consists of."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import unquote

import pyarrow as pa

from sluice.model.codec import checksum
from sluice.model.errors import StorageError
from sluice.model.extras import Extra, require
from sluice.state.files.storage import Storage

if TYPE_CHECKING:
    from deltalake import DeltaTable

LOG = "_delta_log"
"""The directory of a table that says which files it consists of."""


@dataclass(frozen=True)
class _OpenedTable:
    """A table with its log up to a version, and what the entry of that version adds up to."""

    table: DeltaTable
    version: int
    entry: int | None


class DeltaLog:
    """The log of the table in a directory. Of a table that was read before only what is new in it is read."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        self._opened: _OpenedTable | None = None

    def read_table(self) -> DeltaTable | None:
        """The table as it is now, None if there is none yet."""
        from deltalake import DeltaTable

        if not DeltaTable.is_deltatable(self.storage.uri):
            self._opened = None
            return None
        opened, self._opened = self._opened, None
        with _reading(self.storage.uri):
            if opened is not None and opened.entry is not None and opened.entry == self._read_entry(opened.version):
                table = opened.table
                table.update_incremental()
            else:
                table = DeltaTable(self.storage.uri)
        self._opened = _OpenedTable(table, table.version(), self._read_entry(table.version()))
        return table

    def _read_entry(self, version: int) -> int | None:
        """What an entry of the table's log adds up to, None if it is not there. A table that somebody has made anew
        under this path has another one."""
        try:
            return checksum(self.storage.read(f"{LOG}/{version:020d}.json"))
        except StorageError:
            return None


def list_active_files(path: str) -> set[str] | None:
    """The files that a Delta table consists of now, by their places in it; None if there is no such table. Whoever
    compacts a table, or deletes rows, replaces files."""
    if LOG not in Storage(path).names():
        return None
    require(Extra.DELTA, f"to look at Delta table {path!r}")
    from deltalake import DeltaTable

    with _reading(path):
        return {unquote(name) for name in pa.table(DeltaTable(path).get_add_actions()).column("path").to_pylist()}


@contextmanager
def _reading(path: str) -> Iterator[None]:
    """Where a table's log cannot be read, that is what went wrong."""
    from deltalake.exceptions import DeltaError

    try:
        yield
    except DeltaError as problem:
        what = str(problem).partition("\n")[0]  # a trace of the library's own functions follows
        raise StorageError(f"Delta table {path!r} cannot be read: {what}") from problem
