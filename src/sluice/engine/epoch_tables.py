"""Tables in an epoch, as its tasks have them: what rows are joined with on their way to an operator or a sink.

The content of a table is a file of the checkpoint. A Python worker reads it once, and keeps it as long as epochs have
it.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

import numpy as np
import pyarrow as pa

from sluice.kernels.key_index import KeyIndex
from sluice.model.codec import checksum
from sluice.model.epoch.table_version import TableVersion
from sluice.model.errors import CheckpointError, StorageError
from sluice.model.plan.join_kind import JoinKind
from sluice.model.plan.steps import TableJoin
from sluice.state.files.storage import Storage, about_to

CHECKPOINTS_KEPT = 4
"""Checkpoints of which a process keeps tables: it may serve several queries."""


@dataclass(frozen=True)
class EpochTables:
    """The tables of an epoch, and the checkpoint that has their content."""

    checkpoint: str = ""
    versions: tuple[TableVersion, ...] = ()

    def join(self, step: TableJoin, rows: pa.RecordBatch, most_pairs: float = inf) -> pa.RecordBatch:
        """Rows after a join with one of the tables; `TooManyPairs` if that would make more."""
        version = next(version for version in self.versions if version.name == step.table.name)
        return join_rows(step, rows, self._open(version), most_pairs)

    def close_others(self) -> None:
        """Keep nothing in this process of versions that the epoch does not have."""
        tables = _open_tables.get(self.checkpoint, {})
        for file in tables.keys() - {one.file for one in self.versions}:
            del tables[file]

    def _open(self, version: TableVersion) -> OpenTable:
        """The content of a table."""
        tables = _open_tables.get(self.checkpoint)
        if tables is None:
            while len(_open_tables) >= CHECKPOINTS_KEPT:
                _open_tables.pop(next(iter(_open_tables)))
            tables = _open_tables[self.checkpoint] = {}
        if version.file not in tables:
            tables[version.file] = OpenTable(read_version(Storage(self.checkpoint), version))
        return tables[version.file]


NO_TABLES = EpochTables()


class OpenTable:
    """The rows of a table, and what finds them by their keys."""

    def __init__(self, rows: pa.RecordBatch) -> None:
        self.rows = rows
        self._indexes: dict[tuple[tuple[str, ...], tuple[pa.DataType, ...]], KeyIndex] = {}

    def index(self, keys: tuple[str, ...], types: tuple[pa.DataType, ...]) -> KeyIndex:
        """Its rows by these key columns, compared as these types."""
        if (keys, types) not in self._indexes:
            self._indexes[keys, types] = KeyIndex(_cast(self.rows, keys, types))
        return self._indexes[keys, types]


_open_tables: dict[str, dict[str, OpenTable]] = {}
"""By checkpoint and file."""


class TooManyPairs(Exception):
    """A join of so many rows would make too many at once; fewer have to be joined at a time."""


def join_rows(step: TableJoin, rows: pa.RecordBatch, table: OpenTable, most_pairs: float) -> pa.RecordBatch:
    """The join of rows with a table, in the order of the rows; `TooManyPairs` if that would make more."""
    index = table.index(step.table_keys, step.key_types)
    candidates = index.find(_cast(rows, step.keys, step.key_types))
    if candidates.count > most_pairs:
        raise TooManyPairs
    renamed, own, partners = step.rename_rows(rows), [], []
    for places, matches in candidates.pairs():
        if step.where is not None:
            kept = step.evaluate_where(_pair(step, renamed, places, table, matches))
            true = kept.fill_null(False).to_numpy(zero_copy_only=False)
            places, matches = places[true], matches[true]
        own.append(places)
        partners.append(matches)
    pair_rows, pair_partners = (np.concatenate([np.arange(0), *parts]) for parts in (own, partners))
    has_partner = np.zeros(rows.num_rows, dtype=bool)
    has_partner[pair_rows] = True
    match step.kind:
        case JoinKind.SEMI:
            return renamed.filter(pa.array(has_partner))
        case JoinKind.ANTI:
            return renamed.filter(pa.array(~has_partner))
        case JoinKind.LEFT:
            alone = np.flatnonzero(~has_partner)
            pair_rows = np.concatenate([pair_rows, alone])
            order = np.argsort(pair_rows, kind="stable")
            no_partner = np.full(len(alone), -1)
            return _pair(step, renamed, pair_rows[order], table, np.concatenate([pair_partners, no_partner])[order])
        case _:
            return _pair(step, renamed, pair_rows, table, pair_partners)


def _pair(
    step: TableJoin, renamed: pa.RecordBatch, places: np.ndarray, table: OpenTable, partners: np.ndarray
) -> pa.RecordBatch:
    """Rows beside their partners; -1 stands for none."""
    shown = table.rows.select(list(dict.fromkeys(before for _, before in step.table_columns)))
    other = step.rename_partners(shown.take(pa.array(partners, mask=partners < 0)))
    own = renamed if _is_whole(places, renamed.num_rows) else renamed.take(pa.array(places))
    schema = pa.schema([*own.schema, *other.schema])
    return pa.RecordBatch.from_arrays([*own.columns, *other.columns], schema=schema)


def _is_whole(places: np.ndarray, rows: int) -> bool:
    """Whether these are the places of so many rows, each once and in order."""
    return len(places) == rows and bool((places == np.arange(rows)).all())


def _cast(rows: pa.RecordBatch, keys: tuple[str, ...], types: tuple[pa.DataType, ...]) -> list[pa.Array]:
    return [rows.column(key).cast(type_) for key, type_ in zip(keys, types, strict=True)]


def read_version(storage: Storage, version: TableVersion) -> pa.RecordBatch:
    """The content of a table; a file that is gone or damaged is refused. On a local disk it is mapped, so that the
    processes of a host have it once."""
    try:
        if storage.local:
            about_to("read", storage.path(version.file))
            with pa.memory_map(storage.path(version.file)) as file:
                data = file.read_buffer()
        else:
            data = storage.read(version.file)
    except (StorageError, OSError) as problem:
        raise CheckpointError(f"the checkpoint lacks the content of table {version.name!r}: {problem}") from problem
    if checksum(data) != version.checksum:
        raise CheckpointError(f"{storage.path(version.file)} is damaged: its checksum differs")
    return pa.ipc.open_file(data).get_batch(0)
