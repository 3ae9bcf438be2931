"""The tasks of an epoch's job, as an executor's Python runs them. Nothing is imported here that they do not need."""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from sluice.engine.blobs import UNUSABLE, Blob, InputUnusable, ReceivedBlob, SentBlob, put_together
from sluice.engine.host_delivery import HostDelivery
from sluice.engine.site import run_site
from sluice.engine.site_task import SiteTask
from sluice.engine.small_epochs import take_own
from sluice.engine.split import SplitTask
from sluice.model.clock import SystemClock
from sluice.model.ids import Level, SiteKey
from sluice.sources.input_files import InputFile
from sluice.spark.frames import Frame, frame_of, in_batches, read_frames, with_keys
from sluice.spark.shipping import Shipment
from sluice.spark.worker_process import begin_task


@dataclass(frozen=True)
class RowSplit:
    """A map task over rows of Spark."""

    split: Shipment[SplitTask]
    delivery: HostDelivery | None

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        begin_task(RowSplit)
        return in_batches(with_keys(_send(self.delivery, self.split.unpack()(batches, SystemClock()))))


@dataclass(frozen=True)
class FileSplit:
    """A map task over files."""

    split: Shipment[SplitTask]
    delivery: HostDelivery | None

    def __call__(self, number: int, frames: Iterable[bytes]) -> Iterator[Frame]:
        begin_task(FileSplit)
        files = [file for frame in frames for file in pickle.loads(frame)]
        return with_keys(_send(self.delivery, self.split.unpack().read_files(files, SystemClock())))


@dataclass(frozen=True)
class TableSplit:
    """A map task over files of tables that become state."""

    split: Shipment[SplitTask]
    delivery: HostDelivery | None

    def __call__(self, number: int, frames: Iterable[bytes]) -> Iterator[Frame]:
        files = [file for frame in frames for file in pickle.loads(frame)]
        return with_keys(_send(self.delivery, self.split.unpack().load_tables(files, SystemClock())))


@dataclass(frozen=True)
class SiteWork:
    """A site's task at one level."""

    site: Shipment[SiteTask]
    delivery: HostDelivery | None
    level: Level
    is_last: bool

    def __call__(self, number: int, frames: Iterable[bytes]) -> Iterator[Frame]:
        begin_task(SiteWork)
        received = deque(frames)  # Spark ends a Python worker that leaves any unread
        sent = self._run(SiteKey(number), read_frames(received.popleft() for _ in range(len(received))))
        return (frame_of(kind, payload) for _, kind, payload in sent) if self.is_last else with_keys(sent)

    def _run(self, site_key: SiteKey, received: Iterable[ReceivedBlob]) -> Iterator[SentBlob]:
        task = self.site.unpack()
        try:
            if self.delivery is not None:
                received = self.delivery.receive(received, task.plan, self.level, site_key)
            yield from _send(self.delivery, run_site(task, self.level, site_key, received, SystemClock()))
        except InputUnusable as problem:  # nothing has been done yet
            why = pa.py_buffer(str(problem).encode())
            yield from ((told, UNUSABLE, why) for told in ([site_key] if self.is_last else task.site_keys))


@dataclass(frozen=True)
class SmallEpoch:
    """All of an epoch over a few small files, in the tasks of the sites: each reads them all, and takes what is its
    own. Only where there is one site can there be several levels."""

    split: Shipment[SplitTask]
    site: Shipment[SiteTask]
    delivery: HostDelivery | None
    files: tuple[InputFile, ...]

    def __call__(self, number: int, frames: Iterable[bytes]) -> Iterator[Frame]:
        begin_task(SmallEpoch)
        deque(frames, maxlen=0)
        site, clock, site_key = self.site.unpack(), SystemClock(), SiteKey(number)
        blobs = self.split.unpack().read_files(self.files, clock)
        received = take_own(put_together(blobs), site_key)
        if self.delivery is not None:  # which has nothing to deliver, but earlier jobs may have left something
            received = list(self.delivery.receive(received, site.plan, Level(0), site_key))
        for level in range(site.plan.levels):
            blobs = run_site(site, Level(level), site_key, received, clock)
            received = [(kind, payload) for _, kind, payload in put_together(blobs)]
        return (frame_of(kind, payload) for kind, payload in received)


def _send(delivery: HostDelivery | None, blobs: Iterable[Blob]) -> Iterator[SentBlob]:
    return put_together(blobs) if delivery is None else delivery.send(blobs)
