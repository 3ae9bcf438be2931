"""Results as a Delta table: sites write its files, the driver commits them, an epoch in one transaction of the table.

The transaction bears the query's id and the epoch's number, as an application transaction of Delta's, so that an epoch
which is shown again after a crash is known to be there.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa

from sluice.engine.part_writer import Staging
from sluice.model.codec import checksum
from sluice.model.epoch.results import Listing, Part, Results
from sluice.model.errors import CheckpointError, FlowError, StorageError
from sluice.model.extras import Extra, require
from sluice.model.partitions import read_partition
from sluice.spark.shown_parts import check_unshown, remove_waiting
from sluice.spark.sink_log import DIRECTORY as SPARKS_LISTS
from sluice.spark.sink_log import MARK, OLDER_COPY
from sluice.state.files.storage import Storage

if TYPE_CHECKING:
    from deltalake import DeltaTable

LOG = "_delta_log"
"""The directory of a table that says which files it consists of."""
_CONSTRAINT = "delta.constraints."
_NOT_IN_NAMES = set(" ,;{}()\n\t=")
_COLUMN_RULES = ("delta.generationExpression", "delta.identity", "delta.invariants")


@dataclass(frozen=True)
class _OpenedTable:
    """A table with its log up to a version, and what the entry of that version adds up to."""

    table: DeltaTable
    version: int
    entry: int | None


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


class DeltaSink:
    """Parts wait in a hidden directory of the table. They are renamed into it, and then added to it as one version."""

    kind = "delta"

    def __init__(self, path: str, compression: str, partition_by: tuple[str, ...], schema: pa.Schema | None) -> None:
        """A sink without a schema is one of a query that nobody writes any more; it shows what was not shown yet."""
        self.path, self.compression, self.partition_by, self.schema = path, compression, partition_by, schema
        self.shown: str | None = path
        self.storage = Storage(path)
        self._application = ""
        self._opened: _OpenedTable | None = None

    def check(self, query: str | None, newest: Results) -> None:
        require(Extra.DELTA, f"the delta sink (path {self.path!r})")
        if query is not None:
            self._name_application(query)
        self._refuse_other_content()
        table = self._table()
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
        if shown < newest.epoch:
            check_unshown(self.storage, f"{MARK}{query}", newest.directories, newest, thoroughly=True)

    def check_new(self, query: str | None) -> None:
        require(Extra.DELTA, f"the delta sink (path {self.path!r})")
        self._refuse_other_content()
        self._refuse_columns(self._table())

    def open(self, query: str, newest: Results) -> None:
        from deltalake import DeltaTable

        self._name_application(query)
        self.staging = Staging(self.path, f"{MARK}{query}", self.compression, self.partition_by)
        self.storage.make_dir(self.staging.directory)
        if self._table() is None and self.schema is not None:
            DeltaTable.create(
                self.path, schema=self._delta_schema(), mode="ignore", partition_by=list(self.partition_by) or None
            )
        self.deliver(newest)  # its driver may have died before

    def tidy(self, parts: tuple[Part, ...], is_left_over: Callable[[str], bool]) -> None:
        remove_waiting(self.storage, self.staging.directory, parts, is_left_over)

    def leave(self) -> None:
        self.storage.delete_all(self.storage.files_in(self.staging.directory))

    def listing_with(self, before: Listing, parts: tuple[Part, ...], committed_at: float) -> Listing:
        """Only how many files there are: the table lists them itself."""
        return Listing(files=before.files + len(parts))

    def deliver(self, results: Results) -> None:
        if not results.parts:
            return
        table = self._table()
        if table is None:
            raise StorageError(f"{self.path!r} is no Delta table any more, though results went there before")
        if self._epoch_of(table) >= results.epoch:
            return
        check_unshown(self.storage, self.staging.directory, results.directories, results)
        for directory in results.directories:
            if directory:
                self.storage.make_dir(directory)
        waiting = self.staging.directory
        self.storage.move_all([(f"{waiting}/{part.name}", part.place) for part in results.parts])
        self._commit(table, results)

    def _commit(self, table: DeltaTable, results: Results) -> None:
        from deltalake import CommitProperties, Transaction
        from deltalake.exceptions import DeltaError
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
        transaction = Transaction(self._application, results.epoch)
        try:
            table.create_write_transaction(
                actions,
                "append",
                table.schema(),
                table.metadata().partition_columns,
                commit_properties=CommitProperties(app_transactions=[transaction]),
            )
        except DeltaError as problem:
            raise StorageError(
                f"Delta table {self.path!r} did not take the results of epoch {results.epoch}: {problem}"
            ) from problem

    def _name_application(self, query: str) -> None:
        """What the table knows this query's results by."""
        self._application = f"sluice-{query}"

    def _epoch_of(self, table: DeltaTable) -> int:
        """The newest epoch whose results are in the table, -1 if none is."""
        epoch = table.transaction_version(self._application)
        return -1 if epoch is None else epoch

    def _table(self) -> DeltaTable | None:
        """The table as it is now, None if there is none yet. Of a table that was opened before only what is new in its
        log is read."""
        from deltalake import DeltaTable

        if not DeltaTable.is_deltatable(self.path):
            self._opened = None
            return None
        opened, self._opened = self._opened, None
        with _reading(self.path):
            if opened is not None and opened.entry is not None and opened.entry == self._read_entry(opened.version):
                table = opened.table
                table.update_incremental()
            else:
                table = DeltaTable(self.path)
        self._opened = _OpenedTable(table, table.version(), self._read_entry(table.version()))
        return table

    def _read_entry(self, version: int) -> int | None:
        """What an entry of the table's log adds up to, None if it is not there. A table that somebody has made anew
        under this path has another one."""
        try:
            return checksum(self.storage.read(f"{LOG}/{version:020d}.json"))
        except StorageError:
            return None

    def _delta_schema(self) -> Any:
        from deltalake import Schema

        for column in pa.schema(self.schema):
            try:
                Schema.from_arrow(pa.schema([column]))
            except Exception as problem:
                raise FlowError(
                    f"a Delta table has no type for the result column {column.name!r}, which is {column.type}; "
                    "cast it, or leave it out"
                ) from problem
        return Schema.from_arrow(pa.schema(self.schema))

    def _refuse_other_content(self) -> None:
        if SPARKS_LISTS in self.storage.names():
            raise FlowError(
                f"path {self.path!r} holds the results of a parquet sink, and cannot be a Delta table as well. Give a "
                "new path"
            )

    def _refuse_columns(self, table: DeltaTable | None) -> None:
        if self.schema is None:
            return
        if table is None:
            _refuse_names(pa.schema(self.schema))
        else:
            self._refuse_other_columns(table)

    def _refuse_other_columns(self, table: DeltaTable) -> None:
        _refuse_rules(self.path, table)
        own, theirs = (_columns_of(schema) for schema in (self._delta_schema(), table.schema()))
        if own != theirs:
            raise FlowError(
                f"Delta table {self.path!r} has other columns than these results: it has {_in_words(theirs)}, they "
                f"have {_in_words(own)}. Select its columns, or give a new path"
            )
        partition_by = tuple(table.metadata().partition_columns)
        if partition_by != self.partition_by:
            written = ", ".join(map(repr, partition_by))
            raise FlowError(
                f"Delta table {self.path!r} is partitioned otherwise than these results: write partitionBy({written})"
            )


