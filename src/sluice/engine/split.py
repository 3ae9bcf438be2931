"""The first half of an epoch's job: rows or files in, one Arrow blob a site out.

Runs in Spark's map tasks. Rows that are late or can match nothing are dropped here, counted; the others are hashed,
routed and packed. The blobs are the only thing that crosses the exchange. What sinks get of a source without an
operator in between is written here.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sluice.engine.blobs import SPLIT_REPORT, Blob, SentBytes, message
from sluice.engine.compiled_plan import compiled
from sluice.engine.ended_streams import refuse_input
from sluice.engine.epoch_tables import NO_TABLES, EpochTables
from sluice.engine.filtered_rows import join_tables
from sluice.engine.joint_delivery import JointSender
from sluice.engine.part_writer import Staging
from sluice.engine.senders import Sender, senders
from sluice.engine.split_results import SplitResults
from sluice.engine.table_loading import TableLoad, TableReader
from sluice.model.clock import Clock
from sluice.model.epoch.attempt import Attempt
from sluice.model.epoch.results import Part
from sluice.model.epoch.stats import TaskSeconds
from sluice.model.epoch.times import ENDED, Times
from sluice.model.errors import CorruptFile, MissingFile
from sluice.model.ids import Site, SiteKey
from sluice.model.plan.plan import Plan
from sluice.model.plan.stream import EARLIEST, LATEST
from sluice.model.routing.routing import Routing
from sluice.record.reports import SplitReport
from sluice.sources.files import FileOptions, read_file
from sluice.sources.input_files import InputFile

STREAM_COLUMN, PATH_COLUMN = "stream", "path"
ROWS_AT_ONCE, BYTES_AT_ONCE = 1 << 19, 128 << 20


@dataclass(frozen=True)
class FileFormat:
    """How the files of a `readFiles` stream are read."""

    format: str
    options: Mapping[str, str] = field(default_factory=dict)


Slots = tuple[str, ...]
"""The columns in which the columns of a `readStream` stream travel to the split, in the stream's order."""
Reading = FileFormat | Slots


@dataclass(frozen=True)
class SplitTask:
    """What a map task of one epoch needs to know."""

    plan: Plan
    reading: tuple[Reading, ...]
    routing: Routing
    site_keys: tuple[SiteKey, ...]
    watermarks: Times
    number: int
    run: str
    staging: tuple[Staging, ...]
    """Where the results of each output wait for their epoch to commit."""
    tables: EpochTables = NO_TABLES
    loads: tuple[TableLoad, ...] = ()
    """The tables that become state in this epoch. Whoever runs it has `load_tables` read each of their files once."""

    def __call__(self, batches: Iterable[pa.RecordBatch], clock: Clock) -> Iterator[Blob]:
        """The blobs of batches in which rows, or the paths of files, come from Spark."""
        splits = self._splits(clock)
        started = clock.monotonic()
        for batch in batches:
            waited = clock.monotonic() - started
            for number, part in _by_stream(batch):
                splits[number].seconds["crossing"] += waited * part.num_rows / batch.num_rows
                yield from splits[number].take_in(part)
            started = clock.monotonic()
        for split in splits:
            yield from split.finish()

    def read_files(self, files: Iterable[InputFile], clock: Clock) -> Iterator[Blob]:
        """The blobs of files that were listed for it."""
        splits = self._splits(clock)
        for file in files:
            yield from splits[file.source].take_in_files([file.path])
        for split in splits:
            yield from split.finish()

    def load_tables(self, files: Iterable[InputFile], clock: Clock) -> Iterator[Blob]:
        """The blobs of some of the files of `loads`."""
        pa.set_cpu_count(1)
        reader = TableReader(self.plan, self.routing, self.site_keys, self.tables.checkpoint, self.loads)
        return reader.read(files, clock)

    def _splits(self, clock: Clock) -> list[_Split]:
        pa.set_cpu_count(1)
        self.tables.close_others()
        return [_Split(self, i, clock) for i in range(len(self.plan.sources))]


