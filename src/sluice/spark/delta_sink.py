"""Results as a Delta table: sites write its files, the driver commits them, an epoch in one transaction of the table.

The transaction bears the query's id and the epoch's number, as an application transaction of Delta's, so that an epoch
which is shown again after a crash is known to be there. Where an epoch replaces rows, its transaction has to follow the
version that was read: if another writer was faster, it is made anew.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from sluice.engine.part_writer import Staging
from sluice.model.codec import DecodeError, decode, encode
from sluice.model.epoch.attempt import epoch_of
from sluice.model.epoch.results import Listing, Part, Results
from sluice.model.errors import CheckpointError, FlowError, StorageError
from sluice.model.extras import Extra, require
from sluice.model.partitions import read_partition
from sluice.spark.delta_log import DeltaLog
from sluice.spark.delta_merge import merge_rows
from sluice.spark.delta_modes import DeltaMode, DeltaWrite, name_application
from sluice.spark.delta_rules import delta_schema, refuse_names, refuse_other_columns, refuse_rules
from sluice.spark.shown_parts import check_unshown, remove_waiting
from sluice.spark.sink_log import DIRECTORY as SPARKS_LISTS
from sluice.spark.sink_log import MARK, OLDER_COPY
from sluice.state.files.storage import Storage

if TYPE_CHECKING:
    from deltalake import CommitProperties, DeltaTable

_MODE = "output-mode.json"
"""What tells the mode of a query that nobody writes any more, among the parts that wait."""
_COMMIT_ATTEMPTS = 30
"""How often an epoch is tried that replaces rows, while other writers are faster."""


class _Overtaken(StorageError):
    """Another writer has committed to the table meanwhile."""


class DeltaSink:
    """Parts wait in a hidden directory of the table. They are renamed into it, and then become files of it in one
    version; in update mode they stay there, and their rows are merged into the table."""

    kind = "delta"

    def __init__(
        self,
        path: str,
        compression: str,
        partition_by: tuple[str, ...],
        schema: pa.Schema | None,
        mode: DeltaMode | None = None,
    ) -> None:
        """A sink without a schema is one of a query that nobody writes any more; it shows what was not shown yet, and
        finds its mode where it was written."""
        self.path, self.compression, self.partition_by, self.schema = path, compression, partition_by, schema
        self.mode = mode or DeltaMode()
        self.shown: str | None = path
        self.storage = Storage(path)
        self._application = ""
        self._log = DeltaLog(self.storage)
        self._kept: tuple[Part, ...] = ()
        """Parts of the newest epoch that was shown, which may still wait."""
        self._newest = -1
        """The newest epoch whose results came."""

    def check(self, query: str | None, newest: Results) -> None:
        require(Extra.DELTA, f"the delta sink (path {self.path!r})")
        if query is not None:
            self._recognise(query)
        self._refuse_other_content()
        table = self._table()
        if table is not None:
            self._refuse_other_mode(table, query)
        shown = -1 if table is None or query is None else self._epoch_of(table)
        if shown > newest.epoch:
            raise CheckpointError(
                f"{self.path!r} shows results of epoch {shown}, the checkpoint only goes to epoch {newest.epoch}: "
                f"{OLDER_COPY}"
            )
        if newest.before.files and shown < 0:
            raise CheckpointError(
                f"Delta table {self.path!r} has none of the results that this checkpoint has shown so far: it is "
                "another path than before, or its content was removed. Give the path as it was, or start anew with a "
                "new checkpointLocation"
            )
        self._refuse_columns(table)
        if shown < newest.epoch and self.mode.has_changes(newest):
            check_unshown(self.storage, f"{MARK}{query}", newest.directories, newest, thoroughly=True)

    def check_new(self, query: str | None) -> None:
        require(Extra.DELTA, f"the delta sink (path {self.path!r})")
        self._refuse_other_content()
        table = self._table()
        if table is not None:
            self._refuse_former_results(table, query)
        self._refuse_columns(table)

    def open(self, query: str, newest: Results) -> None:
        from deltalake import DeltaTable

        self._recognise(query)
        directories = () if self.mode.merges else self.partition_by
        self.staging = Staging(self.path, f"{MARK}{query}", self.compression, directories)
        self.storage.make_dir(self.staging.directory)
        if self.schema is not None:
            self._record_mode()
        if self._table() is None and self.schema is not None:
            DeltaTable.create(
                self.path, schema=delta_schema(self.schema), mode="ignore", partition_by=list(self.partition_by) or None
            )
        self.deliver(newest)  # its driver may have died before

    def tidy(self, parts: tuple[Part, ...], is_left_over: Callable[[str], bool]) -> None:
        remove_waiting(self.storage, self.staging.directory, parts, lambda name: name != _MODE and is_left_over(name))

    def leave(self) -> None:
        """The query that takes its place may have the same directory: what is of later epochs is that one's, and so is
        the mode."""
        names = self.storage.files_in(self.staging.directory)
        self.storage.delete_all(name for name in names if -1 < epoch_of(name) <= self._newest)

    def listing_with(self, before: Listing, parts: tuple[Part, ...], committed_at: float) -> Listing:
        """The table lists its files itself."""
        return self.mode.listing_with(before, parts)

    def deliver(self, results: Results) -> None:
        waiting = self.staging.directory
        self._newest = results.epoch
        self.storage.delete_all(f"{waiting}/{part.name}" for part in self._kept if part not in results.parts)
        if self.mode.has_changes(results):
            self._show(results)
        self._kept = () if self.mode.adds else results.parts

    def _show(self, results: Results) -> None:
        """Commit an epoch's results to the table, unless they are there."""
        for attempt in range(_COMMIT_ATTEMPTS):
            table = self._table()
            if table is None:
                raise StorageError(f"{self.path!r} is no Delta table any more, though results went there before")
            if self._epoch_of(table) >= results.epoch:
                return
            if attempt == 0:
                self._prepare(results)
            try:
                self._commit(table, results)
            except _Overtaken:
                if attempt == _COMMIT_ATTEMPTS - 1:
                    raise
            else:
                return

    def _prepare(self, results: Results) -> None:
        """Have the files there that are to become the table's."""
        waiting = self.staging.directory
        check_unshown(self.storage, waiting, () if self.mode.merges else results.directories, results)
        if self.mode.merges:
            return
        for directory in results.directories:
            if directory:
                self.storage.make_dir(directory)
        self.storage.move_all([(f"{waiting}/{part.name}", part.place) for part in results.parts])

    def _commit(self, table: DeltaTable, results: Results) -> None:
        from deltalake import CommitProperties, Transaction
        from deltalake.exceptions import CommitFailedError, DeltaError

        commit = CommitProperties(
            app_transactions=[Transaction(self._application, results.epoch)],
            max_commit_retries=None if self.mode.adds else 0,
        )
        try:
            if self.mode.merges:
                merge_rows(table, self._waiting_rows(results), self.mode.keys, self.compression, commit)
            else:
                self._commit_files(table, results, commit)
        except (DeltaError, OSError) as problem:
            refusal = f"Delta table {self.path!r} did not take the results of epoch {results.epoch}: "
            if isinstance(problem, CommitFailedError) and not self.mode.adds:  # else the library has tried again
                raise _Overtaken(f"{refusal}other writers were faster each time") from problem
            raise StorageError(f"{refusal}{problem}") from problem

    def _commit_files(self, table: DeltaTable, results: Results, commit: CommitProperties) -> None:
        """Add the files of an epoch, or have them take the place of all."""
        from deltalake.transaction import AddAction

        added_at = int(results.committed_at * 1000)
        actions: list[Any] = [
            AddAction(
                path=part.place,
                size=part.bytes,
                partition_values=read_partition(part.directory),
                modification_time=added_at,
                data_change=True,
                stats=json.dumps({"numRecords": part.rows}),
            )
            for part in results.parts
        ]
        columns, partitions = table.schema(), table.metadata().partition_columns
        write = "append" if self.mode.adds else "overwrite"
        table.create_write_transaction(actions, write, columns, partitions, commit_properties=commit)

    def _waiting_rows(self, results: Results) -> pa.Table:
        names = (f"{self.staging.directory}/{part.name}" for part in results.parts)
        return pa.concat_tables([pq.read_table(pa.BufferReader(self.storage.read(name))) for name in names])

    def _recognise(self, query: str) -> None:
        """Know what the table knows this query's results by."""
        if self.schema is None:
            self.mode = self._recorded_mode(f"{MARK}{query}")
        self._application = name_application(query, self.mode.write)

    def _record_mode(self) -> None:
        name = f"{self.staging.directory}/{_MODE}"
        if self.mode.adds:
            self.storage.delete(name)
        else:
            self.storage.write(name, [encode(self.mode)])

    def _recorded_mode(self, directory: str) -> DeltaMode:
        """That of a query that nobody writes any more."""
        if f"{directory}/{_MODE}" not in self.storage.files_in(directory):
            return DeltaMode()
        try:
            return decode(self.storage.read(f"{directory}/{_MODE}").to_pybytes(), DeltaMode)
        except DecodeError as problem:
            raise StorageError(f"{self.storage.path(f'{directory}/{_MODE}')} is damaged: {problem}") from problem

    def _epoch_of(self, table: DeltaTable) -> int:
        """The newest epoch whose results are in the table, -1 if none is."""
        epoch = table.transaction_version(self._application)
        return -1 if epoch is None else epoch

    def _table(self) -> DeltaTable | None:
        """The table as it is now, None if there is none yet."""
        return self._log.read_table()

    def _refuse_other_content(self) -> None:
        if SPARKS_LISTS in self.storage.names():
            raise FlowError(
                f"path {self.path!r} holds the results of a parquet sink, and cannot be a Delta table as well. Give a "
                "new path"
            )

    def _refuse_other_mode(self, table: DeltaTable, query: str | None) -> None:
        """Refuse a table with results of this query in another output mode."""
        for write in DeltaWrite:
            other = query is not None and write is not self.mode.write
            if other and table.transaction_version(name_application(str(query), write)) is not None:
                raise FlowError(
                    f"Delta table {self.path!r} has results that this query wrote in outputMode({write.value!r}), and "
                    f"those of outputMode({self.mode.write.value!r}) do not go with them. Give a new path"
                )

    def _refuse_former_results(self, table: DeltaTable, query: str | None) -> None:
        """Refuse a table with results of a query of this checkpoint that was changed or dropped."""
        applications = [name_application(str(query), write) for write in DeltaWrite] if query is not None else []
        if any(table.transaction_version(application) is not None for application in applications):
            raise FlowError(
                f"Delta table {self.path!r} has results of a former query of this checkpoint, and those of this one "
                "would come on top. Give a new path"
            )

    def _refuse_columns(self, table: DeltaTable | None) -> None:
        if self.schema is None:
            return
        if table is None:
            refuse_names(pa.schema(self.schema))
        else:
            refuse_rules(self.path, table, self.mode.adds)
            refuse_other_columns(self.path, table, self.schema, self.partition_by)