def _refuse_names(columns: Iterable[pa.Field]) -> None:
    """Refuse names with which Delta on Spark makes no table."""
    for column in columns:
        if _NOT_IN_NAMES & set(column.name):
            raise FlowError(
                f"a Delta table takes no column named {column.name!r}: names have no spaces, parentheses, braces, "
                "commas, semicolons or equals signs there; give it another one with AS"
            )
        if pa.types.is_struct(column.type):
            _refuse_names(column.type)


def _refuse_rules(path: str, table: DeltaTable) -> None:
    """Refuse a table that wants more of its rows than names and types: nobody would see to it."""
    settings = table.metadata().configuration
    rules = [f"constraint {name.removeprefix(_CONSTRAINT)!r}" for name in settings if name.startswith(_CONSTRAINT)]
    if settings.get("delta.columnMapping.mode", "none") != "none":
        rules.append("column mapping")
    for field in table.schema().fields:
        if not field.nullable:
            rules.append(f"column {field.name!r} that takes no nulls")
        if any(name.startswith(_COLUMN_RULES) for name in field.metadata):
            rules.append(f"column {field.name!r} with values of its own rule")
    if rules:
        raise FlowError(
            f"Delta table {path!r} has rules that the delta sink does not follow: {', '.join(rules)}. Write the "
            "results by foreachBatch with a package that does, or give a new path"
        )


def _columns_of(schema: Any) -> list[tuple[str, str]]:
    return [(field.name, json.dumps(json.loads(field.type.to_json()))) for field in schema.fields]


def _in_words(columns: Sequence[tuple[str, str]]) -> str:
    return ", ".join(f"{name} {json.loads(kind)}" for name, kind in columns)
