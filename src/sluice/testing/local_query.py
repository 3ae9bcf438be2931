"""A query driven in this process: the same split, sites, journal and sinks as on Spark, called one after the other."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from sluice.engine.agreement import Exchange
from sluice.engine.blobs import SPLIT_REPORT, Blob, ReceivedBlob, SentBlob, SentBytes, message, put_together
from sluice.engine.checkpoint import OpenCheckpoint
from sluice.engine.epochs import Epochs
from sluice.engine.file_log import NewFiles
from sluice.engine.flow_plan import FlowPlan
from sluice.engine.settings import QuerySettings
from sluice.engine.site import run_site
from sluice.engine.site_task import SiteTask
from sluice.engine.split import STREAM_COLUMN, Slots, SplitTask
from sluice.engine.table_loading import files_to_load
from sluice.model.clock import Clock
from sluice.model.codec import decode
from sluice.model.epoch.times import Times
from sluice.model.ids import Level, SiteKey
from sluice.model.plan.plan import Plan
from sluice.model.plan.stream import Stream
from sluice.record.reports import SiteReport, SplitReport
from sluice.state.files.workspace import Places, Workspace

EpochRows = Sequence[pa.Table]
"""The new rows of every stream in one epoch."""


def _do_nothing() -> None:
    pass


class LocalQuery:
    """A query on a checkpoint. A new one on the same checkpoint is a restarted driver."""

    def __init__(
        self,
        flow: FlowPlan,
        settings: QuerySettings,
        checkpoint: OpenCheckpoint,
        clock: Clock,
        map_tasks: int = 1,
    ) -> None:
        """`clock` is handed to the driver, to map tasks and to sites."""
        self.clock, self.map_tasks, self.places = clock, map_tasks, settings.places
        self.site_keys = _site_keys(settings.sites)
        reading = tuple(_slots(stream) for stream in flow.plan.sources)
        self.epochs = Epochs(flow, reading, settings, checkpoint, clock)

    @property
    def plan(self) -> Plan:
        """What runs."""
        return self.epochs.plan

    @property
    def next(self) -> int:
        """The number of the next batch."""
        return self.epochs.record.batch + 1

    @property
    def _no_rows(self) -> EpochRows:
        return [stream.schema.empty_table() for stream in self.plan.sources]

    def resize(self, sites: int) -> None:
        """The next epoch has so many sites."""
        self.site_keys = _site_keys(sites)

    def follow(self) -> int:
        """Have sites join that were asked for, and those leave that hold nothing; how many there are in the next
        epoch."""
        target = self.epochs.sites_next
        if target is not None and target != self.epochs.record.routing.sites:
            self.resize(target)
        return len(self.site_keys)

    def run(
        self,
        rows: EpochRows,
        number: int | None = None,
        before_commit: Callable[[], object] = _do_nothing,
        batch_input: str = "",
        event_times: Times = (),
        files: NewFiles | None = None,
    ) -> None:
        """An epoch over new rows, as the next batch or as that of a number, or as what is in some files. `event_times`
        is how far streams have come, though no row says so."""
        batch = self.next if number is None else number
        exchange = self._exchange(rows, before_commit, event_times)
        if files is not None:
            self.epochs.run_with_files(files, self.site_keys, exchange)
            return
        self.epochs.run(batch, self.site_keys, exchange, batch_input=batch_input)

    def catch_up(self, before_commit: Callable[[], object] = _do_nothing, until: float = math.inf) -> bool:
        """An epoch for input that waits, or units that are to be cleaned up; whether there were any."""
        return self.epochs.catch_up(self.site_keys, self._exchange(self._no_rows, before_commit), until=until)

    def end_input(self, before_commit: Callable[[], object] = _do_nothing) -> bool:
        """An epoch with which all streams end; whether there was anything to end."""
        return self.epochs.end_input(self.site_keys, self._exchange(self._no_rows, before_commit))

    def run_idle_epoch(self) -> None:
        """An epoch over nothing, as nothing has come."""
        self.epochs.run_idle_epoch(self.site_keys, self._exchange(self._no_rows, _do_nothing))

    def drain(self) -> None:
        """All input that waits, all results that are missing, and sites that are to leave."""
        self.epochs.clean_up()
        while self.follow() and self.catch_up():
            self.epochs.clean_up()

    def _exchange(self, rows: EpochRows, before_commit: Callable[[], object], event_times: Times = ()) -> Exchange:
        def exchange(split: SplitTask, site: SiteTask) -> list[SiteReport]:
            blobs = [*self.split(split, rows), *put_together(self._heartbeats(event_times))]
            for level in range(site.plan.levels):
                by_site: dict[SiteKey, list[ReceivedBlob]] = {key: [] for key in self.site_keys}
                for key, number, payload in blobs:
                    by_site[key].append((number, payload))
                blobs = [blob for key, own in by_site.items() for blob in self.at_site(site, Level(level), key, own)]
            before_commit()
            return [decode(payload.to_pybytes(), SiteReport) for _, _, payload in blobs]

        return exchange

    def split(self, split: SplitTask, rows: EpochRows) -> list[SentBlob]:
        """What the map tasks send."""
        blobs: list[SentBlob] = []
        for task in range(self.map_tasks):
            batches = []
            for stream, table in enumerate(rows):
                cuts = np.linspace(0, table.num_rows, self.map_tasks + 1).astype(int)
                share = table.slice(cuts[task], cuts[task + 1] - cuts[task])
                batches += [_for_split(stream, batch) for batch in share.to_batches()]
            blobs += self.send(split(batches, self.clock))
            blobs += self.send(split.load_tables(files_to_load(split.loads)[task :: self.map_tasks], self.clock))
        return blobs

    def _heartbeats(self, event_times: Times) -> list[Blob]:
        """What map tasks would say that have seen no rows, but how far streams have come."""
        nothing = SentBytes(self.site_keys).by_site
        reports = [
            SplitReport(stream, f"heartbeat-{stream}", newest=newest, sent=nothing)
            for stream, newest in enumerate(event_times)
            if newest is not None
        ]
        return [message(site_key, SPLIT_REPORT, report) for report in reports for site_key in self.site_keys]

    def send(self, blobs: Iterable[Blob]) -> Iterator[SentBlob]:
        """What a task's blobs are on their way."""
        return put_together(blobs)

    def at_site(self, task: SiteTask, level: Level, site_key: SiteKey, blobs: Iterable[ReceivedBlob]) -> list[SentBlob]:
        """One level's work of a site in an epoch."""
        return list(self.send(run_site(task, level, site_key, blobs, self.clock)))

    def workspace(self, places: Places) -> Workspace:
        """What this run has in local tiers."""
        return Workspace(places, self.epochs.checkpoint.query, self.epochs.checkpoint.run)

    def close(self) -> None:
        """Remove what this run has in local tiers."""
        self.workspace(self.places).close()


def _site_keys(sites: int) -> tuple[SiteKey, ...]:
    return tuple(SiteKey(100 + site) for site in range(sites))


def _slots(stream: Stream) -> Slots:
    """The columns in which those of a stream travel: under names of their own, whatever the stream calls them."""
    return tuple(f"slot{number}" for number in range(len(stream.schema)))


def _for_split(stream: int, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Rows as map tasks get them."""
    number: Any = pa.array(np.full(batch.num_rows, stream, np.int32))
    names = [STREAM_COLUMN, *(f"slot{slot}" for slot in range(batch.num_columns))]
    return pa.RecordBatch.from_arrays([number, *batch.columns], names=names)
