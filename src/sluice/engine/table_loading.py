"""How the rows of a table become state: map tasks read its files, and send each row to the unit of its key.

A table that is divided among units is read into the state of each join that needs it, all of it in one epoch.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
import pyarrow as pa

from sluice.engine.blobs import SPLIT_REPORT, Blob, message
from sluice.engine.filtered_rows import FilteredRows
from sluice.engine.senders import Sender, table_sender
from sluice.model.clock import Clock
from sluice.model.epoch.stats import TaskSeconds
from sluice.model.errors import SluiceError
from sluice.model.ids import InputNumber, SiteKey
from sluice.model.plan.plan import Plan
from sluice.model.plan.stream import TIME_COLUMN
from sluice.model.plan.table_lookup import VERSION_TYPE, version_time
from sluice.model.routing.routing import Routing
from sluice.record.reports import LoadedRows, SplitReport
from sluice.sources.files import read_file
from sluice.sources.input_files import InputFile
from sluice.sources.table_files import TableListing, read_staged
from sluice.sources.tables import name_table
from sluice.state.files.storage import Storage

ROWS_AT_ONCE, BYTES_AT_ONCE = 1 << 19, 128 << 20


@dataclass(frozen=True)
class TableLoad:
    """A table that an epoch reads, into these states; `names` are what they go by in every plan. One that is read
    again (`is_refresh`), or for a query that can still be refused, may turn out to be unreadable: it is not required.
    """

    table: str
    schema: pa.Schema
    states: tuple[InputNumber, ...]
    names: tuple[str, ...]
    since: int
    listing: TableListing
    is_refresh: bool = False
    is_required: bool = True


def files_to_load(loads: Sequence[TableLoad]) -> list[InputFile]:
    """All files of some loads, each with the number of its load."""
    return [InputFile(number, file.path, file.size) for number, load in enumerate(loads) for file in load.listing.files]


@dataclass(frozen=True)
class TableReader:
    """What a map task needs to know to read files of tables."""

    plan: Plan
    routing: Routing
    site_keys: tuple[SiteKey, ...]
    checkpoint: str
    loads: tuple[TableLoad, ...]

    def read(self, files: Iterable[InputFile], clock: Clock) -> Iterator[Blob]:
        """The blobs of some of the files, and a report to every site."""
        seconds = {"read": 0.0, "split": 0.0}
        loaded = []
        in_order = sorted(files, key=lambda file: file.source)
        for number, group in groupby(in_order, key=lambda file: file.source):
            load, own = self.loads[number], list(group)
            senders = [table_sender(self.plan, state, self.routing, self.site_keys) for state in load.states]
            rows, problem = 0, ""
            started = clock.monotonic()
            try:
                for batch in _gather(self._read_files(load, own), load.schema):
                    read = clock.monotonic()
                    seconds["read"] += read - started
                    rows += batch.num_rows
                    yield from _send(batch, load, senders)
                    started = clock.monotonic()
                    seconds["split"] += started - read
            except SluiceError as failure:
                if load.is_required:
                    raise name_table(load.table, failure) from failure
                problem = str(failure)
            loaded.append(LoadedRows(load.table, len(own), rows, problem))
        if loaded:
            attempt, spent = uuid.uuid4().hex[:16], TaskSeconds(**seconds)
            report = SplitReport(0, attempt, loaded=tuple(loaded), seconds=spent)
            yield from (message(site_key, SPLIT_REPORT, report) for site_key in self.site_keys)

    def _read_files(self, load: TableLoad, files: Iterable[InputFile]) -> Iterator[pa.RecordBatch]:
        if not load.listing.is_staged:
            for file in files:
                yield from read_file(file.path, load.listing.format, load.schema, load.listing.options)
            return
        storage, staged = Storage(self.checkpoint), {file.path: file for file in load.listing.files}
        for file in files:
            yield from read_staged(storage, staged[file.path], load.table)


def _send(batch: pa.RecordBatch, load: TableLoad, senders: Sequence[Sender]) -> Iterator[Blob]:
    """Rows on their way to the states, with the time of their content."""
    version = pa.array(np.full(batch.num_rows, version_time(load.since)), pa.int64()).cast(VERSION_TYPE)
    schema = pa.schema([pa.field(TIME_COLUMN, VERSION_TYPE), *batch.schema])
    filtered = FilteredRows(pa.RecordBatch.from_arrays([version, *batch.columns], schema=schema))
    for sender in senders:
        yield from sender.blobs(filtered)


def _gather(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Rows in batches that are large enough for large blobs."""
    waiting: list[pa.RecordBatch] = []
    for batch in batches:
        waiting.append(batch.cast(schema) if batch.schema != schema else batch)
        if sum(one.num_rows for one in waiting) >= ROWS_AT_ONCE or sum(one.nbytes for one in waiting) >= BYTES_AT_ONCE:
            yield pa.concat_batches(waiting)
            waiting = []
    if waiting:
        yield pa.concat_batches(waiting)
