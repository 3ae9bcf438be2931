"""The tables that a flow's streams are joined with, as its driver has them: read when it is time, kept in the
checkpoint, and the same however often an epoch is run."""

from __future__ import annotations

import logging
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from sluice.engine.failed_refreshes import FailedRefreshes
from sluice.model.clock import Clock
from sluice.model.codec import checksum
from sluice.model.epoch.attempt import Attempt
from sluice.model.epoch.table_version import TableVersion
from sluice.model.errors import FlowError, SluiceError, StorageError
from sluice.model.ids import Site
from sluice.model.plan.steps import StaticTable
from sluice.sources.table_files import TABLES, StagingArea, TableListing
from sluice.sources.tables import cast_rows
from sluice.state.files.storage import Storage

_log = logging.getLogger(__name__)

MOST_BYTES = (1 << 31) - 1
"""What a table may have at most: one array of Arrow holds no more text."""
ATTEMPTS_TO_READ = 3
"""How often a table is read, if it changes meanwhile each time."""


class TableContent(Protocol):
    """Where the rows of a table come from."""

    def read(self) -> pa.Table:
        """All rows, as they are now."""

    def fingerprint(self) -> Hashable | None:
        """Something that differs if the rows do, and costs less than to read them; None if there is nothing."""

    def list_files(self, schema: pa.Schema, staging: StagingArea) -> TableListing:
        """Files with all rows, as they are now, for map tasks to read: rows that are no files are staged."""


@dataclass(frozen=True)
class TableSource:
    """A registered table: `refresh` is after how many seconds it is read again, None if never. What has more than
    `most_bytes` is refused, unless the table is `divided` among units, whose state its rows are."""

    table: StaticTable
    content: TableContent
    refresh: float | None
    most_bytes: int
    divided: bool = False

    def read(self) -> tuple[pa.RecordBatch, Hashable | None]:
        """The rows, and what tells whether there are others later. What changes while it is read is read again."""
        for _ in range(ATTEMPTS_TO_READ):
            before = self.content.fingerprint()
            rows = self.content.read()
            if self.content.fingerprint() == before:
                return self._as_one_batch(rows), before
        raise StorageError(f"table {self.table.name!r} cannot be read: it changes each time while it is read")

    def _as_one_batch(self, rows: pa.Table) -> pa.RecordBatch:
        name, schema = self.table.name, self.table.schema
        rows = cast_rows(name, rows, schema)
        if rows.nbytes > self.most_bytes:
            raise FlowError(
                f"table {name!r} has {_in_mebibytes(rows.nbytes)}, and every Python worker keeps it in memory: more "
                f"than maxSize, {_in_mebibytes(self.most_bytes)}. Leave out rows and columns that are not needed, give "
                "flow.table a larger maxSize if the executors have room for it, or have its rows divided among the "
                "sites, as state: flow.table(..., divided=True)"
            )
        batches = rows.combine_chunks().to_batches()
        return batches[0] if batches else pa.RecordBatch.from_pylist([], schema)


def _in_mebibytes(size: int) -> str:
    return f"{size / (1 << 20):,.1f} MiB"


@dataclass
class _Standing:
    """A table as this run has it: its version, when it was looked at last, and what it looked like."""

    version: TableVersion
    looked_at: float
    fingerprint: Hashable | None


class StaticTables:
    """The tables of a running flow. Between two commits they stay as they are."""

    def __init__(self, sources: Mapping[str, TableSource], storage: Storage, run: str, clock: Clock) -> None:
        self._sources, self._storage, self._run, self._clock = sources, storage, run, clock
        self._standing: dict[str, _Standing] = {}
        self._failed = FailedRefreshes()
        self._is_epoch_open = False
        """Whether an epoch was begun with them that is not committed."""

    def choose(
        self, tables: Iterable[StaticTable], recorded: Sequence[TableVersion], epoch: int
    ) -> tuple[TableVersion, ...]:
        """What is in these tables in an epoch; `recorded` is what was in them in the one before. Those that this run
        has not read are read, and those for which it is time, unless the epoch was begun already. A table that cannot
        be read again stays as it is."""
        tables = tuple(tables)
        self.read_new(tables, recorded, epoch)
        for table in tables if not self._is_epoch_open else ():
            if self._is_due(table.name):
                self._refresh(table.name, epoch)
        self._is_epoch_open = True
        return tuple(self._standing[table.name].version for table in tables)

    def note_commit(self, versions: Iterable[TableVersion]) -> None:
        """The epoch is committed, with these tables: they may change from here on. Of others nothing is kept in the
        checkpoint; they are read anew for the next query that needs them."""
        self._is_epoch_open = False
        names = {version.name for version in versions}
        for name in self._standing.keys() - names:
            del self._standing[name]
            self._failed.forget(name)

    def read_new(self, tables: Iterable[StaticTable], recorded: Sequence[TableVersion], epoch: int) -> None:
        """Read those tables that this run has not read yet. A checkpoint may have their content already."""
        for table in tables:
            if table.name not in self._standing:
                version = next((one for one in recorded if one.name == table.name), None)
                self._read(table.name, version, epoch)

    def _is_due(self, name: str) -> bool:
        refresh = self._sources[name].refresh
        return refresh is not None and self._clock.time() >= self._standing[name].looked_at + refresh

    def _refresh(self, name: str, epoch: int) -> None:
        """Read a table again, if it looks other than before."""
        standing = self._standing[name]
        standing.looked_at = now = self._clock.time()
        fingerprint = None
        try:
            fingerprint = self._sources[name].content.fingerprint()
            if fingerprint is not None and fingerprint == standing.fingerprint:
                self._failed.forget(name)
            elif not self._failed.is_waiting(name, fingerprint, now):
                self._read(name, standing.version, epoch)
                self._failed.forget(name)
        except SluiceError as problem:
            self._failed.note(name, fingerprint, str(problem), epoch, now)

    def _read(self, name: str, before: TableVersion | None, epoch: int) -> None:
        rows, fingerprint = self._sources[name].read()
        self._standing[name] = _Standing(self._keep(name, rows, before, epoch), self._clock.time(), fingerprint)

    def _keep(self, name: str, rows: pa.RecordBatch, before: TableVersion | None, epoch: int) -> TableVersion:
        """Write the content of a table, unless the version before has it. Nobody reads the file before an epoch has
        it."""
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, rows.schema) as writer:
            writer.write_batch(rows)
        data = sink.getvalue()
        its_checksum = checksum(data)
        if before is not None and before.checksum == its_checksum:
            return before
        file = f"{TABLES}/{Attempt(epoch, Site(0), self._run, f'{its_checksum:016x}')}.arrow"
        self._storage.make_dir(TABLES)
        self._storage.put_if_absent(file, data.to_pybytes())  # which outlasts a power cut
        _log.info("epoch %d: table %r has %s rows from here on", epoch, name, f"{rows.num_rows:,}")
        return TableVersion(name, file, its_checksum, rows.num_rows, epoch)
