"""The tasks of an epoch's job, as an executor's Python runs them. Nothing is imported here that they do not need."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from sluice.engine.site import run_site
from sluice.engine.site_task import SiteTask
from sluice.engine.split import SplitTask
from sluice.model.clock import SystemClock
from sluice.model.ids import Level, SiteKey
from sluice.spark.frames import Frame, frame_of, in_batches, read_frames, with_keys
from sluice.spark.shipping import Shipment


@dataclass(frozen=True)
class RowSplit:
    """A map task over rows of Spark."""

    split: Shipment[SplitTask]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return in_batches(with_keys(self.split.unpack()(batches, SystemClock())))


@dataclass(frozen=True)
class FileSplit:
    """A map task over files."""

    split: Shipment[SplitTask]

    def __call__(self, number: int, frames: Iterable[bytes]) -> Iterator[Frame]:
        files = [file for frame in frames for file in pickle.loads(frame)]
        return with_keys(self.split.unpack().read_files(files, SystemClock()))


@dataclass(frozen=True)
class SiteWork:
    """A site's task at one level."""

    site: Shipment[SiteTask]
    level: Level
    is_last: bool

    def __call__(self, number: int, frames: Iterable[bytes]) -> Iterator[Frame]:
        received = list(read_frames(frames))
        blobs = run_site(self.site.unpack(), self.level, SiteKey(number), received, SystemClock())
        if self.is_last:
            return (frame_of(kind, payload) for _, kind, payload in blobs)
        return with_keys(blobs)