def _by_stream(batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The stretches of a batch that are of one stream: Spark fills batches across all partitions of a task."""
    numbers = batch.column(STREAM_COLUMN).to_numpy()
    cuts = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(numbers)]
    for a, b in pairwise(cuts):
        if b > a:
            yield int(numbers[a]), batch.slice(a, b - a)


class _Split:
    """One stream's rows in one map task: gathered until there are enough for large blobs."""

    def __init__(self, task: SplitTask, stream: int, clock: Clock) -> None:
        self.task, self.number, self.stream, self.clock = task, stream, task.plan.sources[stream], clock
        self.senders: list[Sender | JointSender] = []
        self.waiting: list[pa.RecordBatch] = []
        self.waiting_rows = self.waiting_bytes = 0
        self.attempt = uuid.uuid4().hex[:16]
        name = Attempt(task.number, Site(0), task.run, self.attempt)
        self.whose = f"stream {self.stream.name!r}"
        self.columns_read = compiled(task.plan).columns_read(stream)
        self.paths_with_tables, self.late_paths_with_tables = (
            compiled(task.plan).paths_with_tables(stream, late) for late in (False, True)
        )
        self.results, self.late_results = (
            SplitResults(task.plan, stream, task.staging, name, clock, late) for late in (False, True)
        )
        self.rows = self.late = self.nulls = self.out_of_range = self.files = self.missing = self.corrupt = 0
        self.newest: int | None = None
        self.oldest: int | None = None
        self.sent = SentBytes(task.site_keys)
        self.seconds = {"crossing": 0.0, "read": 0.0, "split": 0.0, "sink": 0.0}

    def take_in(self, batch: pa.RecordBatch) -> Iterator[Blob]:
        form = self.task.reading[self.number]
        if isinstance(form, FileFormat):
            yield from self.take_in_files(batch.column(PATH_COLUMN).to_pylist())
        else:
            columns = (batch.column(slot) for slot in form)
            fields = [column.cast(f.type) for column, f in zip(columns, self.stream.schema, strict=True)]
            yield from self._gather(pa.RecordBatch.from_arrays(fields, schema=self.stream.schema))

    def take_in_files(self, paths: Iterable[str]) -> Iterator[Blob]:
        form = self.task.reading[self.number]
        assert isinstance(form, FileFormat), f"stream {self.stream.name!r} is not read from files"
        ignoring = FileOptions.of(form.format, form.options)
        for path in paths:
            self.files += 1
            try:
                yield from self._read(path, form)
            except MissingFile:
                if not ignoring.ignore_missing:
                    raise
                self.missing += 1
            except CorruptFile:
                if not ignoring.ignore_corrupt:
                    raise
                self.corrupt += 1

    def _read(self, path: str, form: FileFormat) -> Iterator[Blob]:
        started = self.clock.monotonic()
        for rows in read_file(path, form.format, self.stream.schema, form.options, columns=self.columns_read):
            self.seconds["read"] += self.clock.monotonic() - started
            yield from self._gather(rows)
            started = self.clock.monotonic()
        self.seconds["read"] += self.clock.monotonic() - started

    def finish(self) -> Iterator[Blob]:
        yield from self._flush()
        if self.rows or self.files:
            parts = self._close_results()
            now = self.clock.time()
            report, outputs = self._report(), (*self.results.works(now), *self.late_results.works(now))
            first, *others = self.task.site_keys
            whole = replace(report, parts=parts, outputs=outputs, sent=self.sent.by_site)
            yield message(first, SPLIT_REPORT, whole)
            yield from (message(site_key, SPLIT_REPORT, report) for site_key in others)

    def _close_results(self) -> tuple[Part, ...]:
        started = self.clock.monotonic()
        parts = (*self.results.close(), *self.late_results.close())
        self.seconds["sink"] += self.clock.monotonic() - started
        return parts

    def _report(self) -> SplitReport:
        return SplitReport(
            stream=self.number,
            attempt=self.attempt,
            files=self.files,
            missing=self.missing,
            corrupt=self.corrupt,
            rows=self.rows,
            late=self.late,
            nulls=self.nulls + sum(s.dropped for s in self.senders),
            out_of_range=self.out_of_range,
            copied_rows=sum(s.copied_rows for s in self.senders),
            copied_bytes=sum(s.copied_bytes for s in self.senders),
            newest=self.newest,
            oldest=self.oldest,
            seconds=TaskSeconds(**self.seconds),
        )

    def _gather(self, rows: pa.RecordBatch) -> Iterator[Blob]:
        self.waiting.append(rows)
        self.waiting_rows += rows.num_rows
        self.waiting_bytes += rows.nbytes
        if self.waiting_rows >= ROWS_AT_ONCE or self.waiting_bytes >= BYTES_AT_ONCE:
            yield from self._flush()

    def _flush(self) -> Iterator[Blob]:
        if not self.waiting:
            return
        started = self.clock.monotonic()
        rows = self.waiting[0] if len(self.waiting) == 1 else pa.concat_batches(self.waiting)
        pieces = max(1, -(-self.waiting_bytes // (2 * BYTES_AT_ONCE)))
        self.waiting, self.waiting_rows, self.waiting_bytes = [], 0, 0
        rows = self._in_time(rows)
        self.senders = self.senders or senders(self.task.plan, self.number, self.task.routing, self.task.site_keys)
        each = -(-rows.num_rows // pieces)
        for start in range(0, rows.num_rows, max(each, 1)):
            for filtered in join_tables(rows.slice(start, each), self.task.tables, self.paths_with_tables, self.whose):
                blobs = (blob for sender in self.senders for blob in sender.blobs(filtered))
                out = list(self.sent.count(blobs))
                sent = self.clock.monotonic()
                self.results.add(filtered)
                self.seconds["split"] += sent - started
                self.seconds["sink"] += self.clock.monotonic() - sent
                yield from out
                started = self.clock.monotonic()

    def _in_time(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The rows that have an event time, one of the years 1 to 9999, and are not late; all are counted."""
        watermark = self.task.watermarks[self.number]
        if watermark == ENDED and rows.num_rows:
            refuse_input(self.stream.name, "a new row or more")
        self.rows += rows.num_rows
        event_time = rows.column(self.stream.event_time)
        if event_time.null_count:
            self.nulls += event_time.null_count
            rows = rows.filter(pc.is_valid(event_time))
            event_time = rows.column(self.stream.event_time)
        if rows.num_rows == 0:
            return rows
        times = event_time.cast(pa.int64()).to_numpy()
        if int(times.min()) < EARLIEST or int(times.max()) > LATEST:
            in_range = (times >= EARLIEST) & (times <= LATEST)
            self.out_of_range += len(times) - int(in_range.sum())
            rows, times = rows.filter(pa.array(in_range)), times[in_range]
            if rows.num_rows == 0:
                return rows
        newest = int(times.max())
        self.newest = newest if self.newest is None else max(self.newest, newest)
        if watermark is not None and int(times.min()) < watermark:
            in_time = times >= watermark
            self.late += len(times) - int(in_time.sum())
            self._show_late(rows, ~in_time)
            rows, times = rows.filter(pa.array(in_time)), times[in_time]
        if len(times):
            oldest = int(times.min())
            self.oldest = oldest if self.oldest is None else min(self.oldest, oldest)
        return rows

    def _show_late(self, rows: pa.RecordBatch, late: np.ndarray) -> None:
        """Late rows on their way to sinks, if any takes them. That is no time of the split's."""
        if self.late_results.is_wanted:
            started = self.clock.monotonic()
            for filtered in join_tables(
                rows.filter(pa.array(late)), self.task.tables, self.late_paths_with_tables, self.whose
            ):
                self.late_results.add(filtered)
            spent = self.clock.monotonic() - started
            self.seconds["sink"] += spent
            self.seconds["split"] -= spent
